"""The structure of `tidefold.yaml`: allowed keys, their types and defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidefold.config.models.alarms import AlarmsEntry
from tidefold.config.models.catalog import CatalogEntry
from tidefold.config.models.columns import ColumnValue
from tidefold.config.models.merge import LateEntry, MergeEntry, MergeValue, OrderValue
from tidefold.config.models.schema_policy import SchemaEntry, SchemaValue
from tidefold.config.models.sets import SetEntry
from tidefold.config.models.sizes import Size, count_bytes
from tidefold.config.models.sources import SourceEntry
from tidefold.config.models.spark import SparkConfig
from tidefold.domain.commit_times import micros
from tidefold.domain.key_groups import Redistribution, RedistributionMode
from tidefold.domain.retention.compaction import CompactionTrigger
from tidefold.domain.retention.log_retention import LogRetention
from tidefold.domain.retention.protection import Grace
from tidefold.domain.snapshot.kind_selection import KindPolicy
from tidefold.domain.uploads import RetryPolicy
from tidefold.yaml_files.model import StrictModel, Text, mistake

_LOG_SPAN = re.compile(r"([1-9]\d{0,5})([mhd])", re.ASCII)
_UNIT_MICROS = {"m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def _require_log_span(value: Any) -> Any:
    if isinstance(value, str) and _LOG_SPAN.fullmatch(value):
        return value
    raise mistake("CONFIG_WRONG_TYPE", "must be a time such as 12h or 30d.", "Units are m, h and d.")


_LogSpan = Annotated[
    str, BeforeValidator(_require_log_span), WithJsonSchema({"type": "string", "pattern": f"^{_LOG_SPAN.pattern}$"})
]


def _count_micros(span: str) -> int:
    """Returns the microseconds of a time such as `30d`."""
    return int(span[:-1]) * _UNIT_MICROS[span[-1]]


class LocalConfig(StrictModel):
    """Copies of snapshots and segments on this machine's disks."""

    mode: Literal["disabled", "files"] = "disabled"
    path: Text | None = Field(default=None, description="folder of local copies, relative to this file or absolute")
    paths: list[Text] | None = Field(
        default=None,
        min_length=1,
        description="several folders of local copies instead of one; copies take turns",
    )
    shared: bool = Field(
        default=False, description="all machines of a Spark cluster see these folders, as one shared disk"
    )
    quota: Size = Field(
        default=None, description="maximum bytes of all local copies of the pipeline, such as 500MB, 20GB or 20GiB"
    )
    threads: int | None = Field(default=None, ge=1, description="files that are copied at once (default: 4)")

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of local copies; none if copies are disabled."""
        given = self.paths or ([self.path] if self.path else [])
        return tuple(given) if self.mode == "files" else ()

    @property
    def quota_bytes(self) -> int | None:
        """The quota; None: no limit."""
        return count_bytes(self.quota) if self.quota else None


class UploadsConfig(StrictModel):
    """How segments are uploaded: by ingests, compactions and retries, and by writers that a program opens."""

    batch: Size = Field(
        default=None,
        description="small logs share a segment up to this size (default: 8MB of landed files); a writer sends a batch "
        "of this size at once (default: 32MiB)",
    )
    delay: float = Field(
        default=0.01, ge=0, description="seconds that a writer waits for other logs to share its segment"
    )
    attempts: int = Field(default=3, ge=1, description="how often an upload is tried after errors that may pass")
    retry_delay: float = Field(default=0.5, ge=0, description="seconds between an error and the next attempt")
    attempt_timeout: float | None = Field(
        default=None,
        ge=0,
        description="seconds after which another attempt starts beside a slow one, 0: never; default: 30 for writers, "
        "never for ingests, whose attempts include the parsing",
    )
    in_flight: Size = Field(
        default=None,
        description="bytes that are read and uploaded at once; more wait (default: 128MiB for a writer, no limit for "
        "landed files)",
    )
    threads: int = Field(default=2, ge=1, description="uploads of one writer at once")

    @property
    def policy(self) -> RetryPolicy:
        """How often the segments of ingests, compactions and retries are tried."""
        return RetryPolicy(self.attempts, self.attempt_timeout or 0.0, self.retry_delay)

    @property
    def batch_bytes(self) -> int | None:
        """The size of a batch; None: the default of its way in."""
        return count_bytes(self.batch) if self.batch else None

    @property
    def in_flight_bytes(self) -> int | None:
        """The limit of what is uploaded at once; None: the default of its way in."""
        return count_bytes(self.in_flight) if self.in_flight else None


class CompactionConfig(StrictModel):
    """When the change sets that wait to be folded are merged by themselves: before an ingest and before a tail."""

    change_sets: int = Field(
        default=1_000, ge=0, description="waiting change sets above which ingest and tail compact the log; 0: never"
    )
    bytes: Size = Field(
        default=None,
        description="waiting bytes above which they do, where a compaction leaves out changes (default: no limit)",
    )

    @property
    def trigger(self) -> CompactionTrigger:
        return CompactionTrigger(self.change_sets, count_bytes(self.bytes) if self.bytes else 0)


_LEAST_RETAINED = 1


def _require_retained(value: Any) -> Any:
    if value == "all" or (type(value) is int and value >= _LEAST_RETAINED):
        return value
    hint = "The newest completed snapshot always stays."
    raise mistake("CONFIG_OUT_OF_RANGE", "must be `all` or a whole number from 1.", hint)


class RetentionConfig(StrictModel):
    """How many completed snapshots are kept; the log is kept so that it can be replayed onto each of them."""

    renamed: ClassVar[Mapping[str, str]] = {"reader_publishes": "grace_versions", "reader_minutes": "grace_minutes"}

    snapshots: Annotated[
        Any,
        BeforeValidator(_require_retained),
        WithJsonSchema({"anyOf": [{"const": "all"}, {"type": "integer", "minimum": _LEAST_RETAINED}]}),
    ] = Field(default="all", description="`all`, or how many of the newest snapshots are kept")

    log: _LogSpan | None = Field(
        default=None,
        description="how long the log is kept for backfills, whatever the number of snapshots: 36h, 30d",
    )
    log_step: _LogSpan = Field(
        default="1d",
        description="time between the instants that backfills ask for; compact-log never merges changes across such an "
        "instant",
    )
    grace_versions: int = Field(
        default=2,
        ge=1,
        description="how many later snapshots must be published before replaced files are deleted from the table",
    )
    grace_minutes: int = Field(
        default=0, ge=0, description="minimum minutes to keep replaced files; it can only delay deletion"
    )
    scratch_days: int = Field(
        default=7,
        ge=1,
        description="days without a change after which `clean` deletes files in scratch folders",
    )
    threads: int = Field(default=1, ge=1, description="threads that delete files of the store")
    report_days: int = Field(
        default=90, ge=1, description="days after which `clean` removes reports of aborted and deleted snapshots"
    )

    @property
    def grace(self) -> Grace:
        """How long files that the table no longer needs are kept for readers of its older versions."""
        return Grace(self.grace_versions, self.grace_minutes)

    def log_retention(self, instant: str) -> LogRetention | None:
        """The part of the log that is kept for backfills at an instant (ISO 8601); None: only what snapshots need."""
        if self.log is None:
            return None
        return LogRetention(micros(instant) - _count_micros(self.log), _count_micros(self.log_step))

    @property
    def keep(self) -> int | None:
        """The number of snapshots to keep; None: all."""
        return None if self.snapshots == "all" else int(self.snapshots)


class SnapshotsConfig(StrictModel):
    """The kind of snapshot that a materialization makes, and how unchanged files get into it."""

    renamed: ClassVar[Mapping[str, str]] = {"copy": "copy_files"}

    kind: KindPolicy = Field(
        default=KindPolicy.FULL,
        strict=False,
        description="full (files of its own), incremental (shares files of confirmed ones), or auto (chosen by cost)",
    )
    copy_files: Literal["auto", "always"] = Field(
        default="auto", description="always: copy unchanged files even where a hard link is possible"
    )
    full_every: int = Field(
        default=10, ge=1, description="with auto: number of incremental snapshots before a full one"
    )
    threads: int | None = Field(
        default=None, ge=1, description="unchanged files that are linked or copied at once (default: 8)"
    )

    @property
    def copies(self) -> bool:
        return self.copy_files == "always"


class TtlVisibility(StrEnum):
    """Whether expired rows that are still stored are read. The names are Flink's."""

    UNTIL_CLEANUP = "return-expired-if-not-cleaned-up"
    NEVER = "never-return-expired"


