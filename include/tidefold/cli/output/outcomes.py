"""Prints outcomes, progress, restores and damage, and finds the exit code that follows from them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidefold.cli.terminal import Terminal, choose_logs
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import GateFailedError
from tidefold.operations.ground.outcome import Details, Outcome, Status, for_each_log
from tidefold.operations.ground.run_endings import RunEnding, ending_of

if TYPE_CHECKING:
    from tidefold.compute.runners import Runner
    from tidefold.domain.verify.expected_files import Damage
    from tidefold.operations.restore.restore import BucketPlan, RestorePlanDetails, WayPlan

_SECONDS = 5.0
_LINES = 20
_PLACES = {"local": "local copies", "store": "the store", "external": "outside of the store"}


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """3 when a gate failed, else the code of the first error, else 0."""
    listed = list(outcomes)
    if any(ending_of(o) is RunEnding.REFUSED for o in listed):
        return GateFailedError.exit_code
    return next((o.error.exit_code for o in listed if o.error), 0)


def print_lines(terminal: Terminal, outcomes: Iterable[Outcome], indent: str = "") -> None:
    """Prints one line for each log; errors to stderr, the same error of several logs once."""
    listed = list(outcomes)
    failed: dict[str, list[str]] = {}
    for outcome in listed:
        if outcome.error:
            failed.setdefault(outcome.message, []).append(outcome.log)
    for outcome in listed:
        if not outcome.error:
            terminal.line(f"{indent}{outcome.log}: {outcome.status}: {outcome.message}")
            if warning := getattr(outcome.details, "warning", ""):
                terminal.note(f"warning: {outcome.log}: {warning}")
        elif logs := failed.pop(outcome.message, None):
            # The step of a code does not know the log.
            hint = outcome.error.hint if logs[1:] else re.sub(r"\bLOG\b", outcome.log, outcome.error.hint)
            terminal.error(f"{', '.join(logs)}: {outcome.message}", hint)


def print_outcomes(
    terminal: Terminal,
    outcomes: Sequence[Outcome],
    *,
    after: str = "",
    below: Callable[[Outcome], Iterable[str]] = lambda outcome: (),
) -> int:
    """Prints the outcomes of a command and returns the exit code.

    after: the next step if all succeeded.
    below: the lines with the details of an outcome.
    """
    code = exit_code(outcomes)
    print_lines(terminal, outcomes)
    for outcome in outcomes:
        for line in below(outcome):
            terminal.line(f"  {outcome.log}: {line}")
    terminal.json({"command": terminal.command, "exit_code": code, "outcomes": [o.to_dict() for o in outcomes]})
    if after and not code and any(o.status not in (Status.NOTHING, Status.REFUSED, Status.SKIPPED) for o in outcomes):
        terminal.note(f"next: {after}")
    return code


def act_on_log(terminal: Terminal, log: str, act: Callable[..., Outcome], *arguments: object, after: str = "") -> int:
    """Acts on a configured log and prints the outcome."""
    pipeline = terminal.pipeline()
    return print_outcomes(terminal, [act(pipeline, pipeline.log(log).id, *arguments)], after=after)


def act_on_logs(
    terminal: Terminal, logs: Sequence[str] | None, act: Callable[..., Outcome], *arguments: object
) -> list[Outcome]:
    """Acts on the named logs, or on all. An error of one does not stop the others."""
    pipeline = terminal.pipeline()
    return for_each_log(choose_logs(pipeline, logs), lambda log: act(pipeline, log, *arguments))


def print_removals(terminal: Terminal, outcomes: Sequence[Outcome], *, after: str = "") -> int:
    """Prints the outcomes; below each, what keeps the log and which files a run without --dry-run deletes.

    after: as for `print_outcomes`.
    """
    return print_outcomes(terminal, outcomes, after=after, below=_removal_lines)


def _removal_lines(outcome: Outcome) -> Iterator[str]:
    from tidefold.operations.ground.removal_details import RemovalDetails, bounds_of

    for bound in bounds_of(outcome):
        yield f"{bound.name} keeps the log after {bound.sqn}: {bound.why}"
    details = outcome.details
    if isinstance(details, RemovalDetails) and details.paths and outcome.status is Status.PLANNED:
        yield from _limit_lines(details.paths)
        yield f"in all {count_noun(len(details.paths), 'file')}{_size(details.bytes)}"


def _size(size: int | None) -> str:
    return "" if size is None else f", {in_units(size)}"


def print_costs(terminal: Terminal, outcomes: Iterable[Outcome]) -> None:
    """Prints one line for each log: what its checks cost."""
    from tidefold.operations.quality.judge import JudgementDetails

    for outcome in outcomes:
        details = outcome.details
        if isinstance(details, JudgementDetails):
            over = f"{count_noun(details.rows, 'row')}, {details.bytes / 1e6:,.1f} MB of files"
            # A Spark Connect server tells of none.
            how = f"{details.seconds:.1f} s{f', {details.jobs} Spark jobs' if details.jobs else ''}"
            terminal.note(f"{outcome.log}: {count_noun(details.checks, 'check')} over {over}: {how}")


def list_logs(logs: Iterable[str] | None) -> str:
    """Returns the logs as arguments of the next command."""
    return "".join(f" {log}" for log in logs or ())


def print_verified(terminal: Terminal, outcomes: Sequence[Outcome]) -> int:
    """Prints the outcomes; below them each damaged file of a log, its copies and the next step."""
    from tidefold.operations.verify.scope import VerifyDetails

    code = print_outcomes(terminal, outcomes)
    listed = ((o, one) for o in outcomes if isinstance(o.details, VerifyDetails) for one in o.details.damage)
    for outcome, damage in listed:
        terminal.line(f"  {outcome.log}: {_describe_damage(damage)}")
        for place in damage.places[1:]:
            terminal.line(f"    the same file: {place}")
        for place in damage.good:
            terminal.line(f"    good: {place}")
        if damage.repaired:
            terminal.line(f"    repaired from {damage.repaired}")
            continue
        if damage.why:
            terminal.line(f"    not repaired: {damage.why}")
        terminal.line(f"    next: {damage.hint}")
    return code


def _describe_damage(damage: Damage) -> str:
    ids = ", ".join(map(str, damage.snapshots))
    of = f"snapshot{'s' if len(damage.snapshots) > 1 else ''} {ids}: " if ids else ""
    return f"{of}{damage.part} {damage.harm}: {damage.places[0]}"


class ProgressLine:
    """Prints how many bytes are read."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._last = clock()

    def __call__(self, what: str, done: int, total: int) -> None:
        if self._clock() - self._last >= _SECONDS:
            self._last = self._clock()
            self._say(f"{what}: {self.describe(done, total)}")

    def describe(self, done: int, total: int) -> str:
        return f"{in_units(done)} of {in_units(total)} read"


