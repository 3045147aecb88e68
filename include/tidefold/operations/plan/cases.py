"""Tests a configuration: sample files in a folder, and the rows that must come out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from tidefold.domain.table.types import parse_type, parse_value
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.operations.ground.outcome import ErrorInfo
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, read_rows
from tidefold.operations.plan.shadow import fill, steps_in_process
from tidefold.operations.quarantine.inspect import show_refused
from tidefold.quality.run.engine import QualityEngine

LANDING, EXPECTED = "landing", "rows.csv"
# How often each row is there, as the texts of its values.
_Rows = Counter[tuple[str, ...]]
_REFUSED = 10


@dataclass(frozen=True, slots=True)
class SampleCase:
    """Sample files, and a CSV file with the rows that they must make; None: only the gate decides."""

    name: str
    landing: Path
    expected: Path | None


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What came of a case.

    compared: whether rows were expected, and not only what the gate says.
    rows: how many rows the samples make.
    missing, unexpected: rows that were expected and did not come out, and the reverse, as text by column.
    refused: refused records, for people.
    gate: the outcome of the gate, for people.
    error: why there are no rows to judge; None: there are.
    """

    name: str
    passed: bool
    compared: bool
    rows: int = 0
    missing: tuple[Mapping[str, str], ...] = ()
    unexpected: tuple[Mapping[str, str], ...] = ()
    refused: tuple[str, ...] = ()
    gate: str = ""
    error: ErrorInfo | None = None


def find_cases(folder: Path) -> list[SampleCase]:
    """Returns the cases below a folder: each has a folder `landing`, and its `rows.csv`. Raises NotFoundError."""
    named = sorted(one.parent for one in folder.glob(f"*/{LANDING}") if one.is_dir())
    if not named:
        message = f"`{folder}` has no case: no folder in it has a folder `{LANDING}`."
        raise NotFoundError("CASES_MISSING", message)
    for one in named:
        if not (one / EXPECTED).is_file():
            raise NotFoundError("CASES_MISSING", f"Case `{one}` has no `{EXPECTED}`.")
    return [SampleCase(one.name, one / LANDING, one / EXPECTED) for one in named]


def run_case(beside: Pipeline, log: str, case: SampleCase, engine: QualityEngine) -> CaseResult:
    """Makes the rows of a case in an empty store, and compares them. An error of the configuration is its result.

    Raises InvalidInputError if the expected rows cannot be read.
    """
    names, wanted = _read_expected(case.expected, beside.log(log).shape.types) if case.expected else ([], _Rows())
    try:
        shadow = fill(beside, log, steps_in_process(beside, engine))
    except TidefoldError as error:
        missing, refused = _name_values(names, wanted), _list_refused(beside, log)
        return CaseResult(case.name, False, bool(names), missing=missing, refused=refused, error=ErrorInfo.of(error))
    _, batches = read_rows(beside, log, ReadRequest(snapshot=shadow.snapshot.id))
    came = _Rows(tuple(_format(row[name]) for name in names) for row in _rows(batches) if names)
    missing, unexpected = _name_values(names, wanted - came), _name_values(names, came - wanted)
    return CaseResult(
        case.name,
        passed=shadow.passed and not (missing or unexpected or shadow.ingested.error),
        compared=bool(names),
        rows=shadow.snapshot.rows,
        missing=missing,
        unexpected=unexpected,
        refused=_list_refused(beside, log),
        gate=f"{shadow.judged.status}: {shadow.judged.message}",
        error=shadow.ingested.error,
    )


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _name_values(names: Sequence[str], rows: _Rows) -> tuple[Mapping[str, str], ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in sorted(rows.elements()))


def _list_refused(beside: Pipeline, log: str) -> tuple[str, ...]:
    if not beside.ledger(log).exists() or not any(e.quarantined for e in beside.ledger(log).read().landed):
        return ()
    listed, more = show_refused(beside, log, None, _REFUSED)
    told = [f"{one.file}, line {one.line}: {one.reason}: {one.detail}" for one in listed]
    return (*told, "...") if more else tuple(told)


def _read_expected(path: Path, types: Mapping[str, str]) -> tuple[list[str], _Rows]:
    """Returns the columns and the rows of a CSV file. An empty value is null, a quoted one is not."""
    try:
        convert = pacsv.ConvertOptions(
            column_types=dict.fromkeys(types, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = pacsv.read_csv(path, convert_options=convert)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError("EXPECTED_ROWS", f"The expected rows cannot be read: {path}: {error}.") from error
    if unknown := [name for name in table.column_names if name not in types]:
        raise InvalidInputError("EXPECTED_ROWS", f"`{path}` has columns that the table lacks: {', '.join(unknown)}.")
    listed = (tuple(_format(_parse(types[name], text)) for name, text in row.items()) for row in table.to_pylist())
    return table.column_names, _Rows(listed)


def _parse(type_: str, text: str | None) -> Any:
    """Returns the value of a text, as rows have it; a text that is none of this type stays, and no row has it.

    A time without zone is in UTC.
    """
    kind = parse_type(type_)
    if text is None:
        return None
    try:
        if kind.name == "timestamp" and (instant := datetime.fromisoformat(text)).tzinfo is None:
            text = instant.replace(tzinfo=UTC).isoformat()
        value = parse_value(type_, text)
    except ValueError:
        return text
    return pa.scalar(value, pa.float32()).as_py() if kind.name == "float" else value


def _format(value: Any) -> str:
    return "null" if value is None else str(value)
