"""The next step for refused records, by the source of their log."""

from __future__ import annotations

from dataclasses import replace

from tidefold.config import SourceEntry
from tidefold.domain.log_state import LogState
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.sources.landing.folders import start_in
from tidefold.sources.landing.problems import FileProblem

# A second extract of one day.
_LATER_EXTRACT = "orders_2026-01-31T20-00.csv"


def has_extracts(source: SourceEntry | None) -> bool:
    """Whether each landing of this source has all rows of its table."""
    return getattr(source, "extract", None) is not None


def can_read_again(source: SourceEntry | None, state: LogState) -> bool:
    """Whether a retry can read the refused records of this source."""
    if source is None or has_extracts(source):
        return False
    is_read_alone = source.format in ("json", "custom") or source.format.startswith("debezium")
    return is_read_alone or (source.format in ("csv", "parquet") and _is_numbered(state))


def advise_on_refused(pipeline: Pipeline, state: LogState) -> str:
    """Returns what to do with the refused records of a log.

    A refused record keeps its offset, so a corrected file with the same offsets is never ingested.
    """
    source, log, settle, after = pipeline.log(state.log).source, state.log, "", ""
    if source is None:
        step = "write their rows once more"
    elif has_extracts(source):
        step = f"land the next extract with correct rows, such as `{_LATER_EXTRACT}` on the same day"
    elif _is_numbered(state):
        refused = [entry.name for entry in state.landed if entry.quarantined]
        [file] = refused if len(refused) == 1 else ["FILE"]
        step, settle, after = "land corrected ones in a new file", f" --file {file}", f" Then `tidefold run {log}`."
    elif source.format.startswith("debezium"):
        step = "change their rows once more at the source, or let Debezium take an incremental snapshot of their keys"
    elif source.format == "delta-cdf":
        step = "change their rows once more in the Delta table"
    else:
        step = "let the source send newer changes of their rows"
    wrong = "If the records are wrong, "
    again = f"If the configuration was wrong, correct it, then `tidefold quarantine retry {log}`. {wrong}"
    steps = f"{again if can_read_again(source, state) else ''}{step}; then `tidefold quarantine settle {log}{settle} "
    return f"{steps[0].upper()}{steps[1:]}--reason REASON`.{after}"


def _is_numbered(state: LogState) -> bool:
    return state.names is not None and not state.names.has_offsets


def advise_on_log(pipeline: Pipeline, log: str) -> str:
    """Returns the same for a log by its name; empty if the log has no refused records. Raises TidefoldError."""
    state = pipeline.ledger(log).find()
    return advise_on_refused(pipeline, state) if state and any(entry.quarantined for entry in state.landed) else ""


def explain_refused_offsets(pipeline: Pipeline, state: LogState, problem: FileProblem) -> FileProblem:
    """Returns the problem of a landed file; if it brings refused records again, with the step that really helps."""
    if problem.code == "LANDED_CHANGED" and has_extracts(pipeline.log(state.log).source):
        hint = "Remove it, or restore the earlier file. Land the mended rows as a later extract: a time in its name"
        return replace(problem, hint=f"{hint} counts, such as `{_LATER_EXTRACT}`.")
    if _is_numbered(state):
        return problem
    refused = [entry for entry in state.landed if entry.quarantined or entry.settled]
    if problem.code == "LANDED_CHANGED" and not problem.passing:
        if not any(entry.name == problem.file for entry in refused):
            return problem
        hint = "Restore the earlier file. Its refused records keep their offsets, so no corrected file replaces them."
        return replace(problem, hint=f"{hint} {advise_on_refused(pipeline, state)}")
    offset, partition = problem.late_offset, problem.partition
    for entry in refused if offset is not None else ():
        start = start_in(entry.name.rpartition("/")[2])
        if entry.partition == partition and 0 <= start <= (offset or 0) < entry.next_offset:
            message = (
                f"`{problem.file}` has offset {offset}, which `{entry.name}` had before it. Records of that file were "
                "refused. They keep their offsets, so no corrected file replaces them."
            )
            hint = f"Move the file away. {advise_on_refused(pipeline, state)}"
            return replace(problem, message=message, hint=hint)
    return problem
