"""The `source` of a log: the keys of each format. A key that has no effect with a format is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from tidefold.config.models.kafka import KafkaEntry, check_place
from tidefold.config.models.source_values import DateFormat, DateNames, Delimiter, Encoding, TimeFormats, TimeZone
from tidefold.domain.table.table_spec import COLUMNS, POSITION, VERSION
from tidefold.errors import InvalidInputError
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.profiles.profile import load_profile
from tidefold.yaml_files.messages import StrictModel, Text, mistake, mistakes_below

_UPSERTS = ["upsert", "insert", "update", "c", "r", "u", "I", "U"]
_DELETES = ["delete", "d", "D"]
# Where files can land: paths, and folders in object stores.
LANDING_SCHEMES = ("", "s3", "abfss", "abfs", "gs")
# Any other filesystem of fsspec, which is only read.
FILESYSTEM = "filesystem"
_KafkaNames = Annotated[
    Literal["kafka", "kafka-dash"] | None,
    Field(description="form of file names: kafka (topic+partition+offset, the default) or kafka-dash (also with -)"),
]
# Values that a later version will accept. They get their own error, so that they do not look like typing mistakes.
_LATER_CONNECTORS = ("db2", "vitess", "spanner", "informix")
_LATER_FORMATS = ("avro",)
_Record = Annotated[
    Literal["kafka", "value"],
    Field(description="kafka: a line has topic, partition, offset, key, value; value: the line is the value"),
]


class LandedEntry(StrictModel):
    """The keys that all sources with a landing folder share."""

    by_columns: ClassVar[bool] = True
    place_key: ClassVar[str] = "path"
    schemes: ClassVar[tuple[str, ...]] = (*LANDING_SCHEMES, FILESYSTEM)

    path: Text = Field(
        default="",
        description="folder of landed files, relative to this file or absolute, s3://bucket/folder, "
        "gs://bucket/folder, abfss://container@account.dfs.core.windows.net/folder, or sftp://host/folder",
    )
    kafka: KafkaEntry | None = Field(default=None, description="topic to read, instead of `path`")
    leave_out: list[Text] = Field(default=[], description="names or patterns of landed files that are left out")
    placeholder: Text = Field(
        default=PLACEHOLDER,
        description="what the source writes for a value that it did not send, such as Debezium's "
        "`unavailable.value.placeholder`",
    )

    @model_validator(mode="before")
    @classmethod
    def _check_place(cls, value: Any) -> Any:
        return check_place(value)

    @property
    def place(self) -> str:
        """The place of the input, as written in the file; empty: a topic, which lands in the store."""
        return self.path


def _explain_later(value: str, allowed: str) -> PydanticCustomError:
    message = f"cannot be `{value}` in this version. Allowed: {allowed}."
    return mistake("NOT_IN_THIS_VERSION", message, f"Set it to {allowed}.")


def _refuse_later_connector(value: Any) -> Any:
    if value in _LATER_CONNECTORS:
        raise _explain_later(value, "postgresql, mysql, mariadb, sqlserver, oracle, mongodb")
    return value


def _check_profile(name: str, info: ValidationInfo) -> str:
    try:
        load_profile(name, Path(info.context or "").parent)
    except InvalidInputError as error:
        raise mistake(error.code, f"cannot be used: {error.message}", error.hint) from error
    return name


def _expand_extract(value: Any) -> Any:
    """Turns `extract: full` into a mapping with the default limits."""
    return {} if value == "full" else value


class ExtractEntry(StrictModel):
    """Every landed extract has all rows of the table; a key that is missing in the newest one is deleted."""

    kind: Literal["full"] = "full"
    marker: Text | None = Field(
        default=None,
        description="name of the file that marks an extract as complete, in its folder; {extract} stands for the date",
    )
    row_count: Text | None = Field(
        default=None, description="name of the file with an extract's number of rows; {extract} stands for the date"
    )
    min_rows: int = Field(default=1, ge=0, description="an extract with fewer rows is refused")
    max_deletes: float = Field(
        default=0.2, ge=0, le=1, description="an extract that deletes a larger share of the rows is refused"
    )
    accept: DateNames = Field(
        default=[], description="dates of extracts that are ingested in spite of `min_rows` and `max_deletes`"
    )
    date_format: DateFormat | None = Field(
        default=None, description='how file names write the extract\'s date, such as "%Y%m%d_%H%M"; default: ISO 8601'
    )


class DebeziumEntry(LandedEntry):
    """Debezium records, in files that a Kafka sink named."""

    by_columns: ClassVar[bool] = False
    removed: ClassVar[Mapping[str, str]] = {
        "schemas": "Read the topic itself, with `source.kafka.registry`, or let Connect write JSON or Avro files."
    }

    format: Literal["debezium-json", "debezium-avro", "debezium-parquet"]
    connector: Annotated[
        Literal["postgresql", "mysql", "mariadb", "sqlserver", "oracle", "mongodb"],
        BeforeValidator(_refuse_later_connector),
    ]
    names: _KafkaNames = None

    @property
    def orders(self) -> tuple[str, ...]:
        """The order that the connector's records have."""
        return (self.connector,)


