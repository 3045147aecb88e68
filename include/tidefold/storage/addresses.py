"""Compares the addresses of stores, and finds the kinds of stores that installed packages bring."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from tidefold.errors import InvalidInputError, RefusedError
from tidefold.storage.store import Store

_S3 = "s3://"
# Installed packages name their stores here. A configuration cannot load code from any other place.
GROUP = "tidefold.stores"
# Packages cannot replace these.
BUILT_IN = ("abfs", "abfss", "file", "gs", "s3")


def to_spark(address: str) -> str:
    """Returns the address as Spark reads it: its client for S3 has a scheme of its own."""
    return f"s3a://{address.removeprefix(_S3)}" if address.startswith(_S3) else address


def meeting(one: str, other: str) -> tuple[str, str, str] | None:
    """Returns the address of a store that contains both, with the prefixes of their paths there; None if there is none.

    Takes addresses as `Store.address` returns them. For local disks it is the root: the link itself shows whether it
    works.
    """
    if one.startswith("/") and other.startswith("/"):
        return "/", f"{one.strip('/')}/".lstrip("/"), f"{other.strip('/')}/".lstrip("/")
    if one.startswith(_S3) and other.startswith(_S3):
        (bucket, below), (other_bucket, above) = _parts(one), _parts(other)
        return (f"{_S3}{bucket}", below, above) if bucket == other_bucket else None
    return None


def _parts(address: str) -> tuple[str, str]:
    bucket, _, prefix = address.removeprefix(_S3).strip("/").partition("/")
    return bucket, f"{prefix}/" if prefix else ""


def overlap(one: str, other: str) -> bool:
    """Whether one address is inside the other, or they are the same."""
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


def require_within(address: str, allowed: Iterable[str]) -> None:
    """Raises RefusedError unless an address is inside one of these. Takes addresses as `Store.address` returns them."""
    if not any(f"{address.rstrip('/')}/".startswith(f"{one.rstrip('/')}/") for one in allowed):
        raise RefusedError("TARGET_NOT_ALLOWED", f"`{address}` is not below any of the configured `targets`.")


def require_apart(address: str, others: dict[str, str]) -> None:
    """Raises InvalidInputError if an address overlaps one of these. The error names their purpose only (I26)."""
    for what, other in others.items():
        if overlap(address, other):
            raise InvalidInputError("ADDRESS_TAKEN", f"`{address}` is inside the {what}, or contains it.")


def find_schemes() -> tuple[str, ...]:
    """Returns the schemes of the stores that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)} - {*BUILT_IN}))


def is_filesystem(scheme: str) -> bool:
    """Whether fsspec has a filesystem of this scheme from which files can be read."""
    from fsspec import available_protocols

    return scheme in {*available_protocols()} - {"file", "local", "memory", "data", "http", "https"}


def open_plugin(scheme: str, address: str) -> Store:
    """Opens the store of an installed package. Raises InvalidInputError, which names the known schemes."""
    plugins = list(entry_points(group=GROUP, name=scheme))
    if not plugins:
        forms = ["a path", "`file:///absolute/path`", "`s3://bucket/folder`", "`abfss://...`", "`gs://bucket/folder`"]
        forms += [f"`{name}://...`" for name in find_schemes()]
        raise InvalidInputError(
            "STORE_SCHEME",
            f"No installed package provides stores at `{scheme}:`.",
            hint=f"Known are: {', '.join(forms)}. Install the package that provides `{scheme}:`, or use one of them.",
        )
    if len(plugins) > 1:
        packages = ", ".join(sorted(_name_package(point) for point in plugins))
        raise InvalidInputError(
            "STORE_PLUGIN",
            f"Several installed packages provide stores at `{scheme}:`: {packages}.",
            hint="Uninstall all but one of them.",
        )
    [point] = plugins
    try:
        opener = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            "STORE_PLUGIN",
            f"The store `{scheme}:` of package {_name_package(point)} cannot be loaded: {error}.",
            hint="Install the package again, with the packages that it needs.",
        ) from error
    return cast(Store, opener(address))


def _name_package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value
