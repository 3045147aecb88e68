"""Refused rows of CSV and Parquet files of any names are read again with their file, once, at their old place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.landing import changes_of, fold_waiting, ingest_items, state_of
from support.landing_rows import land_parquet, land_text, make_rows_landing
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.retry import retry

WRONG = "csv, op: {column: op, upsert: [I]}"
RIGHT = 'csv, op: {column: op, upsert: [I, U], ignore: [X]}, "null": ["", n/a]'
# A text column may have had that text.
ALLOWED = "\n    schema_evolution: {read: evolve}"
HEAD = "op,id,text,seq\n"
FILES = {
    "2026-11-01.csv": "I,1,a,1\nI,2,b,n/a\nU,3,c,n/a\nX,9,x,9\n",
    "2026-11-02.csv": "I,2,newer,5\nI,3,c2,6\nI,z,bad,7\n",
}
KINDS = [
    {"more": "order: [file]"},
    {"more": "order: [at, file]", "columns": "{id: int, text: string, seq: long, at: {type: long, default: '0'}}"},
    {"more": "merge: append", "key": "[]"},
]


def rows(pipeline: Pipeline) -> list[Any]:
    _, batches = read_rows(pipeline, "items", ReadRequest(What.LIVE))
    return sorted(str(sorted(row.items())) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("kind", KINDS, ids=["file", "column and file", "append"])
def test_the_rows_are_as_if_they_had_been_readable_at_once(kind: dict[str, str], tmp_path: Path) -> None:
    """Land the same file under another name instead, and an older row wins, or rows of an append come twice."""
    for root in ("wrong", "right"):
        for name, text in FILES.items():
            land_text(tmp_path / root, name, HEAD + text)
    truth = make_rows_landing(tmp_path / "right", RIGHT, **kind)
    ingest_items(truth)
    ingest_items(make_rows_landing(tmp_path / "wrong", WRONG, **kind))
    pipeline = make_rows_landing(tmp_path / "wrong", RIGHT, **{**kind, "more": kind["more"] + ALLOWED})
    outcome = retry(pipeline, "items")
    assert outcome.facts["changes"] == 2, outcome.message
    assert (outcome.facts["ignored"], outcome.facts["why"]) == (1, {"refused": 1})
    assert retry(pipeline, "items").facts["why"] == {"refused": 1}
    place = ("_partition", "_offset", "_op", "id", "text", "seq")
    assert sorted(str([c[n] for n in place]) for c in changes_of(pipeline)) == sorted(
        str([c[n] for n in place]) for c in changes_of(truth)
    )
    for one in (pipeline, truth):
        fold_waiting(one, "r")
    assert rows(pipeline) == rows(truth)


def test_rows_of_parquet(tmp_path: Path) -> None:
    columns = "{id: long, text: string, seq: long}"
    pipeline = make_rows_landing(tmp_path, WRONG.replace("csv", "parquet"), columns)
    land_parquet(tmp_path, "a.parquet", [{"op": op, "id": i, "text": "t", "seq": i} for i, op in enumerate("IUI")])
    ingest_items(pipeline)
    right = make_rows_landing(tmp_path, "parquet, op: {column: op, upsert: [I, U]}", columns)
    assert retry(right, "items").facts["changes"] == 1
    assert sorted(c["id"] for c in changes_of(right)) == [0, 1, 2]


@pytest.mark.parametrize("text", [None, "I,1,a,1\nU,2,c,2\n", "I,1,a,1\n"])
def test_a_file_that_is_no_longer_as_it_was(text: str | None, tmp_path: Path) -> None:
    path = land_text(tmp_path, "a.csv", HEAD + "I,1,a,1\nU,2,b,2\n")
    ingest_items(make_rows_landing(tmp_path, WRONG))
    if text is None:
        path.unlink()
    else:
        path.write_text(HEAD + text)
    outcome = retry(make_rows_landing(tmp_path, RIGHT, more=f"order: [seq]{ALLOWED}"), "items")
    assert outcome.facts["why"] == {"gone": 1}
    assert "land corrected ones in a new file" in outcome.message


def test_a_file_that_grew_is_read_up_to_what_was_taken(tmp_path: Path) -> None:
    pipeline = make_rows_landing(tmp_path, WRONG)
    for text in ("I,1,a,1\nU,2,b,2\n", "I,1,a,1\nU,2,b,2\nI,3,c,3\nU,4,d,4\n"):
        land_text(tmp_path, "a.csv", HEAD + text)
        ingest_items(pipeline)
    assert [(e.changes, e.quarantined) for e in state_of(pipeline).landed] == [(1, 1), (1, 1)]
    right = make_rows_landing(tmp_path, RIGHT, more=f"order: [seq]{ALLOWED}")
    assert retry(right, "items").facts["changes"] == 2
    assert sorted(c["id"] for c in changes_of(right)) == [1, 2, 3, 4]
