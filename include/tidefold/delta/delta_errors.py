"""Converts the errors of deltalake to tidefold's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from tidefold.errors import CorruptError, StorageError, TidefoldError

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def convert_errors(path: str) -> Iterator[None]:
    """Converts errors of deltalake and of the system: callers handle only tidefold's errors."""
    try:
        yield
    except TidefoldError:
        raise
    except DeltaError as error:
        if "interacting with object store" in str(error):
            raise _unreachable(path, error) from error
        raise CorruptError(
            "DELTA_TABLE",
            f"deltalake cannot use the Delta table `{path}`: {error}",
            hint=f"Restore `{path}/_delta_log` from a backup.",
        ) from error
    except OSError as error:
        raise _unreachable(path, error) from error


def _unreachable(path: str, error: Exception) -> StorageError:
    # deltalake draws its chain of causes with colours and arrows, over many lines.
    said = " ".join(_COLOUR.sub("", str(error)).replace("\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}", ":").split())
    return StorageError("STORAGE", f"The Delta table `{path}`: {said}", hint="Call again when the store answers.")
