"""Plays a source table, and reads it in four ways: by ingests after each step, as extracts, at once, and by `init`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_tables.steps import STEPS
from support.arrival import Landing
from support.source_tables import Case
from support.source_versions import Rows, compare_version, open_log, read_newest, read_versions, write_rows
from tidefold.compute.runners import in_process
from tidefold.errors import TidefoldError
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.sources.delta.source_version import SourceVersion
from tidefold.sources.records.record_types import own_names
from tidefold.wiring import Pipeline, open_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = ("steps", "extract", "once", "init")


@dataclass
class Played:
    """What came of a table.

    versions: how many were compared. ends: the word for each way: `equal`, a code, or what is wrong.
    wrong: what is not as it must be.
    """

    versions: int = 0
    ends: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Step:
    """The table after a step: a copy of its folder, what it is, and the rows of its newest version by Spark."""

    copy: Path
    table: SourceVersion
    rows: list[dict[str, Any]]


def play(spark: SparkSession, case: Case, root: Path) -> Played:
    """Makes a table in an empty folder, and compares."""
    played, made, copies = Played(), root / "made" / "table", root / "copies"
    made.parent.mkdir(parents=True)
    steps = list(_make(spark, case, made, copies, played))
    pipeline = _configure(case, root / "at", steps)
    at = root / "at" / case.folder
    ended = set[str]()
    for number, step in enumerate(steps):
        shutil.rmtree(at, ignore_errors=True)
        shutil.copytree(step.copy, at)
        for way in ("steps", "extract", *(["once"] if number == len(steps) - 1 else [])):
            if way not in ended and (code := _ingest(pipeline, way, step, played, number)):
                played.ends[way] = code
                ended.add(way)
    played.ends["init"] = _init(case, root / "at", steps[-1], played)
    for way in WAYS:
        word, wanted = played.ends.setdefault(way, "equal"), case.refused.get(way, "equal")
        if word != wanted and not (way == "init" and word.startswith("asks")):
            played.wrong.append(f"{way}: {word}, expected {wanted}")
    return played


def _make(spark: SparkSession, case: Case, made: Path, copies: Path, played: Played) -> Any:
    """Yields the table after each step. Compares each of its versions."""
    newest, rows, identity = -1, Rows(), ""
    for number, statement in enumerate(case.list_steps()):
        if statement in STEPS:
            STEPS[statement](spark, made)
        else:
            spark.sql(statement.replace("{t}", f"delta.`{made}`"))
        if not made.exists():
            continue
        log = open_log(made)
        if (now := read_newest(log)).id != identity:
            identity, newest = now.id, newest if newest < now.version else -1
        for version, of_spark in read_versions(spark, made, newest).items():
            try:
                rows, _ = compare_version(log, version, of_spark, rows)
            except TidefoldError as error:
                rows = write_rows(of_spark)
                if error.code not in case.refused.values():
                    played.wrong.append(f"version {version}: {error}")
            except AssertionError as error:
                rows = write_rows(of_spark)
                played.wrong.append(str(error))
            newest, newest_rows = version, of_spark
            played.versions += 1
        copy = copies / f"{number:03d}"
        shutil.copytree(made, copy)
        yield _Step(copy, now, newest_rows)


def _configure(case: Case, at: Path, steps: list[_Step]) -> Pipeline:
    """A pipeline with three logs of the table, whose columns are those of all its versions."""
    columns: dict[str, dict[str, Any]] = {}
    ignored = set[str]()
    key = [name.strip() for name in case.key.split(",")]
    for column in (column for step in steps for column in step.table.columns):
        own = case.aliases.get(column.name, column.name)
        if column.type is None:
            ignored.add(column.name)
            continue
        entry = columns.setdefault(own, {} if own in key else {"default": None})
        entry["type"] = column.own.type
        if own != column.name:
            entry["aliases"] = sorted({*entry.get("aliases", []), column.name})
    table = {"table": case.folder}
    sources: dict[str, dict[str, Any]] = {
        "steps": {"format": "delta-cdf", **table},
        "extract": {"format": "delta", **table, "extract": {"max_deletes": 1, "min_rows": 0}, "replaced": "accept"},
        "once": {"format": "delta-cdf", **table, "from_version": 0},
    }
    log = {"key": key, "columns": columns, "key_groups": 16, "buckets": 4}
    log |= {"ignored": sorted(ignored)} if ignored else {}
    logs = {name: {"source": source, **log} for name, source in sources.items()}
    at.mkdir()
    (at / "tidefold.yaml").write_text(json.dumps({"version": 1, "store": "store", "logs": logs}))
    return open_pipeline(at / "tidefold.yaml")


def _ingest(pipeline: Pipeline, log: str, step: _Step, played: Played, number: int) -> str:
    """Ingests, and compares the rows of the log with those of Spark. Returns the code of a refusal."""
    [outcome] = ingest(pipeline, [log], in_process)
    codes = [outcome.error_code] if outcome.error_code else []
    codes += [problem["code"] for problem in outcome.facts.get("problems", ())]
    if codes:
        return str(codes[0])
    if wrong := _compare(pipeline, log, step):
        played.wrong.append(f"{log}, step {number}: {wrong}")
    return ""


def _compare(pipeline: Pipeline, log: str, step: _Step) -> str:
    """Returns how the rows of a log differ from those of Spark; empty: not at all."""
    shape = pipeline.log(log).shape
    fit = [column.name for column in step.table.columns if column.type is not None]
    names = dict(zip(fit, own_names(shape, fit), strict=True))
    names = {name: own for name, own in names.items() if own in {column.name for column in shape.columns}}
    expected, found = write_rows(step.rows, names), Rows()
    if pipeline.ledger(log).exists():
        found = write_rows(_read(pipeline, log), {own: own for own in names.values()})
    if found == expected:
        return ""
    return f"{dict(list((found - expected).items())[:3])} instead of {dict(list((expected - found).items())[:3])}"


def _read(pipeline: Pipeline, log: str) -> list[Mapping[str, Any]]:
    _, batches = read_rows(pipeline, log, ReadRequest(What.LIVE))
    return [row for batch in batches for row in batch.to_pylist()]


def _init(case: Case, at: Path, step: _Step, played: Played) -> str:
    """What `init` makes of the newest version: a log that is equal, a question, or a refusal."""
    shutil.move(at / "tidefold.yaml", at / "ours.yaml")
    shutil.rmtree(at / "store", ignore_errors=True)
    landing = Landing(at)
    said = landing.call("init", str(at / case.folder.split("/")[0]), code=None)
    if not (at / "tidefold.yaml").exists():
        return said.output.partition("[")[2].partition("]")[0] or f"exit code {said.exit_code}"
    text = (at / "tidefold.yaml").read_text()
    asked = [line.strip("# ").partition("QUESTION")[2].strip(" :") for line in text.splitlines() if "QUESTION" in line]
    codes = {code for code in case.refused.values() if code in text or code in said.output}
    if codes:
        return codes.pop()
    try:
        pipeline = open_pipeline(at / "tidefold.yaml")
    except TidefoldError as error:
        return f"asks: {asked[-1]}" if asked else error.code
    [log] = pipeline.config.logs
    if code := _ingest(pipeline, log, step, played, -1):
        return code
    return "equal"
