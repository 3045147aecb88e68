"""`alarms` of `tidefold.yaml`: the thresholds of all logs, and those of one log."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.domain.alarms import AlarmThresholds
from tidefold.yaml_files.model import StrictModel, mistake

NEVER = "never"
_SPAN = re.compile(r"([1-9]\d{0,5})([mhd])", re.ASCII)
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


def _require_span(value: Any) -> Any:
    if isinstance(value, str) and (value == NEVER or _SPAN.fullmatch(value)):
        return value
    raise mistake("CONFIG_WRONG_TYPE", "must be a time such as 90m, 24h or 7d, or `never`.")


def _require_count(least: int) -> BeforeValidator:
    def require(value: Any) -> Any:
        if value == NEVER or (type(value) is int and value >= least):
            return value
        raise mistake("CONFIG_OUT_OF_RANGE", f"must be a whole number from {least}, or `never`.")

    return BeforeValidator(require)


def _count_schema(least: int) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"const": NEVER}, {"type": "integer", "minimum": least}]})


_Span = Annotated[
    str | None,
    BeforeValidator(_require_span),
    WithJsonSchema({"type": "string", "pattern": f"^({NEVER}|{_SPAN.pattern})$"}),
]


class AlarmsEntry(StrictModel):
    """The thresholds above which a log raises an alarm. `never` switches one off."""

    lag: _Span = Field(default=None, description="how long an ingested change may wait to be published: 24h")
    silence: _Span = Field(
        default=None, description="how old the newest published change may be while no change waits: never"
    )
    files: _Span = Field(default=None, description="how long a landed file that is not ingested may stay: 24h")
    drill: _Span = Field(default=None, description="how old the newest restore drill may be: 35d")
    growth: Annotated[Any, _require_count(2), _count_schema(2)] = Field(
        default=None, description="how many times the bytes of its newest snapshot a log may take in the store: 20"
    )
    failures: Annotated[Any, _require_count(0), _count_schema(0)] = Field(
        default=None, description="number of failed runs in a row that are allowed: 2"
    )


def resolve_thresholds(general: AlarmsEntry | None, own: AlarmsEntry | None) -> AlarmThresholds | None:
    """Returns the thresholds of a log: its own, else those of all logs, else the defaults; None: alarms are off."""
    if general is None and own is None:
        return None
    given: dict[str, Any] = {}
    for entry in (general, own):
        given |= entry.model_dump(exclude_none=True) if entry else {}
    return AlarmThresholds(**{name: _parse_threshold(value) for name, value in given.items()})


def _parse_threshold(value: str | int) -> int | None:
    if value == NEVER:
        return None
    if isinstance(value, int):
        return value
    found = _SPAN.fullmatch(value)
    assert found is not None
    return int(found[1]) * _SECONDS[found[2]]
