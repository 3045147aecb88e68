"""The page that shows a judgement to people: one file, no script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidefold.quality.judgement import CheckResult, Judgement, RowCount

_CHART_WIDTH, _CHART_HEIGHT = 980, 140
_WIDEST_BAR = 48
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of the chart in its coordinates, and where its label goes."""

    snapshot: int
    rows: int
    x: float
    y: float
    width: float
    height: float
    current: bool

    @property
    def middle(self) -> float:
        return round(self.x + self.width / 2, 1)


def render(judgement: Judgement) -> str:
    """The whole page as HTML. The same judgement gives the same page."""
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["size"] = readable_size
    environment.filters["status"] = _status
    return environment.get_template("report.html.j2").render(
        judged=judgement,
        checks=_worst_first(judgement.checks),
        change=_change(judgement.rows, judgement.base_rows),
        bars=bars(judgement.trend),
        chart_width=_CHART_WIDTH,
        chart_height=_CHART_HEIGHT,
    )


def readable_size(count: int) -> str:
    """Bytes for people: `1.5 MiB`."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def bars(trend: Sequence[RowCount]) -> list[Bar]:
    """A bar for each snapshot, the last one current; the tallest fills the chart."""
    top = max((point.rows for point in trend), default=0) or 1
    step = _CHART_WIDTH / max(len(trend), 1)
    width = min(step * 0.7, _WIDEST_BAR)
    # Few bars stand together at the left instead of being strewn over the page.
    step = min(step, _WIDEST_BAR * 1.6)
    result = []
    for place, point in enumerate(trend):
        height = max(round(point.rows / top * _CHART_HEIGHT, 1), 1.0)
        x = round(place * step + (step - width) / 2, 1)
        last = place == len(trend) - 1
        y = round(_CHART_HEIGHT - height, 1)
        result.append(Bar(point.snapshot, point.rows, x, y, round(width, 1), height, last))
    return result


def _status(check: CheckResult) -> str:
    return "pass" if check.passed else check.severity


def _worst_first(checks: Sequence[CheckResult]) -> list[CheckResult]:
    return sorted(checks, key=lambda c: 0 if c.failed else 1 if c.warned else 2)


def _change(rows: int, base_rows: int | None) -> str:
    """The row count against the snapshot before: `+1,000 (+2.5 %)`."""
    if base_rows is None:
        return "first snapshot"
    difference = rows - base_rows
    share = f" ({difference / base_rows:+.1%})" if base_rows else ""
    return f"{difference:+,}{share}"