class TtlUpdate(StrEnum):
    """What makes a row young again, if tidefold writes its age. The names are Flink's."""

    CREATE_AND_WRITE = "create-and-write"
    READ_AND_WRITE = "read-and-write"


class TtlEntry(StrictModel):
    """How long rows are kept by their age. Full snapshots, restores, savepoints and exports drop expired rows."""

    column: Text = Field(description="date or timestamp column that defines a row's age")
    on: TtlUpdate | None = Field(
        default=None,
        strict=False,
        description="create-and-write: tidefold writes the commit time of each change to the column; without it the "
        "source brings the column. read-and-write is refused, because nobody tells tidefold that a row was read",
    )
    days: int = Field(ge=1, le=36_500, description="rows older than this many days are dropped")
    cleanup_interval: _LogSpan | None = Field(
        default=None,
        description="incremental snapshots drop expired rows too, and a run without changes makes a snapshot for them, "
        "when this time has passed since the last clean-up: 12h, 1d",
    )
    visibility: TtlVisibility = Field(
        default=TtlVisibility.UNTIL_CLEANUP,
        strict=False,
        description="whether `read` and the Spark source return expired rows that no snapshot has dropped yet",
    )

    @property
    def cleanup_micros(self) -> int | None:
        """The interval in microseconds; None: only full snapshots drop rows."""
        return _count_micros(self.cleanup_interval) if self.cleanup_interval else None


