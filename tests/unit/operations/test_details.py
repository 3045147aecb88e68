"""The details of outcomes: their keys in the JSON output, and their way from a Spark job to the process that asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import tidefold.operations
from tidefold.domain.log_state import SnapshotKind
from tidefold.operations.ground.outcome import Details, ErrorInfo, Outcome, Status
from tidefold.operations.ground.snapshot_details import (
    AbortDetails,
    CompactionDetails,
    DrillDetails,
    ExportDetails,
    FailedRead,
    FilesRead,
    LocalCopyDetails,
    PointInTimeDetails,
    PointInTimePlanDetails,
    PublicationDetails,
    ReadSources,
    SavepointDetails,
    StagedDetails,
    StagedImport,
    StagedRestore,
    TailDetails,
)
from tidefold.operations.ingest.ingest_outcome import IngestDetails
from tidefold.operations.quarantine.retry import RetryDetails
from tidefold.operations.quarantine.settle import SettledDetails
from tidefold.spark.result_file import read_outcomes, write_outcomes


def _find_types(kind: type[Details] = Details) -> Iterator[type[Details]]:
    if kind is Details:
        for module in walk_packages(tidefold.operations.__path__, "tidefold.operations."):
            import_module(module.name)
    yield kind
    for one in kind.__subclasses__():
        yield from _find_types(one)


# A dataclass with slots is made twice, and the first one may still be there.
TYPES = {kind.__name__: kind for kind in _find_types()}

SERVED = {"files": 1, "bytes": 20, "seconds": 0.5}
FAILED = {"file": "f", "place": "local:f", "why": "missing", "seconds": 0.1}
READ = {"local": SERVED, "store": SERVED, "external": SERVED, "failed": [FAILED], "older": {"0-15": None, "16-31": 1}}
FILES_READ = FilesRead(files=1, bytes=20, seconds=0.5)
FAILED_READ = FailedRead(file="f", place="local:f", why="missing", seconds=0.1)
SOURCES = ReadSources(
    local=FILES_READ, store=FILES_READ, external=FILES_READ, failed=[FAILED_READ], older={"0-15": None, "16-31": 1}
)
NUMBERS = (
    *("rows", "changes", "upserts", "deletes", "replaced", "expired", "clears", "cleared_rows", "ties"),
    *("ties_apart", "unresolved", "files", "files_carried", "bytes_full", "bytes_written", "bytes_copied", "buckets"),
)
STAGED: dict[str, Any] = {"kind": "full", "because": "as asked", "unresolved_keys": [{"key": [1], "columns": ["a"]}]}
STAGED |= {name: number for number, name in enumerate(NUMBERS)}


def make_staged(**further: Any) -> StagedDetails:
    return StagedDetails(**{**STAGED, "kind": SnapshotKind.FULL, "read": SOURCES, **further})


NO_CHANGES = {"skipped": None, "replayed": None}
CASES: list[tuple[Details, Mapping[str, Any]]] = [
    (Details(), {}),
    (Details(bytes_without_spark=7), {"bytes_without_spark": 7}),
    (make_staged(), {**STAGED, "read": READ}),
    (make_staged(as_of="2026-11-05T00:00:00Z"), {**STAGED, "read": READ, "as_of": "2026-11-05T00:00:00Z"}),
    (
        make_staged(
            local=LocalCopyDetails(bytes=5, from_primary=5, warning=None),
            bytes_without_spark=9,
        ),
        {
            **STAGED,
            "read": READ,
            "local": {"bytes": 5, "linked": 0, "from_local": 0, "from_primary": 5, "warning": None},
            "bytes_without_spark": 9,
        },
    ),
    (
        make_staged(
            manifests=[],
            restore=StagedRestore(restored=1, mode="replay", skipped=None, replayed=(4, 6), recorded=None),
        ),
        {
            **STAGED,
            "read": READ,
            "restored": 1,
            "mode": "replay",
            "skipped": None,
            "replayed": [4, 6],
            "recorded": None,
            "manifests": [],
        },
    ),
    (
        make_staged(
            manifests=[FAILED_READ],
            restore=StagedRestore(
                restored=1, mode="skip", skipped=(4, 6), replayed=None, columns_gone=["a"], recorded=3
            ),
        ),
        {
            **STAGED,
            "read": READ,
            "restored": 1,
            "mode": "skip",
            "skipped": [4, 6],
            "replayed": None,
            "columns_gone": ["a"],
            "recorded": 3,
            "manifests": [FAILED],
        },
    ),
    (
        make_staged(imported=StagedImport(imported="/s", mode="claim", skipped=None, replayed=None)),
        {**STAGED, "read": READ, "imported": "/s", "mode": "claim", **NO_CHANGES},
    ),
    (PublicationDetails(rows=5, table_version=2, bytes=70), {"rows": 5, "table_version": 2, "bytes": 70}),
    (PointInTimeDetails(rows=5, as_of="i", bytes=70), {"rows": 5, "as_of": "i", "bytes": 70}),
    (
        PointInTimePlanDetails(as_of="i", base=None, change_sets=1, changes_at_most=2, change_sets_later=3),
        {"as_of": "i", "base": None, "change_sets": 1, "changes_at_most": 2, "change_sets_later": 3},
    ),
    (TailDetails(base=1, change_sets=2, changes=3), {"base": 1, "change_sets": 2, "changes": 3}),
    (CompactionDetails(change_sets=2, changes=3, into=1), {"change_sets": 2, "changes": 3, "into": 1}),
    (
        CompactionDetails(change_sets=2, changes=3, into=1, changes_kept=0),
        {"change_sets": 2, "changes": 3, "into": 1, "changes_kept": 0},
    ),
    (AbortDetails(files_removed=3), {"files_removed": 3}),
    (
        ExportDetails(to="/t", rows=5, files=1, bytes=70, sqn=4, key_groups=(0, 127, 128), manifests=[], read=SOURCES),
        {
            "to": "/t",
            "rows": 5,
            "files": 1,
            "bytes": 70,
            "sqn": 4,
            "key_groups": [0, 127, 128],
            "manifests": [],
            "read": READ,
        },
    ),
    (
        DrillDetails(seconds=0.5, bytes=70, bytes_local=0, rows=0, files=0, passed=False, wrong=["f: altered"]),
        {
            "seconds": 0.5,
            "bytes": 70,
            "bytes_local": 0,
            "rows": 0,
            "files": 0,
            "passed": False,
            "wrong": ["f: altered"],
            "read": {},
        },
    ),
    (
        SavepointDetails(address="/s", kind="native", sqn=4, rows=5, files=1, bytes=70, positions=[], read=None),
        {"address": "/s", "kind": "native", "sqn": 4, "rows": 5, "files": 1, "bytes": 70, "positions": [], "read": {}},
    ),
    (
        RetryDetails(
            records=3, changes=1, repeated=0, tombstones=0, ignored=0, staying=2, why={"newer": 2}, reasons={"LATE": 2}
        ),
        {
            "records": 3,
            "changes": 1,
            "repeated": 0,
            "tombstones": 0,
            "ignored": 0,
            "staying": 2,
            "why": {"newer": 2},
            "reasons": {"LATE": 2},
        },
    ),
    (SettledDetails(records=3, by="ada", why="known"), {"records": 3, "by": "ada", "why": "known", "left": 0}),
]


@pytest.mark.parametrize(("details", "keys"), CASES, ids=lambda one: type(one).__name__)
def test_details_have_the_keys_that_programs_read(details: Details, keys: Mapping[str, Any]) -> None:
    assert json.loads(json.dumps(details.to_dict())) == keys


def test_all_details_are_found() -> None:
    assert {"IngestDetails", "JudgementDetails", "VerifyDetails", "TruncateDetails", "RebuildDetails"} <= set(TYPES)
    assert len(TYPES) >= 30


def test_no_number_of_a_step_takes_the_gauge_that_says_that_the_step_failed() -> None:
    """`<task>.failed` is 0 or 1: a number with that name would be sent to the same StatsD name."""
    hints = {name: get_type_hints(kind).get("failed") for name, kind in TYPES.items()}
    assert [name for name, hint in hints.items() if hint in (int, float)] == []


def make_sample(hint: Any, *, full: bool) -> Any:
    """A value of a type; with `full` also for fields that have defaults, and no None."""
    outer, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        wanted = [one.name for one in fields(hint) if full or (one.default is one.default_factory is MISSING)]
        return hint(**{name: make_sample(hints[name], full=full) for name in wanted})
    if outer in (Union, UnionType):
        return make_sample(inner[0], full=full) if full or type(None) not in inner else None
    if outer is tuple:
        return tuple(make_sample(one, full=full) for one in inner if one is not Ellipsis)
    if outer is Sequence:
        return [make_sample(inner[0], full=full)] if full else []
    if outer is Mapping:
        return {make_sample(inner[0], full=full): make_sample(inner[1], full=full)} if full else {}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return list(hint)[-1]
    return {int: 3, float: 0.5, str: "a", bool: True, Any: [1, {"b": None}]}[hint]


@pytest.mark.parametrize("full", [True, False])
def test_details_of_every_type_cross_the_process_border(full: bool, tmp_path: Path) -> None:
    samples = {name: make_sample(kind, full=full) for name, kind in sorted(TYPES.items())}
    outcomes = [Outcome(name, Status.TAKEN, "as text", 3, details=details) for name, details in samples.items()]
    write_outcomes(tmp_path / "result.json", outcomes)
    read = read_outcomes(tmp_path / "result.json")
    assert len(read) == len(outcomes)
    assert [(came, sent) for came, sent in zip(read, outcomes, strict=True) if came != sent] == []
    assert {outcome.log: type(outcome.details) for outcome in read} == TYPES
    assert [json.dumps(one.to_dict()) for one in read] == [json.dumps(one.to_dict()) for one in outcomes]


def test_an_error_crosses_with_its_details(tmp_path: Path) -> None:
    error = ErrorInfo("BAD", "It is bad.", "Mend it.", 3, True)
    outcome = Outcome("items", Status.STOPPED, "text", error=error, details=IngestDetails(files=2))
    write_outcomes(tmp_path / "result.json", [outcome])
    assert read_outcomes(tmp_path / "result.json") == [outcome]


@pytest.mark.parametrize(
    "place", ["os:system", "tidefold.operations.ground.outcome:Outcome", "tidefold.operations.none:No"]
)
def test_only_details_are_made_from_a_result(place: str, tmp_path: Path) -> None:
    write_outcomes(tmp_path / "result.json", [Outcome("items", Status.TAKEN, "text")])
    written = (tmp_path / "result.json").read_text()
    (tmp_path / "result.json").write_text(written.replace("tidefold.operations.ground.outcome:Details", place))
    with pytest.raises((TypeError, ImportError)):
        read_outcomes(tmp_path / "result.json")
