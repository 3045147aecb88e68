"""Writes docs/contributors/reliability.md from what the runs recorded in tests/data/reliability.json."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrap_text

if TYPE_CHECKING:
    from faults.history import Found
    from faults.matrix import Matrix

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contributors" / "reliability.md"
RECORD = ROOT / "tests" / "data" / "reliability.json"
Record = dict[str, Any]


def read_record() -> Record:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(part: str, found: object) -> None:
    """Records what a run found, and writes the page again."""
    known = read_record() | {part: found}
    RECORD.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(render(read_record()))


def write_matrix(matrix: Matrix, part: str = "matrix") -> None:
    cells: dict[str, dict[str, Any]] = {}
    for (operation, fault), cell in matrix.items():
        if cell.cases:
            found = {
                "cases": cell.cases,
                "says": dict(sorted(cell.says.items())),
                "reader": dict(sorted(cell.reader.items())),
                "next": dict(sorted(cell.next.items())),
                "way": dict(sorted(cell.way.items())),
                "resumers": dict(sorted(cell.resumers.items())),
                "failed": len(cell.failed),
            }
            cells.setdefault(operation, {})[fault] = found
    # A run of some operations leaves the rows of the others.
    record(part, read_record().get(part, {}) | cells)


def record_history(store: str, found: Found) -> None:
    kept = {name: value for name, value in asdict(found).items() if name != "wrong"}
    record("history", read_record().get("history", {}) | {store: {**kept, "violations": found.violations}})


def render(known: Record) -> str:
    parts = [_INTRO, _summary(known), _scenarios(known)]
    parts += [_coordinators(known), _history(known), _SPARK, _matrix(known)]
    return wrap_text.wrap("\n".join(part for part in parts if part))


_INTRO = """\
# Reliability

<!-- Written by `make fault-matrix`, `make two-coordinators`, `make unsynced` and `make soak`. -->

What tidefold does when something fails, as recorded by runs of the real command line against real
Delta tables. `tests/faults` has the programs. `make test` plays a part of the matrix and compares
it with this page.

A reader never loses a published version by a command of tidefold: each case of the matrix asserts
it. Each case also asserts that every error has a name, that other logs are untouched, and that the
rows equal a plain fold of the landed files in the end.
"""

_SPARK = """\
## Tasks that Spark runs twice

Shown, on a real Spark (`tests/spark/test_retried_tasks.py`): every task of an ingest and of a fold
writes its files, loses its answer and is run again by Spark. All changes are taken and folded once;
`clean` removes the files of the first try. Without Spark, `test_tasks_run_twice.py` and the matrix
run every task twice in four ways: the first answer is lost,
a copy ends after the answer, and two at once where the first or the second counts.

Executors and workers that die while they fold, whose tasks Spark runs again on another one:
[outages on a cluster](benchmarks/cluster.md).