class OpEntry(StrictModel):
    """The column that contains the operation of a record. Values are compared as text; upper and lower case differ."""

    column: Text = Field(description="column or field with the operation")
    upsert: Annotated[list[Text], Field(min_length=1)] | Literal["any"] = Field(
        default=_UPSERTS,
        description="values of the operation that mean upsert; any: every value that is not listed elsewhere",
    )
    delete: list[Text] | Literal["any"] = Field(
        default=_DELETES,
        description="values of the operation that mean delete; any: every value means delete, and null means upsert",
    )
    ignore: list[Text] = Field(default=[], description="values of the operation of records that are left out")
    missing: Literal["refuse", "upsert"] = Field(
        default="refuse", description="what rows without the column, or with null in it, are: refused, or upserts"
    )
    pairs: bool = Field(
        default=False, description="an update is two rows of one order, a delete and an upsert, in either sequence"
    )


class JsonOpEntry(OpEntry):
    """The field that contains the operation of a JSON record."""

    row: Text | None = Field(default=None, description="field with the row; without it the row is beside the operation")


class RowFilesEntry(LandedEntry):
    """Files whose rows are changes or, in an extract, the rows of the table."""

    commit_time: Text | None = Field(
        default=None,
        description="timestamp column of `order` with the time at which the source wrote the row; for backfills",
    )
    files: list[Annotated[Text, Field(pattern=r"^[^/]+$")]] = Field(
        default=[], description='patterns of further file names, such as "*.log.gz"; * matches any text within a name'
    )
    time_zone: TimeZone | None = Field(
        default=None,
        description="time zone of times without one, in values and in names of files, such as Europe/Berlin; default: "
        "UTC. A local time that occurs twice means the earlier one; a local time that does not exist is refused",
    )
    folder_columns: list[Text] = Field(
        default=[], description="columns whose values are in the names of folders, as in dt=2026-01-31/part-0.csv"
    )
    extract: Annotated[
        ExtractEntry | None,
        BeforeValidator(_expand_extract),
        Field(description="full: each date in the names is an extract with all rows; or a mapping with its limits"),
    ] = None


class JsonEntry(RowFilesEntry):
    """Plain JSON lines, in files that a Kafka sink named or, where columns order the rows, with any names."""

    format: Literal["json"]
    record: _Record = "kafka"
    op: JsonOpEntry | None = Field(
        default=None, description="where a record has its operation; default: every record is an upsert"
    )
    row: Text | None = Field(default=None, description="field of a record with the whole row, including the operation")
    record_path: Annotated[Text, Field(pattern=r"^\.([^.]+(\.[^.]+)*)?$")] | None = Field(
        default=None,
        description="files are JSON documents; the path of their records, such as .data or .result.items, or . for an "
        "array or for objects of several lines",
    )
    extended_json: bool = Field(
        default=False, description='values are MongoDB\'s extended JSON, such as {"$date": "2026-01-31T12:00:00Z"}'
    )
    profile: Annotated[Text, AfterValidator(_check_profile)] | None = Field(
        default=None,
        description="how the tool of a change feed writes its records: a name, or a .toml file of your own",
    )
    table: Text | None = Field(default=None, description="profile: the table whose records count; default: all")
    names: Literal["kafka", "kafka-dash", "any"] | None = Field(
        default=None,
        description="form of file names: kafka (topic+partition+offset), kafka-dash (also with -), any (names have no "
        "meaning); default: kafka if such files are there, else any",
    )

    @property
    def orders(self) -> tuple[str, ...]:
        """The order by the date of the extract, or by offset."""
        return (VERSION,) if self.extract else (POSITION,)


class StateJsonEntry(LandedEntry):
    """The changes of one state of a stream processor, as JSON lines in files that a Kafka sink named."""

    by_columns: ClassVar[bool] = False
    orders: ClassVar[tuple[str, ...]] = (POSITION,)

    format: Literal["state-json"]
    kind: Literal["value", "reducing", "list", "map", "queue"] = Field(description="kind of state")
    state_key: list[Text] = Field(description="columns of the state's own key: the first columns of `key`")
    state: Text | None = Field(default=None, description="name of the state in its metadata")
    head: list[Text] = Field(
        default=[],
        description="queue: columns that order the elements; a `poll` without a value removes the one with the lowest",
    )
    metadata: Literal["compare", "follow"] = Field(
        default="compare",
        description="follow: metadata can widen types and set `ttl.days`, so anybody who lands files can do both",
    )
    names: _KafkaNames = None
    record: _Record = "kafka"
    partitions: Literal["one", "many"] = Field(
        default="one",
        description="many: operations come in several partitions, and the state is never cleared as a whole",
    )


