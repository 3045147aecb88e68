"""Kinds of stores that installed packages bring, by the scheme of their addresses."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from tidefold.errors import InvalidInputError
from tidefold.storage.store import Store

# Installed packages name their stores here. A configuration cannot load code from any other place.
GROUP = "tidefold.stores"
# Packages cannot replace these.
BUILT_IN = ("abfs", "abfss", "file", "gs", "memory", "s3")


def find_schemes() -> tuple[str, ...]:
    """Returns the schemes of the stores that installed packages bring."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)} - {*BUILT_IN}))


def open_plugin(scheme: str, address: str) -> Store:
    """Opens the store of an installed package. Raises InvalidInputError, which names the known schemes."""
    found = list(entry_points(group=GROUP, name=scheme))
    if not found:
        known = ["a path", "`file:///absolute/path`", "`s3://bucket/folder`", "`abfss://...`", "`gs://bucket/folder`"]
        known.append("`memory://name`")
        known += [f"`{name}://...`" for name in find_schemes()]
        raise InvalidInputError(
            "STORE_SCHEME",
            f"No installed package provides stores at `{scheme}:`.",
            hint=f"Known are: {', '.join(known)}. Install the package that provides `{scheme}:`, or use one of them.",
        )
    if len(found) > 1:
        packages = ", ".join(sorted(_name_package(point) for point in found))
        raise InvalidInputError(
            "STORE_PLUGIN",
            f"Several installed packages provide stores at `{scheme}:`: {packages}.",
            hint="Uninstall all but one of them.",
        )
    [point] = found
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
