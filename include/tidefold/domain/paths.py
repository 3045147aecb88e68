"""The names of stored objects, each built and parsed by one immutable type, and the number of their form."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from uuid import UUID

from tidefold.domain.key_groups import KeyGroups
from tidefold.errors import CorruptError, InvalidInputError

_DATA_FILE = re.compile(r"k(\d{5})-(\d{5})\.s(\d{10})\.e(\d{10})\.t([0-9a-f]*)\.([0-9a-f]{32})\.parquet")
# The gauges of sets begin with `tidefold.set.`.
RESERVED_ID = "set"
_LOG_ID = re.compile(rf"(?!{RESERVED_ID}$)[a-z][a-z0-9_]{{0,62}}")
# Segments of all logs, and the announcements of those that are being written.
CHANGELOG = "changelog"
INTENTS = f"{CHANGELOG}/intents"
# What each host of a cluster holds in local copies.
HOSTS = "hosts"
# What edited configurations would make of the logs.
PLANS = "plans"
_VECTOR = "deletion_vector_"
# The folder of a Delta table's change data feed, by the Delta protocol.
CHANGE_FOLDER = "_change_data"
# The number of the form that this version writes, and of the first one that a released version wrote.
STORED_FORMAT = 7
FIRST_FORMAT = 7


@dataclass(frozen=True, slots=True)
class DataFileName:
    """The name of a Parquet file: key groups, snapshot, epoch, and a random part of the task that wrote it.

    The random part makes a second try of a task write a second file instead of overwriting the first. `token`
    identifies the attempt: a ledger that was set back gives the same snapshot id and epoch again, but never the same
    token.
    """

    key_groups: KeyGroups
    snapshot: int
    epoch: int
    unique: str
    token: str

    def __str__(self) -> str:
        span = f"k{self.key_groups.first:05d}-{self.key_groups.last:05d}"
        return f"{span}.s{self.snapshot:010d}.e{self.epoch:010d}.t{self.token}.{self.unique}.parquet"

    @classmethod
    def parse(cls, name: str) -> DataFileName:
        """Raises CorruptError when the name is not one that tidefold gives."""
        parts = _DATA_FILE.fullmatch(name)
        if not parts:
            raise CorruptError("DATA_FILE_NAME", f"`{name}` is not a data file name of tidefold.")
        first, last, snapshot, epoch, token, unique = parts.groups()
        return cls(KeyGroups(int(first), int(last)), int(snapshot), int(epoch), unique, token)


class LedgerPaths(ABC):
    """The paths of a ledger, relative to the root of the store."""

    __slots__ = ()

    @property
    @abstractmethod
    def folder(self) -> str:
        """The folder of the log or set."""

    @property
    @abstractmethod
    def landed(self) -> str:
        """Where the records of its topic land. It stays when the ledger goes, as other landed files do."""

    @property
    def offsets(self) -> str:
        """What is known of the topic that lands: its id, its first offsets, and those that have no records."""
        return f"{self.landed}/_topic"

    @property
    def ledger(self) -> str:
        return f"{self.folder}/ledger"

    def ledger_version(self, version: int) -> str:
        return f"{self.ledger}/{version:010d}.json"

    def page(self, digest: str, life: int = 0) -> str:
        """The path of a page. `life` separates the pages of a dropped log from those of the next log of that name."""
        return f"{self.folder}/pages/{f'{life}/' if life else ''}{digest}.json"


@dataclass(frozen=True, slots=True)
class LogPaths(LedgerPaths):
    """The paths of one log's objects, relative to the root of the store."""

    log: str

    def __post_init__(self) -> None:
        check_log_id(self.log)

    @property
    def table(self) -> str:
        return f"tables/{self.log}"

    @property
    def table_log(self) -> str:
        return f"{self.table}/_delta_log"

    @property
    def high_water_marks(self) -> str:
        """The ledger versions that were reached. They are not below `logs/`, which may be restored from a backup."""
        return f"{self.table_log}/_tidefold"

    def high_water_mark(self, version: int) -> str:
        return f"{self.high_water_marks}/ledger-{version:010d}"

    @property
    def folder(self) -> str:
        return f"logs/{self.log}"

    @property
    def snapshots(self) -> str:
        return f"snapshots/{self.log}"

    def snapshot(self, snapshot: int) -> str:
        return f"{self.snapshots}/{snapshot:010d}"

    @property
    def manifests(self) -> str:
        return f"{self.folder}/snapshots"

    def about(self, snapshot: int) -> str:
        return f"{self.manifests}/{snapshot:010d}"

    def manifest(self, snapshot: int) -> str:
        return f"{self.about(snapshot)}/manifest"

    def completion(self, snapshot: int) -> str:
        """The mark that the ledger had a snapshot as completed; written for snapshots that no table shows."""
        return f"{self.about(snapshot)}/completed"

    def quality(self, snapshot: int) -> str:
        return f"{self.folder}/quality/{snapshot:010d}"

    @property
    def proofs(self) -> str:
        """The folder of scrub records. The record with the highest number counts."""
        return f"{self.folder}/proofs"

    @property
    def alarms(self) -> str:
        """The folder of records of failed runs and sent alarms. The record with the highest number counts."""
        return f"{self.folder}/alarms"

    @property
    def heartbeat(self) -> str:
        """The file in which working processes count their heartbeats: a hint, the only file that is overwritten."""
        return f"{self.folder}/heartbeat.json"

    @property
    def quarantine(self) -> str:
        return f"{self.folder}/quarantine"

    @property
    def landed(self) -> str:
        return f"landed/{self.log}"


