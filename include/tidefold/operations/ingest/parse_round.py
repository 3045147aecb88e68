"""One round of an ingest: the files of many logs packed into tasks, announced, parsed, and given back to the logs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tidefold.changelog.write_intents import Intent, begin
from tidefold.compute.runners import Runner
from tidefold.domain.paths import CHANGELOG
from tidefold.errors import TidefoldError
from tidefold.operations.ingest.log_ingest import TASK_BYTES, Intake, files_to_parse, with_results
from tidefold.operations.local_copies.quota import without_room
from tidefold.operations.pipeline import Pipeline, now
from tidefold.sources.ingest.parse_task import LogFiles, LogResult, ParseTask, parse

_log = logging.getLogger(__name__)
# Below this a part shares its task and its segment with other logs: many small logs make few files.
_SMALL = 8 << 20


@dataclass
class IngestRun:
    """One call of ingest: its name, under which it announces what it writes."""

    id: str
    rounds: int = 0
    files: tuple[str, ...] = ()


def parse_round(pipeline: Pipeline, run: IngestRun, intakes: Sequence[Intake], runner: Runner) -> list[Intake]:
    """The intakes after everything that they plan was parsed. A task that fails is an error of its logs.

    Raises StorageError when the segments cannot be announced; then nothing was written.
    """
    tasks = _tasks(pipeline, [part for intake in intakes for part in files_to_parse(intake)])
    _announce(pipeline, run, intakes, tasks)
    _log.info("parsing %d files in %d tasks", sum(len(p.files) for t in tasks for p in t.logs), len(tasks))
    answers = runner(parse, [msgspec.json.encode(task).decode() for task in tasks])
    results: dict[str, list[LogResult | TidefoldError]] = {}
    for task, answer in zip(tasks, answers, strict=True):
        failed = answer if isinstance(answer, TidefoldError) else None
        parsed = [] if isinstance(answer, TidefoldError) else msgspec.json.decode(answer, type=list[LogResult])
        for part in task.logs:
            results.setdefault(part.log, []).append(failed or next(r for r in parsed if r.log == part.log))
    return [_after(pipeline, intake, results.get(intake.log, [])) for intake in intakes]


def _tasks(pipeline: Pipeline, parts: Sequence[LogFiles]) -> list[ParseTask]:
    """Large parts alone, small ones of different logs together; the largest task first."""
    groups: list[list[LogFiles]] = [[part] for part in parts if part.weight >= _SMALL]
    weight = TASK_BYTES
    for part in sorted((p for p in parts if p.weight < _SMALL), key=lambda p: p.log):
        # Of two parts of one log each has its own change sets in order, but not both in one segment.
        if weight + part.weight > _SMALL or groups[-1][-1].log == part.log:
            groups.append([])
            weight = 0
        groups[-1].append(part)
        weight += part.weight
    day = now()[:10]
    no_copy = without_room(pipeline) if groups else ""

    def task(group: list[LogFiles]) -> ParseTask:
        segment = f"{CHANGELOG}/{day}/{uuid.uuid4().hex}.seg"
        local = pipeline.local.root_of(segment) if pipeline.local and not no_copy else None
        return ParseTask(pipeline.store.uri(""), segment, tuple(group), local, no_copy)

    return sorted(map(task, groups), key=lambda task: -task.weight)


def _announce(pipeline: Pipeline, run: IngestRun, intakes: Sequence[Intake], tasks: Sequence[ParseTask]) -> None:
    files = tuple(path for task in tasks for path in (task.segment, *(part.quarantine for part in task.logs)))
    of = {part.log for task in tasks for part in task.logs}
    begin(pipeline.store, Intent(run.id, run.rounds, now(), tuple(i.intent for i in intakes if i.log in of), files))
    run.rounds += 1
    run.files = (*run.files, *files)


def _after(pipeline: Pipeline, intake: Intake, results: Sequence[LogResult | TidefoldError]) -> Intake:
    if not results:
        return intake
    try:
        return with_results(intake, pipeline.store, results)
    except TidefoldError as error:
        return intake.failed(error)