class ParquetEntry(RowFilesEntry):
    """Parquet files of changes."""

    removed: ClassVar[Mapping[str, str]] = {
        "offset": "Name the column in `order`, as in `order: [number]`. With `merge: append` leave it out."
    }
    format: Literal["parquet"]
    op: OpEntry | None = Field(
        default=None, description="where a row has its operation; default: every row is an upsert"
    )

    @property
    def orders(self) -> tuple[str, ...]:
        """The order by the date of the extract; no other order exists without columns."""
        return (VERSION,) if self.extract else (COLUMNS,)


class CsvEntry(ParquetEntry):
    """CSV files of changes."""

    format: Literal["csv"]  # type: ignore[assignment]
    delimiter: Delimiter = Field(default=",", description="character between two values")
    null: list[str] = Field(default=[""], description="unquoted texts that mean null")
    quoted_null: bool = Field(default=False, description="the texts of `null` mean null in quotes, too")
    quote: Annotated[str, Field(max_length=1)] = Field(
        default='"', description="character around a value that needs it; empty: none"
    )
    escape: Annotated[str, Field(max_length=1)] = Field(
        default="", description="character before a quote or delimiter that belongs to a value; empty: none"
    )
    header: bool | list[Text] = Field(
        default=True,
        description="true: the first line has the names; false: values come in the order of `columns`; or the names",
    )
    skip: int = Field(default=0, ge=0, le=1000, description="number of lines before the header or the first row")
    encoding: Encoding = Field(default="utf-8", description="encoding of the text, such as latin-1 or cp1252")
    timestamp_formats: TimeFormats = Field(
        default=[], description='formats of times that are not ISO 8601, such as "%d.%m.%Y %H:%M:%S"'
    )
    decimal: Literal[".", ","] = Field(default=".", description="character before the fraction of a number")
    thousands: Literal["", ".", ",", " ", "'"] = Field(
        default="", description="character between each three digits of a number; empty: none"
    )


class DeltaFeedEntry(StrictModel):
    """The change data feed of a Delta table."""

    by_columns: ClassVar[bool] = False
    place_key: ClassVar[str] = "table"
    schemes: ClassVar[tuple[str, ...]] = (*LANDING_SCHEMES, "file")
    orders: ClassVar[tuple[str, ...]] = (VERSION,)

    format: Literal["delta-cdf"]
    table: Text = Field(
        description="Delta table: a path, file:///absolute/path, s3://bucket/folder, gs://bucket/folder, or "
        "abfss://container@account.dfs.core.windows.net/folder"
    )
    from_version: int | None = Field(
        default=None,
        ge=0,
        description="first version whose changes are ingested; default: the table's rows, then changes",
    )

    @property
    def place(self) -> str:
        """The place of the input, as written in the file."""
        return self.table


class DeltaTableEntry(DeltaFeedEntry):
    """A Delta table without a change feed: each version has all rows."""

    format: Literal["delta"]  # type: ignore[assignment]
    from_version: None = None
    extract: Annotated[ExtractEntry, BeforeValidator(_expand_extract)] = Field(
        default=ExtractEntry(),
        description="full: each version is an extract with all rows; or a mapping with its limits",
    )
    replaced: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="accept: a table that CREATE OR REPLACE makes again is the next extract; refuse: it stops the log",
    )


class CustomEntry(LandedEntry):
    """A custom source, which an installed package provides."""

    orders: ClassVar[tuple[str, ...]] = (POSITION,)

    format: Literal["custom"]
    name: Text = Field(description="name of the source: the entry point in its package")
    options: dict[str, Any] = Field(default={}, description="options that the source itself defines")


_Source = (
    DeltaTableEntry
    | DebeziumEntry
    | JsonEntry
    | CsvEntry
    | ParquetEntry
    | DeltaFeedEntry
    | StateJsonEntry
    | CustomEntry
)
SOURCE_ENTRIES: dict[str, type[StrictModel]] = {
    name: entry for entry in get_args(_Source) for name in get_args(entry.model_fields["format"].annotation)
}


def _refuse_later_format(value: Any) -> Any:
    if isinstance(value, dict) and value.get("format") in _LATER_FORMATS:
        error = _explain_later(value["format"], ", ".join(SOURCE_ENTRIES))
        raise mistakes_below({("format",): error}, value)
    return value


SourceEntry = Annotated[_Source, Field(discriminator="format"), BeforeValidator(_refuse_later_format)]