Not provoked: a copy that Spark's speculation starts by itself. Spark starts one only for a task that
is slower than its neighbours, on another executor; a local master with one executor never does. The
four ways above cover what the second run can do.
"""


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def _rows(known: Record) -> dict[str, Any]:
    """The cells of logs, then those of sets, by operation."""
    rows: dict[str, Any] = {**known.get("matrix", {}), **known.get("sets", {})}
    return rows


def _cells(known: Record) -> list[Mapping[str, Any]]:
    return [cell for row in _rows(known).values() for cell in row.values()]


def _summary(known: Record) -> str:
    cells = _cells(known)
    cases, failed = sum(c["cases"] for c in cells), sum(1 for c in cells if c["failed"])
    operations = len(_rows(known))
    return (
        _wrapped(
            f"The matrix has {operations} operations, {len(cells)} cells and {cases:,} cases; {failed} cells fail."
        )
        + "\n"
    )


def _deaths(known: Record) -> tuple[int, int]:
    """Cases where a process died or lost an answer, and in how many ways the log was resumed."""
    wanted = ("dies before", "dies half way", "dies after", "lost answer")
    rows = [row[fault] for row in known.get("matrix", {}).values() for fault in wanted if fault in row]
    return sum(c["cases"] for c in rows), len({r for c in rows for r in c["resumers"]})


def _count(known: Record, *starts: str) -> int:
    rows = _rows(known).values()
    return sum(c["cases"] for row in rows for fault, c in row.items() if fault.startswith(starts))


def _scenarios(known: Record) -> str:
    deaths, ways = _deaths(known)
    lost = _count(known, "ledger", "page", "manifest", "segment", "data file", "table log", "local", "disk", "may not")
    history = known.get("history", {})
    kills = sum(found["killed"] for found in history.values())
    rows: list[tuple[object, ...]] = [
        ("a process dies or loses an answer at a call, times who resumes", 126, deaths, f"matrix, {ways} resumers"),
        ("a second death during recovery", "1,764", *_FIXED["double"]),
        ("every store call of a scenario fails in turn", "4,000", *_FIXED["calls"]),
        ("storage faults: lost, full, denied, behind", 120, lost, "matrix; on S3 `test_s3_store.py`"),
        ("unsynced writes lost, all subsets", 500, *_unsynced(known)),
        ("two commands at once, at three moments", 108, _count(known, "meets"), "matrix, columns `meets ...`"),
        ("real processes killed with `kill -9`", 42, kills, "history checker; moments by chance, no Spark driver"),
        ("sources of a restore, whole or damaged", 63, *_FIXED["restore"]),
        ("random lives by seed", "10,000", *_FIXED["lives"]),
        ("state machines of Hypothesis", "3 of 500 x 50", *_FIXED["machines"]),
        ("bad input by class", 80, *_FIXED["input"]),
        ("injected strings and routes", 60, *_FIXED["security"]),
        ("stored formats of every release", "each", *_FIXED["formats"]),
    ]
    head = ("scenario", "wanted", "has", "where")
    return "## Scenarios\n\n" + _table(head, rows)


def _unsynced(known: Record) -> tuple[str, str]:
    found = known.get("unsynced")
    if not found:
        return "0: missed", "`make unsynced`"
    where = f"`make unsynced`: each distinct store that a power cut can leave; {found['continued']} of them went on"
    return f"{found['opened']} of {found['states']}, {found['wrong']} wrong", where


# What other tests show, counted by hand: how many cases, and where.
_FIXED: dict[str, tuple[str, str]] = {
    "double": ("1,043 of 71,316", "a sample in `test_simulator.py`; all pairs by `make soak LIVES=1`"),
    "calls": (
        "5,276",
        "`test_simulator.py`: 980 calls of 17 scenarios in 8 ways, without 2,564 equal cases (`make test-thorough`)",
    ),
    "restore": ("101", "`test_restore_sources.py`"),
    "lives": ("10,000", "`make soak LIVES=1`; 160 in each `make test`"),
    "machines": (
        "3, one smaller: missed",
        "life cycle and a ledger that goes back 500 x 50, writer 150 x 40 (`make test-thorough`); engines by plain "
        "properties",
    ),
    "input": (
        "136",
        "`test_bad_input.py` 52, `test_bad_files.py` 21, `test_ingest_rows.py` 63; configuration 257 more",
    ),
    "security": ("124", "`test_injected_strings.py` 84, `test_bad_parameters.py` and `test_page_rights.py` 40"),
    "formats": ("13 tests", "`test_golden.py`"),
}


def _coordinators(known: Record) -> str:
    found = known.get("coordinators", {})
    if not found:
        return ""
    rows: list[tuple[object, ...]] = [
        (store, f["rounds"], f["both"], f["one"], f["none"], _words(f["refused"]), f["wrong"])
        for store, f in found.items()
    ]
    head = ("store", "rounds", "both succeed", "one succeeds", "none", "the other is refused by", "wrong rows")
    text = "Two processes run `tidefold run` for the same log at the same moment (`make two-coordinators`)."
    return f"## Two coordinators\n\n{text}\n\n" + _table(head, rows)


def _history(known: Record) -> str:
    found = known.get("history", {})
    if not found:
        return ""
    head = (
        "store",
        "minutes",
        "commands",
        "acknowledged",
        "refused",
        "killed",
        "stopped",
        "crashed",
        "versions",
        "violations",
    )
    rows: list[tuple[object, ...]] = [
        (
            *(store, f["minutes"], f"{f['commands']:,}", f"{f['acknowledged']:,}", f"{f['refused']:,}"),
            *(f["killed"], f["stopped"], f.get("crashed", 0), f["versions"], f["violations"]),
        )
        for store, f in found.items()
    ]
    text = (
        "Eight processes run, abort, truncate, restore, clean, tag and retry against one store, while others are "
        "killed with `kill -9` or stopped and continued at random (`make soak`). `versions`: published versions whose "
        "rows were read and compared with a plain fold at their position. `violations`: outcomes that fit no serial "
        "order, or wrong rows. The S3 server is the one that docker-compose.yaml names; outside of containers it is "
        "had by `go install github.com/versity/versitygw/cmd/versitygw@v1.8.0`, and found on the PATH or by "
        "`VERSITYGW`."
    )
    text += (
        " `crashed`: a process ended by itself. A command that ends with exit code 1 or 5 is a violation, too: nothing "
        "is damaged here."
    )
    if any(f["minutes"] < 10 for f in found.values()):
        text += " Missed: runs of 10 minutes. The machine had other work to do, so these are shorter."
    return f"## History of eight processes\n\n{_wrapped(text)}\n\n{_table(head, rows)}"


def _matrix(known: Record) -> str:
    rows: list[tuple[object, ...]] = []
    for operation, row in _rows(known).items():
        cells = row.values()
        ways = sum(1 for cell in cells if set(cell["way"]) - {"none needed"})
        failed = sum(1 for cell in cells if cell["failed"])
        rows.append((operation, len(cells), sum(cell["cases"] for cell in cells), ways, failed))
    return _MATRIX + _table(("operation", "faults", "cases", "more than one run", "failed"), rows)


_MATRIX = """\
## Matrix

Every operation meets every fault: its process dies, an answer is lost, a file is lost or cut, a disk
is full, another command runs in the middle. The next run is `tidefold run --takeover`; `more than
one run` counts faults after which something else was needed: a file from a backup, or a rebuilt
ledger. `tests/data/reliability.json` has each cell: what the command printed, what a reader saw,
and what came next. Faults of sets are those of the set's ledger, of its pages, and of its
savepoint; a reader reads through the pointer, and sees all tables at one point.

"""


def _words(counts: Mapping[str, int]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{text} {n}" for text, n in counts.items())


if __name__ == "__main__":
    PAGE.write_text(render(read_record()))
