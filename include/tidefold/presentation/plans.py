"""The text of a plan, and of tests of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidefold.domain.plan import Example, Plan
from tidefold.domain.wording import count_noun, in_units
from tidefold.operations.plan.cases import CaseResult
from tidefold.operations.plan.compare import VERSIONS_ADDED, VERSIONS_REMOVED
from tidefold.read.task import ADDED, CHANGED, REMOVED

_SHOWN = 20


def plan_lines(plan: Plan) -> list[str]:
    """Returns the lines of a plan."""
    told: list[tuple[str, str]] = [("edit", one) for one in plan.edits] or [("edit", "none of the table definition")]
    told += [("ingest", plan.ingested), ("gate", plan.gate)]
    told += [("refused", f"{count:,} records of {name}") for name, count in [*plan.refused.items()][:_SHOWN]]
    told.append(("rows", f"{plan.rows[0]:,} before, {plan.rows[1]:,} now"))
    told += [("", _count(plan))]
    if not plan.joined_by and plan.rows[0]:
        told.append(("", "no key is in both tables, so no row has a counterpart"))
    if plan.values:
        told.append(("values", ", ".join(f"{name} in {count_noun(n, 'row')}" for name, n in plan.values.items())))
    columns = {"new": plan.columns.new, "dropped": plan.columns.dropped, "retyped": plan.columns.retyped}
    told += [("columns", f"{what}: {', '.join(names)}") for what, names in columns.items() if names]
    if plan.gone:
        names = ", ".join(plan.gone[:3]) + (" ..." if plan.gone[3:] else "")
        what = "landed files of the log are gone, have other bytes, or are refused"
        told.append(("gone", f"{len(plan.gone):,} {what}: {names}"))
        told.append(("", f"{plan.lost:,} of the removed rows have keys that only they brought"))
    lines = [f"plan of {plan.log}; nothing of the pipeline changed"]
    lines += [f"  {name:<8} {text}" for name, text in told]
    for example in plan.examples:
        lines += _describe(example)
    cost = f"{in_units(plan.landed_bytes)} landed bytes read, {in_units(plan.written_bytes)} in {plan.folder}"
    cost += f", {plan.cpu_seconds:.1f} CPU s of this process; the table has {in_units(plan.table_bytes)}"
    return [*lines, f"  {'cost':<8} {cost}"]


def _count(plan: Plan) -> str:
    kinds = {ADDED: "added", REMOVED: "removed", CHANGED: "changed"}
    kinds |= {VERSIONS_ADDED: "earlier versions added", VERSIONS_REMOVED: "earlier versions removed"}
    always = (ADDED, REMOVED, CHANGED)
    return ", ".join(f"{plan.counts.get(k, 0):,} {t}" for k, t in kinds.items() if k in always or plan.counts.get(k))


def _describe(example: Example) -> Iterator[str]:
    yield f"  {example.change:<8} {_list(example.key)}"
    before, after = example.before, example.after
    if before and after:
        differ = [name for name in after if name in before and str(before[name]) != str(after[name])]
        yield f"           {', '.join(f'{name}: {before[name]} -> {after[name]}' for name in differ)}"
    else:
        row = before or after or {}
        yield f"           {_list({name: value for name, value in row.items() if name not in example.key})}"
    if example.was:
        yield f"           was: {example.was}"
    if example.now:
        yield f"           now: {example.now}"


def _list(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'null' if value is None else value}" for name, value in values.items())


def case_lines(result: CaseResult) -> list[str]:
    """Returns the lines of a case: `-` was expected and did not come out, `+` came out."""
    how = "as expected" if result.passed else "NOT as expected"
    lines = [f"{result.name}: {how}: {result.rows:,} rows; {result.gate}".removesuffix("; ")]
    lines += [f"  error [{result.error.code}] {result.error.message}"] if result.error else []
    lines += [f"  refused {one}" for one in result.refused]
    for mark, rows in (("-", result.missing), ("+", result.unexpected)):
        lines += [f"  {mark} {_list(row)}" for row in rows[:_SHOWN]]
        lines += [f"  {mark} {len(rows) - _SHOWN:,} more rows"] if rows[_SHOWN:] else []
    return lines
