"""The checksum of a table's content: the same whatever order, batches and Arrow types, another for any other value."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.read import content_checksum
from tidefold.read.content_checksum import ContentChecksum, compute_checksum

_FLOATS = st.floats(width=32, allow_subnormal=False)
# One of each type of the project's catalogue.
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), _FLOATS),
    "double": (pa.float64(), st.floats()),
    "string": (pa.string(), st.text(max_size=12)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "binary": (pa.binary(), st.binary(max_size=12)),
    "decimal": (pa.decimal128(38, 3), st.decimals(-(10**30), 10**30, places=3)),
    "array<string>": (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=4), max_size=4)),
    "array<double>": (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), max_size=4)),
    "array<decimal>": (
        pa.list_(pa.decimal128(9, 2)),
        st.lists(st.none() | st.decimals(-1000, 1000, places=2), max_size=3),
    ),
    "array<timestamp>": (
        pa.list_(pa.timestamp("us", "UTC")),
        st.lists(st.datetimes(timezones=st.just(UTC)), max_size=3),
    ),
}
NAMES = sorted(TYPES)


def table(rows: list[tuple[Any, ...]], names: list[str]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    arrays = [pa.array(list(c), TYPES[n][0]) for c, n in zip(columns, names, strict=True)]
    return pa.table(arrays, names=[f"c{i}" for i in range(len(names))])


def checksum(found: pa.Table, size: int = 1000) -> ContentChecksum:
    return compute_checksum(found.to_batches(max_chunksize=size), found.num_columns)


def bits(value: Any) -> Any:
    """A value as what tells it from others: -0.0 is not 0.0, every NaN is one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, list | tuple):
        return tuple(bits(v) for v in value)
    return value


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | TYPES[name][1] for name in names))
    return names, draw(st.lists(row, max_size=12))


@given(tables(), st.randoms(), st.integers(1, 5))
def test_order_and_batches_do_not_count(found: tuple[list[str], list[Any]], random: Any, size: int) -> None:
    names, rows = found
    expected = checksum(table(rows, names))
    mixed = list(rows)
    random.shuffle(mixed)
    assert checksum(table(mixed, names), size) == expected
    half = len(rows) // 2
    assert checksum(table(rows[:half], names)) + checksum(table(rows[half:], names)) == expected
    # A slice of a batch begins within the buffers of the whole.
    assert checksum(table([*rows, *rows], names).slice(len(rows))) == expected


@given(tables(), st.data())
def test_any_other_value_in_any_row_is_another_content(found: tuple[list[str], list[Any]], data: st.DataObject) -> None:
    names, rows = found
    other = data.draw(st.tuples(*(st.none() | TYPES[name][1] for name in names)))
    if not rows:
        assert checksum(table([other], names)) != checksum(table(rows, names))
        return
    at = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows[:at], other, *rows[at + 1 :]]
    same = bits(other) == bits(rows[at])
    before, after = checksum(table(rows, names)), checksum(table(changed, names))
    assert (before == after) == same
    differ = [bits(a) != bits(b) for a, b in zip(rows[at], other, strict=True)]
    assert [a != b for a, b in zip(before.columns, after.columns, strict=True)] == differ


def one(name: str, *values: Any) -> ContentChecksum:
    return checksum(table([(value,) for value in values], [name]))


def test_values_that_look_alike_are_told_apart() -> None:
    assert one("double", 0.0) != one("double", -0.0)
    assert one("float", 0.0) != one("float", -0.0)
    assert one("double", math.nan) == one("double", struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\1")[0])
    assert len({one("string", v).content for v in ("", "\0", "a", "a\0", None)}) == 5
    assert len({one("array<string>", v).content for v in ([], [None], [None, None], [""], ["", ""], None)}) == 6
    assert one("array<string>", ["a", "b"]) != one("array<string>", ["b", "a"])
    assert one("array<string>", ["ab"], ["c"]) != one("array<string>", ["a"], ["bc"])
    assert one("decimal", Decimal(2**64)) != one("decimal", Decimal(2**65))
    assert one("date", date(1969, 12, 31)) != one("date", date(1970, 1, 1))
    assert one("timestamp", datetime(1970, 1, 1, tzinfo=UTC)) != one("timestamp", None)


def test_values_that_change_places_between_rows_or_columns_are_found() -> None:
    assert checksum(table([(1, 2), (3, 4)], ["int", "int"])) != checksum(table([(1, 4), (3, 2)], ["int", "int"]))
    assert checksum(table([(1, 2)], ["int", "int"])) != checksum(table([(2, 1)], ["int", "int"]))
    assert checksum(table([(1,), (1,)], ["int"])).content != checksum(table([(2,), (2,)], ["int"])).content
    assert checksum(table([(1,), (1,)], ["int"])) != checksum(table([(1,)], ["int"]))


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("string", [pa.large_string()]),
        ("binary", [pa.large_binary()]),
        ("timestamp", [pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")]),
        ("array<string>", [pa.large_list(pa.large_string())]),
        ("int", [pa.int16(), pa.int64()]),
    ],
)
def test_the_arrow_type_of_a_reader_does_not_count(name: str, others: list[pa.DataType]) -> None:
    values: dict[str, list[Any]] = {
        "string": ["a", None, "ü"],
        "binary": [b"a", None, b""],
        "timestamp": [datetime(2026, 1, 1, tzinfo=UTC), None, datetime(1960, 1, 1, tzinfo=UTC)],
        "array<string>": [["a", None], None, []],
        "int": [1, None, -1],
    }
    found = table([(v,) for v in values[name]], [name])
    for other in others:
        assert checksum(found.cast(pa.schema([("c0", other)]))) == checksum(found)


def test_long_values_are_hashed_in_parts_with_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(b"x" * size,) for size in (0, 1, 100, 5, 0, 3_000, 7)]
    whole = checksum(table(rows, ["binary"]))
    monkeypatch.setattr(content_checksum, "_BYTES", 64)
    assert checksum(table(rows, ["binary"])) == whole


def test_it_never_changes_between_versions() -> None:
    """Driver and workers may run two versions of this program."""
    assert str(one("string", "a", None, "")) == "3:cd4c9d3064101575"
    assert str(one("array<decimal>", [Decimal("1.50"), None])) == "1:7253977e1420d624"


def test_another_type_is_an_error_and_no_silent_pass() -> None:
    with pytest.raises(TypeError, match="no checksum"):
        compute_checksum([pa.RecordBatch.from_pylist([{"a": {"b": 1}}])], 1)


def test_no_rows_have_a_checksum_too() -> None:
    assert checksum(table([], ["int", "string"])) == ContentChecksum(0, 0, (0, 0))
