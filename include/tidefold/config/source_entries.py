"""The `source` of a log: for each format the keys that it has, so that one without effect is refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from tidefold.config.entry import Entry, Text
from tidefold.lifecycle.shape import COLUMNS, POSITION

_FOLDER = "folder of landed files, relative to this file or absolute"
_UPSERTS = ["upsert", "insert", "update", "c", "r", "u", "I", "U"]
_DELETES = ["delete", "d", "D"]


class DebeziumEntry(Entry):
    """Debezium records, in files that a Kafka sink named."""

    by_columns: ClassVar[bool] = False

    format: Literal["debezium-json", "debezium-avro", "debezium-parquet"]
    connector: Literal["postgresql", "mysql", "mariadb"]
    path: Text = Field(description=_FOLDER)

    @property
    def orders(self) -> tuple[str, ...]:
        """Each connector has an order of its own."""
        return (self.connector,)


class OpEntry(Entry):
    """The column that says what a record does. What it says is compared as text, case counts."""

    column: Text = Field(description="column or field that says what a record does")
    upsert: list[Text] = Field(default=_UPSERTS, min_length=1, description="what it says of a row that is to be there")
    delete: list[Text] = Field(default=_DELETES, description="what it says of a row that is to be removed")


class JsonOpEntry(OpEntry):
    """The field that says what a JSON record does."""

    row: Text | None = Field(default=None, description="field that has the row; without it the row lies beside the op")


class JsonEntry(Entry):
    """Plain JSON lines, in files that a Kafka sink named."""

    orders: ClassVar[tuple[str, ...]] = (POSITION,)

    format: Literal["json"]
    path: Text = Field(description=_FOLDER)
    record: Literal["kafka", "value"] = Field(
        default="kafka", description="kafka: a line has topic, partition, offset, key, value; value: it is the value"
    )
    op: JsonOpEntry | None = Field(default=None, description="where a record says what it does; default: it is a row")


class ParquetEntry(Entry):
    """Parquet files of changes."""

    format: Literal["parquet"]
    path: Text = Field(description=_FOLDER)
    op: OpEntry | None = Field(default=None, description="where a row says what it does; default: it is to be there")
    offset: Text | None = Field(default=None, description="column of whole numbers, another one in each row")

    @property
    def orders(self) -> tuple[str, ...]:
        """Only offsets order rows by themselves."""
        return (POSITION,) if self.offset else (COLUMNS,)


class CsvEntry(ParquetEntry):
    """CSV files of changes."""

    format: Literal["csv"]  # type: ignore[assignment]
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(default=",", description="between two values")
    null: list[str] = Field(default=[""], description="texts that are no value, unless they stand in quotes")


SourceEntry = Annotated[DebeziumEntry | JsonEntry | CsvEntry | ParquetEntry, Field(discriminator="format")]
_ENTRIES = (DebeziumEntry, JsonEntry, CsvEntry, ParquetEntry)
SOURCE_ENTRIES: dict[str, type[Entry]] = {
    name: entry for entry in _ENTRIES for name in get_args(entry.model_fields["format"].annotation)
}


def options(source: Any) -> dict[str, Any]:
    """What only this format has, as plain values."""
    given: dict[str, Any] = source.model_dump(mode="json", exclude={"format", "path"})
    return given


def entry_at(entry: type[Entry], place: tuple[str | int, ...]) -> type[Entry]:
    """The entry that a place within another one leads to."""
    for part in place:
        field = entry.model_fields.get(str(part))
        kinds = get_args(field.annotation) if field else ()
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Entry)), None)
        entry = inner or entry
    return entry
