"""`tidefold plan`: which rows an edit of the configuration changes, and tests of a configuration with sample files."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.terminal import Log, Terminal
from tidefold.errors import GateFailedError, InvalidInputError, NotFoundError, RefusedError

if TYPE_CHECKING:
    from tidefold.operations.plan.cases import SampleCase

SampleFolder = Annotated[
    Path | None, typer.Option("--sample", help="Try the files of this folder, without a store.", show_default=False)
]
Expect = Annotated[
    Path | None, typer.Option("--expect", help="With --sample: a CSV file with the rows that must come out.")
]
Cases = Annotated[
    Path | None, typer.Option("--cases", help="Try each case below this folder: NAME/landing and NAME/rows.csv.")
]
Apply = Annotated[bool, typer.Option("--apply", help="Publish the plan: the log goes on as it is configured now.")]
Report = Annotated[Path | None, typer.Option("--report", help="Also write the plan as one page in HTML to this file.")]
Examples = Annotated[int, typer.Option("--limit", help="Maximum number of rows to show of each kind.", min=0)]


def plan(
    terminal: Terminal,
    log: Log,
    apply: Apply = False,
    sample: SampleFolder = None,
    expect: Expect = None,
    cases: Cases = None,
    report: Report = None,
    limit: Examples = 3,
) -> int:
    """Show the rows that an edit changes. Test a configuration.

    Without --apply nothing of the pipeline changes.

    Reads again exactly the files that the log has, under the edited configuration, into a store of its own in plans/ of
    the store; on Spark where a run would. Folds and judges them there, and compares the rows with the published ones:
    how many are added, removed and changed, in which columns, and examples with the change that made each row before
    and now. Also for what schema_evolution refuses: key, order, merge, the reading of values. The same edit planned
    again reads only what landed since. Needs the landed files. Exit code 3 if the gate refuses the rows.

    --apply publishes a plan that was made and whose gate passed, as one version of the table. From then on explain,
    as-of, replays and backfills work over the whole history as it is configured now. Kept snapshots stay readable as
    they are. If the log has taken more since, it is refused (PLAN_BEHIND): plan again. Killed at any step, the same
    command goes on. To undo it, put the former lines back, plan and apply.

    --sample and --cases test the configuration with files of a folder, and need no store: exit code 0, or 3 and the
    rows that differ. rows.csv may have some of the columns; an empty value is null. Starts no Spark.

    Example: tidefold plan orders

    Example: tidefold plan orders --report plan.html

    Example: tidefold plan orders --apply

    Example: tidefold plan orders --cases tests/orders

    Next: tidefold plan LOG --apply
    """
    if sum((apply, sample is not None, cases is not None, report is not None)) > 1 or (expect and not sample):
        message = "--report, --apply, --sample and --cases exclude each other, and --expect needs --sample."
        hint = "Give --sample with --expect, or --cases, or --apply, or --report."
        raise InvalidInputError("PLAN_OPTIONS", message, hint=hint)
    if sample is None and cases is None:
        return _apply_plan(terminal, log) if apply else _plan_log(terminal, log, limit, report)
    return _try_cases(terminal, log, sample, expect, cases)


def _plan_log(terminal: Terminal, log: str, limit: int, report: Path | None) -> int:
    from tidefold.cli.spark_submit import SparkApplication
    from tidefold.operations.plan.plan import make_plan
    from tidefold.presentation.plans import plan_lines, render_plan
    from tidefold.spark.steps import plan_steps
    from tidefold.wiring import open_plan

    beside = open_plan(terminal.pipeline(), log)
    with SparkApplication(terminal, beside) as application:
        made = make_plan(beside, log, plan_steps(application.run_step), limit)
    if report:
        try:
            report.write_text(render_plan(made), encoding="utf-8")
        except OSError as error:
            message = f"`{report}` cannot be written: {error.strerror}. The plan itself is stored."
            raise InvalidInputError(
                "REPORT_UNWRITABLE", message, hint="Give a file in a folder that exists."
            ) from error
    code = 0 if made.passed else GateFailedError.exit_code
    terminal.result({"command": terminal.command, "exit_code": code, "plan": asdict(made)}, *plan_lines(made))
    if made.passed and made.edits and not made.gone:  # What lacks a landed file cannot be applied.
        terminal.note(f"next: tidefold plan {log} --apply")
    return code


def _apply_plan(terminal: Terminal, log: str) -> int:
    from tidefold.cli.output.outcomes import print_outcomes
    from tidefold.cli.spark_submit import SparkApplication
    from tidefold.operations.plan.apply import apply_plan
    from tidefold.spark.steps import plan_steps
    from tidefold.wiring import open_plan

    pipeline = terminal.pipeline()
    with SparkApplication(terminal, pipeline) as application:
        outcomes = apply_plan(open_plan(pipeline, log), log, plan_steps(application.run_step))
    return print_outcomes(terminal, outcomes, after="tidefold snapshot history " + log)


def _try_cases(terminal: Terminal, log: str, sample: Path | None, expect: Path | None, cases: Path | None) -> int:
    from tidefold.config import load_config
    from tidefold.operations.plan.cases import find_cases, run_case
    from tidefold.operations.plan.edits import require_sampled
    from tidefold.presentation.plans import case_lines
    from tidefold.quality.run.duckdb_rows import open_engines
    from tidefold.quality.run.gx_import import load
    from tidefold.wiring import open_beside

    config = load_config(terminal.config_path)
    if log not in config.logs:
        raise NotFoundError("LOG_NOT_CONFIGURED", f"`{config.path}` has no log `{log}`.")
    require_sampled(config.logs[log])
    load(without="pyspark")
    results = []
    with tempfile.TemporaryDirectory() as scratch, open_engines(1) as lend, lend() as engine:
        for number, case in enumerate(find_cases(cases) if cases else [_as_case(sample, expect)]):
            beside = open_beside(config, log, f"{scratch}/{number}", case.landing)
            results.append(run_case(beside, log, case, engine))
            for line in case_lines(results[-1]):
                terminal.line(line)
    code = 0 if all(one.passed for one in results) else RefusedError.exit_code
    terminal.json({"command": terminal.command, "exit_code": code, "cases": [asdict(one) for one in results]})
    return code


def _as_case(sample: Path | None, expect: Path | None) -> SampleCase:
    from tidefold.operations.plan.cases import SampleCase

    assert sample is not None
    return SampleCase(sample.name, sample, expect)
