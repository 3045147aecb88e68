"""The structure of a log in `tidefold.yaml`, and what follows from it: its table, its source, the age of its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from tidefold.config.models import table
from tidefold.config.models.kafka import KafkaEntry
from tidefold.config.models.sections import AlarmsEntry, locate
from tidefold.config.models.source_options import list_options, list_reading
from tidefold.config.models.sources import DebeziumEntry, LandedEntry, SourceEntry, StateJsonEntry
from tidefold.config.models.units import Span
from tidefold.domain.key_groups import Redistribution, RedistributionMode
from tidefold.domain.log_state import Expire
from tidefold.domain.paths import LogPaths
from tidefold.domain.table.schema_evolution import Policies
from tidefold.domain.table.table_spec import ARRIVAL, COLUMNS, POSITION, Column, Engine, TableSpec
from tidefold.sources.feed import Feed
from tidefold.yaml_files.messages import StrictModel, Text


class TtlVisibility(StrEnum):
    """Whether expired rows that are still stored are read. The names are Flink's."""

    UNTIL_CLEANUP = "return-expired-if-not-cleaned-up"
    NEVER = "never-return-expired"


class TtlUpdate(StrEnum):
    """What makes a row young again, if tidefold writes its age. The names are Flink's."""

    CREATE_AND_WRITE = "create-and-write"
    READ_AND_WRITE = "read-and-write"


