"""Parts of a large landed file are read side by side: the log gets what it gets from reading the file as one."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.landing import changes_of, quarantined, state_of
from support.landing_rows import land_text, make_rows_landing
from tidefold.changelog import write_intents
from tidefold.compute.broadcast_work import TaskWork
from tidefold.compute.runners import Runner, TaskAnswer, _OfCores, in_process
from tidefold.domain.log_state import LandedFileRecord
from tidefold.domain.source_progress import NO_POSITION
from tidefold.errors import StorageError
from tidefold.operations.ground import recovery
from tidefold.operations.ground.outcome import Status
from tidefold.operations.ingest import parse
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.plan.shadow import renumber
from tidefold.wiring import Pipeline

OP = "op: {column: op, upsert: [I, U], delete: [D]}"
CSV, JSON, PARQUET = f"csv, {OP}", f"json, record: value, names: any, {OP}", f"parquet, {OP}"
SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string()), ("seq", pa.int64()), ("op", pa.string())])


class Killed(BaseException):
    """The process dies here."""


class Split:
    """Runs tasks in this process as if it had cores, and remembers how many files each round read in parts."""

    def __init__(self, cores: int) -> None:
        self.rounds: list[list[tuple[str, int, int]]] = []
        self.runner = _OfCores(self.run, cores)

    def run(self, work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        files = [f for task in map(json.loads, tasks) for log in task.get("logs", ()) for f in log["files"]]
        self.rounds.append([(f["file"]["name"], f.get("part", 0), f.get("parts", 1)) for f in files])
        return in_process(work, tasks)


@pytest.fixture(autouse=True)
def tiny_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "_LEAST_BYTES", 1)


def strip(entry: LandedFileRecord) -> LandedFileRecord:
    """The record of a file without what names the run and its files."""
    none = {"run": "", "instant": "", "sqn": None, "change_sets": 1, "stream": NO_POSITION, "changed": 0.0}
    return replace(entry, quarantine=entry.quarantine and "some", **none)  # type: ignore[arg-type]


def told(pipeline: Pipeline) -> dict[str, Any]:
    """What the log knows: records of files, positions, each change with its place, and what was refused."""
    if not pipeline.ledger("items").exists():
        return {}
    state = state_of(pipeline)
    order = ("_partition", "_offset", "_op", "id")
    # The key group of a row without a key says where it was read.
    left_out = set() if state.shape.key else {"_kg"}
    # A task also writes what it refused of a file that was there before.
    refused = {entry.name for entry in state.landed if entry.quarantine}
    changes = [{name: value for name, value in row.items() if name not in left_out} for row in changes_of(pipeline)]
    return {
        "landed": [strip(one) for one in state.landed],
        "positions": state.positions,
        "last": (state.last_file, state.names),
        "changes": sorted(changes, key=lambda row: tuple(str(row[name]).zfill(9) for name in order)),
        "refused": sorted(
            (one for one in quarantined(pipeline) if one["file"] in refused), key=lambda one: (one["file"], one["line"])
        ),
    }


def run(pipeline: Pipeline, runner: Runner) -> tuple[Any, ...]:
    """Runs an ingest. Returns what it says."""
    [outcome] = ingest(pipeline, ["items"], runner)
    facts = outcome.facts
    return outcome.status, facts.get("changes"), facts.get("refused"), [p["message"] for p in facts.get("problems", ())]


def row_of(number: int, item: int, text: str, seq: int, op: str) -> dict[str, Any]:
    return {"id": item, "text": text, "seq": seq, "op": op}


ROWS = st.lists(
    st.builds(
        row_of,
        st.just(0),
        st.integers(0, 4),
        st.sampled_from(["a", "é", "", "two\nlines", 'a "b"', "c,d", "x" * 30]),
        st.integers(0, 3),
        st.sampled_from("IIUUUD?"),
    ),
    min_size=1,
    max_size=40,
)
BAD = {
    CSV: [b"", b"7,a", b'3,5" pipe,1,I', b'3,"a" b,1,I', b"no,number,here,I", b'4,"c"",",2,U'],
    JSON: [
        b"",
        b"  ",
        b"{",
        b"[1]",
        b'{"id": "x", "seq": 1, "op": "I"}',
        b"\xff\xfe",
        b'{"id": null, "text": "", "seq": 1, "op": "I"}',
    ],
}


def write_csv(row: dict[str, Any]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(row.values())
    return buffer.getvalue().encode()


@st.composite
def files(draw: st.DrawFn, source: str) -> bytes:
    rows = draw(ROWS)
    if source == PARQUET:
        buffer = io.BytesIO()
        table = pa.Table.from_pylist(rows, SCHEMA)
        pq.write_table(table, buffer, row_group_size=draw(st.sampled_from([1, 3, 7, 1000])), write_page_checksum=True)
        return buffer.getvalue()
    write = write_csv if source == CSV else lambda row: json.dumps(row).encode()
    lines = [write(row) for row in rows]
    for bad in draw(st.lists(st.sampled_from(BAD[source]), max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), bad)
    head = [b"id,text,seq,op"] if source == CSV else []
    return b"\n".join([*head, *lines]) + b"\n"


LOGS = [("[id]", "order: [seq]"), ("[id]", "order: [seq, file]"), ("[id]", "order: file"), ("[]", "merge: append")]


@pytest.mark.parametrize("source", [CSV, JSON, PARQUET], ids=["csv", "json", "parquet"])
@given(data=st.data())
@settings(max_examples=choose(8, 200), deadline=None)
def test_any_parts_give_what_the_file_gives(
    source: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also for a file that was partly written and one that grows, and for a run after one that was killed."""
    folders = [tmp_path_factory.mktemp(name) for name in ("whole", "parts")]
    key, more = data.draw(st.sampled_from(LOGS))
    one, other = (make_rows_landing(folder, source, more=more, key=key) for folder in folders)
    split = Split(data.draw(st.integers(1, 8)))
    landed = [data.draw(files(source)) for _ in range(data.draw(st.integers(1, 2)))]
    written = data.draw(st.integers(1, len(landed[-1])) | st.just(len(landed[-1])))
    for content in (written, len(landed[-1])):
        for folder in folders:
            for number, text in enumerate(landed):
                land_text(folder, name_of(source, number), text[:content] if text is landed[-1] else text)
        if dies := data.draw(st.sampled_from([None, (recovery, "commit_ingest"), (write_intents, "bring")])):
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                patch.setattr(*dies, die)
                ingest(other, ["items"], split.runner)
            ingest(one, ["items"], in_process)
            ingest(other, ["items"], split.runner)
        else:
            assert run(one, in_process) == run(other, split.runner)
        assert told(one) == told(other)


