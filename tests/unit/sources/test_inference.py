"""What `init` makes of sampled values: types, dialects, and what columns are for."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidefold.domain.log_state import Column
from tidefold.domain.paths import check_log_id
from tidefold.sources.inference.columns import ask_types
from tidefold.sources.inference.dialect import dialect_of
from tidefold.sources.inference.json_samples import find_record_path
from tidefold.sources.inference.operations import find_ops
from tidefold.sources.inference.proposal import NUMERIC, ProposalQuestion, ProposedColumn, ProposedLog, log_ids
from tidefold.sources.inference.propose import propose
from tidefold.sources.inference.roles import find_keys, find_orders, key_question, never_falls
from tidefold.sources.inference.strange_rows import explain_strange_rows
from tidefold.sources.inference.values import column_of_texts, column_of_values
from tidefold.sources.landing.folders import pattern_for
from tidefold.sources.landing.listing import list_any
from tidefold.sources.records.columnar_values import convert_texts, convert_values, fits

_VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
_TOO_LONG = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "9", "connect.decimal.precision": "64"},
}


@pytest.mark.parametrize(
    ("name", "texts", "type_"),
    [
        ("n", ["1", "-7", None], "long"),
        ("n", ["1" * 25], "decimal(38,0)"),
        ("zip", ["01234", "99999"], "string"),
        ("price", ["1.5", "2.25"], "decimal(18,2)"),
        ("x", ["1.50", "2.25"], "decimal(18,2)"),
        ("x", ["1.5", "2.25", "3.125"], "double"),
        ("x", ["1e5", "2.0"], "double"),
        ("x", ["1e-05", "20"], "double"),
        ("code", ["12E4", "13E5"], "string"),
        ("code", ["12E4", "1305"], "string"),
        ("ok", ["true", "False"], "boolean"),
        ("ok", ["t", "f"], "boolean"),
        ("day", ["2026-01-31"], "date"),
        ("day", ["2026-02-31"], "string"),
        ("at", ["2026-01-31 08:00:00", "2026-01-31T08:00:00.5Z"], "timestamp"),
        ("at", ["2026-01-31 08:00:00+00"], "timestamp"),
        ("at", ["31.01.2026 08:00"], "timestamp"),
        ("day", ["31.01.2026"], "date"),
        ("n", ["20260131"], "long"),
        ("price", ["1,50"], "string"),
        ("text", [None, None], "string"),
    ],
)
def test_types_of_texts(name: str, texts: list[str | None], type_: str) -> None:
    assert column_of_texts(name, texts).column.type == type_


def test_formats_are_all_that_fit_every_text() -> None:
    assert column_of_texts("at", ["02/03/2026 08:00:00"]).formats == ("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S")
    assert column_of_texts("at", ["02/13/2026 08:00:00"]).formats == ("%m/%d/%Y %H:%M:%S",)


@pytest.mark.parametrize(
    ("name", "values", "type_", "encoding"),
    [
        ("n", [1, None], "long", ""),
        ("price", [Decimal("1.5"), 2], "decimal(38,9)", ""),
        ("x", [Decimal("1.123456"), 2], "decimal(38,12)", ""),
        ("x", [Decimal("0.1000000000000000055"), 2], "double", ""),
        ("updated_at", [1_795_226_336], "timestamp", "seconds"),
        ("price", ["1.50"], "decimal(18,2)", "string"),
        ("at", ["2026-01-31T08:00:00Z"], "timestamp", "iso"),
        ("day", ["2026-01-31"], "date", "iso"),
        ("updated_at", [1_795_226_336_485], "timestamp", "millis"),
        ("ts", [1_795_226_336_485_000], "timestamp", "micros"),
        ("n", [1_795_226_336_485], "long", ""),
        ("tags", [["a"], []], "array<string>", ""),
        ("deep", [{"a": 1}], None, ""),
        ("mixed", [1, "a"], None, ""),
    ],
)
def test_types_of_fields(name: str, values: list[Any], type_: str | None, encoding: str) -> None:
    column = column_of_values(name, values)
    assert (column.type, column.encoding) == (type_, encoding)


@pytest.mark.parametrize("values", [["1.5", "2.25"], ["-7", "2.25"]])
def test_numbers_as_text_are_named_as_an_assumption(values: list[str]) -> None:
    """Debezium writes a numeric so with `decimal.handling.mode=string`: it was proposed as text in silence."""
    column = column_of_values("weight", values)
    assert (column.type, column.other) == ("string", NUMERIC)
    (assumed,) = ask_types([column])
    assert assumed.sure
    assert assumed.candidates == ("string", NUMERIC)
    assert column_of_values("weight", ["1", "2"]).other == ""


@pytest.mark.parametrize("field", [_VARIABLE, _TOO_LONG, {"type": "string"}])
def test_a_numeric_of_debezium_that_becomes_text_is_named_as_an_assumption(
    field: dict[str, Any], tmp_path: Path
) -> None:
    after = {"type": "struct", "field": "after", "fields": [{"field": "id", "type": "int32"}, {"field": "n", **field}]}
    row = {"id": 1, "n": {"scale": 1, "value": "Aw=="} if field is _VARIABLE else "12.5"}
    value = {"op": "c", "after": row, "source": {"connector": "postgresql", "sequence": '[null,"1"]'}}
    schema = {"type": "struct", "fields": [after]}
    line = {"topic": "t", "partition": 0, "offset": 0, "key": {"id": 1}}
    has_schema = "name" in field
    line["value"] = {"schema": schema, "payload": value} if has_schema else value
    (tmp_path / "shop.items").mkdir()
    (tmp_path / "shop.items/shop.items+0+0000000000.jsonl").write_text(json.dumps(line) + "\n")
    [log] = propose(str(tmp_path))
    assert {c.name: c.type for c in log.columns}["n"] == "string"
    assert [(one.about, one.candidates) for one in log.questions] == [("columns.n", ("string", NUMERIC))]
    assert log.usable


def test_a_decimal_in_base64_is_explained_and_words_are_none() -> None:
    note = column_of_values("amount", ["AZ8=", "AJY="]).note
    assert "`{type: 'decimal(18,2)', encoding: base64(2)}` promises" in note
    assert "makes it 4.15" in note
    assert column_of_values("name", ["Anna", "Otto"]).note == ""


@pytest.mark.parametrize(
    ("data", "delimiter", "header", "encoding", "nulls"),
    [
        (b"id,text\n1,a\n", ",", True, "utf-8", ()),
        (b"id;text\r\n1;a,b\r\n2;c,d\r\n", ";", True, "utf-8", ()),
        (b"id\ttext\n1\t\\N\n", "\t", True, "utf-8", ("\\N",)),
        (b"1|a|2026-01-31\n2|b|2026-01-31\n", "|", False, "utf-8", ()),
        (b"\xef\xbb\xbfid,text\n1,NULL\n", ",", True, "utf-8", ("NULL",)),
        ("id,text\n1,Zoë\n".encode("cp1252"), ",", True, "cp1252", ()),
        (b'id,text\n1,"a;b;c;d"\n', ",", True, "utf-8", ()),
    ],
)
def test_dialects(data: bytes, delimiter: str, header: bool, encoding: str, nulls: tuple[str, ...]) -> None:
    found = dialect_of(data, whole=True)
    assert found is not None
    assert (found.delimiter, found.header, found.encoding, found.nulls) == (delimiter, header, encoding, nulls)


def test_a_line_that_is_cut_off_is_no_row() -> None:
    found = dialect_of(b"id,text\n1,a\n2,", whole=False)
    assert found is not None
    assert found.rows == (("1", "a"),)
    assert dialect_of(b"", whole=True) is None


def rows(**columns: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize(
    ("name", "said", "option", "sure"),
    [
        ("op", ["I", "U", "D"], {}, True),
        ("Op", ["I", "U"], {}, True),
        ("op", ["c", "u"], {}, True),
        ("change_type", ["insert", "delete"], {}, True),
        (
            "action",
            ["CREATE", "DELETE"],
            {"upsert": ["INSERT", "UPDATE", "UPSERT", "CREATE", "READ", "REPLACE", "IMPORT"]},
            True,
        ),
        ("what", ["created", "deleted"], {"delete": ["deleted", "destroyed"]}, False),
        ("__deleted", ["false", "false"], {"upsert": ["false"], "delete": ["true"]}, True),
        ("deleted", [True, False], {"upsert": ["false"], "delete": ["true"]}, False),
    ],
)
def test_what_says_that_a_row_is_deleted(name: str, said: list[Any], option: dict[str, Any], sure: bool) -> None:
    [found] = find_ops(["id", name], rows(id=list(range(len(said))), **{name: said}))
    assert {key: found.write_option(as_were=False).get(key) for key in option} == option
    assert (found.column, found.sure) == (name, sure)


@pytest.mark.parametrize("said", [["new", "paid"], ["updated", "created"], ["a", None], [1.5, 2.5]])
def test_what_says_something_else_is_data(said: list[Any]) -> None:
    assert find_ops(["status"], rows(status=said)) == []


def long(*names: str) -> list[ProposedColumn]:
    return [ProposedColumn(name, "timestamp" if name.endswith("_at") else "long") for name in names]


LIVES = [(nr, code) for code in "NAAL" for nr in (1, 2)] + [(1, "N"), (3, "N"), (4, "N")]


@pytest.mark.parametrize(
    "words", [("neu", "Änderung", "Löschung"), ("ajout", "modification", "suppression"), ("alta", "baja")]
)
def test_words_of_other_languages_are_asked_for(words: tuple[str, ...]) -> None:
    [op] = find_ops(["nr", "art"], rows(nr=[*range(len(words))], art=[*words]))
    assert (op.column, op.sure, op.delete[0], set(words[:-1]) <= {*op.upsert}) == ("art", False, words[-1], True)


def test_codes_of_any_language_are_asked_for_where_the_rows_of_keys_begin_and_end_with_them() -> None:
    """Fault: `vorgang` with N, A and L was data, and every deleted order stayed a row."""
    found = rows(nr=[nr for nr, _ in LIVES], vorgang=[code for _, code in LIVES], seq=[*range(11)])
    [op] = find_ops([*found[0]], found)
    assert (op.column, op.upsert, op.delete, op.sure, op.lives_of) == ("vorgang", ("N", "A"), ("L",), False, "nr")
    columns = [ProposedColumn(name, "long") for name in ("nr", "seq")]
    assert find_keys("orders", columns, found, op) == [("nr",), ("seq",)]


@pytest.mark.parametrize(
    "lives",
    [
        [*LIVES, (3, "L"), (3, "A")],  # A row comes after the last one.
        [*LIVES, (2, "N"), (2, "N")],  # A row begins twice.
        [(nr, "JN"[code == "N"]) for nr, code in LIVES],  # Two values are a flag.
        [(nr, {"N": "open", "A": "paid", "L": "sent"}[code]) for nr, code in LIVES],  # A state is data.
        [(nr, code) for nr, code in LIVES if nr == 1],  # One key shows nothing.
        [(nr, code) for code in "NAL" for nr in (1, 2, 3)],  # Each state is left for the next one.
    ],
)
def test_codes_that_rows_do_not_begin_and_end_with_are_data(lives: list[tuple[int, str]]) -> None:
    found = rows(nr=[nr for nr, _ in lives], code=[code for _, code in lives])
    assert find_ops(["nr", "code"], found) == []


def test_keys_are_unique_among_inserted_rows_and_best_called_so() -> None:
    found = rows(op=["I", "I", "U"], order_id=[1, 2, 1], customer_id=[9, 8, 9], n=[1, 1, 1])
    [op] = find_ops(["op"], found)
    assert find_keys("orders", long("order_id", "customer_id", "n"), found, op)[0] == ("order_id",)
    question = key_question("orders", [("order_id",), ("customer_id",)], found, op)
    assert (question.sure, question.candidates) == (True, ("order_id", "customer_id"))


def test_two_columns_are_a_key_where_none_is_and_that_is_asked() -> None:
    found = rows(order_id=[1, 1, 2], line_no=[1, 2, 1])
    keys = find_keys("lines", long("order_id", "line_no"), found, None)
    assert keys == [("order_id", "line_no")]
    assert not key_question("lines", keys, found, None).sure


def test_what_is_the_same_for_two_states_of_a_row_does_not_order_it() -> None:
    found = rows(id=[1, 1], created_at=[5, 5], updated_at=[5, 6], ordered_at=[5, 7])
    columns = long("id", "created_at", "updated_at", "ordered_at")
    assert list(find_orders(columns, found, ["id"])) == ["updated_at", "ordered_at"]


def changes(folder: Path, *more: str, name: str = "a") -> ProposedLog:
    """Forty rows, and more rows of some of their keys."""
    lines = [f"{n},s{n},2026-11-20 09:00:{n},{n % 7}" for n in range(10, 50)]
    (folder / "orders").mkdir(exist_ok=True)
    (folder / f"orders/{name}.csv").write_text("\n".join(["id,status,updated_at,n", *lines, *more, ""]))
    [log] = propose(folder)
    return log


def order_of(log: ProposedLog) -> ProposalQuestion:
    [order] = (one for one in log.questions if one.about == "order")
    return order


@pytest.mark.parametrize(
    ("more", "sure"),
    [
        (["17,paid,2026-11-20 10:00:00,1", "17,sent,2026-11-20 10:00:00,2"], True),
        (["17,paid,2026-11-20 10:00:00,1", "18,sent,2026-11-20 10:00:00,1", "18,x,2026-11-20 10:00:00,1"], True),
        (["17,paid,2026-11-20 09:00:17,1", "18,sent,2026-11-20 09:00:18,1"], False),
    ],
)
def test_a_tie_does_not_hide_the_column_that_says_when_a_row_changed(
    tmp_path: Path, more: Sequence[str], sure: bool
) -> None:
    log = changes(tmp_path, *more)
    order = order_of(log)
    assert (order.sure, order.candidates, log.order_by) == (sure, ("updated_at, file", "file"), ("updated_at", "file"))
    assert (
        "its name says when a row changed. Where it is the same, the later file or row counts" in order.because
    ) is sure
    assert ("`updated_at` is the same in different rows of a key." in order.text) is not sure


def test_times_that_never_fall_may_order_rows_also_if_many_are_of_one_minute() -> None:
    """Fault: `order: file` was assumed, because no column said when a row changed."""
    minutes = [f"{day:02d}/10/2026 05:0{minute}" for day in (30, 31) for minute in range(4) for _ in range(6)]
    found = rows(id=[n % 3 for n in range(48)], v=[*range(48)], geaendert=[*minutes], bestellt=minutes[::-1])
    columns = [ProposedColumn("v", "int"), *(ProposedColumn(name, "timestamp") for name in ("geaendert", "bestellt"))]
    format_ = ["%d/%m/%Y %H:%M"]
    rising = [c.name for c in columns if never_falls(c, [found[:30], found[30:]], format_)]
    assert rising == ["geaendert"]
    assert list(find_orders(columns, found, ["id"], rising)) == ["geaendert"]
    assert list(find_orders(columns, found, ["id"])) == []


def test_a_column_with_nulls_is_named_where_its_name_says_when_a_row_changed(tmp_path: Path) -> None:
    order = order_of(changes(tmp_path, "99,new,,1"))
    assert (order.sure, order.candidates) == (False, ("file",))
    assert "`updated_at` has nulls (1 of 41 rows)" in order.text
    (tmp_path / "orders/a.csv").write_text(
        "id,created_at,updated_at\n1,2026-11-01 09:00,\n2,2026-11-01 09:01,2026-11-02\n"
    )
    [log] = propose(tmp_path)
    assert order_of(log).candidates == ("created_at", "file")
    assert "`updated_at` has nulls (1 of 2 rows)" in order_of(log).text


@pytest.mark.parametrize(
    ("names", "sure", "part"),
    [
        (("liste_23-11-2026", "liste_01-12-2026"), False, "read for sure from the name `liste_01-12-2026.csv`"),
        (("liste_03-04-26", "liste_04-04-26"), False, "read for sure"),
        (("liste_23112026", "liste_01122026"), False, "read for sure"),
        (("liste_2026-W47", "liste_2026-W48"), False, "read for sure"),
        (("liste_261123", "liste_261201"), False, "read for sure"),
        (("liste_000001", "liste_000002"), True, "so the later file counts: by arrival"),
        (("liste_2026-11-23", "liste_2026-12-01"), True, "by the time in its name"),
        (("liste_23.11.2026", "liste_01.12.2026"), True, "by the time in its name"),
        (("liste_2026-11-23", "liste"), False, "read for sure from the name `liste.csv`"),
    ],
)
def test_files_order_rows_by_the_time_that_was_read_from_names(
    tmp_path: Path, names: Sequence[str], sure: bool, part: str
) -> None:
    (tmp_path / "p").mkdir()
    for number, name in enumerate(names):
        rows = "".join(f"{n};{n},{number}0\n" for n in range(9 * number, 9 * number + 12))
        (tmp_path / f"p/{name}.csv").write_text(f"nr;preis\n{rows}")
    order = order_of(propose(tmp_path)[0])
    assert (order.sure, order.candidates) == (sure, () if "liste" in names else ("file",))
    assert part in order.text + order.because
    assert ("by arrival" in order.because) is (part != "by the time in its name")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("20261101_080000_00012_x7k2p_0f1e2d3c-aaaa-bbbb-cccc-0123456789ab",
         "20261102_080000_00044_q9w2e_ffffffff-1111-2222-3333-0123456789ac"),
        ("part-00000", "part-00001"),
        ("000000_0", "000001_0"),
        ("2026-11-01T08:00:00+00:00_ab12cd", "2026-12-01T08:00:00+00:00_9f12ce"),
        ("[x]7", "[x]8"),
        ("1793520000.log.gz", "1793606400.log.gz"),
    ],
)  # fmt: skip
def test_a_pattern_of_one_name_fits_the_next(first: str, second: str) -> None:
    assert fnmatch.fnmatchcase(first, pattern_for(first))
    assert fnmatch.fnmatchcase(second, pattern_for(first))
    assert not fnmatch.fnmatchcase("readme", pattern_for(first))


@pytest.mark.parametrize(
    "line",
    [
        {"id": 1, "meta": {"event": "created"}},
        {"id": 1, "data": {"op": "INSERT"}, "source": {"kind": "new"}},
        {"op": "U", "about": {"op": "INSERT"}, "row": {"id": 1}},
        {"record": {"id": 1}, "old_record": 7, "schema": "x", "type": "INSERT"},
        {"after": {"id": 1}, "updated": "2026-11-01"},
    ],
)
def test_a_line_with_objects_is_a_row(line: dict[str, Any]) -> None:
    assert explain_strange_rows([line, line]) is None


def test_an_operation_in_an_object_is_named_with_what_orders_it() -> None:
    line = {"id": 1, "about": {"op": "c", "scn": 7, "who": {"ts_ms": 5}}}
    said = explain_strange_rows([line, line])
    assert said
    assert '`op = "about.op"`' in said
    assert '`row = ["."]`, `fields = { change_order = "about.scn" }`' in said


def test_words_for_no_value_are_named_only_among_numbers() -> None:
    assert column_of_texts("score", ["1.5", "NA", "-"]).column.note.startswith('numbers, and "-", "NA": `null: ["", ')
    assert column_of_texts("country", ["NA", "DE"]).column.note == ""


@pytest.mark.parametrize("text", ["$1,000.00", "-5.00 EUR", "CHF 12", "(7.50\u20ac)"])
def test_amounts_with_a_currency_stay_text_and_say_so(text: str) -> None:
    column = column_of_texts("price", [text, text]).column
    assert (column.type, column.note.split(":")[0]) == ("string", "amounts with a currency")


@pytest.mark.parametrize(
    "text", ["2026-11-02T08:15:00.1234567Z", "Mon, 02 Nov 2026 08:15:00 GMT", "Nov  2 2026  8:15PM"]
)
def test_times_that_no_format_reads_stay_text_and_say_so(text: str) -> None:
    column = column_of_texts("at", [text]).column
    assert (column.type, column.note.split(":")[0]) == ("string", "if these are times")


@pytest.mark.parametrize("text", ["192.168.10.20", "ABC 123", "SKU 10 20", "$", "A-1 2026", "red green blue"])
def test_other_texts_are_plain_text(text: str) -> None:
    assert column_of_texts("at", [text]).column.note == ""


def test_the_times_of_oracle_have_a_format() -> None:
    assert column_of_texts("at", ["02-NOV-26 08.15.01 PM"]).formats == ("%d-%b-%y %I.%M.%S %p",)


def test_parquet_takes_times_as_text_and_unsigned_numbers_and_refuses_what_does_not_fit() -> None:
    at = Column("at", "timestamp")
    assert fits(pa.string(), at)
    assert not fits(pa.string(), Column("n", "long"))
    found, unfit = convert_values(pa.array(["2026-11-01 08:00:00.5", "soon", None]), at)
    assert (found.to_pylist()[0], unfit) == (datetime(2026, 11, 1, 8, 0, 0, 500_000, UTC), [1])
    found, unfit = convert_values(pa.array([7, 2**63], pa.uint64()), Column("n", "long"))
    assert (found.to_pylist(), unfit) == ([7, None], [1])


def test_titles_may_be_filled_up_and_a_sum_at_the_end_is_no_row() -> None:
    text = "Invoices;;\nCustomer 7;;\nno;card;amount\n1;a;1,50\n2;b;2,50\nTotal;;4,00\n"
    dialect = dialect_of(text.encode(), whole=True)
    assert dialect is not None
    assert (dialect.skip, dialect.names, dialect.refused) == (2, ("no", "card", "amount"), 0)
    assert dialect.sums == ("no", "Total")
    assert dialect.rows == (("1", "a", "1,50"), ("2", "b", "2,50"))


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"orders": [{"id": 1}, {"id": 2}]}, ".orders"),
        ({"orders": [{"id": 1}], "next_page": "x", "count": 1}, ".orders"),
        ({"result": {"items": [{"id": 1}]}, "orders": []}, ".result.items"),
        ({"id": 1, "line_items": [{"sku": "a"}]}, "."),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_the_records_of_a_document(document: dict[str, Any], path: str, indent: int | None, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document, indent=indent))
    found = find_record_path(list_any(tmp_path, (".json",))[0])
    assert found == (None if path == "." and indent is None else path)


@pytest.mark.parametrize(
    ("beside", "options"),
    [({"meter": "m"}, {"record": "value"}), ({"_id": "m"}, {"record": "value", "row": "payload"})],
)
def test_what_is_beside_a_row_is_not_lost(beside: dict[str, str], options: dict[str, Any], tmp_path: Path) -> None:
    lines = (json.dumps({**beside, "payload": {"kwh": n}}) for n in range(3))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    [log] = propose(tmp_path)
    assert dict(log.options) == options
    assert [column.name for column in log.columns] == (["kwh"] if "row" in options else ["meter", "payload"])


@pytest.mark.parametrize(
    ("beside", "place", "row"),
    [
        # A point in a row that ExtractNewRecordState unwrapped, also in a column with the name of a wrapper.
        ({"id": "k", "__deleted": "false"}, "at", None),
        ({"id": "k", "__op": "c"}, "data", None),
        ({"id": "k", "name": "n", "op": "c"}, "address", None),
        ({"op": "c", "table": "orders", "_offset": 1}, "order", "order"),
        ({"id": "evt", "op": "c"}, "data", "data"),
    ],
)
def test_an_object_is_the_row_only_if_nothing_beside_it_can_be_a_column(
    beside: dict[str, Any], place: str, row: str | None, tmp_path: Path
) -> None:
    lines = (json.dumps({**beside, **({"id": f"k{n}"} if "id" in beside else {}), place: {"x": n}}) for n in range(3))
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    [log] = propose(tmp_path)
    assert dict(log.options)["op"].get("row") == row
    assert place in [column.name for column in log.columns] or row
    assert "id" in [column.name for column in log.columns] or row or "id" not in beside


@pytest.mark.parametrize("has_schema", [True, False])
def test_the_key_of_an_unwrapped_record_is_that_of_its_key(has_schema: bool, tmp_path: Path) -> None:
    def written(part: dict[str, Any]) -> dict[str, Any]:
        return {"schema": {"type": "struct"}, "payload": part} if has_schema else part

    lines = []
    for n in range(6):
        row = {"id": n % 4, "v": n % 2, "__deleted": "false"}
        line = {"topic": "t", "partition": 0, "offset": n, "key": written({"id": n % 4}), "value": written(row)}
        lines.append(json.dumps(line))
    (tmp_path / "t+0+0000000000.jsonl").write_text("\n".join(lines))
    [log] = propose(tmp_path)
    assert log.key == ("id",)


def test_the_schema_beside_a_row_says_what_its_numbers_are(tmp_path: Path) -> None:
    """A decimal in base64 was proposed as text, and its log was ready to use."""
    connect, time = "org.apache.kafka.connect.data", "io.debezium.time"
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "amount", "type": "bytes", "name": f"{connect}.Decimal", "parameters": {"scale": "2"}},
        {"field": "born", "type": "int32", "name": f"{time}.Date", "optional": True},
        {"field": "at", "type": "int64", "name": f"{time}.MicroTimestamp"},
        {"field": "free", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
    ]
    row = {"amount": "AJY=", "born": -24_936, "at": 5, "free": {"scale": 1, "value": "AQ=="}, "__deleted": "false"}
    lines = [{"schema": {"type": "struct", "fields": fields}, "payload": {"id": n, **row}} for n in range(6)]
    (tmp_path / "t+0+0000000000.json").write_text("\n".join(map(json.dumps, lines)))
    [log] = propose(tmp_path)
    forms = {column.name: (column.type, column.encoding) for column in log.columns}
    assert forms == {
        "id": ("long", ""),
        "amount": ("decimal(38,2)", "base64(2)"),
        "born": ("date", "days"),
        "at": ("timestamp", "micros"),
        "free": ("string", "json"),
    }
    assert log.usable


def test_plain_rows_in_avro_are_not_read(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    with (tmp_path / "shop.items+0+0000000000.avro").open("wb") as out:
        fastavro.writer(out, schema, [{"id": 1}, {"id": 2}])
    [log] = propose(tmp_path)
    assert not log.usable
    assert log.notes == (
        "its records are plain rows: of Avro, only Debezium's envelopes are read. Write JSON or Parquet instead",
    )
    assert not log.questions


def test_a_key_comes_again_in_some_other_file() -> None:
    parts = [[{"v": f"{country}{n}", "x": day} for n in range(3)] for country in "AB" for day in range(2)]
    rows = [row for part in parts for row in part]
    columns = [ProposedColumn("v", "string"), ProposedColumn("x", "long")]
    assert find_keys("gps", columns, rows, None, parts) == [("v",)]


def test_signs_behind_numbers_and_days_without_dashes() -> None:
    assert column_of_texts("amount", ["1.50-", "2.50"]).column.type == "decimal(18,2)"
    assert column_of_texts("a", ["1.50-", "2-3"]).column.type == "string"
    assert column_of_texts("booking_date", ["20260131"]).formats == ("%Y%m%d",)
    values, unfit = convert_texts(pa.array([b"1.50-", b"2.50", b"-3-", b"-"]), Column("a", "decimal(4,2)"))
    assert (values.to_pylist()[:2], unfit) == ([Decimal("-1.50"), Decimal("2.50")], [2, 3])


def test_a_schema_shows_what_a_connector_does_to_values(tmp_path: Path) -> None:
    connect = "org.apache.kafka.connect.data."
    fields = [
        {"field": "at", "type": "int64", "name": f"{connect}Timestamp"},
        {"field": "size", "type": "int32", "optional": True, "default": 42},
        {"field": "opens", "type": "int32", "name": f"{connect}Time", "optional": True},
        {"field": "big", "type": "int64", "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"}},
        {"field": "plain", "type": "int32", "default": 1},
    ]
    row = {"at": 1_793_520_000_000, "size": 42, "opens": None, "big": -1, "plain": 1}
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    source = {"connector": "mysql", "file": "b.000001", "pos": 4, "row": 0, "ts_ms": 1}
    value = {"schema": schema, "payload": {"op": "c", "before": None, "after": row, "source": source}}
    line = {"topic": "s.d.t", "partition": 0, "offset": 0, "key": {"at": row["at"]}, "value": value}
    (tmp_path / "s.d.t").mkdir()
    (tmp_path / "s.d.t/s.d.t+0+0000000000.jsonl").write_text(json.dumps(line) + "\n")
    [log] = propose(tmp_path)
    names = ["size: a null arrives", "opens: `time.precision", "at: `time.precision", "big: numbers from 2^63"]
    assert [any(one.startswith(name) for one in log.warnings) for name in names] == [True] * 4
    assert not any("plain" in one for one in log.warnings)


def days(folder: Path, *files: Sequence[str]) -> ProposedLog:
    for day, lines in enumerate(files, 1):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"bookings_2026-11-0{day}.csv").write_text("\n".join(["ref,text,amount", *lines, ""]))
    [log] = propose(folder.parent)
    return log


def test_the_rows_of_some_days_look_like_a_full_extract(tmp_path: Path) -> None:
    rows = [f"B{n},text {n},{n}.50" for n in range(100, 160)]
    whole = days(tmp_path / "a/bookings", rows[:40], [*rows[:7], *rows[9:42]])
    window = days(tmp_path / "b/bookings", rows[:40], rows[10:60])
    assert [one.sure for one in whole.questions if one.about == "extract"] == [True]
    assert [one.sure for one in window.questions if one.about == "extract"] == [False]


def test_one_file_does_not_show_whether_each_has_all_rows(tmp_path: Path) -> None:
    log = days(tmp_path / "bookings", [f"B{n},text {n},{n}.50" for n in range(100, 140)])
    [order] = (one for one in log.questions if one.about == "order")
    assert (order.sure, "extract: full" in order.text) == (False, True)


def test_a_key_that_was_deleted_comes_again(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    lines = (json.dumps({"device": n % 4, "op": "IUDI"[n // 4], "level": n}) for n in range(16))
    (tmp_path / "devices/devices+0+0000000000.jsonl").write_text("\n".join([*lines, ""]))
    [log] = propose(tmp_path)
    assert (log.key, log.usable) == (("device",), False)


def test_one_word_with_two_accents_makes_no_other_script() -> None:
    text = "id,name\n" + "".join(f"{n},Núñez\n" for n in range(9)) + "9,Óscar\n10,José\n11,Íñigo\n12,René\n13,Inés\n"
    dialect = dialect_of(text.encode("cp1252"), whole=True)
    assert dialect is not None
    assert dialect.encoding == "cp1252"


@pytest.mark.parametrize("name", ["set", "db.Set", "1st", "_x", "a-b", "ä", "x" * 90])
def test_an_id_made_from_a_name_is_one_that_a_configuration_may_have(name: str) -> None:
    made = log_ids([name, name])
    assert [check_log_id(one) for one in made] == made
    assert len(set(made)) == 2