class BucketLine(ProgressLine):
    """Prints how many buckets of a log are done."""

    def describe(self, done: int, total: int) -> str:
        return f"{done:,} of {count_noun(total, 'bucket')} done"


def read_lines(details: Details) -> Iterator[str]:
    """Yields a line for each source with its number of bytes, and a line for each source that failed."""
    from tidefold.operations.ground.snapshot_details import ReadDetails

    read = details.read if isinstance(details, ReadDetails) else None
    if not isinstance(details, ReadDetails) or read is None:
        return
    places = {place: getattr(read, tier) for tier, place in _PLACES.items()}
    parts = [_from(part.files, part.bytes, place) for place, part in places.items() if part.files]
    if read.older:
        parts.append(f"{count_noun(len(read.older), 'bucket')} made from {_older_names(read.older)}")
    yield f"read: {', '.join(parts) or 'nothing'}"
    failed = [*(details.manifests or ()), *read.failed]
    yield from _limit_lines(f"not usable: {one.place}: {one.why} ({one.seconds:.2f} s)" for one in failed)


def _from(files: int, size: int, place: str) -> str:
    return f"{count_noun(files, 'file')} ({in_units(size)}) from {place}"


def print_restored(terminal: Terminal, outcomes: Sequence[Outcome], *, after: str = "") -> int:
    """Prints the outcomes; below them, what each operation read."""
    return print_outcomes(terminal, outcomes, after=after, below=lambda outcome: read_lines(outcome.details))


