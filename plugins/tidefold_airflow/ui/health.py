"""Summarizes a log: its state in a word, the lag of its table, what a person should do, and its time line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidefold.domain.alarms import AlarmKind
from tidefold.domain.commit_times import NEVER, iso_instant
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State
from tidefold.domain.source_progress import latest_commit_time
from tidefold.operations.ground.run_endings import AFTER_REFUSAL, MEANINGS, RunEnding
from tidefold.operations.inspect.log_status import LogStatus
from tidefold.presentation.remarks import remarks
from tidefold.presentation.tables import describe_damage

# Alarms that the page already shows in its own words, with links.
_SHOWN_OTHERWISE = (AlarmKind.DAMAGE, AlarmKind.FILES, AlarmKind.GATE, AlarmKind.UNREADABLE)
WIDTH, HEIGHT = 1120, 110
SHOWN = 48
_WIDEST = 30
_LEAST = 3.0


@dataclass(frozen=True, slots=True)
class Word:
    """A state in a word.

    tone: its colour: good, busy, warn, bad or calm.
    """

    text: str
    tone: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for people.

    report: the snapshot whose report has the details.
    decide: a person may decide in Airflow.
    run: the run that it is about, as the ledger names it.
    """

    text: str
    report: int | None = None
    decide: bool = False
    run: str = ""


@dataclass(frozen=True, slots=True)
class Lag:
    """The changes that wait to be folded.

    source: the newest commit time that was ingested (ISO 8601; None: unknown).
    folded: the newest commit time in the table.
    behind: the seconds between them.
    """

    change_sets: int = 0
    changes: int = 0
    source: str | None = None
    folded: str | None = None
    behind: float | None = None


def word_of_log(status: LogStatus) -> Word:
    """Returns the most severe state of a log."""
    if status.error:
        return Word("unreadable", "bad")
    if not status.begun:
        return Word("not begun", "calm")
    verdict, proof = status.attempt.verdict if status.attempt else None, status.proof
    # Of several, the first one is shown.
    words: dict[str, tuple[object, str]] = {
        MEANINGS[RunEnding.DAMAGED].word: (proof and (proof.damaged or (proof.readers and proof.readers.error)), "bad"),
        MEANINGS[RunEnding.WAITS].word: (verdict and not verdict.allows, "warn"),
        MEANINGS[RunEnding.REFUSED].word: (status.why, "bad"),
        str(status.attempt.state if status.attempt else ""): (status.attempt, "busy"),
        MEANINGS[RunEnding.STOPPED].word: (status.stopped, "warn"),
        "files not taken": (any(problem.fails for problem in status.landing.listed), "warn"),
        MEANINGS[RunEnding.LEFT_OUT].word: (status.latest and status.latest.unresolved, "warn"),
        "alarm": (status.alarms, "warn"),
        "changes wait": (status.changes, "busy"),
        "no snapshot": (not status.latest, "calm"),
    }
    chosen = ((text, tone) for text, (holds, tone) in words.items() if holds)
    return Word(*next(chosen, (MEANINGS[RunEnding.PUBLISHED].word, "good")))


def word_of_snapshot(snapshot: Snapshot) -> Word:
    """Returns the state of a snapshot, and whether a completed one is published."""
    if snapshot.state is State.COMPLETED:
        whole = snapshot.published or snapshot.kind is SnapshotKind.TAIL
        return Word("COMPLETED", "good") if whole else Word("COMPLETED, not published", "warn")
    tones = {State.ONGOING: "busy", State.STAGED: "busy", State.ABORTED: "bad"}
    return Word(str(snapshot.state), tones.get(snapshot.state, "calm"))


def word_of_gate(snapshot: Snapshot) -> Word:
    """Returns the verdict of the quality gate."""
    verdict = snapshot.verdict
    if verdict is None and snapshot.kind is SnapshotKind.TAIL:
        return Word("its base's", "calm")
    if verdict is None:
        return Word("not judged", "calm")
    if verdict.passed:
        return Word("pass", "good")
    return Word("override", "warn") if verdict.override_by else Word("fail", "bad")


def next_step_after(state: LogState, snapshot: Snapshot) -> str:
    """Returns what a person does about an aborted snapshot; empty for others."""
    if snapshot.state is not State.ABORTED or not snapshot.in_main_lineage:
        return ""
    if state.latest and state.latest.id > snapshot.id:
        return f"Nothing is to be done: snapshot {state.latest.id} came after it."
    is_refused = snapshot.verdict is not None and not snapshot.verdict.allows
    return AFTER_REFUSAL if is_refused else "The next run folds its changes again."