class RedistributionEntry(StrictModel):
    """How rows are distributed to several workers that read or restore the log together."""

    mode: RedistributionMode = Field(
        strict=False,
        description="split: each row to one worker; union: all rows to each; broadcast: one owner's rows to each",
    )
    owner: Text | None = Field(
        default=None, description="key column of type string, int or long that names the worker that wrote a row"
    )

    @property
    def value(self) -> Redistribution:
        return Redistribution(self.mode, self.owner)


def _spell_mode(value: Any) -> Any:
    """Accepts `union` for `{mode: union}`."""
    return {"mode": value} if isinstance(value, str) else value


class QualityEntry(StrictModel):
    """The quality gate of a log, in addition to the checks that always run."""

    suite: Text | None = Field(
        default=None, description="file of checks and expectations, relative to this file or absolute"
    )
    max_row_drop: float = Field(
        default=0.5, ge=0, le=1, description="largest share of rows that may be lost since the last snapshot"
    )
    max_refused: float = Field(
        default=0.01, ge=0, le=1, description="largest share of the new records that may be refused"
    )


class LogEntry(StrictModel):
    """One log of keyed changes; it becomes one table."""

    renamed: ClassVar[Mapping[str, str]] = {"schema": "schema_evolution"}

    source: SourceEntry | None = Field(
        default=None, description="where changes come from; without it a program writes the log"
    )
    key: list[Text] = Field(default=[], description="columns that identify a row; with `merge: append` there is none")
    columns: dict[str, ColumnValue] = Field(
        min_length=1, description="every column of the table with its type, or with type and encoding"
    )
    ignored: list[Text] = Field(
        default=[], description="names of fields that records may have and the table leaves out"
    )
    order: OrderValue | None = Field(
        default=None,
        description="order of changes: columns, or an order by name; default: the order of the source",
    )
    merge: MergeValue = Field(
        default=MergeEntry(), description="merge engine: how several changes to one key become a row"
    )
    late: LateEntry | None = Field(default=None, description="how late changes are handled")
    schema_evolution: SchemaValue = Field(
        default=SchemaEntry(), description="what may change in the columns once the log has data"
    )
    key_groups: int = Field(
        default=128, ge=1, le=32768, description="number of key groups; fixed for the life of the log"
    )
    buckets: int = Field(default=8, ge=1, le=32768, description="number of data files of the table, at most key_groups")
    deletion_vectors: bool = Field(
        default=False,
        description="incremental snapshots mark a few replaced rows as deleted instead of rewriting the "
        "file; readers of the table must support Delta's deletion vectors",
    )
    change_feed: bool = Field(
        default=False,
        description="each published version has Delta's change data feed: its inserted, updated and deleted rows",
    )
    comment: Text | None = Field(default=None, description="description of the table, for its readers")
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"
    on_bad_file: Literal["fail", "warn"] | None = Field(
        default=None,
        description="when a landed file that cannot be used makes a run fail: at once, never, or (default) when a "
        "second run still finds it",
    )
    quality: QualityEntry = QualityEntry()
    ttl: TtlEntry | None = None
    redistribution: Annotated[RedistributionEntry | None, BeforeValidator(_spell_mode)] = Field(
        default=None, description="how rows are distributed to several workers; default: split"
    )
    alarms: AlarmsEntry | None = Field(default=None, description="thresholds of this log, instead of those of all logs")


