"""Verdicts that are frozen: what Great Expectations' own SQL engine found in DuckDB, before tidefold counted itself.

`tests/data/frozen_verdicts` has the tables, the checks and the results, so nothing here decides what is compared.
`python -m support.frozen_verdicts` wrote it with that engine (great_expectations 1.24.1, duckdb-engine 0.17.0). It
cannot be written again: the engine is gone.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from support.hostile_rows import NAMES, SHAPE, VALUES, all_checks, random_rows
from tidefold.quality.run import expectations
from tidefold.quality.run.duckdb_rows import DuckDBRows, open_duckdb
from tidefold.quality.run.expectations import evaluate, find_exception, load
from tidefold.quality.suite.check import Check

FOLDER = Path(__file__).parents[1] / "data" / "frozen_verdicts"
TYPES = {column.name: column.type for column in SHAPE.columns}
KEY = ("id",)
FORM = {"result_format": "BASIC", "partial_unexpected_count": 0}
# More rows than that are shown in part, in any order.
SHOWN = 10
_COLUMN = "expect_column_values_to_"
_TEXT, _INT, _LONG, _DOUBLE, _FLAG = (NAMES[t] for t in ("string", "int", "long", "double", "boolean"))
_DAY, _AT, _PRICE = NAMES["date"], NAMES["timestamp"], NAMES["decimal(12,2)"]
_SHARES = (0.0, 1 / 3, 0.5, 0.9, 54 / 60, 0.95, 57 / 60, 1.0)
_CONDITIONS = (
    f'col("{_INT}") > 0', f'col("{_TEXT}") == "a"', f'col("{_DOUBLE}").notNull()', f'col("{_INT}") != 0',
    f'col("{_DOUBLE}") <= 1.5', 'col("id") > 1000000',
)  # fmt: skip


def make_tables() -> Iterator[pa.Table]:
    """Random rows; none; only nulls; duplicates; equal rows that are null; one row; good values only."""
    yield from (random_rows(seed) for seed in range(3))
    rows = random_rows(3)
    yield rows.slice(0, 0)
    nulls = {name: pa.nulls(20, rows.schema.field(name).type) for name in rows.column_names if name != "id"}
    yield pa.table({"id": pa.array(range(20), pa.int64()), **nulls}, rows.schema)
    yield pa.concat_tables([rows, rows.slice(0, 12), rows.slice(0, 3)])
    null_rows = pa.table({name: pa.nulls(3, rows.schema.field(name).type) for name in rows.column_names}, rows.schema)
    yield pa.concat_tables([rows, null_rows])
    yield rows.slice(7, 1)
    yield random_rows(4, 20).drop_columns(["id"]).add_column(0, rows.schema.field("id"), pa.array([7] * 20))
    firsts = {name: pa.array([VALUES[type_][0]] * 60, rows.schema.field(name).type) for type_, name in NAMES.items()}
    yield pa.table({"id": pa.array(range(60), pa.int64()), **firsts}, rows.schema)


def make_checks() -> Iterator[Check]:
    yield from all_checks(0)
    for seed in (1, 2, 3):
        limits = (c for c in all_checks(seed) if c.type in (f"{_COLUMN}be_between", f"{_COLUMN}be_in_set"))
        yield from (replace(check, kwargs={**check.kwargs, "mostly": 0.25 * seed}) for check in limits)
        pairs = (c for c in all_checks(seed) if c.type == "expect_compound_columns_to_be_unique")
        yield from (
            replace(c, kwargs={**c.kwargs, "ignore_row_if": ignored})
            for c, ignored in zip(pairs, _IGNORED * 4, strict=False)
        )
    chance = random.Random(0)
    for share in _SHARES:
        for kind, arguments in _of_shares():
            yield _check(
                kind,
                column=chance.choice([*NAMES.values()]) if arguments is None else _INT,
                mostly=share,
                **arguments or {},
            )
    for condition in _CONDITIONS:
        considered = {"row_condition": condition, "condition_parser": "great_expectations"}
        yield _check("not_be_null", column=_TEXT, **considered)
        yield _check("be_between", column=_LONG, min_value=0, **considered)
        yield _check("be_in_set", column=_TEXT, value_set=["a", "b"], mostly=0.3, **considered)
        yield _check("be_unique", column=_TEXT, **considered)
        yield _check("match_regex", column=_TEXT, regex="^a", **considered)
        yield Check("", "expect_compound_columns_to_be_unique", {"column_list": [_TEXT, _INT], **considered})
        yield Check("", "expect_table_row_count_to_equal", {"value": 30, **considered})
    for low, high in ((True, False), (False, True), (True, True)):
        for column in (_INT, _DOUBLE, NAMES["float"], _PRICE):
            yield _check("be_between", column=column, min_value=0, max_value=1, strict_min=low, strict_max=high)
    for values in ([None], ["a", None], [], ["a", "a"]):
        yield _check("be_in_set", column=_TEXT, value_set=values)
    # Equal in Python, and not the same in DuckDB.
    for value in (2**53, 2.0**53, 2**53 + 1, 1, 1.0, True, 2**63 - 1):
        yield from (
            _check("be_in_set", column=column, value_set=[value]) for column in (_LONG, _DOUBLE, NAMES["decimal(38,0)"])
        )
        yield from (_check("be_between", column=column, max_value=value) for column in (_LONG, _DOUBLE))
    yield Check("", "expect_compound_columns_to_be_unique", {"column_list": [_TEXT, _INT, _FLAG], "mostly": 0.5})
    yield from _of_odd_arguments()


_IGNORED = ("all_values_are_missing", "any_value_is_missing", "never")


def _of_shares() -> Sequence[tuple[str, dict[str, Any] | None]]:
    bounds = {"min_value": 0, "max_value": 1}
    return ("not_be_null", None), ("be_unique", None), ("be_between", bounds), ("be_in_set", {"value_set": [0, 1]})


def _of_odd_arguments() -> Iterator[Check]:
    """Arguments of other types than the column's."""
    yield _check("be_between", column=_DAY, min_value="1899-12-31")
    yield _check("be_between", column=_AT, max_value="2026-03-29 01:30:00+00")
    yield _check("be_between", column=_DAY, min_value=datetime(1899, 12, 31))
    yield _check("be_between", column=_AT, min_value=date(1899, 12, 31))
    yield _check("be_between", column=_TEXT, min_value=1)
    yield _check("be_between", column=_FLAG, min_value=0)
    yield _check("be_in_set", column=_LONG, value_set=["0", "1"])
    yield _check("be_in_set", column=_TEXT, value_set=[0, 1])
    yield _check("be_in_set", column=_TEXT, value_set=["a", 1])
    yield _check("be_in_set", column=_FLAG, value_set=[0, 1])
    yield _check("be_in_set", column=_DAY, value_set=["1899-12-31"])
    yield _check("be_in_set", column=_AT, value_set=[VALUES["timestamp"][2]])
    yield _check("be_in_set", column=_PRICE, value_set=[0.1, 0])
    yield _check("be_in_set", column=NAMES["float"], value_set=[0.5])
    yield _check("be_in_set", column=NAMES["binary"], value_set=["a"])
    yield _check("match_regex", column=_INT, regex="^1")
    yield _check("match_regex", column=_TEXT, regex="(?=a)")


