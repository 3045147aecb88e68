"""Stores each verdict once with its page in HTML, and reads it again instead of judging twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from importlib.resources import files

import msgspec
from jinja2 import DictLoader, Environment, StrictUndefined, Template

from tidefold.domain.log_state import Verdict
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError
from tidefold.quality.report.result import CheckResult, HistoryPoint, ValidationResult, clip_text, point_of
from tidefold.storage import Store
from tidefold.typed_json import decode_json

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
    points = [*judged.history, point_of(judged, "audit" if judged.audit else "this one")]
    drawn = [_line("Rows", points, lambda p: p.rows, _whole)]
    for column in [name for name, _ in points[-1].sums][:_PLOTTED_SUMS]:
        summed = [p for p in points if _sum(p, column) is not None]
        drawn.append(_line(f"Sum of {column}", summed, lambda p, c=column: _sum(p, c) or 0.0, compact))  # type: ignore[misc]
    if judged.history:
        timed = [p for p in points if p.seconds]
        drawn += [
            _checks(points),
            _line("Seconds of the checks", timed or points, lambda p: p.seconds, "{:.1f}".format),
        ]
    return drawn


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


_TEMPLATE = "report.html.j2"
_UNITS = ("B", "kB", "MB", "GB", "TB")
# Limits the page, so that a browser opens it at once. verdict.json has all of them.
_SHOWN = 300


def render(judgement: ValidationResult) -> str:
    """Returns the whole page as HTML. The same judgement gives the same page."""
    checks = sorted(judgement.checks, key=lambda c: 0 if c.failed else 1 if c.warned else 2)
    return _load_template().render(
        judged=judgement,
        checks=checks[:_SHOWN],
        left_out=max(len(checks) - _SHOWN, 0),
        counts={status: sum(_status(c) == status for c in checks) for status in ("fail", "warn", "pass")},
        change=_change(judgement.rows, judgement.base_rows),
        plots=plots(judgement),
        width=WIDTH,
        height=HEIGHT,
    )


@cache
def _load_template() -> Template:
    environment = Environment(
        # The package may be an archive.
        loader=DictLoader({_TEMPLATE: (files("tidefold.quality.report") / _TEMPLATE).read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = readable_size
    environment.filters["status"] = _status
    environment.filters["clip_text"] = clip_text
    environment.filters["pairs"] = _pairs
    environment.filters["grouped"] = _group_thousands
    return environment.get_template(_TEMPLATE)


def readable_size(count: int) -> str:
    """Returns bytes for people: `1.5 MB`, in units of 1000."""
    size = float(count)
    for unit in _UNITS:
        if size < 999.95 or unit == _UNITS[-1]:
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _status(check: CheckResult) -> str:
    return "pass" if check.passed else check.severity


def _pairs(check: CheckResult) -> list[tuple[str, str]]:
    """Pairs the keys and values of the shown rows. A missing one is empty."""
    long = max(len(check.keys), len(check.sample))
    keys, values = ([*texts, *[""] * (long - len(texts))] for texts in (check.keys, check.sample))
    return list(zip(keys, values, strict=True))


def _group_thousands(number: str) -> str:
    """Returns a number as text, with its thousands separated."""
    try:
        return f"{Decimal(number):,}"
    except InvalidOperation:
        return number


def _change(rows: int, base_rows: int | None) -> str:
    """Compares the row count with the snapshot before: `+1,000 (+2.5 %)`."""
    if base_rows is None:
        return "first snapshot"
    difference = rows - base_rows
    share = f" ({difference / base_rows:+.1%})" if base_rows else ""
    return f"{difference:+,}{share}"


FORMAT = 3


class VerdictFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """verdict.json."""

    format: int
    judgement: ValidationResult


def verdict_path(log: str, snapshot: int, suite: str) -> str:
    """Returns the path of the verdict of a suite (its sha256) over a snapshot."""
    return f"{LogPaths(log).quality(snapshot)}/verdict-{suite[:16]}.json"


def report_path(log: str, snapshot: int, suite: str) -> str:
    """Returns the path of the report page of that verdict."""
    return f"{LogPaths(log).quality(snapshot)}/report-{suite[:16]}.html"


def audit_paths(log: str, snapshot: int, suite: str, name: str) -> tuple[str, str]:
    """Returns the paths of an audit and its page. They are next to the verdict, which an audit never changes."""
    folder = f"{LogPaths(log).quality(snapshot)}/audit-{suite[:16]}-{name}"
    return f"{folder}.json", f"{folder}.html"


def find_stored_judgement(
    store: Store, log: str, snapshot: int, manifest: str, suite: str, path: str = ""
) -> ValidationResult | None:
    """Returns the stored judgement of this suite over exactly these files, or None. Raises CorruptError.

    path: of an audit; else it is that of the verdict.
    """
    path = path or verdict_path(log, snapshot, suite)
    try:
        stored = decode_json(store.read(path), VerdictFile)
    except NotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    if stored.format != FORMAT:
        raise _unusable(path, f"has format {stored.format}, this version reads {FORMAT}")
    judged = stored.judgement
    if (judged.log, judged.snapshot, judged.manifest, judged.suite) != (log, snapshot, manifest, suite):
        raise _unusable(path, "judges other files or another suite")
    return judged


def store_judgement(store: Store, judged: ValidationResult, path: str = "") -> ValidationResult:
    """Stores a judgement. If another process stored one first for the same files and suite, that one counts."""
    path = path or verdict_path(judged.log, judged.snapshot, judged.suite)
    try:
        store.put_if_absent(path, msgspec.json.format(msgspec.json.encode(VerdictFile(FORMAT, judged)), indent=1))
    except AlreadyExistsError:
        first = find_stored_judgement(store, judged.log, judged.snapshot, judged.manifest, judged.suite, path)
        return first or judged
    return judged


def store_report(store: Store, judged: ValidationResult, page: str = "") -> str:
    """Writes the page if it does not exist, and returns its path. The page depends only on the stored judgement."""
    page = page or report_path(judged.log, judged.snapshot, judged.suite)
    # After a crash between page and ledger: that page was made from the same judgement.
    with suppress(AlreadyExistsError):
        store.put_if_absent(page, render(judged).encode())
    return page


def verdict_of(judgement: ValidationResult) -> Verdict:
    """Returns the verdict that the ledger keeps. Its path is that of the page; verdict.json is next to it."""
    path = report_path(judgement.log, judgement.snapshot, judgement.suite)
    return Verdict(judgement.passed, judgement.suite, judgement.manifest, path, judgement.summary)


def _unusable(path: str, why: str) -> CorruptError:
    return CorruptError(
        "VERDICT_UNUSABLE", f"`{path}` {why}.", hint="Move the file away, then run `tidefold quality LOG`."
    )