def lag_of(state: LogState) -> Lag:
    """Returns how far the table lags behind the ingested changes, by commit times of the source only."""
    waiting = state.unfolded
    upto = state.latest.to_sqn if state.latest else 0
    taken = latest_commit_time(p.stream for p in state.positions)
    folded = latest_commit_time(e.stream for e in state.landed if e.sqn is not None and e.sqn <= upto)
    # Files whose names say no offsets have the times of `commit_time` in their change sets alone.
    published = state.latest.max_commit_time if state.latest else None
    folded = _latest(folded, None if published == NEVER else published)
    taken = _latest(taken, folded, *(c.times.last for c in waiting if c.times))
    behind = (taken - folded) / 1e6 if taken is not None and folded is not None and waiting else None
    return Lag(
        change_sets=len(waiting),
        changes=sum(c.rows for c in waiting),
        source=iso_instant(taken),
        folded=iso_instant(folded),
        behind=max(behind, 0) if behind is not None else None,
    )


def _latest(*times: int | None) -> int | None:
    return max((one for one in times if one is not None), default=None)


def to_do(status: LogStatus, state: LogState | None = None) -> list[Note]:
    """Lists what is wrong or waits, with links to the pages, and to the place in Airflow where a person decides."""
    notes = [Note(str(alarm)) for alarm in status.alarms if alarm.kind not in _SHOWN_OTHERWISE]
    if status.error:
        return [Note(status.error.message), *notes]
    if not status.begun:
        return [Note("Not started: the next run of its DAG ingests what has landed."), *notes]
    notes += [_note_of_attempt(status.attempt)] if status.attempt else []
    if status.why:
        failed = (
            next((s for s in state.snapshots if s.verdict and s.verdict.path == status.report), None) if state else None
        )
        if failed is None or failed != status.attempt:
            step = f" {AFTER_REFUSAL}" if status.report else ""
            notes.append(Note(f"{status.why[:1].upper()}{status.why[1:]}.{step}", failed.id if failed else None))
    if status.proof and status.proof.damaged:
        notes.append(Note(f"{describe_damage(status.proof)}; `tidefold check verify {status.log}` names the files."))
    if status.proof and (read := status.proof.readers) and read.error:
        notes.append(Note(f"{read.error} {read.hint}", read.snapshot))
    return notes + [Note(line.removeprefix(f"{status.log}: ")) for line in remarks([_without(status)])]


def _without(status: LogStatus) -> LogStatus:
    """Returns the status without what the page shows elsewhere."""
    plain = replace(status, attempt=None, why="", report=None, tail=None, tags=(), holds=(), consumers=(), garbage=0)
    return replace(plain, local=(), local_partial=(), drilled=None)


def _note_of_attempt(attempt: Snapshot) -> Note:
    if attempt.verdict and not attempt.verdict.allows:
        text = f"Snapshot {attempt.id} is staged and failed its quality gate: {attempt.verdict.summary}. If no "
        text += "question is open, clear the run of the approval DAG that asked."
        return Note(text, attempt.id, decide=True)
    return Note(f"Snapshot {attempt.id} is {attempt.state}.", run=attempt.run)


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One snapshot in the coordinates of the chart.

    top, height: of all its bytes.
    written_top, written: of the bytes written for it. A snapshot without files has a mark on the baseline.
    """

    snapshot: Snapshot
    word: Word
    gate: Word
    x: float
    width: float
    top: float
    height: float
    written_top: float
    written: float
    labelled: bool

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


def bars(snapshots: Sequence[Snapshot]) -> list[TimelineBar]:
    """Returns the bars of the newest snapshots, oldest first. The largest fills the height."""
    shown = sorted(snapshots, key=lambda s: s.id)[-SHOWN:]
    top = max((s.bytes_full for s in shown), default=0) or 1
    step = min(WIDTH / max(len(shown), 1), _WIDEST * 1.5)
    every = max(round(36 / step), 1)
    return [_bar(s, i * step, step, top, (len(shown) - 1 - i) % every == 0) for i, s in enumerate(shown)]


def _bar(snapshot: Snapshot, x: float, step: float, top: int, labelled: bool) -> TimelineBar:
    tail = snapshot.kind is SnapshotKind.TAIL
    height = max(_scale(snapshot.bytes_full, top), _LEAST)
    # A very small share stays visible, and a share of zero is invisible.
    written = min(max(_scale(snapshot.bytes_written, top), 2.0 if snapshot.bytes_written else 0.0), height)
    height, written = (4.0, 0.0) if tail else (height, written)
    width = round(step * 0.72, 1)
    return TimelineBar(
        snapshot=snapshot,
        word=word_of_snapshot(snapshot),
        gate=word_of_gate(snapshot),
        x=round(x + (step - width) / 2, 1),
        width=width,
        top=round(HEIGHT - height, 1),
        height=height,
        written_top=round(HEIGHT - written, 1),
        written=written,
        labelled=labelled,
    )


def _scale(size: int, top: int) -> float:
    return round(size / top * HEIGHT, 1)


def seconds_to_publish(snapshot: Snapshot) -> float | None:
    """Returns the seconds from the start of the attempt until readers saw it; None if they never saw it."""
    if not snapshot.published_at:
        return None
    try:
        begun, shown = datetime.fromisoformat(snapshot.started_at), datetime.fromisoformat(snapshot.published_at)
        return max((shown - begun).total_seconds(), 0)
    except (ValueError, TypeError):
        return None