def name_of(source: str, number: int) -> str:
    return f"f{number}.{ {CSV: 'csv', JSON: 'jsonl', PARQUET: 'parquet'}[source] }"


def die(*_: Any) -> None:
    raise Killed


LINES = [f"{item},row {item},{item},U" for item in range(40)]
HEAD = "id,text,seq,op"


def land_csv(root: Path, name: str, lines: Sequence[str]) -> Path:
    return land_text(root, name, "\n".join([HEAD, *lines]) + "\n")


def test_a_file_has_a_change_set_for_each_part_that_has_changes(tmp_path: Path) -> None:
    pipeline, split = make_rows_landing(tmp_path, CSV), Split(2)
    land_csv(tmp_path, "f.csv", LINES)
    ingest(pipeline, ["items"], split.runner)
    assert split.rounds == [[("f.csv", part, 4) for part in range(4)]]
    state = state_of(pipeline)
    [entry] = state.landed
    assert [c.sqn for c in state.change_sets] == list(entry.sqns) == [1, 2, 3, 4]
    assert {c.file for c in state.change_sets} == {1}
    # A plan numbers its files as the log did.
    other = replace(state, landed=(replace(entry, number=7),))
    assert {c.file for c in renumber(state, other).change_sets} == {7}
    assert [row["_offset"] for row in changes_of(pipeline)] == list(range(1, 41))


