"""Sections of `tidefold.yaml` beside the logs: sets, and thresholds of alarms."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema

from tidefold.config.models.kafka import KafkaEntry
from tidefold.config.models.sources import DebeziumEntry, SourceEntry
from tidefold.config.models.units import SPAN, find_seconds
from tidefold.domain.alarms import AlarmThresholds
from tidefold.domain.paths import SetPaths
from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSTGRESQL
from tidefold.domain.table.table_spec_validation import Mistake
from tidefold.yaml_files.messages import StrictModel, Text, mistake, suggest

_FORMATS = ("debezium-json", "debezium-avro", "debezium-parquet")
_CONNECTORS = (POSTGRESQL, MYSQL, MARIADB)
# Types whose sums do not depend on the order of the rows.
_SUMMED = ("int", "long", "decimal")
NEVER = "never"


def locate(address: str, folder: Path) -> str:
    """Returns the absolute path of what lies beside the file; other addresses as they are."""
    return address if "://" in address else str(folder / address)


class SetConfig(StrictModel):
    """Logs of one database whose tables always show the same point of its log."""

    logs: tuple[Text, ...] = Field(
        min_length=1, strict=False, description="logs of the set; each is in one set at most"
    )
    consistent: Literal[True] = Field(
        default=True, description="all tables of the set are published at one point of the source's log, or none"
    )
    transactions: Text | None = Field(
        default=None,
        description="folder, here or in S3, where the connector's topic `PREFIX.transaction` lands; it proves which "
        "transactions have landed completely",
    )
    kafka: KafkaEntry | None = Field(default=None, description="that topic itself, instead of `transactions`")
    may_be_empty: list[Text] = Field(
        default=[], description="logs whose tables were empty in the initial snapshot, so that nothing may have landed"
    )
    equal_sums: list[list[Text]] = Field(
        default=[], description="lists of columns as `log.column` whose sums over all rows must be equal"
    )
    _name: str = PrivateAttr(default="")
    _folder: Path = PrivateAttr(default=Path())
    _store: str = PrivateAttr(default="")

    def place(self, name: str, folder: Path, store: str) -> None:
        """Takes over its name in the file, the folder of the file, and the store, where a topic lands."""
        self._name, self._folder, self._store = name, folder, store.removeprefix("file://")

    @property
    def name(self) -> str:
        return self._name

    @property
    def topic(self) -> str:
        """The absolute folder or the address where the transaction topic lands."""
        if self.kafka:
            return f"{locate(self._store, self._folder)}/{SetPaths(self._name).landed}"
        return locate(self.transactions or "", self._folder)

    @property
    def topic_name(self) -> str:
        """What people call the transaction topic."""
        return self.kafka.topic if self.kafka else PurePath(self.topic).name

    @property
    def sums(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Lists of (log, column) whose sums must be equal."""
        return tuple(tuple((one.partition(".")[0], one.partition(".")[2]) for one in each) for each in self.equal_sums)


class SourcedLog(Protocol):
    """What a set needs to know of a log."""

    @property
    def source(self) -> SourceEntry | None: ...

    @property
    def columns(self) -> Mapping[str, Any]: ...


