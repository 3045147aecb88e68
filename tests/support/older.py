"""A program that accepts less than today's: what it refuses can be read again later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
import pytest

from tidefold.sources.records import record_types
from tidefold.sources.records.row_decoder import rows_of


@contextmanager
def older_program(monkeypatch: pytest.MonkeyPatch, least: int = -(2**31), most: int = 99) -> Iterator[None]:
    """Refuses whole numbers of columns `int` outside this range (VALUE_INVALID)."""
    with monkeypatch.context() as older:
        older.setitem(record_types.COLUMN_TYPES, "int", Annotated[int, msgspec.Meta(ge=least, le=most)])
        rows_of.cache_clear()
        yield
    rows_of.cache_clear()
