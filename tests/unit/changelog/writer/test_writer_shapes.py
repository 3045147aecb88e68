"""Shapes that no log can have are refused when a program gives them. Promise I28."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.dict_store import DictStore
from support.writing import SHAPE, make_changelog
from tidefold.domain.log_state import Column
from tidefold.domain.table.types import PLAIN
from tidefold.errors import InvalidInputError

ID, TEXT = SHAPE.columns


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"columns": (Column("id", "double"), TEXT)}, "KEY_TYPE"),
        ({"columns": (Column("id", "float"), TEXT)}, "KEY_TYPE"),
        ({"columns": (ID, Column("text", "varchar"))}, "COLUMN_TYPE"),
        ({"columns": (ID, Column("text", "decimal(12, 2)"))}, "COLUMN_TYPE"),
        ({"columns": (ID, Column("text", "decimal(2,3)"))}, "COLUMN_TYPE"),
        ({"columns": (ID, Column("text", "array<array<int>>"))}, "COLUMN_TYPE"),
        ({"columns": (ID, Column("text", "string", "hex"))}, "COLUMN_ENCODING"),
        ({"columns": (Column("id", "binary"), TEXT)}, "KEY_TYPE"),
        ({"columns": (Column("id", "array<int>"), TEXT)}, "KEY_TYPE"),
        ({"columns": (ID, Column("_text", "string"))}, "COLUMN_RESERVED"),
        ({"columns": (ID, Column("a b", "string"))}, "COLUMN_INVALID"),
        ({"columns": (ID, Column("ID", "string"))}, "COLUMN_TWICE"),
        ({"columns": (ID, ID)}, "COLUMN_TWICE"),
        ({"columns": ()}, "COLUMNS_INVALID"),
        ({"columns": [ID, TEXT]}, "COLUMNS_INVALID"),
        ({"columns": (("id", "int"),)}, "COLUMNS_INVALID"),
        ({"key": ()}, "KEY_INVALID"),
        ({"key": "id"}, "KEY_INVALID"),
        ({"key": ("other",)}, "KEY_COLUMN_UNKNOWN"),
        ({"key": ("id", "id")}, "KEY_COLUMN_TWICE"),
        ({"order": "mysql"}, "ORDER_INVALID"),
        ({"key_groups": 0}, "KEY_GROUPS_INVALID"),
        ({"key_groups": 40_000}, "KEY_GROUPS_INVALID"),
        ({"key_groups": "8"}, "KEY_GROUPS_INVALID"),
        ({"key_groups": 8, "buckets": 2000}, "BUCKETS_INVALID"),
        ({"buckets": 0}, "BUCKETS_INVALID"),
    ],
)
def test_a_shape_that_no_log_can_have_is_refused_and_nothing_is_written(change: dict[str, Any], code: str) -> None:
    """I28: what the configuration forbids, a program cannot begin either."""
    store = DictStore()
    with pytest.raises(InvalidInputError) as wrong:
        make_changelog(store).log("a", replace(SHAPE, **change))
    assert wrong.value.code == code
    assert next(iter(change)) in wrong.value.message or code.startswith("KEY") or code == "BUCKETS_INVALID"
    assert wrong.value.hint
    assert list(store.list("")) == []


@pytest.mark.parametrize("type_", [*PLAIN, "decimal(38,0)", "decimal(5,5)", "array<decimal(9,2)>", "array<binary>"])
def test_every_type_and_the_widest_spread_are_taken(type_: str) -> None:
    shape = replace(SHAPE, columns=(ID, Column("v", type_)), key_groups=32768, buckets=32768)
    assert make_changelog(DictStore()).log("a", shape).shape == shape
