"""Prints outcomes, and finds the exit code that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidefold.cli.terminal import Terminal
from tidefold.errors import GateFailedError
from tidefold.operations.outcome import Outcome, Status


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """3 when a gate failed, else the code of the first error, else 0."""
    listed = list(outcomes)
    if any(o.status is Status.FAILED or o.error_code == "GATE_FAILED" for o in listed):
        return GateFailedError.exit_code
    return next((o.error.exit_code for o in listed if o.error), 0)


def print_lines(terminal: Terminal, outcomes: Iterable[Outcome], indent: str = "") -> None:
    """Prints one line for each log; errors to stderr, the same error of several logs once."""
    listed = list(outcomes)
    failed: dict[str, list[str]] = {}
    for outcome in listed:
        if outcome.error:
            failed.setdefault(outcome.message, []).append(outcome.log)
    for outcome in listed:
        if not outcome.error:
            terminal.line(f"{indent}{outcome.log}: {outcome.status}: {outcome.message}")
        elif logs := failed.pop(outcome.message, None):
            terminal.error(f"{', '.join(logs)}: {outcome.message}", outcome.error.hint)


def print_outcomes(terminal: Terminal, verb: str, outcomes: Sequence[Outcome], *, after: str = "") -> int:
    """Prints the outcomes of one verb and returns the exit code. `after`: the next step if all succeeded."""
    code = exit_code(outcomes)
    print_lines(terminal, outcomes)
    terminal.json({"command": verb, "exit_code": code, "outcomes": [o.to_dict() for o in outcomes]})
    if after and not code and any(o.status not in (Status.NOTHING, Status.REFUSED) for o in outcomes):
        terminal.note(f"next: {after}")
    return code


def print_removals(terminal: Terminal, verb: str, outcomes: Sequence[Outcome]) -> int:
    """Prints the outcomes; below each, what keeps the log and which files a run without --dry-run deletes."""
    from tidefold.operations.retention.details import bounds_of, paths_of

    code = print_outcomes(terminal, verb, outcomes)
    for outcome in outcomes:
        for bound in bounds_of(outcome):
            terminal.line(f"  {outcome.log}: {bound.name} keeps the log after {bound.sqn}: {bound.why}")
        for path in paths_of(outcome) if outcome.status is Status.PLANNED else ():
            terminal.line(f"  {outcome.log}: {path}")
    return code


def print_costs(terminal: Terminal, outcomes: Iterable[Outcome]) -> None:
    """Prints one line for each log: what its checks cost."""
    from tidefold.operations.quality.judge import JudgementDetails

    for outcome in outcomes:
        found = outcome.details
        if isinstance(found, JudgementDetails):
            over = f"{found.rows:,} rows, {found.bytes / 1e6:,.1f} MB of files"
            # A Spark Connect server tells of none.
            how = f"{found.seconds:.1f} s{f', {found.jobs} Spark jobs' if found.jobs else ''}"
            terminal.note(f"{outcome.log}: {found.checks} checks over {over}: {how}")


def list_logs(logs: Iterable[str] | None) -> str:
    """Returns the logs as arguments of the next command."""
    return "".join(f" {log}" for log in logs or ())