def _check(kind: str, **arguments: Any) -> Check:
    return Check("", f"{_COLUMN}{kind}", arguments)


def judge(rows: DuckDBRows, checks: Sequence[Check]) -> list[Any]:
    """Returns for each check what Great Expectations says and what is shown of it, or "error"."""
    load()
    asked = [expectations.build_expectation(check, place) for place, check in enumerate(checks)]
    answers = expectations._by_position(rows.validate(asked, FORM))
    found: list[Any] = ["error"] * len(checks)
    sound = [place for place, answer in answers.items() if not find_exception(answer.exception_info or {})]
    shown = evaluate(rows, [checks[place] for place in sound], KEY)
    for place, one in zip(sound, shown, strict=True):
        answer = answers[place].to_json_dict()
        result = {k: v for k, v in answer["result"].items() if v is not None and v != []}
        some = [sorted(one.sample), sorted(one.keys)]
        whole = (one.unexpected or 0) <= SHOWN
        found[place] = [answer["success"], result, one.detail, some if whole else [*map(len, some)]]
    return found


def encode(value: Any) -> Any:
    """Returns a value of an argument for JSON, with its type."""
    if isinstance(value, list | tuple):
        return [encode(one) for one in value]
    if isinstance(value, datetime | date):
        return {type(value).__name__: value.isoformat()}
    return {"Decimal": str(value)} if isinstance(value, Decimal) else value


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    [(kind, text)] = value.items()
    return {"date": date.fromisoformat, "datetime": datetime.fromisoformat, "Decimal": Decimal}[kind](text)


def read() -> tuple[list[pa.Table], list[Check], list[list[Any]]]:
    """Returns the tables, the checks, and for each table the results."""
    stored = json.loads(gzip.decompress((FOLDER / "results.json.gz").read_bytes()))
    rows = pq.read_table(FOLDER / "rows.parquet")
    tables = [
        rows.filter(pc.equal(rows["table"], number)).drop_columns(["table"]) for number in range(len(stored["results"]))
    ]
    checks = [
        Check(f"check {n}", type_, {k: decode(v) for k, v in kwargs.items()})
        for n, (type_, kwargs) in enumerate(stored["checks"])
    ]
    return tables, checks, stored["results"]


def write() -> None:
    tables, checks = [*make_tables()], [*make_checks()]
    numbered = (t.append_column("table", pa.array([number] * len(t), pa.int16())) for number, t in enumerate(tables))
    FOLDER.mkdir(exist_ok=True)
    pq.write_table(pa.concat_tables(numbered), FOLDER / "rows.parquet", compression="zstd")
    with open_duckdb() as engine:
        results = [judge(engine.load(f"t{number}", rows.to_reader()), checks) for number, rows in enumerate(tables)]
    content = {
        "checks": [[check.type, {k: encode(v) for k, v in check.kwargs.items()}] for check in checks],
        "results": results,
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    (FOLDER / "results.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    expectations._SAMPLED = 10_000
    write()
