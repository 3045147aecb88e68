"""One log's part of an ingest run, from the listing of its folder to what is to be committed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from tidefold.changelog.segment import read_change_set
from tidefold.fold.distribute import Answer
from tidefold.lifecycle.errors import TidefoldError
from tidefold.lifecycle.intake import Arrival, check_shape
from tidefold.lifecycle.names import LogPaths
from tidefold.lifecycle.values import LogState
from tidefold.operations.pipeline import Pipeline
from tidefold.sources.arrivals import Found, merge
from tidefold.sources.ending import Ending, ending_of
from tidefold.sources.landed import LandedFile, list_landed, of_topic
from tidefold.sources.parse import ParseResult, ParseTask
from tidefold.sources.plan import Plan, bins, newest_files, plan_files
from tidefold.sources.problems import Problem
from tidefold.sources.rewritten import rewritten
from tidefold.storage import Store

_TASK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Intake:
    """`begun` is the log as the run found it, `state` the same with `arrivals` appended, not yet committed.

    `written` are all files that the run's tasks wrote, `refused` the reasons of refused records and their number;
    `found` is what earlier rounds found in files that are still to be taken.
    """

    log: str
    begun: LogState
    files: tuple[LandedFile, ...]
    endings: dict[str, Ending]
    problems: tuple[Problem, ...]
    state: LogState
    plan: Plan
    arrivals: tuple[Arrival, ...] = ()
    stopped: frozenset[int] = frozenset()
    written: tuple[str, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    found: Mapping[str, Found] = field(default_factory=dict)
    error: TidefoldError | None = None

    @property
    def all_problems(self) -> tuple[Problem, ...]:
        return (*self.problems, *self.plan.problems)

    @property
    def unused(self) -> list[str]:
        """Files that this run wrote and that none of its arrivals names."""
        named = {a.change_set.segment for a in self.arrivals if a.change_set}
        named |= {a.landed.quarantine for a in self.arrivals if a.landed.quarantine}
        return [path for path in self.written if path not in named]


def begin_intake(pipeline: Pipeline, log: str) -> Intake:
    """Looks at the landing folder and the ledger, and plans. Raises TidefoldError."""
    config = pipeline.log(log)
    state = pipeline.ledger(log).find() or LogState(log, config.shape)
    check_shape(state, config.shape)
    files, problems = _own_files(config.source.path, state)
    endings = {file.name: ending_of(file, taken) for file, taken in newest_files(files, state)}
    problems = (*problems, *rewritten(files, state))
    return Intake(log, state, files, endings, problems, state, plan_files(files, endings, state))


def _own_files(folder: Path, state: LogState) -> tuple[tuple[LandedFile, ...], tuple[Problem, ...]]:
    files, foreign = list_landed(folder)
    own, strange = of_topic(files, folder, [p.topic for p in state.positions])
    return own, (*foreign, *strange)


def parse_tasks(pipeline: Pipeline, intake: Intake, day: str) -> list[ParseTask]:
    """The tasks that parse what the intake's plan takes and no earlier round read."""
    if intake.error:
        return []
    quarantine = LogPaths(intake.log).quarantine
    return [
        ParseTask(
            store=pipeline.store.uri(""),
            log=intake.log,
            shape=intake.begun.shape,
            segment=f"changelog/{day}/{uuid.uuid4().hex}.seg",
            quarantine=f"{quarantine}/{uuid.uuid4().hex}.jsonl",
            files=files,
        )
        for files in bins([t for t in intake.plan.take if t.file.name not in intake.found], _TASK_BYTES)
    ]


def with_answers(intake: Intake, store: Store, answers: Sequence[Answer]) -> Intake:
    """The intake after a round of tasks; its plan holds what another round must take."""
    planned = {task.file.name: task for task in intake.plan.take}
    found = dict(intake.found)
    for answer in answers:
        if isinstance(answer, TidefoldError):
            intake = replace(intake, error=answer)
            continue
        result = msgspec.json.decode(answer, type=ParseResult)
        written = tuple(path for path in (result.segment, result.quarantine) if path)
        intake = replace(intake, written=(*intake.written, *written))
        found.update({f.name: Found(planned[f.name], f, result.segment, result.quarantine) for f in result.files})
    return intake if intake.error else _merged(intake, store, found)


def _merged(intake: Intake, store: Store, found: dict[str, Found]) -> Intake:
    merged = merge(intake.state, intake.plan.take, found, lambda c: read_change_set(store, c).num_rows)
    stopped = intake.stopped | merged.stopped
    rest = [file for file in intake.files if file.partition not in stopped]
    kept_problems = [p for p in intake.plan.problems if p.file not in {f.name for f in rest}]
    return replace(
        intake,
        state=merged.state,
        plan=plan_files(rest, intake.endings, merged.state),
        arrivals=(*intake.arrivals, *merged.arrivals),
        problems=(*intake.problems, *kept_problems, *merged.problems),
        stopped=stopped,
        found={name: one for name, one in found.items() if name not in merged.again},
        refused=_summed(intake.refused, found, merged.arrivals),
    )


def _summed(
    refused: tuple[tuple[str, int], ...], found: dict[str, Found], arrivals: tuple[Arrival, ...]
) -> tuple[tuple[str, int], ...]:
    reasons = dict(refused)
    for arrival in arrivals:
        account = found[arrival.landed.name].result.account
        for reason, number in (account.refused if account else {}).items():
            reasons[reason] = reasons.get(reason, 0) + number
    return tuple(sorted(reasons.items()))
