"""Finds Debezium's transaction topics among landed files, and proposes the sets that they make possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSTGRESQL
from tidefold.sources.api import Feed
from tidefold.sources.debezium.avro_source import DebeziumAvro
from tidefold.sources.debezium.parquet_source import DebeziumParquet
from tidefold.sources.debezium.transactions import has_markers
from tidefold.sources.inference.layout import landing_folder
from tidefold.sources.inference.proposal import ProposedLog, log_ids
from tidefold.sources.json_lines.source import Json
from tidefold.sources.landing.folders import Place
from tidefold.sources.landing.listing import LandedFile, list_any

# The first file of a topic may be empty or cut short.
_TRIED = 3
_ENDINGS = {
    "debezium-json": tuple(Json.endings),
    "debezium-avro": tuple(f".{one}" for one in DebeziumAvro.extensions),
    "debezium-parquet": tuple(f".{one}" for one in DebeziumParquet.extensions),
}
_NAMED = re.compile(r"(?P<prefix>[\w.-]+)\.transaction(?:\+\d+\+\d+|-\d+-\d+)(?:\.\w+)+", re.ASCII)
# The connectors whose transactions a set can follow.
_CONNECTORS = (POSTGRESQL, MYSQL, MARIADB)


@dataclass(frozen=True, slots=True)
class TransactionTopic:
    """A landed transaction topic.

    prefix: of the names of all topics of its connector.
    """

    prefix: str
    format: str
    files: tuple[LandedFile, ...]

    @property
    def name(self) -> str:
        return f"{self.prefix}.transaction"

    @property
    def path(self) -> str:
        """Its folder, relative to the sampled folder."""
        return str(landing_folder(self.files))


@dataclass(frozen=True, slots=True)
class ProposedSet:
    """A set as the sample shows it.

    path: the folder of its transaction topic, relative to the sampled folder.
    logs: those of the connector whose changes name their transactions.
    without: its other logs.
    """

    id: str
    topic: str
    path: str
    logs: tuple[str, ...]
    without: tuple[str, ...]


def find_transaction_topics(directory: Place) -> list[TransactionTopic]:
    """Returns the transaction topics with files below a folder."""
    found: dict[tuple[str, str], list[LandedFile]] = {}
    for format_, endings in _ENDINGS.items():
        for file in list_any(directory, list(endings))[0]:
            named = _NAMED.fullmatch(PurePosixPath(file.name).name)
            if named:
                found.setdefault((format_, named["prefix"]), []).append(file)
    return [
        TransactionTopic(prefix, format_, tuple(files))
        for (format_, prefix), files in found.items()
        if any(has_markers(Feed(format_, file.root), file) for file in files[:_TRIED])
    ]


def propose_sets(topics: Sequence[TransactionTopic], logs: Sequence[ProposedLog]) -> list[ProposedSet]:
    """Returns one set for each transaction topic, with the logs of its connector."""
    ids = log_ids([topic.prefix for topic in topics])
    return [_propose_set(id_, topic, logs) for id_, topic in zip(ids, topics, strict=True)]


def _propose_set(id_: str, topic: TransactionTopic, logs: Sequence[ProposedLog]) -> ProposedSet:
    members = [
        log
        for log in logs
        if log.topic.startswith(f"{topic.prefix}.") and log.format == topic.format and log.connector in _CONNECTORS
    ]
    return ProposedSet(
        id_,
        topic.name,
        topic.path,
        tuple(log.id for log in members if log.has_transactions),
        tuple(log.id for log in members if not log.has_transactions),
    )
