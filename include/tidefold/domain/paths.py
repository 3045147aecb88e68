"""Names of stored things: each is built and parsed by one immutable type, so no other place takes names apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidefold.domain.key_groups import KeyGroups
from tidefold.errors import CorruptError, InvalidInputError

_DATA_FILE = re.compile(r"k(\d{5})-(\d{5})\.s(\d{10})\.e(\d{10})\.(?:t([0-9a-f]{16})\.)?([0-9a-f]{32})\.parquet")
_LOG_ID = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class DataFileName:
    """Name of one Parquet file: key groups, the snapshot and epoch that wrote it, and the writing task's own part.

    The random part makes a second try of a task write a second file, never over the first. `token` names the attempt: a
    ledger that went back issues the same snapshot and epoch again, and never the same token. Older programs wrote names
    without one.
    """

    key_groups: KeyGroups
    snapshot: int
    epoch: int
    unique: str
    token: str = ""

    def __str__(self) -> str:
        span = f"k{self.key_groups.first:05d}-{self.key_groups.last:05d}"
        token = f"t{self.token}." if self.token else ""
        return f"{span}.s{self.snapshot:010d}.e{self.epoch:010d}.{token}{self.unique}.parquet"

    @classmethod
    def parse(cls, name: str) -> DataFileName:
        """Raises CorruptError when the name is not one that tidefold gives."""
        found = _DATA_FILE.fullmatch(name)
        if not found:
            raise CorruptError(
                "DATA_FILE_NAME",
                f"`{name}` is not a data file name of tidefold.",
                hint="Nothing was changed. Restore the document that names it from a backup.",
            )
        first, last, snapshot, epoch, token, unique = found.groups()
        return cls(KeyGroups(int(first), int(last)), int(snapshot), int(epoch), unique, token or "")


# Segments of all logs, and what is known of those that are being written.
CHANGELOG = "changelog"
INTENTS = f"{CHANGELOG}/intents"


@dataclass(frozen=True, slots=True)
class LogPaths:
    """Where the parts of one log live, relative to the store's root."""

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
        """Which versions the ledger has reached. They are not below `logs/`, which may be put back from a backup."""
        return f"{self.table_log}/_tidefold"

    def high_water_mark(self, version: int) -> str:
        return f"{self.high_water_marks}/ledger-{version:010d}"

    @property
    def folder(self) -> str:
        return f"logs/{self.log}"

    @property
    def ledger(self) -> str:
        return f"{self.folder}/ledger"

    def ledger_version(self, version: int) -> str:
        return f"{self.ledger}/{version:010d}.json"

    def page(self, digest: str, life: int = 0) -> str:
        """Pages of a log that was dropped are never taken for those of the next one of that name."""
        return f"{self.folder}/pages/{f'{life}/' if life else ''}{digest}.json"

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
        """Says that the ledger had the snapshot as completed: of those that no table shows."""
        return f"{self.about(snapshot)}/completed"

    def quality(self, snapshot: int) -> str:
        return f"{self.folder}/quality/{snapshot:010d}"

    @property
    def proofs(self) -> str:
        """Records of scrubs: the newest number counts, the others are removed."""
        return f"{self.folder}/proofs"

    @property
    def alarms(self) -> str:
        """Records of failed runs and of alarms that were sent: the newest number counts, the others are removed."""
        return f"{self.folder}/alarms"

    @property
    def quarantine(self) -> str:
        return f"{self.folder}/quarantine"


def record_path(folder: str, number: int) -> str:
    """Path of a numbered record: of the files of its folder the newest number counts."""
    return f"{folder}/{number:010d}.json"


def data_path(table: str, name: str) -> str:
    """Path of a data file of a Delta table: `_data/` is left alone by VACUUM and read by every reader.

    The table "" is the root of a store.
    """
    return f"{table}/_data/{name}" if table else f"_data/{name}"


def check_log_id(log: str) -> str:
    """Returns the id, or raises InvalidInputError when it could not serve as a folder name everywhere."""
    if not _LOG_ID.fullmatch(log):
        raise InvalidInputError(
            "LOG_ID_INVALID",
            f"`{log}` cannot be the id of a log.",
            hint="Use 1 to 63 lower-case letters, digits and underscores, beginning with a letter.",
        )
    return log