def _spell_boolean(value: Any) -> Any:
    """Turns a boolean into text: in Python true equals 1, and `version: yes` must not mean 1."""
    return str(value).lower() if isinstance(value, bool) else value


def _require_log(value: Any) -> Any:
    if not value:
        hint = (
            "If `tidefold init` wrote the file: answer each QUESTION in it, and remove the `# ` before the lines of "
            "the log."
        )
        raise mistake("CONFIG_EMPTY_VALUE", "has no log.", hint)
    return value


class FileEntry(StrictModel):
    """All of `tidefold.yaml`."""

    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "store_id": (
            "CONFIG_WRONG_TYPE",
            "must be 32 hexadecimal digits.",
            "Copy it from `id` in the store's `store.json`, or remove the line: the next run prints it.",
        )
    }

    version: Annotated[Literal[1], BeforeValidator(_spell_boolean)]
    store: Text = Field(
        description="path relative to this file, file:///absolute/path, s3://bucket/folder, gs://bucket/folder, "
        "abfss://container@account.dfs.core.windows.net/folder, or an address of an installed store"
    )
    store_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = Field(
        default=None,
        description="id of the store, as the first run prints it; with it, an empty or different store is refused",
    )
    spark: SparkConfig = SparkConfig()
    local: LocalConfig = LocalConfig()
    retention: RetentionConfig = RetentionConfig()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    uploads: UploadsConfig = UploadsConfig()
    compaction: CompactionConfig = CompactionConfig()
    alarms: AlarmsEntry | None = Field(default=None, description="when a log raises an alarm; without it none does")
    catalog: CatalogEntry | None = Field(
        default=None, description="catalog in which Spark registers the published tables; without it none is registered"
    )
    targets: list[Text] = Field(
        default=[],
        description="folders, here or in S3, below which Airflow's operators may restore, write and import snapshots",
    )
    sets: dict[str, SetEntry] = Field(
        default={}, description="logs whose tables are published together, at one point of the source's log"
    )
    logs: Annotated[dict[str, LogEntry], BeforeValidator(_require_log)] = Field(min_length=1)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **FileEntry.model_json_schema()}
