"""What a person should know or do about logs, one line each; nothing that an alarm of the log says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidefold.domain.alarms import AlarmKind
from tidefold.domain.landing_problems import group_by_reason
from tidefold.domain.snapshot.claim import name_next
from tidefold.domain.snapshot.snapshot_signal import incremental_snapshot_signal
from tidefold.domain.wording import count_noun, describe_ties, format_age, format_minute

if TYPE_CHECKING:
    from tidefold.operations.inspect.log_status import LogStatus

# So many partitions of a topic are listed, and so many files that are in the way for one reason.
_PARTITIONS, _FILES = 4, 3
_SENTENCE_END = re.compile(r"(?<=\.) ")
# This is the command that the error of a run names.
_HERE = re.compile(r" \([0-9,]+ more, see `tidefold status [^`]*`\)")


def remarks(statuses: Sequence[LogStatus]) -> list[str]:
    """One line for everything that a person should know or do."""
    lines = []
    for status in statuses:
        if status.error and not any(alarm.kind is AlarmKind.UNREADABLE for alarm in status.alarms):
            lines.append(f"{status.log}: {status.error.message}")
        if not status.begun:
            lines.append(f"{status.log}: not begun; `tidefold step ingest {status.log}` takes its landed files in.")
        if status.attempt:
            one = status.attempt
            lines.append(f"{status.log}: {one.title} is {one.state} under run {one.run}.")
            again = name_next(status.log, status.attempt)
            undo = f"`tidefold step abort {status.log}` undoes it."
            lines.append(f"{status.log}: {f'{again} goes on, ' if again else ''}{undo}")
        lines += [f"{status.log}: {remark}" for remark in _as_of_attempts(status)]
        gate = any(alarm.kind is AlarmKind.GATE for alarm in status.alarms)
        lines += [f"{status.log}: {problem}." for problem in (status.table, "" if gate else status.why) if problem]
        if "was aborted" in status.why and status.changes and not (status.attempt or status.stopped):
            lines.append(f"{status.log}: `tidefold run {status.log}` folds the changes that wait.")
        lines += [f"{status.log}: {remark}" for remark in _describe_failed_run(status)]
        if status.schema_waits:
            lines.append(f"{status.log}: the next snapshot takes up {status.schema_waits}.")
        if status.experimental:
            lines.append(f"{status.log}: {status.experimental}.")
        lines += [f"{status.log}: {remark}" for remark in _describe_refused(status)]
        if status.latest and status.latest.ties:
            lines.append(f"{status.log}: snapshot {status.latest.id}, {describe_ties(status.latest.ties)}.")
        lines += [f"{status.log}: {remark}" for remark in _describe_override(status)]
        lines += [f"{status.log}: {remark}" for remark in (*_describe_lag(status), *_landing(status))]
        if status.report and not gate:
            lines.append(f"{status.log}: `tidefold snapshot report {status.log}` names the page with the details.")
        lines += [f"{status.log}: {remark}" for remark in _describe_skipped(status)]
        lines += [f"{status.log}: {remark}." for remark in _list_refs(status)]
    return lines


def alarm_lines(statuses: Iterable[LogStatus]) -> list[str]:
    """One line for each alarm of each log. The next step of the most severe one is last."""
    return [f"{alarm.log}: {_HERE.sub('', str(alarm))}" for status in statuses for alarm in reversed(status.alarms)]


def _describe_refused(status: LogStatus) -> Iterable[str]:
    """Counts the refused records, unless the gate or a landed file says more about them."""
    show = f"`tidefold quarantine show {status.log}`"
    if (
        status.quarantined
        and "refused records" not in status.why
        and not any(show in problem.hint for problem in status.landing.listed)
    ):
        which = "its row" if status.quarantined == 1 else "their rows"
        yield f"{count_noun(status.quarantined, 'refused record')}: {which} may be missing or stale; next: {show}."


def _describe_failed_run(status: LogStatus) -> Iterable[str]:
    """Says why the newest run failed, unless an alarm, the gate or the snapshot says it."""
    runs = status.runs
    if runs is None or not runs.failures or status.why or any(a.kind is AlarmKind.FAILURES for a in status.alarms):
        return
    # An open attempt has its own line; without one, the error is over. So has a landed file.
    if runs.code in ("ATTEMPT_OPEN", *dict(status.landing.counts)):
        return
    if status.latest and status.latest.unresolved and runs.code == "UNAVAILABLE_VALUE":
        return
    step = f"`tidefold run {status.log}` has the next step"
    if status.stopped:  # A run of a log that is stopped takes nothing, and fails no more.
        step = f"The log is stopped: first `tidefold move resume {status.log}`, then {step}"
    yield f"the newest run failed, first at {format_minute(runs.since)} UTC: {_HERE.sub('', runs.error)} {step}."


def _describe_override(status: LogStatus) -> Iterable[str]:
    """Says that the rows that readers see failed their gate, and who published them all the same."""
    verdict = status.latest.verdict if status.latest else None
    if status.latest and verdict and verdict.override_by:
        yield (
            f"snapshot {status.latest.id}, let through by {verdict.override_by} ({verdict.override_why}), failed its "
            f"quality gate: {verdict.summary}."
        )


def _describe_skipped(status: LogStatus) -> Iterable[str]:
    """The keys that the newest snapshot cannot have, and the statement that brings them in."""
    latest = status.latest
    if not latest or not latest.unresolved:
        return
    keys = [json.loads(one)["key"] for one in latest.unresolved_keys]
    shown = ", ".join(json.dumps(key) for key in keys[:3])
    more = ", ..." if latest.unresolved > 3 else ""
    yield (
        f"snapshot {latest.id} leaves out keys (UNAVAILABLE_VALUE, {latest.unresolved:,} in all): {shown}{more}. "
        f"`tidefold quarantine list {status.log}` shows refused records of them, if there are any."
    )
    if status.positions:
        yield f"or let Debezium send them again: {incremental_snapshot_signal(status.positions[0].topic, keys)}"


def _describe_lag(status: LogStatus) -> Iterable[str]:
    """Says how far the topic is ahead. Nobody asks the broker for it, so it is as old as it says."""
    if behind := [one for one in status.topic if one.offsets]:
        parts = [f"partition {one.partition}: {one.offsets:,} of {one.end:,}" for one in behind]
        parts[_PARTITIONS:] = ["..."] if len(parts) > _PARTITIONS else []
        count = count_noun(sum(one.offsets for one in behind), "offset")
        count += f" and {format_age(seconds)}" if (seconds := max(one.seconds for one in behind)) else ""
        seen = format_minute(max(one.seen for one in behind))
        yield f"{count} behind its topic, as the last landing saw at {seen} ({', '.join(parts)})."


def _landing(status: LogStatus) -> Iterable[str]:
    """Lists landed files that were not ingested or brought nothing new, those for one reason in one line."""
    for code, number in status.landing.counts:
        named = [p for p in status.landing.listed if p.code == code]
        unlisted = number - len(named)
        for first, *same in group_by_reason(named):
            if number == 1 and any(str(first) in alarm.message for alarm in status.alarms):
                continue
            names = ", ".join(f"`{p.file}`" for p in same[:_FILES])
            more = f" and {len(same) - _FILES:,} more" if len(same) > _FILES else ""
            others = f" The same holds for {names}{more}." if same else ""
            since = f" Since {format_minute(first.since)}." if first.since else ""
            # The gate gives the same advice on refused records.
            steps = [step for step in _SENTENCE_END.split(first.hint) if step.rstrip(".") not in status.why]
            yield " ".join([f"[{code}] {first.message}{since}{others}", *steps])
        if unlisted:
            yield f"[{code}] {count_noun(unlisted, 'more landed file' if named else 'landed file')}."


def _as_of_attempts(status: LogStatus) -> Iterable[str]:
    for one in status.as_of_attempts:
        undo = f"`tidefold step abort {status.log} --snapshot {one.id}` undoes it"
        yield f"snapshot {one.id}, as of {one.as_of}, is {one.state} under run {one.run}; {undo}."


def _list_refs(status: LogStatus) -> Iterable[str]:
    """Lists what the log has besides the newest snapshot, and what keeps it from being truncated."""
    if status.stopped:
        ends = f"`tidefold move resume {status.log}`, or the DAG tidefold_resume, lets it take changes again"
        yield f"{status.stopped}; {ends}"
    if status.tail:
        yield f"snapshot {status.tail.id} is snapshot {status.tail.base} and the change sets up to {status.tail.to_sqn}"
    for tag in status.tags:
        yield f"snapshot {tag.snapshot} is tagged {tag.name}"
    for hold in status.holds:
        yield f"hold {hold.name} keeps snapshot {hold.snapshot} and the log after it: {hold.why}"
    for consumer in status.consumers:
        yield f"consumer {consumer.name} has read up to change set {consumer.sqn}"
    if status.local:
        yield f"a local copy of snapshot {', '.join(map(str, status.local))} is on this machine"
    if status.local_partial:
        yield f"of the local copy of snapshot {', '.join(map(str, status.local_partial))} files are gone"
    if status.uploads and status.uploads.failures:
        yield f"{count_noun(status.uploads.failures, 'upload')} failed, {status.uploads.segments:,} succeeded"
    if status.garbage:
        waiting = count_noun(status.garbage, "segment waits", "segments wait")
        yield f"{waiting} to be removed by `tidefold retain truncate {status.log}`"
