"""The next step for refused records, by the source of their log."""

from __future__ import annotations

from tidefold.config import SourceConfig
from tidefold.domain.log_state import LogState
from tidefold.domain.source_progress import NameReading
from tidefold.operations.pipeline import Pipeline


def has_extracts(source: SourceConfig | None) -> bool:
    """Whether each landing of this source has all rows of its table."""
    return source is not None and (source.format == "delta" or bool(source.options.get("extract")))


def advise_on_refused(pipeline: Pipeline, state: LogState) -> str:
    """Returns what to do with the refused records of a log.

    A refused record keeps its offset, so a corrected file with the same offsets is never ingested.
    """
    source, log = pipeline.log(state.log).source, state.log
    if source is None:
        step = "write their rows once more"
    elif has_extracts(source):
        step = "land the next extract with correct rows"
    elif source.format.startswith("debezium"):
        step = "change their rows once more at the source, or let Debezium take an incremental snapshot of their keys"
    elif state.names is NameReading.ANY:
        step = "land corrected records in a file with another name"
    elif source.format == "delta-cdf":
        step = "change their rows once more in the Delta table"
    else:
        step = "let the source send newer changes of their rows"
    return (
        f"If the configuration was wrong, correct it, then `tidefold quarantine retry {log}`. "
        f"If the records are wrong, {step}; then `tidefold quarantine settle {log} --reason REASON`."
    )
