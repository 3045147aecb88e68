"""The result of an operation on one log: the same value for the command line, the Spark jobs and Airflow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from tidefold.domain.wording import EngineName
from tidefold.errors import TidefoldError, wrap_unexpected

_log = logging.getLogger(__name__)
_NO_KEY = object()
T = TypeVar("T")


class Status(StrEnum):
    """What an operation did to a log, in one word. The words are part of the JSON output."""

    ABORTED = "aborted"
    ALREADY = "already"
    ASKED = "asked"
    CLEANED = "cleaned"
    COMPLETED = "completed"
    DAMAGED = "damaged"
    DROPPED = "dropped"
    ERROR = "error"
    EXPORTED = "exported"
    FAILED = "failed"
    HELD = "held"
    INCOMPLETE = "incomplete"
    NOTHING = "nothing"
    PASSED = "passed"
    PENDING = "pending"
    PLANNED = "planned"
    POINTLESS = "pointless"
    PUBLISHED = "published"
    REBUILT = "rebuilt"
    REFUSED = "refused"
    REGISTERED = "registered"
    RELEASED = "released"
    REMOVED = "removed"
    REPAIRED = "repaired"
    RESUMED = "resumed"
    SAVED = "saved"
    SETTLED = "settled"
    SKIPPED = "skipped"
    COMPACTED = "compacted"
    STAGED = "staged"
    STOPPED = "stopped"
    SUBSUMED = "subsumed"
    TAGGED = "tagged"
    TAKEN = "taken"
    TRUNCATED = "truncated"
    UNREGISTERED = "unregistered"
    UNTAGGED = "untagged"
    WAITS = "waits"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as a value, which can be sent to another process.

    `exit_code`: the exit code that it gives a process.
    `transient`: the same call may succeed later without any change.
    """

    code: str
    message: str
    hint: str = ""
    exit_code: int = 1
    transient: bool = False

    @classmethod
    def of(cls, error: TidefoldError) -> ErrorInfo:
        return cls(error.code, error.message, error.hint, error.exit_code, error.transient)


def omit_if_none() -> Any:
    """Declares a field that the JSON output leaves out if it is None."""
    return field(default=None, metadata={"none": _NO_KEY})


def empty_if_none() -> Any:
    """Declares a field that the JSON output shows as an empty object if it is None."""
    return field(default=None, metadata={"none": {}})


def inline_keys() -> Any:
    """Declares a field whose own fields the JSON output shows in the surrounding object; none if it is None."""
    return field(default=None, metadata={"none": {}, "inline": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The values of an outcome. Operations define subclasses; programs read their fields.

    `engine`: the engine that did the work, if there was work for one.
    `bytes_without_spark`: the bytes to read, if the step ran without Spark because they are few.
    """

    engine: EngineName | None = omit_if_none()
    bytes_without_spark: int | None = omit_if_none()

    def to_dict(self) -> dict[str, Any]:
        """The fields as the JSON output shows them."""
        return _to_dict(self)


def _to_dict(value: Any) -> dict[str, Any]:
    """Like `dataclasses.asdict`, but handles None as each field declares it."""
    shown: dict[str, Any] = {}
    for one in fields(value):
        plain: Any = getattr(value, one.name)
        plain = one.metadata.get("none") if plain is None else _to_plain(plain)
        if one.metadata.get("inline"):
            shown |= plain
        elif plain is not _NO_KEY:
            shown[one.name] = plain
    return shown


def _to_plain(value: Any) -> Any:
    if is_dataclass(value):
        return _to_dict(value)
    if isinstance(value, Mapping):
        return {key: _to_plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_to_plain(one) for one in value]
    return tuple(map(_to_plain, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an operation on one log.

    `message`: one line for people.
    `details`: the values behind it.
    `error`: why the operation failed. The log is unchanged; with `stopped` or `incomplete`, everything before the
    error is done.
    """

    log: str
    status: Status
    message: str
    snapshot: int | None = None
    error: ErrorInfo | None = None
    details: Details = Details()

    @classmethod
    def of_error(cls, log: str, error: TidefoldError, snapshot: int | None = None) -> Outcome:
        return cls(log, Status.ERROR, str(error), snapshot, ErrorInfo.of(error))

    def with_engine(self, engine: EngineName, weight: int | None = None) -> Outcome:
        """The same outcome with the engine that did the work. An outcome without work is unchanged.

        weight: the bytes to read, if they are why the step ran without Spark.
        """
        if self.error or self.status in (Status.NOTHING, Status.SKIPPED):
            return self
        # A verdict that was stored before has the engine that judged.
        engine = self.details.engine or engine
        read = f" ({weight:,} bytes to read)" if weight else ""
        details = replace(self.details, engine=engine, bytes_without_spark=weight)
        return replace(self, message=f"{self.message}; engine: {engine}{read}", details=details)

    @property
    def error_code(self) -> str | None:
        """The stable code of the error; None: there is no error."""
        return self.error.code if self.error else None

    @property
    def facts(self) -> dict[str, Any]:
        """The details by name, for output. Programs read `details`."""
        return self.details.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """The outcome as the JSON output shows it."""
        facts = {**self.facts, **({"exit_code": self.error.exit_code} if self.error else {})}
        return {
            "log": self.log,
            "result": str(self.status),
            "message": self.message,
            "snapshot": self.snapshot,
            "error": self.error_code,
            "facts": facts,
        }


def for_each_log(logs: Iterable[str], act: Callable[[str], Outcome], at_once: int = 1) -> list[Outcome]:
    """Calls `act` for every log. An error of one log becomes its outcome and does not stop the others.

    at_once: how many logs at the same time.
    """

    def try_log(log: str) -> Outcome:
        try:
            return act(log)
        except Exception as error:
            failure = wrap_unexpected(error)
            if failure is not error:
                _log.error("%s: %s", log, failure, exc_info=error)
            return Outcome.of_error(log, failure)

    return map_logs(try_log, list(logs), at_once)


def map_logs(act: Callable[[str], T], logs: Sequence[str], at_once: int) -> list[T]:
    """Returns what `act` returns for each log, in their order."""
    if at_once == 1 or len(logs) < 2:
        return [act(log) for log in logs]
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(act, logs))
