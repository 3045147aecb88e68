"""The text of a plan, and of tests of a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.domain.plan import Example, Plan
from tidefold.domain.wording import count_noun, format_cell, in_units, list_values
from tidefold.operations.plan.cases import CaseResult
from tidefold.operations.plan.compare import VERSIONS_ADDED, VERSIONS_REMOVED
from tidefold.quality.report.page import load_page
from tidefold.read.task import ADDED, CHANGED, REMOVED

_SHOWN = 20


def render_plan(plan: Plan) -> str:
    """Returns a plan as a page in HTML that stands alone. The same plan gives the same page."""
    template = load_page("tidefold.presentation", "plan.html.j2", values=_list_values, cell=format_cell)
    most = max(plan.values.values(), default=1)
    return template.render(plan=plan, step=say_next_step(plan), counts=count_differences(plan), most=most)


def say_next_step(plan: Plan) -> str:
    """Returns what a person does with a plan. Only of one that can be applied it names the commands for that."""
    again = f"then run `tidefold plan {plan.log}` again"
    if not plan.passed:
        return f"The gate did not pass these rows: correct the data, the suite or the configuration, {again}."
    if plan.gone:
        return f"A landed file is missing: land it again, {again}."
    if not plan.edits:
        return "The log has this configuration: there is nothing to apply."
    return f"`tidefold plan {plan.log} --apply`, or the DAG tidefold_plan, publishes these rows."


def plan_lines(plan: Plan) -> list[str]:
    """Returns the lines of a plan."""
    told: list[tuple[str, str]] = [("edit", one) for one in plan.edits] or [("edit", "none of the table definition")]
    told += [("ingest", plan.ingested), ("gate", plan.gate)]
    told += [
        ("refused", f"{count_noun(count, 'record')} of {name}") for name, count in [*plan.refused.items()][:_SHOWN]
    ]
    told.append(("rows", f"{plan.rows[0]:,} before, {plan.rows[1]:,} now"))
    told += [("", ", ".join(f"{count:,} {kind}" for kind, count in count_differences(plan).items()))]
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


def count_differences(plan: Plan) -> dict[str, int]:
    """Returns how many rows differ, by kind in words; versions only where there are any."""
    kinds = {ADDED: "added", REMOVED: "removed", CHANGED: "changed"}
    kinds |= {VERSIONS_ADDED: "earlier versions added", VERSIONS_REMOVED: "earlier versions removed"}
    always = (ADDED, REMOVED, CHANGED)
    return {text: plan.counts.get(kind, 0) for kind, text in kinds.items() if kind in always or plan.counts.get(kind)}


def _describe(example: Example) -> Iterator[str]:
    yield f"  {example.change:<8} {list_values(example.key)}"
    told = (f"{name}: {' -> '.join(texts)}" if example.before and example.after else f"{name}={''.join(texts)}"
            for name, *texts in _list_values(example))  # fmt: skip
    yield f"           {', '.join(told)}"
    if example.was:
        yield f"           was: {example.was}"
    if example.now:
        yield f"           now: {example.now}"


def _list_values(example: Example) -> list[tuple[str, ...]]:
    """Returns the columns of a row that differ with both values; of a row that one side lacks, all but the key once."""
    before, after = example.before, example.after
    if before and after:
        names = [name for name in after if name in before and str(before[name]) != str(after[name])]
    else:
        names = [name for name in before or after or {} if name not in example.key]
    return [(name, *(format_cell(side[name]) for side in (before, after) if side)) for name in names]


def case_lines(result: CaseResult) -> list[str]:
    """Returns the lines of a case: `-` was expected and did not come out, `+` came out."""
    how = ("NOT as expected", "as expected") if result.compared else ("failed", "no rows to compare with")
    told = f"{how[result.passed]}: {count_noun(result.rows, 'row')}; {result.gate}"
    lines = [f"{result.name}: {told}".removesuffix("; ")]
    lines += [f"  error [{result.error.code}] {result.error.message}"] if result.error else []
    lines += [f"  refused {one}" for one in result.refused]
    for mark, rows in (("-", result.missing), ("+", result.unexpected)):
        lines += [f"  {mark} {list_values(row)}" for row in rows[:_SHOWN]]
        lines += [f"  {mark} {count_noun(len(rows) - _SHOWN, 'more row')}"] if rows[_SHOWN:] else []
    return lines
