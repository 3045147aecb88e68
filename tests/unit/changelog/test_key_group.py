"""Key groups are for ever: what DuckDB computes is what this plain formula says. Requirement L8; promise I27."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.changelog.schema import arrow_type
from tidefold.domain.log_state import Column, TableSpec
from tidefold.domain.table.types import PLAIN, parse_type

# The text of a value of each type that a key can have, as the key groups of released stores have it.
TEXTS: list[tuple[str, Any, str]] = [
    ("boolean", True, "true"),
    ("int", -5, "-5"),
    ("long", 2**63 - 1, "9223372036854775807"),
    ("string", "Ä b", "Ä b"),
    ("date", date(1, 1, 1), "0001-01-01"),
    ("timestamp", datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31 12:00:00+00"),
    ("timestamp", datetime(1900, 1, 1, 0, 0, 0, 120_000, tzinfo=UTC), "1900-01-01 00:00:00.12+00"),
    ("timestamp", datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC), "9999-12-31 23:59:59.000001+00"),
    ("decimal(12,2)", Decimal("-100.50"), "-100.5"),
    ("decimal(12,2)", Decimal("100.00"), "100"),
    ("decimal(12,2)", Decimal("0.00"), "0"),
    ("decimal(12,0)", Decimal("100"), "100"),
]


def plain(texts: list[str], key_groups: int) -> int:
    digest = hashlib.md5("\x1f".join(texts).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little") % key_groups


@given(
    keys=st.lists(
        st.tuples(st.text(max_size=20).filter(lambda t: "\0" not in t), st.integers(-(2**63), 2**63 - 1)), min_size=1
    ),
    key_groups=st.integers(1, 32_768),
)
def test_of_any_key(keys: list[tuple[str, int]], key_groups: int) -> None:
    shape = TableSpec(("name", "id"), (Column("name", "string"), Column("id", "long")), "arrival", key_groups, 1)
    names, ids = zip(*keys, strict=True)
    table = pa.table({"_kg": pa.array([0] * len(keys), pa.uint16()), "name": names, "id": pa.array(ids, pa.int64())})
    expected = [plain([name, str(number)], key_groups) for name, number in keys]
    assert with_key_groups(table, shape)["_kg"].to_pylist() == expected


@pytest.mark.parametrize(("type_", "value", "text"), TEXTS)
def test_of_each_type(type_: str, value: Any, text: str) -> None:
    shape = TableSpec(("k",), (Column("k", type_),), "arrival", 32_768, 1)
    table = pa.table({"_kg": pa.array([0], pa.uint16()), "k": pa.array([value], arrow_type(type_))})
    assert with_key_groups(table, shape)["_kg"].to_pylist() == [plain([text], 32_768)]


def test_each_type_of_a_key_is_here() -> None:
    named = {parse_type(type_).name for type_, _, _ in TEXTS}
    assert named == {name for name in PLAIN if parse_type(name).can_be_key} | {"decimal"}


def test_of_a_row_without_a_key() -> None:
    """65,536 neighbours of a partition have one."""
    shape = TableSpec((), (Column("v", "long"),), "arrival", 32_768, 1)
    places = {"_partition": pa.array([3, 3], pa.int32()), "_offset": pa.array([2**16 - 1, 2**16], pa.int64())}
    table = pa.table({"_kg": pa.array([0, 0], pa.uint16()), **places})
    assert with_key_groups(table, shape)["_kg"].to_pylist() == [plain(["3", of], 32_768) for of in ("0", "1")]