def test_without_known_cores_no_file_is_split(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, CSV)
    land_csv(tmp_path, "f.csv", LINES)
    ingest(pipeline, ["items"], in_process)
    assert len(state_of(pipeline).change_sets) == 1


def test_a_file_that_grows_while_its_parts_are_read_is_read_as_one(tmp_path: Path) -> None:
    """The file behind it keeps its number, and is not read again."""
    pipeline, split = make_rows_landing(tmp_path, CSV), Split(1)
    paths = [land_csv(tmp_path, f"f{number}.csv", LINES) for number in range(2)]
    run_tasks = split.run

    def grow(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if not split.rounds:
            paths[0].write_text(paths[0].read_text() + LINES[0] + "\n")
        return run_tasks(work, tasks)

    ingest(pipeline, ["items"], _OfCores(grow, 4))
    assert [len(some) for some in split.rounds] == [8, 1]
    assert split.rounds[1] == [("f0.csv", 0, 1)]
    assert [(e.number, e.name, e.records) for e in state_of(pipeline).landed] == [(1, "f0.csv", 40), (2, "f1.csv", 40)]


@pytest.mark.parametrize(("text", "rounds"), [('"two\nlines"', 1), ('"a ""b"", c"', 1), ('5" wide', 2), ('open"', 2)])
def test_parts_of_a_csv_begin_outside_of_quotes(text: str, rounds: int, tmp_path: Path) -> None:
    """Where a quote stands within a value, nobody knows that: the file is read as one."""
    pipeline, split = make_rows_landing(tmp_path, CSV), Split(3)
    land_csv(tmp_path, "f.csv", [f"{item},{text},{item},U" for item in range(40)])
    assert run(pipeline, split.runner)[:2] == (Status.TAKEN, 40)
    assert (len(split.rounds), len(state_of(pipeline).change_sets)) == (rounds, 6 if rounds == 1 else 1)


def test_a_part_that_fails_is_an_error_of_its_log(tmp_path: Path) -> None:
    pipeline, split = make_rows_landing(tmp_path, CSV), Split(2)
    land_csv(tmp_path, "f.csv", LINES)

    def fail(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        return [StorageError("STORE_FAILED", "The disk is full."), *in_process(work, tasks[1:])]

    [outcome] = ingest(pipeline, ["items"], _OfCores(fail, 2))
    assert (outcome.error_code, pipeline.ledger("items").exists()) == ("STORE_FAILED", False)
    run(pipeline, split.runner)
    assert [entry.records for entry in state_of(pipeline).landed] == [40]


@pytest.mark.parametrize("source", ["csv", "json, record: value"])
def test_full_extracts_in_parts(source: str, tmp_path: Path) -> None:
    """Unchanged rows of all parts are found, and so are keys that are missing."""
    is_csv, told_by = source == "csv", []
    for name, runner in (("whole", in_process), ("parts", Split(2).runner)):
        pipeline = make_rows_landing(tmp_path / name, f"{source}, extract: full", more="")
        for day, items in (("01", range(40)), ("02", range(3, 42))):
            rows = [{"id": item, "text": f"row {item}", "seq": 1 + (day == "02" and item == 9)} for item in items]
            lines = [",".join(map(str, row.values())) if is_csv else json.dumps(row) for row in rows]
            text = "\n".join(["id,text,seq", *lines, ""] if is_csv else [*lines, ""])
            land_text(tmp_path / name, f"items-2026-11-{day}.{'csv' if is_csv else 'jsonl'}", text)
            assert not run(pipeline, runner)[-1]
        entries = [(e.name, e.records, e.changes, e.ignored) for e in state_of(pipeline).landed]
        told_by.append((changes_of(pipeline), entries))
    whole, parts = told_by
    assert parts == whole
    assert [counts for _, *counts in parts[1]] == [[40, 40, 0], [3, 3, 0], [39, 3, 36]]
