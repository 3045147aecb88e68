"""The `sets:` of `tidefold.yaml`: logs whose tables are published together, at one point of the source's log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, Protocol

from pydantic import Field

from tidefold.config.models.sources import DebeziumEntry, SourceEntry
from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSTGRESQL
from tidefold.domain.table.table_spec_validation import Mistake
from tidefold.yaml_files.model import StrictModel, Text, suggest

_FORMATS = ("debezium-json", "debezium-avro", "debezium-parquet")
_CONNECTORS = (POSTGRESQL, MYSQL, MARIADB)
# Types whose sums do not depend on the order of the rows.
_SUMMED = ("int", "long", "decimal")


class SetEntry(StrictModel):
    """Logs of one database whose tables always show the same point of its log."""

    logs: list[Text] = Field(min_length=1, description="logs of the set; each is in one set at most")
    consistent: Literal[True] = Field(
        default=True, description="all tables of the set are published at one point of the source's log, or none"
    )
    transactions: Text | None = Field(
        default=None,
        description="folder, here or in S3, where the connector's topic `PREFIX.transaction` lands; it proves which "
        "transactions have landed completely",
    )
    may_be_empty: list[Text] = Field(
        default=[], description="logs whose tables were empty in the initial snapshot, so that nothing may have landed"
    )
    equal_sums: list[list[Text]] = Field(
        default=[], description="lists of columns as `log.column` whose sums over all rows must be equal"
    )


class SourcedLog(Protocol):
    """What a set needs to know of a log."""

    @property
    def source(self) -> SourceEntry | None: ...

    @property
    def columns(self) -> Mapping[str, Any]: ...


def find_set_mistakes(
    entry: SetEntry, logs: Mapping[str, SourcedLog], unreadable: Collection[str] = ()
) -> Iterator[Mistake]:
    """Yields the mistakes of one set, without those that follow from another one.

    logs: the logs of the file. unreadable: its logs that have mistakes of their own.
    """
    doubtful = {*unreadable, *(log for log in entry.logs if log not in logs)}
    if entry.transactions is None:
        yield (
            "SET_TRANSACTIONS",
            ("transactions",),
            "is missing: without the transaction topic, nothing proves that all tables have the same transactions.",
            "Set `provide.transaction.metadata: true` in the connector, let its topic `PREFIX.transaction` land in a "
            "folder of its own, and name that folder here.",
        )
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
                f"A set needs one of `format: {', '.join(_FORMATS)}` without `schemas`, and one of "
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


def _find_sum_mistakes(entry: SetEntry, logs: Mapping[str, SourcedLog], doubtful: Collection[str]) -> Iterator[Mistake]:
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
            found = logs[log].columns.get(column) if log in logs else None
            if found is None or found.type.partition("(")[0] not in _SUMMED:
                hint = f"Write `LOG.COLUMN`, a column of type {' or '.join(_SUMMED)} of {', '.join(entry.logs)}."
                yield "SET_COLUMN", ("equal_sums", i, j), f"is `{name}`, not a column with exact sums.", hint


def _shows_places(source: SourceEntry | None) -> bool:
    """Whether its records show their transactions and places in the source's log."""
    known = isinstance(source, DebeziumEntry) and source.format in _FORMATS and source.connector in _CONNECTORS
    return known and not getattr(source, "schemas", None)


def _find_connector(source: SourceEntry | None) -> tuple[str, ...]:
    """Returns what all logs of a set have in common."""
    if not isinstance(source, DebeziumEntry):
        return ()
    return (source.format, source.connector, source.names or "")
