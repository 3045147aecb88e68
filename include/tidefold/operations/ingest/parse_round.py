"""One round of an ingest: packs the files of many logs into tasks, announces them and parses them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from tidefold.changelog.write_intents import Intent, begin
from tidefold.compute.runners import Runner
from tidefold.domain.paths import CHANGELOG
from tidefold.errors import TidefoldError
from tidefold.operations.ingest.log_ingest import TASK_BYTES, LogIngest, files_to_parse, with_results
from tidefold.operations.local_copies.quota import without_room
from tidefold.operations.pipeline import Pipeline, now
from tidefold.sources.ingest.parse_task import LogFiles, LogResult, ParseTask, parse
from tidefold.typed_json import decode_json

_log = logging.getLogger(__name__)
# Parts below this size share a task and a segment with other logs, so that many small logs make few files.
_SMALL = 8 << 20


@dataclass
class IngestRun:
    """One call of ingest.

    id: the name of its announcements and of its folders.
    rounds: how many rounds it has announced.
    folders: the folders that its tasks wrote segments or refused records to.
    """

    id: str
    rounds: int = 0
    folders: set[str] = field(default_factory=set)


def parse_round(pipeline: Pipeline, run: IngestRun, intakes: Sequence[LogIngest], runner: Runner) -> list[LogIngest]:
    """Parses all planned files, and returns the ingests with the results.

    A task that fails is an error of its logs. Raises StorageError if the segments cannot be announced; then nothing was
    written.
    """
    tasks = _pack(pipeline, run, [part for intake in intakes for part in files_to_parse(intake, run.id)])
    segments = {task.segments for task in tasks}
    quarantines = {part.quarantine for task in tasks for part in task.logs}
    names = {part.log for task in tasks for part in task.logs}
    logs = tuple(intake.intent for intake in intakes if intake.log in names)
    begin(pipeline.store, Intent(run.id, run.rounds, now(), logs, folders=(*segments, *sorted(quarantines))))
    run.rounds += 1
    run.folders |= segments
    _log.info("parsing %d files in %d tasks", sum(len(p.files) for t in tasks for p in t.logs), len(tasks))
    answers = [
        answer
        for some in _limit_in_flight(tasks, pipeline.config.uploads.in_flight_bytes)
        for answer in runner(parse, [msgspec.json.encode(task).decode() for task in some])
    ]
    results: dict[str, list[LogResult | TidefoldError]] = {}
    for task, answer in zip(tasks, answers, strict=True):
        failed = answer if isinstance(answer, TidefoldError) else None
        parsed = [] if isinstance(answer, TidefoldError) else decode_json(answer, list[LogResult])
        for part in task.logs:
            result = failed or next(r for r in parsed if r.log == part.log)
            results.setdefault(part.log, []).append(result)
            if isinstance(result, TidefoldError) or result.error or result.quarantine:
                run.folders.add(part.quarantine)
    return [_with_results(pipeline, intake, results.get(intake.log, [])) for intake in intakes]


def _with_results(pipeline: Pipeline, intake: LogIngest, results: Sequence[LogResult | TidefoldError]) -> LogIngest:
    try:
        return with_results(intake, pipeline.store, results) if results else intake
    except TidefoldError as error:
        return intake.with_error(error)


def _pack(pipeline: Pipeline, run: IngestRun, parts: Sequence[LogFiles]) -> list[ParseTask]:
    """Makes one task for each large part and joint tasks for small parts of different logs; the largest task first."""
    uploads = pipeline.config.uploads
    small = uploads.batch_bytes or _SMALL
    groups: list[list[LogFiles]] = [[part] for part in parts if part.weight >= small]
    weight = max(small, TASK_BYTES)
    for part in sorted((p for p in parts if p.weight < small), key=lambda p: p.log):
        # Two parts of one log never share a segment, because their change sets would be out of order.
        if weight + part.weight > small or groups[-1][-1].log == part.log:
            groups.append([])
            weight = 0
        groups[-1].append(part)
        weight += part.weight
    segments = f"{CHANGELOG}/{now()[:10]}/{run.id}"
    no_copy = without_room(pipeline) if groups else ""
    local = pipeline.local.root_of(segments) if pipeline.local and not no_copy else None
    tasks = [
        ParseTask(pipeline.store.address, segments, tuple(group), local, no_copy, uploads.policy) for group in groups
    ]
    return sorted(tasks, key=lambda task: -task.weight)


def _limit_in_flight(tasks: Sequence[ParseTask], limit: int | None) -> Iterator[list[ParseTask]]:
    """Yields the tasks in groups that are read and uploaded at once. A larger task goes alone. None: no limit."""
    group: list[ParseTask] = []
    for task in tasks:
        if group and limit is not None and sum(one.weight for one in group) + task.weight > limit:
            yield group
            group = []
        group.append(task)
    if group:
        yield group
