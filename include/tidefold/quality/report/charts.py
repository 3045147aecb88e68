"""Plots over the snapshots as coordinates, which the page draws as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tidefold.quality.report.result import HistoryPoint, ValidationResult, point_of

WIDTH, HEIGHT = 480, 120
_PLOTTED_SUMS = 4
_LABELS = 8
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Dot:
    """One snapshot in a plot: its coordinates, its tooltip, and its number if there is room for it."""

    x: float
    y: float
    says: str
    label: str
    current: bool
    undone: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a column: failed checks below, warnings above them."""

    x: float
    y: float
    width: float
    height: float
    kind: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot in its coordinates.

    grid: the heights of its lines and their values.
    """

    title: str
    now: str
    line: str
    area: str
    dots: tuple[Dot, ...]
    grid: tuple[tuple[float, str], ...]
    bars: tuple[Bar, ...] = ()


def plots(judged: ValidationResult) -> list[Plot]:
    """Plots rows, sums of compared columns, failed and warned checks, and seconds, over the judged snapshots."""
    points = _points(judged)
    drawn = [_line("Rows", points, lambda p: p.rows, _whole)]
    for column in [name for name, _ in points[-1].sums][:_PLOTTED_SUMS]:
        known = [p for p in points if _sum(p, column) is not None]
        drawn.append(_line(f"Sum of {column}", known, lambda p, c=column: _sum(p, c) or 0.0, compact))  # type: ignore[misc]
    if judged.history:
        timed = [p for p in points if p.seconds]
        drawn += [
            _checks(points),
            _line("Seconds of the checks", timed or points, lambda p: p.seconds, "{:.1f}".format),
        ]
    return drawn


def _points(judged: ValidationResult) -> list[HistoryPoint]:
    now = point_of(judged, "audit" if judged.audit else "this one")
    if judged.history:
        return [*judged.history, now]
    return [*(HistoryPoint(t.snapshot, t.rows, 0, 0, 0.0) for t in judged.trend if t.snapshot != judged.snapshot), now]


def _sum(point: HistoryPoint, column: str) -> float | None:
    text = dict(point.sums).get(column)
    try:
        return None if text is None else float(Fraction(text))
    except (ValueError, OverflowError):  # NaN, Infinity
        return None


def _line(
    title: str, points: Sequence[HistoryPoint], value: Callable[[HistoryPoint], float], text: Callable[[float], str]
) -> Plot:
    values = [float(value(p)) for p in points]
    low, high = _span(values)
    ys = [round(HEIGHT - (v - low) / (high - low) * HEIGHT, 1) for v in values]
    xs = _places(len(points))
    line = " ".join(f"{x},{y}" for x, y in zip(xs, ys, strict=True))
    area = f"{xs[0]},{HEIGHT} {line} {xs[-1]},{HEIGHT}" if xs else ""
    grid = tuple((round(HEIGHT * (1 - part), 1), compact(low + (high - low) * part)) for part in (0, 0.5, 1))
    dots = _dots(points, xs, ys, [text(v) for v in values])
    return Plot(title, text(values[-1]) if values else "", line, area, dots, grid)


def _checks(points: Sequence[HistoryPoint]) -> Plot:
    top = max(1, *(p.failed + p.warned for p in points))
    xs = _places(len(points))
    width = max(3.0, min(24.0, WIDTH / len(points) * 0.6))
    bars = []
    for point, x in zip(points, xs, strict=True):
        failed, warned = (round(n / top * HEIGHT, 1) for n in (point.failed, point.warned))
        left = round(x - width / 2, 1)
        parts = ((HEIGHT - failed, failed, "fail"), (HEIGHT - failed - warned, warned, "warn"))
        bars += [Bar(left, round(y, 1), round(width, 1), height, kind) for y, height, kind in parts if height]
    texts = [f"{p.failed} failed, {p.warned} warned" for p in points]
    # Columns without height are dots, too.
    dots = _dots(points, xs, [float(HEIGHT)] * len(points), texts)
    grid = ((float(HEIGHT), "0"), (0.0, str(top)))
    return Plot("Checks that failed or warned", texts[-1], "", "", dots, grid, tuple(bars))


def _dots(
    points: Sequence[HistoryPoint], xs: Sequence[float], ys: Sequence[float], texts: Sequence[str]
) -> tuple[Dot, ...]:
    every = math.ceil(len(points) / _LABELS)
    last = len(points) - 1
    return tuple(
        Dot(x, y, f"snapshot {p.snapshot} ({p.state.lower()}): {text}" if p.state else f"snapshot {p.snapshot}: {text}",
            str(p.snapshot) if (last - place) % every == 0 else "", place == last, p.state == "ABORTED")
        for place, (p, x, y, text) in enumerate(zip(points, xs, ys, texts, strict=True))
    )  # fmt: skip


def _places(count: int) -> list[float]:
    if count == 1:
        return [WIDTH / 2]
    return [round(14 + (WIDTH - 28) * place / (count - 1), 1) for place in range(count)]


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = (high - low) * 0.12 or abs(high) * 0.1 or 1.0
    # An axis without negative values does not go below zero.
    return (max(low - room, 0.0) if low >= 0 else low - room), high + room


def compact(value: float) -> str:
    """Returns a number in short form: `1.5k`, `-2.25M`."""
    for size, unit in _SCALES:
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
