"""Decides which files below a folder belong together: by topic, or by folder; finds transaction topics."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tidefold.domain.table.table_spec import MARIADB, MYSQL, POSTGRESQL
from tidefold.sources.debezium.transactions import has_markers
from tidefold.sources.debezium.typed_records import DebeziumAvro, DebeziumParquet
from tidefold.sources.extract.source import find_date
from tidefold.sources.feed import Feed
from tidefold.sources.inference.proposal import ProposedLog, log_ids
from tidefold.sources.json_lines.source import Json
from tidefold.sources.landing.folders import Place, folder_at, read_folders
from tidefold.sources.landing.listing import LandedFile, list_any
from tidefold.sources.landing.name_times import UUID, natural_order

# Folders that sinks and Spark make again and again: `partition=0`, `dt=2026-11-01`, `2026`, `11`, `2026-11-01`.
_CHANGING = re.compile(
    r"[\w.-]+=.*|\d{1,4}|\d{4}[-_.]?\d\d([-_.]?\d\d)?([-_T]?\d\d.*)?|"
    r"(run|batch|load|unload|export|extract|dump|snapshot|backup|job|sync|part|chunk|delivery)[-_.]?\d[\w.:-]*",
    re.ASCII | re.IGNORECASE,
)
# Parts of names that change from file to file: dates, numbers, parts and random ids.
_RANDOM = re.compile(
    rf"{UUID}|(?<![^\W_])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{4,}}(?![^\W_])|"
    r"(?<![^\W_])(?=[^\W_]{5,}(?![^\W_]))[^\W_]*\d[^\W\d_][^\W_]*(?![^\W_])|(?<=\d)[ap]m\b",
    re.IGNORECASE,
)
_PART = re.compile(r"(part|batch|chunk|file|export|dump|full|delta|inc|incremental|snapshot)?[-_.]?\d+|[0-9a-f]{8,}")
_TOGETHER = 4
_SUCCESS = "_SUCCESS"
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


def landing_folder(files: Iterable[LandedFile]) -> PurePosixPath:
    """Returns the deepest folder that contains all present and future files. It is never a folder made for one day."""
    parents = [PurePosixPath(file.name).parent for file in files]
    common = parents[0]
    while not all(parent.is_relative_to(common) for parent in parents):
        common = common.parent
    for depth, part in enumerate(common.parts):
        if _CHANGING.fullmatch(part):
            return PurePosixPath(*common.parts[:depth])
    return common


def by_folder(files: Sequence[LandedFile]) -> dict[PurePosixPath, list[LandedFile]]:
    """Groups files by the folder that one log would read."""
    folders: dict[PurePosixPath, list[LandedFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: natural_order(file.name)):
        folders[landing_folder([file])].append(file)
    return dict(folders)


def stem_of(file: LandedFile) -> str:
    """Returns the common part of the names of a feed: `orders` of `orders_2026-11-01.csv`."""
    stem = PurePosixPath(file.name).name.split(".")[0] if file.name.count(".") <= 2 else PurePosixPath(file.name).name
    stem = re.sub(r"\.(csv|tsv|txt|log|parquet|jsonl?|ndjson|gz|snappy|zstd?|c\d+)\b", "", stem, flags=re.IGNORECASE)
    stem = _RANDOM.sub("", stem)
    stem = re.sub(r"\d{4}[-_.]?\d\d[-_.]?\d\d([-_.T ]?\d\d[-_.:]?\d\d([-_.:]?\d\d)?)?Z?", "", stem)
    stem = _PART.sub("", stem)
    return re.sub(r"[-_.+ ]+$|^[-_.+ ]+", "", re.sub(r"[-_.+ ]{2,}", "_", stem)).casefold()


def strange_stems(files: Sequence[LandedFile]) -> list[str]:
    """Returns the names of several feeds in one folder; empty if there is only one."""
    stems = sorted({stem for file in files if (stem := stem_of(file))})
    return stems if len(stems) > 1 else []


def choose_sample(files: Sequence[LandedFile]) -> list[LandedFile]:
    """Returns the first, the middle and the last file: deletes and new columns tend to come late.

    Files with the same date are sampled together, because they may be one extract.
    """
    dates: dict[str, list[LandedFile]] = defaultdict(list)
    for file in files:
        date = find_date(file.name, None)
        dates[date.text if date else file.name].append(file)
    groups = list(dates.values())
    return [file for index in sorted({0, len(groups) // 2, len(groups) - 1}) for file in groups[index][:_TOGETHER]]


def find_folder_columns(files: Sequence[LandedFile], names: Sequence[str]) -> dict[str, list[str | None]]:
    """Returns the values of columns that only the names of folders have, as in `dt=2026-11-01`, by their name."""
    folders = [read_folders(file.name) for file in files]
    return {
        name: [one[name] for one in folders]
        for name in (folders[0] if folders else ())
        if name not in names and all(name in one for one in folders)
    }


def find_marker(files: Sequence[LandedFile]) -> str:
    """Returns the name of the file that Spark and Hadoop write when a folder is complete; empty: there is none."""
    for file in files[:1]:
        try:
            folder_at(file.root).open(str(PurePosixPath(file.name).with_name(_SUCCESS))).close()
        except OSError:
            continue
        return _SUCCESS
    return ""


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
    topics: dict[tuple[str, str], list[LandedFile]] = {}
    for format_, endings in _ENDINGS.items():
        for file in list_any(directory, list(endings))[0]:
            named = _NAMED.fullmatch(PurePosixPath(file.name).name)
            if named:
                topics.setdefault((format_, named["prefix"]), []).append(file)
    return [
        TransactionTopic(prefix, format_, tuple(files))
        for (format_, prefix), files in topics.items()
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
