"""A file of the program with another text, for a while."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def change_file(path: Path, text: str) -> Iterator[None]:
    """Writes the text, and puts the file back at the end.

    Python would take a compiled file of the same second and length for the new one: it is deleted both times.
    """
    compiled = Path(importlib.util.cache_from_source(str(path)))
    former = path.read_text()
    try:
        path.write_text(text)
        compiled.unlink(missing_ok=True)
        yield
    finally:
        path.write_text(former)
        compiled.unlink(missing_ok=True)
