"""Files with refused rows land again under another name, after the configuration was corrected, in each engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.arrival import Landing

COLUMNS = "columns: {id: long, v: string, n: long, at: timestamp}\nquality: {max_refused: 1, max_row_drop: 1}"
LOGS = {
    "last": "key: [id]\norder: [at]",
    "history": "key: [id]\norder: [at]\nmerge: history",
    "aggregate": "key: [id]\norder: [at]\n"
    "merge: {engine: aggregate, deletes: ignore, aggregates: {v: max, n: sum, at: max}}",
    "append": "key: []\nmerge: append",
}
WRONG, RIGHT = "{format: csv,", '{format: csv, timestamp_formats: ["%d.%m.%Y"],'


def text(**dates: str) -> str:
    return "id,v,n,at\n" + "".join(f"{key[1:]},{key},1,{at}\n" for key, at in dates.items())


NONE, HALF, GOOD = text(v1="01.11.2026", v2="02.11.2026"), text(v3="03.11.2026", v4="2026-11-02"), text(v9="2026-11-01")


def wait(at: Landing, tmp: Path) -> Landing:
    return at


def settle(at: Landing, tmp: Path) -> Landing:
    for log in LOGS:
        at.call("quarantine", "settle", log, "--reason", "wrong format")
    return at


def rebuild(at: Landing, tmp: Path) -> Landing:
    for log in LOGS:
        at.lose_ledger(log)
        at.call("move", "rebuild", log, "--yes")
    return at


def move(at: Landing, tmp: Path) -> Landing:
    return at.moved(tmp / "moved", *LOGS)


def counts(at: Landing) -> dict[str, list[tuple[int, int]]]:
    return {log: sorted((row["id"], row["n"]) for row in at.rows(log)) for log in LOGS}


@pytest.mark.rotates(4)
@pytest.mark.parametrize("between", [wait, settle, rebuild, move])
def test_what_was_refused_can_land_again(between: Callable[[Landing, Path], Landing], tmp_path: Path) -> None:
    logs = {log: f"{lines}\n{COLUMNS}" for log, lines in LOGS.items()}
    at = Landing.make(tmp_path / "at", logs, "format: csv")
    for files in ({"half": HALF, "half too": HALF, "x good": GOOD}, {"none": NONE, "none too": NONE}):
        for name, rows in files.items():
            at.land(f"{name}.csv", rows)
        at.run(code=None)
    assert counts(at) == {log: [(4, 1), (9, 1)] for log in LOGS}
    at = between(at, tmp_path)
    at.edit(WRONG, RIGHT)
    for name, rows in {"again none": NONE, "again half": HALF}.items():
        at.land(f"{name}.csv", rows)
    at.run(code=None)
    # Good rows beside refused ones would count twice.
    half = [(1, 1), (2, 1), (4, 1), (9, 1)]
    whole = [(1, 1), (2, 1), (3, 1), (4, 1), (9, 1)]
    found = {"last": whole, "history": whole, "aggregate": half, "append": half}
    assert counts(at) == found
    # What was ingested completely is a copy from now on.
    for name, rows in {"once more none": NONE, "once more half": HALF}.items():
        at.land(f"{name}.csv", rows)
    said = at.call("step", "ingest", code=None).output
    assert "which was ingested before" in said
    at.run(code=None)
    assert counts(at) == found


@pytest.mark.parametrize("settled", ["by a retry", "by a person", "some by a retry"])
def test_a_refused_file_is_no_problem_once_its_records_are_settled(settled: str, tmp_path: Path) -> None:
    at = Landing.make(tmp_path / "at", {"last": f"{LOGS['last']}\n{COLUMNS}"}, "format: csv")
    for number in range(25):  # More than are listed by name.
        at.land(f"{number}.csv", NONE if number < 24 else text(v1="01.11.2026", v2="never"))
    at.run(code=None)
    assert "LANDED_REFUSED" in at.call("status").output
    if settled == "by a person":
        at.call("quarantine", "settle", "last", "--reason", "wrong format")
    else:
        if settled == "some by a retry":
            at.land("other.csv", text(v5="soon"))
            at.call("step", "ingest", code=None)
        at.edit(WRONG, RIGHT)
        at.call("quarantine", "retry", "last", code=None)
    [log] = json.loads(at.call("status", "--format", "json").stdout)["logs"]
    assert dict(log["landing"]["counts"]).get("LANDED_REFUSED", 0) == (settled == "some by a retry")
    # The run of before stays named until the next one.
    lines = [line for line in at.call("status").output.splitlines() if "the newest run failed" not in line]
    assert ("LANDED_REFUSED" in "\n".join(lines)) == (settled == "some by a retry")
