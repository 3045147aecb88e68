"""A history has each version, also of a row that comes and ends in one transaction (decision 0069)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.landing import fold_waiting, land, make_landing, record, take
from tidefold.config import load_config
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.quarantine.inspect import count_refused

BEGUN = [(1, "c", None, "a"), (2, "c", None, "b")]
CASES: dict[str, tuple[list[tuple[int, str, str | None, str | None]], list[tuple[int, str]]]] = {
    "insert, delete": ([(9, "c", None, "x"), (9, "d", "x", None)], [(9, "x")]),
    "there and back": (
        [(1, "d", "a", None), (9, "c", None, "a"), (9, "u", "a", "z"), (9, "d", "z", None), (1, "c", None, "z")],
        [(1, "z"), (9, "a"), (9, "z")],
    ),
    "over a row and back": (
        [(1, "d", "a", None), (2, "c", None, "a"), (2, "d", "a", None), (1, "c", None, "a")],
        [(1, "a"), (2, "a"), (2, "b")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_version_of_a_transaction_is_in_the_history(tmp_path: Path, name: str) -> None:
    """Fault: the records of a row that ended within its transaction counted as ignored, if one file had them all."""
    changes, versions = CASES[name]
    made = make_landing(tmp_path)
    path = tmp_path / "tidefold.yaml"
    path.write_text(path.read_text().replace("key: [id]", "key: [id]\n    merge: history"))
    made = Pipeline(load_config(path), made.store)
    sent: list[dict[str, Any]] = []
    for at, (key, op, before, after) in enumerate([*BEGUN, *changes]):
        images = {n: text and {"id": key, "text": text} for n, text in (("before", before), ("after", after))}
        commit = 1000 if at < len(BEGUN) else 2000
        own = {"sequence": f'["{commit}","{commit + at}"]', "txId": commit}
        sent.append(record(at, key, op, **images, **own))
    land(tmp_path, 0, sent)
    take(made)
    assert not count_refused(made, "items")
    fold_waiting(made, "run")
    _, batches = read_rows(made, "items", ReadRequest(What.LIVE))
    found = sorted((row["id"], row["text"]) for batch in batches for row in batch.to_pylist())
    assert found == sorted([(1, "a"), (2, "b"), *versions])