def make_runner(terminal: Terminal, log: str) -> Runner:
    """Returns a runner in threads that prints how many buckets of the log are done."""
    from tidefold.compute.runners import in_threads

    return in_threads(partial(BucketLine(terminal.note), log))


def _older_names(older: Mapping[str, int | None]) -> str:
    ids = sorted({one for one in older.values() if one is not None})
    names = [f"snapshot {one}" for one in ids] + (["the log alone"] if None in older.values() else [])
    return f"{' and '.join(names)}{' and the log after it' if ids else ''}"


def plan_lines(outcome: Outcome, limit: int) -> Iterator[str]:
    """Yields from where and to where a restore goes.

    limit: of so many buckets the files, their places in the order of the tries, then older snapshots.
    """
    from tidefold.operations.restore.restore import RestorePlanDetails

    plan = outcome.details
    if not isinstance(plan, RestorePlanDetails):
        return
    for one in plan.manifests:
        yield f"not usable: {one.place}: {one.why}"
    for bucket in plan.buckets[:limit]:
        yield from _bucket_lines(bucket)
    yield f"would read: {', '.join(_first_sources(plan)) or 'nothing'}"
    yield f"would write to: {plan.target}"
    if limit < (count := len(plan.buckets)):
        yield f"--limit {count} lists the files of {count_noun(count, 'bucket')}"


def _first_sources(plan: RestorePlanDetails) -> Iterator[str]:
    """Yields where the files of the first way of each bucket are, and which of them are nowhere whole."""
    firsts = [way for bucket in plan.buckets for way in bucket.ways[:1]]
    sizes: dict[str, list[int]] = {tier: [] for tier in (*_PLACES, "")}
    for file in (file for way in firsts for file in way.files):
        good = next((place.place for place in file.places if place.found == "there"), "")
        sizes[good.partition(":")[0]].append(file.bytes)
    yield from (_from(len(sizes[tier]), sum(sizes[tier]), place) for tier, place in _PLACES.items() if sizes[tier])
    if changes := sum(way.change_bytes for way in firsts):
        yield f"{in_units(changes)} of changes"
    if gone := sizes[""]:
        yield f"other sources for {count_noun(len(gone), 'file')} ({in_units(sum(gone))}) without a whole copy"


def _bucket_lines(bucket: BucketPlan) -> Iterator[str]:
    first, last = bucket.key_groups
    yield f"key groups {first} to {last}:"
    for number, way in enumerate(bucket.ways):
        base = "nothing" if way.snapshot is None else f"snapshot {way.snapshot}"
        if number:
            size = sum(one.bytes for one in way.files) + way.change_bytes
            yield f"  else {base}{_changes(way)}, {in_units(size)}"
            continue
        for one in way.files:
            yield f"  {one.file}, {in_units(one.bytes)}, {count_noun(one.rows, 'row')}"
            for place in one.places:
                yield f"    {place.place}: {place.found}{_size(place.bytes)}"
        if not way.files or way.change_sets:
            yield f"  {base}{_changes(way)}"


def _changes(way: WayPlan) -> str:
    spans = [f"{first}" if first == last else f"{first} to {last}" for first, last in way.change_sets]
    return f" and the change set{'s' if len(spans) > 1 or ' ' in spans[0] else ''} {', '.join(spans)}" if spans else ""


def _limit_lines(lines: Iterable[str]) -> Iterator[str]:
    listed = list(lines)
    yield from listed[:_LINES]
    if len(listed) > _LINES:
        yield f"and {len(listed) - _LINES:,} more; --format json lists them all"