@dataclass(frozen=True, slots=True)
class SetPaths(LedgerPaths):
    """The paths of one set's objects, relative to the root of the store."""

    name: str

    def __post_init__(self) -> None:
        check_log_id(self.name)

    @property
    def folder(self) -> str:
        return f"sets/{self.name}"

    @property
    def landed(self) -> str:
        return f"landed/{RESERVED_ID}/{self.name}"

    def high_water_mark(self, log: str, version: int, number: int) -> str:
        """The mark, beside the table of a log, of a ledger version and of the newest number of a set's version."""
        return f"{LogPaths(log).high_water_marks}/set-{self.name}-{version:010d}-{number:010d}"


@dataclass(frozen=True, slots=True)
class PlanPaths:
    """The paths of the plan of one edit of a log: its records, and the store that has its rows (decision 0085)."""

    log: str
    edit: str

    @property
    def folder(self) -> str:
        return f"{PLANS}/{check_log_id(self.log)}/{self.edit}"

    @property
    def records(self) -> str:
        """The folder of what the plan found. The record with the highest number counts."""
        return f"{self.folder}/records"

    @property
    def shadow(self) -> str:
        return f"{self.folder}/store"


def host_path(host: str) -> str:
    """Returns the folder of the records of a host. The one with the highest number counts."""
    return f"{HOSTS}/{host}"


def record_path(folder: str, number: int) -> str:
    """Returns the path of a numbered record. In its folder, the record with the highest number counts."""
    return f"{folder}/{number:010d}.json"


def data_path(table: str, name: str) -> str:
    """Returns the path of a data file of a Delta table, in `_data/`: VACUUM ignores that folder, and readers read it.

    The table "" is the root of a store.
    """
    return f"{table}/_data/{name}" if table else f"_data/{name}"


def find_vector_id(vector: str) -> UUID:
    """Returns what names the file of a deletion vector, by its text. Equal vectors have one file."""
    return UUID(bytes=hashlib.sha256(vector.encode()).digest()[:16])


def vector_name(vector: str) -> str:
    """Returns the name of the file of a deletion vector. It is beside the data files."""
    return f"{_VECTOR}{find_vector_id(vector)}.bin"


def is_vector_file(path: str) -> bool:
    """Whether a file has a deletion vector, by its name."""
    return path.rsplit("/", 1)[-1].startswith(_VECTOR)


def change_path(table: str, name: str) -> str:
    """Returns the path of a file of a table's change data feed."""
    return f"{table}/{CHANGE_FOLDER}/{name}"


def check_log_id(log: str) -> str:
    """Returns the id. Raises InvalidInputError if it cannot be a folder name on every file system."""
    if not _LOG_ID.fullmatch(log):
        raise InvalidInputError("LOG_ID_INVALID", f"`{log}` cannot be the id of a log.")
    return log
