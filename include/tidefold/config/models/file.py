"""The structure of `tidefold.yaml`: allowed keys, their types and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, WithJsonSchema, model_validator

from tidefold.config.models.log import LogConfig
from tidefold.config.models.sections import AlarmsEntry, SetConfig, resolve_thresholds
from tidefold.config.models.spark import SparkConfig
from tidefold.config.models.units import Size, Span
from tidefold.domain.alarms import AlarmThresholds
from tidefold.domain.commit_times import micros
from tidefold.domain.retention.log_bounds import CompactionTrigger, Grace, LogRetention
from tidefold.domain.snapshot.claim import KindPolicy
from tidefold.domain.uploads import RetryPolicy
from tidefold.yaml_files.messages import StrictModel, Text, mistake

_LEAST_RETAINED = 1


class LocalConfig(StrictModel):
    """Copies of snapshots and segments on this machine's disks."""

    mode: Literal["disabled", "files"] = "disabled"
    path: Text | None = Field(default=None, description="folder of local copies, relative to this file or absolute")
    paths: list[Text] | None = Field(
        default=None, min_length=1, description="several folders of local copies instead of one; copies take turns"
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
        listed = self.paths or ([self.path] if self.path else [])
        return tuple(listed) if self.mode == "files" else ()


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
    early: Size = Field(
        default=None, description="this much of one log is uploaded before a flush (default: 8MiB of a writer)"
    )
    compress: bool = Field(default=True, description="whether a writer compresses its change sets")

    @property
    def policy(self) -> RetryPolicy:
        """How often the segments of ingests, compactions and retries are tried."""
        return RetryPolicy(self.attempts, self.attempt_timeout or 0.0, self.retry_delay)


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
        return CompactionTrigger(self.change_sets, self.bytes or 0)


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

    log: Span | None = Field(
        default=None, description="how long the log is kept for backfills, whatever the number of snapshots: 36h, 30d"
    )
    log_step: Span = Field(
        default="1d",
        validate_default=True,
        description="time between the instants that backfills ask for; compaction never merges changes across such an "
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
        default=7, ge=1, description="days without a change after which `clean` deletes files in scratch folders"
    )
    landed: Span | None = Field(
        default=None,
        description="how long after its ingest `clean` keeps a file of a topic or a load: 30d; default: for ever",
    )
    threads: int = Field(default=1, ge=1, description="threads that delete files of the store")
    report_days: int = Field(
        default=90, ge=1, description="days after which `clean` removes reports and verdicts of ended snapshots"
    )

    @property
    def grace(self) -> Grace:
        """How long files that the table no longer needs are kept for readers of its older versions."""
        return Grace(self.grace_versions, self.grace_minutes)

    def log_retention(self, instant: str) -> LogRetention | None:
        """The part of the log that is kept for backfills at an instant (ISO 8601); None: only what snapshots need."""
        if self.log is None:
            return None
        return LogRetention(micros(instant) - self.log, self.log_step)

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
    savepoints: Text | None = Field(
        default=None, description="folder or address in which `savepoint` without --to makes a folder"
    )

    @property
    def copies(self) -> bool:
        return self.copy_files == "always"


def _check_version(value: Any) -> Any:
    """Refuses a newer version by name. Turns a boolean into text: in Python true equals 1, and `yes` must not."""
    if isinstance(value, int) and value > 1:
        raise mistake(
            "STORE_NEWER", f"is {value}: the file is of a newer tidefold, and this one reads 1.", "Update tidefold."
        )
    return str(value).lower() if isinstance(value, bool) else value


def _require_log(value: Any) -> Any:
    if not value:
        raise mistake("CONFIG_EMPTY_VALUE", "has no log.", "`tidefold init DIR` writes one from landed files.")
    return value


class Config(StrictModel):
    """All of `tidefold.yaml`: a whole pipeline. The context of its validation is its path."""

    removed: ClassVar[Mapping[str, str]] = {
        "catalog": "Register a table once, by SQL: `CREATE TABLE sales.orders USING delta LOCATION 'ADDRESS'`."
    }
    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "store_id": (
            "CONFIG_WRONG_TYPE",
            "must be 32 hexadecimal digits.",
            "Copy it from `id` in the store's `store.json`, or remove the line: the next run prints it.",
        )
    }

    version: Annotated[Literal[1], BeforeValidator(_check_version)]
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
    targets: list[Text] = Field(
        default=[], description="folders, here or in S3, below which a drill of Airflow may write its scratch copy"
    )
    sets: dict[str, SetConfig] = Field(
        default={}, description="logs whose tables are published together, at one point of the source's log"
    )
    logs: Annotated[dict[str, LogConfig], BeforeValidator(_require_log)] = Field(min_length=1)
    _path: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _place(self, info: ValidationInfo) -> Self:
        """Tells logs and sets their names and the folder of the file."""
        self._path = info.context or Path()
        for name, log in self.logs.items():
            log.place(name, self._path.parent, self.store)
        for name, one in self.sets.items():
            one.place(name, self._path.parent, self.store)
        return self

    @property
    def path(self) -> Path:
        """The absolute path of the file."""
        return self._path

    def set_of(self, log: str) -> SetConfig | None:
        """Returns the set of a log; None: its table is published alone."""
        return next((one for one in self.sets.values() if log in one.logs), None)

    def alarms_of(self, log: str) -> AlarmThresholds | None:
        """Returns the alarm thresholds of a log; None: it raises no alarm."""
        return resolve_thresholds(self.alarms, self.logs[log].alarms)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
