"""Computes the chart of a log's snapshots: a bar for the size of each, and the part that was rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidefold.domain.log_state import Snapshot, SnapshotKind
from tidefold_airflow.ui.health import Word, word_of_gate, word_of_snapshot

WIDTH, HEIGHT = 1120, 110
SHOWN = 48
_WIDEST = 30
_LEAST = 3.0


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