class TtlConfig(StrictModel):
    """How long rows are kept by their age. Full snapshots, restores, savepoints and exports drop expired rows."""

    column: Text = Field(description="date or timestamp column that defines a row's age")
    on: TtlUpdate | None = Field(
        default=None,
        strict=False,
        description="create-and-write: tidefold writes the commit time of each change to the column; without it the "
        "source brings the column. read-and-write is refused, because nobody tells tidefold that a row was read",
    )
    days: int = Field(ge=1, le=36_500, description="rows older than this many days are dropped")
    cleanup_interval: Span | None = Field(
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
    def hides(self) -> bool:
        """Whether readers do not see expired rows that are still stored."""
        return self.visibility is TtlVisibility.NEVER


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


class QualityConfig(StrictModel):
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
    max_ties: int | None = Field(
        default=None,
        ge=0,
        description="largest number of keys with different changes of one order in a snapshot; default: any number",
    )
    max_left_out: int | None = Field(
        default=None, ge=0, description="largest number of keys without a row, as a value was not sent; default: warn"
    )


class LogConfig(StrictModel):
    """One log of keyed changes; it becomes one table."""

    renamed: ClassVar[Mapping[str, str]] = {"schema": "schema_evolution"}

    source: SourceEntry | None = Field(
        default=None, description="where changes come from; without it a program writes the log"
    )
    key: list[Text] = Field(default=[], description="columns that identify a row; with `merge: append` there is none")
    columns: dict[str, table.ColumnValue] = Field(
        min_length=1, description="every column of the table with its type, or with type and encoding"
    )
    ignored: list[Text] = Field(
        default=[], description="names of fields that records may have and the table leaves out"
    )
    order: table.OrderValue | None = Field(
        default=None, description="order of changes: columns, or an order by name; default: the order of the source"
    )
    merge: table.MergeValue = Field(
        default=table.MergeEntry(), description="merge engine: how several changes to one key become a row"
    )
    late: table.LateEntry | None = Field(default=None, description="how late changes are handled")
    schema_evolution: table.SchemaValue = Field(
        default=table.SchemaEntry(), description="what may change in the columns once the log has data"
    )
    key_groups: int = Field(
        default=128, ge=1, le=32768, description="number of key groups; once the log has data, only a plan changes it"
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
        "second run still finds it, and at once for files that were changed, came late or are gone",
    )
    quality: QualityConfig = QualityConfig()
    ttl: TtlConfig | None = None
    redistribution: Annotated[RedistributionEntry | None, BeforeValidator(_spell_mode)] = Field(
        default=None, description="how rows are distributed to several workers; default: split"
    )
    alarms: AlarmsEntry | None = Field(default=None, description="thresholds of this log, instead of those of all logs")
    _id: str = PrivateAttr(default="")
    _folder: Path = PrivateAttr(default=Path())
    _store: str = PrivateAttr(default="")

    def place(self, name: str, folder: Path, store: str = "") -> None:
        """Takes over its name in the file, the folder of the file, and the store, where a topic lands."""
        self._id, self._folder, self._store = name, folder, store.removeprefix("file://")

    @property
    def id(self) -> str:
        return self._id

    @property
    def suite(self) -> Path | None:
        """The absolute path of its suite."""
        return self._folder / self.quality.suite if self.quality.suite else None

    @property
    def address(self) -> str:
        """Where its changes come from: an absolute path or an address; empty: a program writes them."""
        if self.topic:
            return self.loaded
        return locate(self.source.place, self._folder) if self.source else ""

    @property
    def loaded(self) -> str:
        """The landing place in the store: of its topic, and of rows that are loaded from the database."""
        return f"{locate(self._store, self._folder)}/{LogPaths(self._id).landed}"

    @property
    def can_load(self) -> bool:
        """Whether rows can be loaded before its stream."""
        return isinstance(self.source, DebeziumEntry)

    @property
    def topic(self) -> KafkaEntry | None:
        """The topic that lands in the store before each ingest; None: files land by other means, or nothing lands."""
        return self.source.kafka if isinstance(self.source, LandedEntry) else None

    @property
    def landing(self) -> str | None:
        """The folder or the address where files land; None: nothing lands."""
        return self.address if self.source and self.source.place_key == "path" else None

    @cached_property
    def shape(self) -> TableSpec:
        """The definition of its table, which the ledger compares with its own in each run."""
        return _shape_of(self)

    @property
    def feed(self) -> Feed | None:
        """Where its changes come from, in the form that the source plugins take; None: a program writes them."""
        if self.source is None:
            return None
        options = list_options(self.source, self._folder)
        if self.ttl and self.ttl.on:
            options["write_time"] = self.ttl.column
        if isinstance(self.source, StateJsonEntry):
            # The source compares the key with the metadata of the state.
            options["ttl_days"] = self.ttl.days if self.ttl else None
        if isinstance(self.source, DebeziumEntry):
            options["loaded"] = self.loaded
        return Feed(self.source.format, self.address, options)

    @cached_property
    def edit(self) -> str:
        """Names what is configured, apart from where files land: that is another place on another machine."""
        lines = self.model_dump_json(exclude={"source": {"path"}})
        return hashlib.sha256(f"{lines} {self.shape}".encode()).hexdigest()[:12]

    @cached_property
    def lateness(self) -> int | None:
        """How far below the highest order deletes are remembered, in the unit of the first column of the order."""
        first = next((c for c in self.shape.columns if [c.name] == list(self.shape.column_order[:1])), None)
        return self.late.lateness(first.type) if self.late and first else None

    @cached_property
    def policies(self) -> Policies:
        """Which changes of the columns are allowed."""
        return self.schema_evolution.policies

    @cached_property
    def distribution(self) -> Redistribution | None:
        """How its rows are distributed to workers; None: split."""
        return self.redistribution.value if self.redistribution else None

    @cached_property
    def comments(self) -> dict[str, str]:
        """The descriptions of its columns, by name."""
        return {name: column.comment for name, column in self.columns.items() if column.comment}

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """The codes of refused records that stop their partition: those with a schema that no policy allows."""
        return _stops_of(self)

    def expire(self, instant: str) -> Expire | None:
        """Which rows are too old at this instant (ISO 8601); None: rows do not age."""
        if self.ttl is None:
            return None
        oldest = datetime.fromisoformat(instant).astimezone(UTC) - timedelta(days=self.ttl.days)
        if self.columns[self.ttl.column].type == "date":
            return Expire(self.ttl.column, oldest.date().isoformat())
        return Expire(self.ttl.column, f"{oldest:%Y-%m-%dT%H:%M:%S}.{oldest.microsecond // 1000:03d}Z")

    def is_cleanup_due(self, last: Expire | None, instant: str) -> bool:
        """Whether so much time has passed since the last clean-up that another snapshot than a full one drops rows."""
        if self.ttl is None or self.ttl.cleanup_interval is None:
            return False
        if last is None or last.column != self.ttl.column:
            return True
        then = datetime.fromisoformat(instant) - timedelta(microseconds=self.ttl.cleanup_interval)
        oldest = self.expire(then.isoformat())
        return oldest is not None and last.before <= oldest.before


def _shape_of(entry: LogConfig) -> TableSpec:
    by = tuple(entry.order) if isinstance(entry.order, list) else ()
    own = entry.source.orders[0] if entry.source else ARRIVAL
    if own == COLUMNS and entry.merge.engine is Engine.APPEND:
        own = POSITION  # The file and the row are the place of a row.
    written = entry.ttl.column if entry.ttl and entry.ttl.on else None
    return TableSpec(
        key=tuple(entry.key),
        columns=tuple(
            Column(
                name,
                column.type,
                column.encoding,
                tuple(column.aliases),
                column.default,
                column.optional or (name == written and name not in entry.key),  # Records lack it.
            )
            for name, column in entry.columns.items()
        ),
        order=COLUMNS if by else entry.order or own,
        key_groups=entry.key_groups,
        buckets=entry.buckets,
        order_by=by,
        merge=entry.merge.merge(not by),
        spread=_spread(entry),
        ignored=tuple(entry.ignored),
        reading=tuple(sorted(list_reading(entry.source, entry._folder).items())) if entry.source else None,
    )


def _spread(entry: LogConfig) -> int:
    """Returns how many key columns determine the key group: all rows that one clear can remove share a group."""
    state_key = entry.source.state_key if isinstance(entry.source, StateJsonEntry) else []
    return len(state_key) if len(state_key) < len(entry.key) else 0


def _stops_of(entry: LogConfig) -> tuple[str, ...]:
    policy = entry.schema_evolution
    decided = "on_bad_record" in entry.model_fields_set
    always: tuple[str, ...] = ()
    if isinstance(entry.source, StateJsonEntry):
        always = ("STATE_CHANGED",) if decided else ("STATE_CHANGED", "POLL_UNNAMED")  # Else the rest is misread.
    always = (*always, "DECIMAL_SCALE")  # The values after it would be wrong, and nothing would show it.
    undecided = "add" not in policy.model_fields_set and not decided
    if policy.add != "evolve" and not (policy.add == "stop" and (undecided or "add" in policy.model_fields_set)):
        return always
    # Debezium writes every column into every record: one that is missing was dropped or renamed.
    whole = isinstance(entry.source, DebeziumEntry)
    return (*always, "UNKNOWN_COLUMN", "MISSING_COLUMN") if whole else (*always, "UNKNOWN_COLUMN")
