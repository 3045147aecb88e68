"""Refused records: count, show, read again, or settle them.

Ingest refuses a record that it cannot use, and takes the others of the file. list counts what was refused by reason,
and show prints it. retry reads it again after a correction. settle ends what nobody needs.

Example: tidefold quarantine list
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidefold.cli.output.outcomes import act_on_logs, exit_code, print_lines, print_outcomes
from tidefold.cli.terminal import DryRun, Log, Logs, Terminal, choose_logs
from tidefold.errors import TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.presentation.tables import format_place

if TYPE_CHECKING:
    from tidefold.operations.quarantine.inspect import ReasonCount, RefusedRecord

_SHOWN = 200
Code = Annotated[str | None, typer.Option("--code", help="Only this reason, such as VALUE_INVALID.")]
MaxRecords = Annotated[int, typer.Option("--limit", help="Maximum number of records.", min=1)]


def list_(terminal: Terminal, logs: Logs = None) -> int:
    """Count the refused records of each log, by reason code.

    Shows the number of records and of landed files, when the oldest and the newest of these files were ingested, and
    the position of the first record. Only these records were refused. The other records of the files were ingested.
    Starts no Spark.

    Example: tidefold quarantine list accounts

    Next: tidefold quarantine show LOG
    """
    from tidefold.operations.quarantine.inspect import count_refused
    from tidefold.operations.quarantine.next_step import advise_on_log
    from tidefold.presentation.tables import plain_table

    pipeline = terminal.pipeline()
    counts: list[ReasonCount] = []
    failed: list[Outcome] = []
    for log in choose_logs(pipeline, logs):
        try:
            counts += count_refused(pipeline, log)
        except TidefoldError as error:
            failed.append(Outcome.of_error(log, error))
    columns = ("log", "reason", "records>", "files>", "oldest", "newest", "the first")
    shown = plain_table(columns, map(_count_row, counts)) if counts else "no record is refused"
    data = {"refused": [asdict(one) for one in counts], "errors": [one.to_dict() for one in failed]}
    terminal.result(data, *([shown] if counts or not failed else []))
    for log in dict.fromkeys(one.log for one in counts):
        terminal.line(f"{log}: {advise_on_log(pipeline, log)}")
    print_lines(terminal, failed)
    if counts:
        terminal.note(f"next: tidefold quarantine show {counts[0].log}")
    return exit_code(failed)


def show(terminal: Terminal, log: Log, code: Code = None, limit: MaxRecords = 20) -> None:
    """Show the refused records of a log: file, line, offset, reason and text.

    Sorted by arrival. tidefold keeps the first 8 KiB of each record. The terminal shows 200 characters, with control
    characters escaped. --format json shows everything that tidefold keeps. Starts no Spark.

    Example: tidefold quarantine show accounts --code VALUE_INVALID

    Next: tidefold quarantine retry LOG, after you corrected the configuration or updated tidefold; for records that are
    wrong: change their rows once more at the source, then tidefold quarantine settle LOG
    """
    from tidefold.operations.quarantine.inspect import show_refused
    from tidefold.operations.quarantine.next_step import advise_on_log

    pipeline = terminal.pipeline()
    records, more = show_refused(pipeline, log, code, limit)
    lines = [line for one in records for line in _describe_record(one)]
    data = {"log": log, "records": [asdict(one) for one in records], "more": more}
    terminal.result(data, *(lines or ["no record is refused"]))
    if more:
        terminal.note_cut(limit, "record")
    if records:
        terminal.note(f"next: {advise_on_log(pipeline, log)}")


def retry(terminal: Terminal, log: Log, code: Code = None) -> int:
    """Read the refused records of a log again, with the installed program and the current configuration.

    tidefold appends the records that it can read now to the log, with their own source position and order. If the key
    of a record has a newer change, tidefold settles the record without a change. The others stay in quarantine with
    their reason. Each record is ingested once, even if calls are repeated, killed or concurrent. If the log was
    truncated after the record was refused, the record stays, because newer changes of its key can no longer be found.
    Starts no Spark.

    Example: tidefold quarantine retry accounts --code VALUE_INVALID

    Next: tidefold step materialize LOG, if records became changes
    """
    from tidefold.operations.quarantine.retry import RetryDetails
    from tidefold.operations.quarantine.retry import retry as act

    outcomes = act_on_logs(terminal, [log], act, *([code] if code else []))
    appended = any(isinstance(one.details, RetryDetails) and one.details.changes for one in outcomes)
    after = f"tidefold step materialize {log}" if appended else ""
    return print_outcomes(terminal, outcomes, after=after)


def settle(
    terminal: Terminal,
    log: Log,
    reason: Annotated[str, typer.Option("--reason", help="Why these records are not needed; kept in the ledger.")],
    by: Annotated[str | None, typer.Option("--by", help="Who decides; usually the user.")] = None,
    code: Code = None,
    file: Annotated[str | None, typer.Option("--file", help="Only those of this landed file.")] = None,
    dry_run: DryRun = False,
) -> int:
    """Settle refused records by hand: remove them from the quarantine and count them as ignored.

    The ledger records who settled how many records of which file, and why. The records are not ingested, and no retry
    reads them again. Starts no Spark.

    Example: tidefold quarantine settle accounts --code BROKEN_JSON --reason "test data of the vendor"

    Next: tidefold run LOG
    """
    import getpass

    from tidefold.operations.quarantine.settle import SettledDetails
    from tidefold.operations.quarantine.settle import settle as settle_all

    act = partial(settle_all, plan=dry_run)
    outcomes = act_on_logs(terminal, [log], act, by or getpass.getuser(), reason, code, file)
    is_left = any(isinstance(one.details, SettledDetails) and one.details.left for one in outcomes)
    after = f"tidefold quarantine list {log}" if is_left else f"tidefold run {log}"
    return print_outcomes(terminal, outcomes, after="" if dry_run else after)


def _count_row(one: ReasonCount) -> tuple[str, ...]:
    from tidefold.domain.wording import format_minute

    taken = [format_minute(instant) if instant else "-" for instant in (one.oldest, one.newest)]
    return (one.log, one.reason, f"{one.count:,}", f"{one.files:,}", *taken, format_place(one.file, one.line))


def _describe_record(one: RefusedRecord) -> tuple[str, str]:
    offset = "" if one.offset is None else f", offset {one.offset}"
    where = f"{format_place(one.file, one.line)}{offset}"
    more = " ..." if len(one.record) > _SHOWN else ""
    return f"{_escape(where)}: {one.reason}: {_escape(one.detail)}", f"  {_escape(one.record[:_SHOWN])}{more}"


def _escape(text: str) -> str:
    """Returns control characters as text: a record must neither control the terminal nor look like another line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
