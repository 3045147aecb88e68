"""Compares the addresses of stores."""

from __future__ import annotations

from collections.abc import Iterable

from tidefold.errors import InvalidInputError, RefusedError

_S3 = "s3://"


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
        raise RefusedError(
            "TARGET_NOT_ALLOWED",
            f"`{address}` is not below any of the configured `targets`.",
            hint="Add its folder to `targets` in tidefold.yaml, or use the command line.",
        )


def require_apart(address: str, others: dict[str, str]) -> None:
    """Raises InvalidInputError if an address overlaps one of these. The error names their purpose only (I26)."""
    for what, other in others.items():
        if overlap(address, other):
            raise InvalidInputError(
                "ADDRESS_TAKEN",
                f"`{address}` is inside the {what}, or contains it.",
                hint="Give a folder, on disk or in a bucket, that is used for nothing else.",
            )
