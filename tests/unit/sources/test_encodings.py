"""Values as sources write them become values of their column, or are refused. Promise I28."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.landing import record
from support.reading import FileReading
from tidefold.changelog.schema import arrow_type
from tidefold.domain.table.table_spec import Column, TableSpec
from tidefold.domain.table.types import Type, encodings_of, parse_type
from tidefold.sources.debezium.connect_schema import forms_of
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.records.accounting import FilePosition, ReaderPosition
from tidefold.sources.records.change_batches import TableBuilder
from tidefold.sources.records.encodings import Form, conversion, fit_decimal, form_of, json_type, or_null
from tidefold.sources.records.errors import RefusedRecordError, decode_plain

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(type_: str, encoding: str, value: Any, scale: int | None = None) -> Any:
    """What a value becomes as the only one of its column in Arrow. Raises ValueError, msgspec.DecodeError."""
    parsed = parse_type(type_)
    form = form_of(parsed, encoding) if scale is None else Form(encoding, scale)
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    decoded = msgspec.json.decode(
        text, type=or_null(json_type(parsed, form))
    )  # before msgspec 0.21, its refusal is no ValueError
    convert = conversion(parsed, form)
    ready = convert(decoded) if convert and decoded is not None else decoded
    return pa.array([ready], arrow_type(type_))[0].as_py()


def base64_of(unscaled: int) -> str:
    length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("type_", "encoding", "value", "becomes"),
    [
        ("decimal(12,2)", "base64(2)", "AJY=", Decimal("1.50")),
        ("decimal(12,2)", "base64(2)", "/2o=", Decimal("-1.50")),
        ("decimal(12,2)", "base64(2)", "AA==", Decimal("0.00")),
        ("decimal(12,2)", "base64", {"scale": 3, "value": "BdI="}, Decimal("1.49")),
        ("decimal(12,0)", "base64", {"scale": -2, "value": "AQ=="}, Decimal(100)),
        ("decimal(12,2)", "string", "1.5", Decimal("1.50")),
        ("decimal(12,2)", "string", "1.500", Decimal("1.50")),
        ("decimal(12,2)", "string", "1E+3", Decimal("1000.00")),
        ("decimal(12,2)", "string", "-0.00", Decimal("0.00")),
        ("decimal(12,2)", "number", 0.1, Decimal("0.10")),
        ("decimal(38,0)", "number", b"99999999999999999999999999999999999999", Decimal(10**38 - 1)),
        ("boolean", "number", 1, True),
        ("boolean", "number", 0, False),
        ("date", "", 19_000, date(2022, 1, 8)),
        ("date", "iso", "2022-01-08", date(2022, 1, 8)),
        ("date", "iso", "2022-01-08Z", date(2022, 1, 8)),
        ("date", "iso", "0001-01-01", date(1, 1, 1)),
        ("timestamp", "", 1_500_000, EPOCH + timedelta(seconds=1.5)),
        ("timestamp", "millis", -1500, EPOCH - timedelta(seconds=1.5)),
        ("timestamp", "nanos", 1_500_000_000, EPOCH + timedelta(seconds=1.5)),
        ("timestamp", "iso", "1970-01-01T00:00:01.5Z", EPOCH + timedelta(seconds=1.5)),
        ("timestamp", "iso", "1970-01-01T02:00:01.500000000+02:00", EPOCH + timedelta(seconds=1.5)),
        ("timestamp", "iso", "1970-01-01 00:00:01", EPOCH + timedelta(seconds=1)),
        ("timestamp", "iso", "9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("binary", "", "YWI=", b"ab"),
        ("binary", "base64url", "_-8=", b"\xff\xef"),
        ("binary", "base64url", "_-8", b"\xff\xef"),
        ("binary", "hex", "00fF", b"\x00\xff"),
        ("binary", "hex", "", b""),
        ("array<int>", "", [1, None], [1, None]),
        ("array<double>", "", [1, "NaN", "-Infinity"], [1.0, "nan", float("-inf")]),
        ("array<float>", "", [1, "NaN", 0.0, None], [1.0, "nan", 0.0, None]),
        # The shortest digits of the largest float, as Java writes them, are a larger double.
        ("float", "", 3.4028235e38, 3.4028234663852886e38),
        ("float", "", -3.4028235e38, -3.4028234663852886e38),
        ("array<date>", "", [0, None], [date(1970, 1, 1), None]),
        ("array<timestamp>", "iso", ["1970-01-01T00:00:01Z"], [EPOCH + timedelta(seconds=1)]),
        ("array<timestamp>", "", [1_000_000], [EPOCH + timedelta(seconds=1)]),
        ("array<decimal(5,1)>", "string", ["1.5"], [Decimal("1.5")]),
        ("array<binary>", "", ["YWI="], [b"ab"]),
        ("array<string>", "", [], []),
        ("decimal(5,1)", "string", None, None),
    ],
)
def test_a_value_is_read_as_what_it_means(type_: str, encoding: str, value: Any, becomes: Any) -> None:
    found = read(type_, encoding, value)
    if isinstance(found, list):
        found = ["nan" if isinstance(v, float) and v != v else v for v in found]
    assert found == becomes
    if isinstance(found, Decimal):
        assert str(found) == str(becomes)  # Its scale too.


@pytest.mark.parametrize(
    ("type_", "encoding", "value"),
    [
        *(("decimal(4,2)", "base64(2)", v) for v in ("", "1.5", "AJ", 5, "J7g=", {"scale": 0})),
        ("decimal(4,2)", "base64", {"scale": 3, "value": "AQ=="}),
        *(("decimal(4,2)", "string", v) for v in ("", "x", "NaN", "NAN", "Infinity", "1.234", "123", "1e9", 1.5, " 1")),
        *(("decimal(4,2)", "number", v) for v in (b"NaN", "NaN", "Infinity", 0.30000000000000004, 100, True)),
        ("boolean", "", 1),
        *(("boolean", "number", v) for v in (2, True, "1", 1.5)),
        *(("date", "", v) for v in (2_147_483_647, "2022-01-08", 1.5)),
        *(("date", "iso", v) for v in ("2022-02-30", "0000-00-00", "infinity", "2022-01-08T00:00:00Z", 5)),
        # PostgreSQL's infinities as the connector writes them.
        *(("timestamp", "", v) for v in (9_223_372_036_825_200_000, -9_223_372_036_832_400_000, "1970-01-01T00:00Z")),
        *(("timestamp", "millis", v) for v in (9_223_372_036_825_200, 1.5)),
        *(("timestamp", "nanos", v) for v in (1, 1_500, 2**63)),
        *(("timestamp", "iso", v) for v in ("infinity", "-infinity", "", "2022-01-08", "1970-01-01T00:00:00.0000001Z")),
        *(("timestamp", "iso", v) for v in ("0001-01-01T00:00:00+01:00", "1970-01-01T24:00:00Z", "1970-01-01T00:60Z")),
        *(("binary", "", v) for v in ("YW", "a b=", 5, "\u00e9")),
        *(("binary", "base64url", v) for v in ("a", "+/8=", "ab\n")),
        *(("binary", "hex", v) for v in ("0", "0g", "00 00", "\\x00")),
        *(("array<float>", "", v) for v in ([1e-46], [-1e-300])),
        *(("array<int>", "", v) for v in (5, [1.5], ["1"], [[1]], {"a": 1})),
    ],
)  # fmt: skip
def test_what_has_no_equal_in_the_column_is_refused(type_: str, encoding: str, value: Any) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        read(type_, encoding, value)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_every_decimal_comes_back_in_every_mode(unscaled: int, scale: int) -> None:
    type_ = f"decimal(38,{scale})"
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    text = format(number, "f")
    for encoding, value in ((f"base64({scale})", base64_of(unscaled)), ("string", text), ("number", text.encode())):
        assert read(type_, encoding, value) == number
    assert read(type_, "base64", {"scale": scale, "value": base64_of(unscaled)}) == number


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(1, 38), st.data())
def test_a_decimal_is_the_same_number_or_refused(number: Decimal, precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    try:
        fitted = fit_decimal(number, Type("decimal", precision, scale))
    except ValueError:
        room = Decimal(10) ** (precision - scale)
        assert abs(number) >= room or number.as_tuple().exponent < -scale
        return
    assert fitted == number
    assert pa.array([fitted], pa.decimal128(precision, scale))[0].as_py() == number


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.timezones()))
def test_instants_come_back_in_every_encoding(at: datetime) -> None:
    micros = (at - EPOCH) // timedelta(microseconds=1)
    whole = at.astimezone(UTC)
    assert read("timestamp", "iso", at.astimezone(UTC).isoformat()) == whole
    assert read("timestamp", "micros", micros) == whole
    assert read("timestamp", "millis", micros // 1000) == whole - timedelta(microseconds=micros % 1000)
    if abs(micros) < 2**53:
        assert read("timestamp", "nanos", micros * 1000) == whole


@given(st.binary(max_size=20))
def test_bytes_come_back_in_every_encoding(data: bytes) -> None:
    assert read("binary", "base64", base64.b64encode(data).decode()) == data
    assert read("binary", "base64url", base64.urlsafe_b64encode(data).decode()) == data
    assert read("binary", "hex", data.hex()) == data


CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
NAMED = [
    *(
        ("int32", f"{of}.Date", {"date": "days", "int": "", "long": "", "string": "days", "timestamp": "days"})
        for of in (TIME, CONNECT)
    ),
    *(
        ("int64", name, {"timestamp": how, "long": "", "string": how})
        for name, how in (
            (f"{TIME}.Timestamp", "millis"),
            (f"{TIME}.MicroTimestamp", "micros"),
            (f"{TIME}.NanoTimestamp", "nanos"),
            (f"{CONNECT}.Timestamp", "millis"),
        )
    ),
    ("string", f"{TIME}.ZonedTimestamp", {"timestamp": "iso", "string": ""}),
    ("string", f"{TIME}.IsoTimestamp", {"timestamp": "iso", "string": ""}),
    ("string", f"{TIME}.IsoDate", {"date": "iso", "string": ""}),
    *(("int32", f"{TIME}.{name}", {"int": "", "long": ""}) for name in ("Time", "Year")),
    *(("int64", f"{TIME}.{name}", {"int": "", "long": ""}) for name in ("MicroTime", "NanoTime", "MicroDuration")),
    *(("string", f"{TIME}.{n}", {"string": "", "decimal": "string"}) for n in ("ZonedTime", "IsoTime", "Interval")),
    *(
        ("string", f"io.debezium.data.{name}", {"string": "", "decimal": "string"})
        for name in ("Json", "Xml", "Enum", "EnumSet", "Uuid", "Ltree")
    ),
    ("bytes", "io.debezium.data.Bits", {"binary": "base64", "string": ""}),
    ("struct", "io.debezium.data.VariableScaleDecimal", {"decimal": "base64", "string": "base64"}),
    ("struct", "io.debezium.data.geometry.Geometry", {"string": "json"}),
    ("map", None, {"string": "json"}),
    ("boolean", None, {"boolean": "boolean"}),
    ("int16", None, {"int": "", "long": "", "boolean": "number", "decimal": "number"}),
    ("int64", None, {"int": "", "long": "", "timestamp": "micros", "decimal": "number"}),
    ("float", None, {"float": "", "double": ""}),
    ("double", None, {"float": "", "double": "", "decimal": "number"}),
    ("bytes", None, {"binary": "base64", "string": ""}),
    ("string", None, {"string": "", "decimal": "string", "binary": "base64", "date": "iso", "timestamp": "iso"}),
]  # fmt: skip
SCALARS = ("boolean", "int", "long", "float", "double", "string", "date", "timestamp", "binary", "decimal(5,2)")


def schema_of(column: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [column]}]}


@pytest.mark.parametrize(("kind", "name", "allowed"), NAMED, ids=lambda v: str(v).rpartition(".")[2] if v else "")
def test_a_schema_says_how_values_are_written_and_which_columns_they_can_be(
    kind: str, name: str | None, allowed: dict[str, str]
) -> None:
    column = {"field": "c", "type": kind, **({"name": name} if name else {})}
    for type_ in SCALARS:
        for array in (False, True):
            shape = TableSpec((), (Column("c", f"array<{type_}>" if array else type_),), "postgresql", 1, 1)
            schema = schema_of({"field": "c", "type": "array", "items": column} if array else column)
            word = type_.partition("(")[0]
            if word in allowed:
                assert forms_of(schema, shape) == (Form(allowed[word]),)
            else:
                with pytest.raises(RefusedRecordError, match="cannot be a column"):
                    forms_of(schema, shape)


def test_where_a_schema_does_not_say_it_the_configuration_does() -> None:
    said = (("int64", "timestamp", "nanos"), ("string", "binary", "hex"), ("string", "string", "decimal"))
    for kind, type_, encoding in said:
        shape = TableSpec((), (Column("c", type_, encoding),), "postgresql", 1, 1)
        assert forms_of(schema_of({"field": "c", "type": kind}), shape) == (Form(encoding),)
    decimal = {"field": "c", "type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "7"}}
    shape = TableSpec((), (Column("c", "decimal(9,2)"),), "postgresql", 1, 1)
    assert forms_of(schema_of(decimal), shape) == (Form("base64", 7),)


def test_all_types_make_the_columns_of_a_change_set() -> None:
    """The whole way of one record, with the usual encoding of each type and with each other one."""
    columns = [Column("id", "decimal(9,2)", "string")]
    row: dict[str, Any] = {"id": "7.5"}
    values = {"boolean": True, "number": 1, "base64": "YQ==", "string": "1", "days": 1, "micros": 1, "millis": 1}
    values |= {"seconds": 1, "nanos": 1000, "base64url": "YQ==", "hex": "61", "any": 1}
    iso = {"date": "1970-01-02", "timestamp": "1970-01-01T00:00:00.000001Z"}
    for type_ in ("boolean", "decimal(30,2)", "date", "timestamp", "binary", "array<timestamp>", "array<decimal(9,1)>"):
        element = parse_type(type_).element or parse_type(type_)
        for encoding in encodings_of(parse_type(type_)):
            value = iso[element.name] if encoding == "iso" else values[encoding]
            name = f"c{len(columns)}"
            promise = f"base64({element.scale})" if element.name == "decimal" else encoding
            columns.append(Column(name, type_, promise if encoding == "base64" else encoding))
            row[name] = [value, None] if type_.startswith("array") else value
    shape = TableSpec(("id",), tuple(columns), "postgresql", 16, 4)
    into = FileReading(envelope_reader(shape), ReaderPosition(FilePosition("shop.public.items", 0), shape))
    changed = record(0, after=row, key={"id": "7.5"})
    deleted = record(1, op="d", key={"id": "7.5"}, before=None)
    for one in (changed, deleted):
        into.take(json.dumps(one).encode())
    builder = TableBuilder(shape, 0)
    builder.add(into.at.drain_batch())
    table = builder.to_table()
    assert table is not None
    kept, gone = table.to_pylist()
    assert all(kept[column.name] not in (None, []) for column in columns)
    assert [gone[column.name] for column in columns] == [Decimal("7.50")] + [None] * (len(columns) - 1)


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        ("json", b'"a"', "a"),
        ("json", b"1.50", "1.50"),
        ("json", b"123456789012345678901234567890.10", "123456789012345678901234567890.10"),
        ("json", b"true", "true"),
        ("json", b'{"wkb": "AQE=", "srid": null}', '{"wkb": "AQE=", "srid": null}'),
        ("json", b"[[1, 2], [3]]", "[[1, 2], [3]]"),
        ("json", b"null", None),
        ("decimal", b'{"scale": 3, "value": "BdI="}', "1.490"),
        ("decimal", b'{"scale": -2, "value": "AQ=="}', "100"),
        ("decimal", b'{"scale": 20, "value": "/w=="}', "-0.00000000000000000001"),
        ("decimal", b'"1.500"', "1.500"),
        ("decimal", b'"NAN"', "NaN"),
        ("decimal", b'"POSITIVE_INFINITY"', "Infinity"),
        ("decimal", b"12.50", "12.50"),
        ("days", 0, "1970-01-01"),
        ("days", -719_162, "0001-01-01"),
        ("days", -719_163, "0000-12-31"),
        ("days", -735525, "-0044-03-15"),
        ("days", 2_932_897, "+10000-01-01"),
        ("days", "2026-01-31", "2026-01-31"),
        ("micros", 1_500_000, "1970-01-01T00:00:01.500000Z"),
        ("micros", 9223372036825200000, "infinity"),
        ("micros", -9223372036832400000, "-infinity"),
        ("micros", -1, "1969-12-31T23:59:59.999999Z"),
        ("millis", -1500, "1969-12-31T23:59:58.500000Z"),
        ("nanos", 1, "1970-01-01T00:00:00.000000001Z"),
    ],
)
def test_a_text_keeps_every_value_of_the_source(encoding: str, value: Any, text: str | None) -> None:
    """Fault: what had no exact type was refused, or had to be configured as what it is not."""
    assert read("string", encoding, value) == text


@pytest.mark.parametrize("value", [b'"abc"', b"true", b'{"a": 1}', b'{"scale": 1, "value": ""}'])
def test_what_is_no_decimal_is_refused_as_text_too(value: bytes) -> None:
    with pytest.raises(ValueError, match="is "):
        read("string", "decimal", value)


@given(st.integers(-(10**60), 10**60), st.integers(0, 80))
def test_a_decimal_of_any_precision_and_scale_keeps_its_digits(unscaled: int, scale: int) -> None:
    text = read("string", "decimal", {"scale": scale, "value": base64_of(unscaled)})
    assert text == format(Decimal(f"{unscaled}e-{scale}"), "f")


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_instants_as_text_are_those_of_the_calendar(instant: datetime) -> None:
    micros = (instant.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    assert read("string", "micros", micros) == instant.isoformat(timespec="microseconds") + "Z"


@pytest.mark.parametrize(
    ("value", "type_", "encoding"),
    [
        ("__debezium_unavailable_value", "string", "json"),
        ({"__debezium_unavailable_value": "__debezium_unavailable_value"}, "string", "json"),
        (["__debezium_unavailable_value"], "array<string>", "json"),
        ({"scale": 0, "value": base64.b64encode(b"__debezium_unavailable_value").decode()}, "string", "decimal"),
    ],
)
def test_a_placeholder_is_known_in_every_encoding(value: Any, type_: str, encoding: str) -> None:
    shape = TableSpec(("id",), (Column("id", "int"), Column("c", type_, encoding)), "postgresql", 1, 1)
    into = FileReading(envelope_reader(shape), ReaderPosition(FilePosition("shop.public.items", 0), shape))
    line = json.dumps(record(0, 1, "u", after={"id": 1, "c": value})).encode()
    into.take(line)
    assert into.batch.absent == [["c"]]


def test_a_number_of_more_digits_than_python_parses_is_a_value_like_any_other() -> None:
    """Its record is refused by name; it used to fail the whole log."""
    digits = b"9" * 5000
    assert decode_plain(b'{"a": %s, "b": -%s, "c": %s}' % (digits, digits, digits[:100])) == {
        "a": float("inf"),
        "b": float("-inf"),
        "c": int(digits[:100]),
    }


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("int", b"5", 5),
        ("int", b'"5"', 5),
        ("int", b"5.0", 5),
        ("int", b'"5.5"', None),
        ("int", b"2147483648", None),
        ("int", b"true", None),
        ("int", b'"five"', None),
        ("long", b'"-9223372036854775808"', -(2**63)),
        ("long", b'"9223372036854775808"', None),
        ("long", b"1e300", None),
        ("double", b'"1e-3"', 0.001),
        ("double", b'"-0.0"', -0.0),
        ("double", b'"NaN"', float("nan")),
        ("double", b'"1e400"', None),
        ("double", b"7", 7.0),
        ("float", b'"1e39"', None),
        ("float", b'"-Infinity"', float("-inf")),
        ("boolean", b"1", True),
        ("boolean", b'"F"', False),
        ("boolean", b"2", None),
        ("boolean", b"true", True),
        ("decimal(5,2)", b'"1.50"', Decimal("1.50")),
        ("decimal(5,2)", b"1.5", Decimal("1.50")),
        ("decimal(5,2)", b"7", Decimal("7.00")),
        ("decimal(5,2)", b'"1.505"', None),
        ("date", b'"1970-01-03"', 2),
        ("date", b"2", 2),
        ("timestamp", b'"1970-01-01T00:00:01Z"', 1_000_000),
        ("timestamp", b"5", 5),
        ("timestamp", b'"soon"', None),
    ],
)
def test_any_reads_what_records_had_before_and_after_a_type_changed(type_: str, value: bytes, expected: Any) -> None:
    """None: refused."""
    kind, form = parse_type(type_), Form("any")
    convert = conversion(kind, form)
    assert convert is not None
    try:
        found = convert(msgspec.json.decode(value, type=json_type(kind, form)))
    except (ValueError, msgspec.ValidationError):
        found = None
    assert repr(found) == repr(expected)
