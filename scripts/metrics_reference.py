"""Describes every metric for the documentation site, from the classes whose numbers are sent."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

# What is sent beside them, and beside the numbers of each step.
OTHER_GAUGES = {
    "unreadable": "1 if the log's state cannot be read",
    "uploads.segments": "segments that were uploaded so far, by ingests and by writers",
    "uploads.bytes": "bytes of the log's changes in them",
    "uploads.failures": "attempts to upload that failed",
    "uploads.seconds": "time of the attempts that succeeded",
    "uploads.<histogram>.<bucket>": "uploads with a value up to this bound: latency_ms, size, attempts, batch, queue",
    "confirm.age_seconds": "age of the published snapshot",
    "alarms": "number of alarms of the log",
    "alarm.<kind>": "1 while the log raises this alarm",
    "failed_runs": "failed runs in a row",
    "<task>.failed": "1 if the task failed for this log, or its gate did",
}


def describe_metrics() -> Iterator[str]:
    """Yields the lines of the chapter."""
    from tidefold.changelog.writer.settings import MetricsSnapshot
    from tidefold_airflow.observability.metrics import SET_AGE, SET_GAUGES, STATUS_GAUGES, TOPIC_GAUGES

    yield "## Metrics\n"
    yield "Airflow sends each as a gauge `tidefold.<log>.<name>` with the tag `log`, through StatsD or OpenTelemetry."
    yield "On the command line, `facts` of `--format json` has the same numbers."
    yield "\n### State of a log\n"
    yield "| gauge | is |\n|---|---|"
    meanings = {name: meaning for name, (meaning, _) in (STATUS_GAUGES | TOPIC_GAUGES).items()}
    yield from (f"| `{name}` | {meaning} |" for name, meaning in {**meanings, **OTHER_GAUGES}.items())
    yield "\n### State of a set\n"
    yield "These are `tidefold.set.<set>.<name>`, with the tag `set` ([sets](../how-to/sets.md)).\n"
    yield "| gauge | is |\n|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, (meaning, _) in SET_GAUGES.items())
    yield f"| `{SET_AGE}` | age of the published version |"
    for step, kind in _list_steps().items():
        yield f"\n### {step}\n"
        yield f"{_describe_fields(kind)}\n"
        names = list(dict.fromkeys(_list_numbers(kind)))
        yield f"Gauges: {', '.join(f'`{step}.{name}`' for name in names)}."
    yield "\n### Changelog writer\n"
    yield "The library gives them as one frozen value, `changelog.metrics` ([Changelog writer](writer.md)).\n"
    yield f"{_describe_fields(MetricsSnapshot)}\n"


def _list_steps() -> dict[str, type[Any]]:
    """The tasks of a run, and the details of their outcomes."""
    from tidefold.operations.ground.removal_details import (
        CleanDetails,
        LocalRetentionDetails,
        SubsumeDetails,
        TruncateDetails,
    )
    from tidefold.operations.ground.snapshot_details import PublicationDetails, StagedDetails
    from tidefold.operations.ingest.ingest_outcome import IngestDetails
    from tidefold.operations.quality.judge import JudgementDetails

    return {
        "ingest": IngestDetails,
        "materialize": StagedDetails,
        "quality": JudgementDetails,
        "confirm": PublicationDetails,
        "subsume": SubsumeDetails,
        "truncate": TruncateDetails,
        "local_retention": LocalRetentionDetails,
        "clean": CleanDetails,
    }


def _list_numbers(kind: type[Any], above: str = "") -> Iterator[str]:
    """Yields the names of the numbers in a class of details, as `tidefold_airflow` sends them: none of a list."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        hint = hints[one.name]
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        inner = next((value for value in kinds if is_dataclass(value)), None)
        if int in kinds or float in kinds:
            yield f"{above}{one.name}"
        elif isinstance(inner, type):
            yield from _list_numbers(inner, above if one.metadata.get("inline") else f"{above}{one.name}.")
        elif any(get_origin(value) is Mapping and int in get_args(value) for value in kinds):
            yield f"{above}{one.name}.<name>"


def _describe_fields(kind: type[Any]) -> str:
    """A docstring with a line for each field, as a list."""
    text = re.sub(r"\n\n+", "\n", inspect.cleandoc(kind.__doc__ or ""))
    return re.sub(r"^(?=[`\w., ]+: )", "- ", text, flags=re.MULTILINE).replace("\n- ", "\n\n- ", 1)