def find_set_mistakes(
    entry: SetConfig, logs: Mapping[str, SourcedLog], unreadable: Collection[str] = ()
) -> Iterator[Mistake]:
    """Yields the mistakes of one set, without those that follow from another one.

    logs: the logs of the file. unreadable: its logs that have mistakes of their own.
    """
    doubtful = {*unreadable, *(log for log in entry.logs if log not in logs)}
    yield from _find_topic_mistakes(entry, logs)
    for i, log in enumerate(entry.logs):
        if log in unreadable:
            continue
        if log not in logs:
            hint = suggest(log, list(logs), f"Logs: {', '.join(logs)}.")
            yield "SET_LOG_UNKNOWN", ("logs", i), f"is `{log}`, which is not a log.", hint
        elif not _shows_places(logs[log].source):
            yield (
                "SET_SOURCE",
                ("logs", i),
                f"is `{log}`, whose records do not show a point of the source's log that tidefold can prove.",
                f"A set needs one of `format: {', '.join(_FORMATS)}`, and one of "
                f"`connector: {', '.join(_CONNECTORS)}`.",
            )
        elif entry.logs[0] in logs and _find_connector(logs[log].source) != _find_connector(logs[entry.logs[0]].source):
            yield (
                "SET_SOURCES",
                ("logs", i),
                f"is `{log}`, whose `format`, `connector` or `names` differ from those of `{entry.logs[0]}`.",
                "All logs of a set and its transaction topic come from one connector and one sink.",
            )
        if log in entry.logs[:i]:
            yield "SET_LOG_TWICE", ("logs", i), f"is `{log}`, which is in the set already.", "Remove it."
    for i, log in enumerate(entry.may_be_empty):
        if log not in entry.logs and not (doubtful and log in logs):
            hint = suggest(log, entry.logs, "Remove it.")
            yield "SET_LOG_UNKNOWN", ("may_be_empty", i), f"is `{log}`, which is not in `logs`.", hint
    yield from _find_sum_mistakes(entry, logs, doubtful)


def _find_topic_mistakes(entry: SetConfig, logs: Mapping[str, SourcedLog]) -> Iterator[Mistake]:
    formats = {source.format for log in entry.logs if (source := logs[log].source if log in logs else None)}
    if entry.kafka and (entry.transactions is not None or formats - {"debezium-json"}):
        message = "cannot be used together with `transactions`, or with logs of another format than `debezium-json`."
        yield "CONFIG_KAFKA", ("kafka",), message, "Remove one of them. The set goes on at its point."
    elif entry.transactions is None and not entry.kafka:
        yield (
            "SET_TRANSACTIONS",
            ("transactions",),
            "is missing: without the transaction topic, nothing proves that all tables have the same transactions.",
            "Set `provide.transaction.metadata: true` in the connector, let its topic `PREFIX.transaction` land in a "
            "folder of its own, and name that folder here. Or name the topic itself: `kafka: {servers, topic}`.",
        )


def _find_sum_mistakes(
    entry: SetConfig, logs: Mapping[str, SourcedLog], doubtful: Collection[str]
) -> Iterator[Mistake]:
    """Yields the columns of `equal_sums` that have no exact sum.

    doubtful: names of logs that are reported already. One of them may mean a log of the file that the set lacks.
    """
    for i, names in enumerate(entry.equal_sums):
        for j, name in enumerate(names):
            log, _, column = name.partition(".")
            if log in doubtful or (doubtful and log in logs and log not in entry.logs):
                continue
            if log in logs and log not in entry.logs:
                hint = f"Add `{log}` to `logs`, or remove the column."
                yield "SET_COLUMN", ("equal_sums", i, j), f"is `{name}`, and `{log}` is not in `logs`.", hint
                continue
            column_type = logs[log].columns.get(column) if log in logs else None
            if column_type is None or column_type.type.partition("(")[0] not in _SUMMED:
                hint = f"Write `LOG.COLUMN`, a column of type {' or '.join(_SUMMED)} of {', '.join(entry.logs)}."
                yield "SET_COLUMN", ("equal_sums", i, j), f"is `{name}`, not a column with exact sums.", hint


def _shows_places(source: SourceEntry | None) -> bool:
    """Whether its records show their transactions and places in the source's log."""
    return isinstance(source, DebeziumEntry) and source.format in _FORMATS and source.connector in _CONNECTORS


def _find_connector(source: SourceEntry | None) -> tuple[str, ...]:
    """Returns what all logs of a set have in common."""
    if not isinstance(source, DebeziumEntry):
        return ()
    return (source.format, source.connector, source.names or "")


def _require_span(value: Any) -> Any:
    if value == NEVER:
        return value
    if (seconds := find_seconds(value)) is not None:
        return seconds
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
    Any, BeforeValidator(_require_span), WithJsonSchema({"type": "string", "pattern": f"^({NEVER}|{SPAN})$"})
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
    limits: dict[str, Any] = {}
    for entry in (general, own):
        limits |= entry.model_dump(exclude_none=True) if entry else {}
    return AlarmThresholds(**{name: None if value == NEVER else value for name, value in limits.items()})
