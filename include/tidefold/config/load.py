"""The configuration of a pipeline: `load_config` reads and checks `tidefold.yaml`, and reports every mistake in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tidefold.config.models.alarms import AlarmsEntry, resolve_thresholds
from tidefold.config.models.catalog import CatalogEntry
from tidefold.config.models.file import (
    CompactionConfig,
    FileEntry,
    LocalConfig,
    LogEntry,
    RetentionConfig,
    SnapshotsConfig,
    TtlEntry,
    TtlVisibility,
    UploadsConfig,
)
from tidefold.config.models.sets import SetEntry
from tidefold.config.models.sources import StateJsonEntry, options
from tidefold.config.models.spark import SparkConfig
from tidefold.config.table_spec import lateness, shape_of, stops_of
from tidefold.config.validation import check_all, check_log, check_sets
from tidefold.domain.alarms import AlarmThresholds
from tidefold.domain.key_groups import Redistribution
from tidefold.domain.log_state import Expire
from tidefold.domain.table.schema_evolution import Policies
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import NotFoundError
from tidefold.sources.api import Feed
from tidefold.yaml_files.document import ConfigProblem, Place, YamlDocument, config_error, parse_document, read_text
from tidefold.yaml_files.messages import find_problems


class _Resolved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceConfig(_Resolved):
    """Where the changes of a log come from.

    path: an absolute path or an s3:// address.
    options: the options that only this format has.
    lands: whether files land in a folder; a Delta table is read in place.
    """

    format: str
    address: str
    lands: bool = True
    options: dict[str, Any] = {}

    @property
    def feed(self) -> Feed:
        """The form that the source plugins take."""
        return Feed(self.format, self.address, self.options)

    @property
    def landing(self) -> str | None:
        """The folder or the address where files land; None: the source has no landing folder."""
        return self.address if self.lands else None


class QualityConfig(_Resolved):
    """The quality gate of a log; `suite` is absolute, `max_row_drop` a share from 0 to 1."""

    suite: Path | None = None
    max_row_drop: float = 0.5
    max_refused: float = 0.01


class TtlConfig(_Resolved):
    """How long rows are kept, by the age in a column.

    cleanup_micros: the time between two clean-ups by other than full snapshots; None: there are none.
    hides: readers do not see expired rows that are still stored.
    """

    column: str
    type: str
    days: int
    cleanup_micros: int | None = None
    hides: bool = False

    def is_due(self, last: Expire | None, instant: str) -> bool:
        """Whether so much time has passed since the last clean-up that another snapshot than a full one drops rows."""
        if self.cleanup_micros is None:
            return False
        if last is None or last.column != self.column:
            return True
        then = datetime.fromisoformat(instant) - timedelta(microseconds=self.cleanup_micros)
        return last.before <= self.expire(then.isoformat()).before

    def expire(self, instant: str) -> Expire:
        """Which rows are too old at this instant (ISO 8601)."""
        oldest = datetime.fromisoformat(instant).astimezone(UTC) - timedelta(days=self.days)
        if self.type == "date":
            return Expire(self.column, oldest.date().isoformat())
        return Expire(self.column, f"{oldest:%Y-%m-%dT%H:%M:%S}.{oldest.microsecond // 1000:03d}Z")


class LogConfig(_Resolved):
    """One log: its source, its table and its rules.

    source: where its changes come from; None: a program writes them.
    shape: the definition of its table; it must fit the one in the ledger.
    late: what happens to changes below the horizon: `accept` or `quarantine`.
    lateness: how far below the highest order deletes are remembered, in the unit of that order.
    policies: which changes of the columns are allowed.
    redistribution: how its rows are distributed to workers; None: split.
    deletion_vectors: whether incremental snapshots may mark rows instead of rewriting files.
    change_feed: whether published versions have a change data feed.
    comment, comments: descriptions of the table and of its columns, by name.
    stops: codes of refused records that stop their partition.
    on_bad_record, on_bad_file: as written in the file.
    alarms: its alarm thresholds; None: it raises no alarm.
    """

    id: str
    source: SourceConfig | None
    shape: TableSpec
    on_bad_record: str
    on_bad_file: str | None = None
    quality: QualityConfig
    ttl: TtlConfig | None = None
    late: str = "accept"
    lateness: int | None = None
    policies: Policies = Policies()
    redistribution: Redistribution | None = None
    deletion_vectors: bool = False
    change_feed: bool = False
    comment: str | None = None
    comments: dict[str, str] = {}
    stops: tuple[str, ...] = ()
    alarms: AlarmThresholds | None = None


class SetConfig(_Resolved):
    """One set: logs whose tables are published together.

    transactions: the absolute folder or address where the transaction topic lands.
    may_be_empty: logs of which nothing may have landed.
    equal_sums: lists of (log, column) whose sums must be equal.
    """

    name: str
    logs: tuple[str, ...]
    transactions: str
    may_be_empty: tuple[str, ...] = ()
    equal_sums: tuple[tuple[tuple[str, str], ...], ...] = ()


class Config(_Resolved):
    """A whole pipeline. `path` is absolute; `store` is as written, relative to the folder of `path`."""

    path: Path
    store: str
    store_id: str | None = None
    spark: SparkConfig
    local: LocalConfig
    retention: RetentionConfig
    snapshots: SnapshotsConfig = SnapshotsConfig()
    uploads: UploadsConfig = UploadsConfig()
    compaction: CompactionConfig = CompactionConfig()
    targets: tuple[str, ...] = ()
    catalog: CatalogEntry | None = None
    logs: dict[str, LogConfig]
    sets: dict[str, SetConfig] = {}

    def set_of(self, log: str) -> SetConfig | None:
        """Returns the set of a log; None: its table is published alone."""
        return next((one for one in self.sets.values() if log in one.logs), None)


def load_config(path: Path) -> Config:
    """Reads and checks a file, offline. Raises ConfigError with every mistake, or NotFoundError."""
    document = read_document(path)
    base = path.absolute().parent
    problems = list(document.problems)
    logs, found = _read_logs(document, base)
    problems += found
    head = _read_head(document, problems)
    problems += check_all(document, base, logs)
    problems += check_sets(document, base, head.sets if head else {}, logs)
    if problems or head is None:
        raise config_error(path, problems)
    return Config(
        path=path.absolute(),
        store=head.store,
        store_id=head.store_id,
        spark=head.spark,
        local=head.local,
        retention=head.retention,
        snapshots=head.snapshots,
        uploads=head.uploads,
        compaction=head.compaction,
        targets=tuple(head.targets),
        catalog=head.catalog,
        logs={log: _resolve(log, entry, base, head.alarms) for log, entry in logs.items()},
        sets={name: _resolve_set(name, entry, base) for name, entry in head.sets.items()},
    )


def key_line(path: Path, place: Place) -> int:
    """Returns the line of a key in the file. Errors in a file that the key names point to this line."""
    return read_document(path).line(place)


def log_mistakes(log: str, data: object, base: Path) -> list[str]:
    """Returns the mistakes of one log that is not in a file yet. `base`: folder of the future file."""
    document = YamlDocument({}, {})
    try:
        problems = check_log(log, LogEntry.model_validate(data), document)
    except ValidationError as error:
        problems = find_problems(error, LogEntry, document, ("logs", log))
    return [f"{p.key} {p.message}" for p in problems]


def read_document(path: Path) -> YamlDocument:
    """Reads a configuration file, not checked yet. Raises NotFoundError or ConfigError."""
    if not path.exists():
        raise NotFoundError(
            "CONFIG_NOT_FOUND",
            f"There is no configuration file `{path}`.",
            hint="`tidefold init DIR` writes one from landed files. --config or TIDEFOLD_CONFIG names another file. "
            "In Airflow, set TIDEFOLD_CONFIG for every component, or config= of the DAG.",
        )
    if not path.is_file():
        mistake = ConfigProblem("CONFIG_NOT_A_FILE", 0, "", "is not a file.", "Name the YAML file itself.")
        raise config_error(path, [mistake])
    text = read_text(path)
    document = parse_document(path, text)
    if document.data is None and not text.lstrip().startswith("~"):
        mistake = ConfigProblem("CONFIG_EMPTY", 0, "", "is empty.", "`tidefold init DIR` writes one.")
        raise config_error(path, [mistake])
    if not isinstance(document.data, dict):
        hint = "Begin with `version: 1`; `tidefold init DIR` writes an example."
        raise config_error(
            path, [ConfigProblem("CONFIG_NOT_A_MAPPING", 1, "", "must consist of `key: value` lines.", hint)]
        )
    return document


def _read_logs(document: YamlDocument, base: Path) -> tuple[dict[str, LogEntry], list[ConfigProblem]]:
    """Reads each log by itself, so that a mistake in one does not hide the mistakes of another."""
    entries: dict[str, LogEntry] = {}
    problems: list[ConfigProblem] = []
    given = document.data.get("logs")
    for log, data in given.items() if isinstance(given, dict) else ():
        place = ("logs", log)
        try:
            entries[log] = LogEntry.model_validate(data)
            problems += check_log(log, entries[log], document)
        except ValidationError as error:
            problems += find_problems(error, LogEntry, document, place)
    return entries, problems


def _read_head(document: YamlDocument, problems: list[ConfigProblem]) -> FileEntry | None:
    """Reads everything but the logs, which `_read_logs` reads."""
    data: dict[str, Any] = dict(document.data)
    try:
        return FileEntry.model_validate(data)
    except ValidationError as error:
        found = find_problems(error, FileEntry, document)
        problems += [p for p in found if not p.key.startswith("logs.")]
        return None


def _resolve(log: str, entry: LogEntry, base: Path, alarms: AlarmsEntry | None) -> LogConfig:
    quality, shape = entry.quality, shape_of(entry)
    return LogConfig(
        id=log,
        source=_source(entry, base),
        shape=shape,
        late=entry.late.policy if entry.late else "accept",
        lateness=lateness(entry, shape),
        policies=entry.schema_evolution.policies,
        redistribution=entry.redistribution.value if entry.redistribution else None,
        deletion_vectors=entry.deletion_vectors,
        change_feed=entry.change_feed,
        comment=entry.comment,
        comments={name: column.comment for name, column in entry.columns.items() if column.comment},
        stops=stops_of(entry),
        on_bad_record=entry.on_bad_record,
        on_bad_file=entry.on_bad_file,
        alarms=resolve_thresholds(alarms, entry.alarms),
        quality=QualityConfig(
            suite=base / quality.suite if quality.suite else None,
            max_row_drop=quality.max_row_drop,
            max_refused=quality.max_refused,
        ),
        ttl=_ttl(entry.ttl, entry.columns[entry.ttl.column].type) if entry.ttl else None,
    )


def _resolve_set(name: str, entry: SetEntry, base: Path) -> SetConfig:
    place = entry.transactions or ""
    sums = ((column.partition(".")[::2] for column in columns) for columns in entry.equal_sums)
    return SetConfig(
        name=name,
        logs=tuple(entry.logs),
        transactions=place if "://" in place else str(base / place),
        may_be_empty=tuple(entry.may_be_empty),
        equal_sums=tuple(tuple(columns) for columns in sums),
    )


def _ttl(entry: TtlEntry, kind: str) -> TtlConfig:
    return TtlConfig(
        column=entry.column,
        type=kind,
        days=entry.days,
        cleanup_micros=entry.cleanup_micros,
        hides=entry.visibility is TtlVisibility.NEVER,
    )


def _source(entry: LogEntry, base: Path) -> SourceConfig | None:
    source = entry.source
    if source is None:
        return None
    place: str = source.place
    address = place if "://" in place else str(base / place)
    given = options(source)
    if schemas := given.get("schemas"):
        given["schemas"] = schemas if "://" in schemas else str(base / schemas)
    if entry.ttl and entry.ttl.on:
        given["write_time"] = entry.ttl.column
    if isinstance(source, StateJsonEntry):
        # The source compares the key with the metadata of the state.
        given["ttl_days"] = entry.ttl.days if entry.ttl else None
    return SourceConfig(format=source.format, address=address, lands=source.place_key == "path", options=given)
