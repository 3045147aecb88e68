"""Renders the page that shows a judgement: one file, without scripts, which loads nothing."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined, Template

from tidefold.quality.report.charts import HEIGHT, WIDTH, plots
from tidefold.quality.report.result import CheckResult, ValidationResult, clip_text

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
