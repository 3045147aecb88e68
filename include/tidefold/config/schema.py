"""The shape of `tidefold.yaml`: what may be written, of which type, with which defaults."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from tidefold.config.columns import ColumnEntry, ColumnValue
from tidefold.config.entry import Entry, Text
from tidefold.config.source_entries import SOURCE_ENTRIES, SourceEntry, entry_at
from tidefold.config.text import SIZE, Place, Problem, dotted, size_in_bytes
from tidefold.lifecycle.kinds import Rule
from tidefold.lifecycle.retention import Grace


class SparkConfig(Entry):
    """How Spark is started."""

    master: str = Field(
        default="local[*]", pattern=r"^local(\[(\*|[1-9]\d*)\])?$", description="local, local[N] or local[*]"
    )
    driver_memory: str = Field(
        default="2g", pattern=r"^[1-9]\d*[mg]$", description="memory of the Spark process, as 512m or 2g"
    )


def _is_size(value: Any) -> Any:
    if isinstance(value, str) and size_in_bytes(value) > 0:
        return value
    raise PydanticCustomError("size", "must be a size of more than nothing, as 500MB or 20GB")


class LocalConfig(Entry):
    """Copies of snapshots and segments on this machine's disks."""

    mode: Literal["disabled", "files"] = "disabled"
    path: Text | None = Field(default=None, description="folder of local copies, relative to this file or absolute")
    paths: list[Text] | None = Field(
        default=None, min_length=1, description="several folders of local copies instead of one, which take turns"
    )
    quota: Annotated[
        str | None, BeforeValidator(_is_size), WithJsonSchema({"type": "string", "pattern": f"^{SIZE.pattern}$"})
    ] = Field(default=None, description="bytes that all local copies of the pipeline may take, as 500MB, 20GB or 20GiB")

    @property
    def folders(self) -> tuple[str, ...]:
        """Where copies are kept; none while they are disabled."""
        given = self.paths or ([self.path] if self.path else [])
        return tuple(given) if self.mode == "files" else ()

    @property
    def quota_bytes(self) -> int | None:
        """The quota; None: no limit."""
        return size_in_bytes(self.quota) if self.quota else None


# Whoever is reading the table version before the newest still needs its files.
_LEAST_RETAINED = 2


def _retained(value: Any) -> Any:
    if value == "all" or (type(value) is int and value >= _LEAST_RETAINED):
        return value
    raise PydanticCustomError("retained", "must be `all` or a whole number from 2")


class RetentionConfig(Entry):
    """How many completed snapshots are kept; the log is kept so that it can be replayed onto each of them."""

    snapshots: Annotated[
        Any,
        BeforeValidator(_retained),
        WithJsonSchema({"anyOf": [{"const": "all"}, {"type": "integer", "minimum": _LEAST_RETAINED}]}),
    ] = Field(default="all", description="`all`, or how many of the newest are kept")

    reader_publishes: int = Field(
        default=_LEAST_RETAINED,
        ge=1,
        description="how many snapshots must be published after one before its files may go from the table",
    )
    reader_minutes: int = Field(
        default=0, ge=0, description="how many minutes after it was replaced, at least; it can only keep files longer"
    )

    @property
    def grace(self) -> Grace:
        """How long readers of an older table version are waited for."""
        return Grace(self.reader_publishes, self.reader_minutes)

    @property
    def keep(self) -> int | None:
        """The number to keep; None keeps all."""
        return None if self.snapshots == "all" else int(self.snapshots)


class SnapshotsConfig(Entry):
    """What kind of snapshot a materialization makes, and how it takes unchanged files over."""

    kind: Rule = Field(
        default=Rule.FULL,
        strict=False,
        description="full (files of its own), incremental (shares files of confirmed ones), or auto (chosen by cost)",
    )
    copy_files: Literal["auto", "always"] = Field(
        default="auto", alias="copy", description="always: as bytes of their own also where a hard link would do"
    )
    full_every: int = Field(
        default=10, ge=1, description="with auto: after how many incremental snapshots comes a full one"
    )

    @property
    def copies(self) -> bool:
        return self.copy_files == "always"


class TtlEntry(Entry):
    """How long rows are kept by their age; those that are older go when a full snapshot is made."""

    column: Text = Field(description="column of type date or timestamp that tells a row's age")
    days: int = Field(ge=1, le=36_500, description="rows older than so many days are dropped")


class QualityEntry(Entry):
    """The quality gate of a log, beside what is always checked."""

    suite: Text | None = Field(default=None, description="file of expectations, relative to this file or absolute")
    max_row_drop: float = Field(
        default=0.5, ge=0, le=1, description="largest allowed loss of rows against the last snapshot"
    )


class LogEntry(Entry):
    """One log of keyed changes; it becomes one table."""

    source: SourceEntry | None = Field(
        default=None, description="folder of landed files that it is fed from; without one a program writes it"
    )
    key: list[Text] = Field(min_length=1, description="columns that tell rows apart")
    columns: dict[str, ColumnValue] = Field(
        min_length=1, description="every column of the table with its type, or with type and encoding"
    )
    order: Literal["postgresql", "arrival"] | None = Field(
        default=None, description="how changes are ordered; default: as the connector; `arrival`: as they were written"
    )
    key_groups: int = Field(default=128, ge=1, le=32768, description="fixed for the life of the log")
    buckets: int = Field(default=8, ge=1, le=32768, description="data files of a table, at most key_groups")
    on_bad_record: Literal["quarantine", "fail"] = "quarantine"
    quality: QualityEntry = QualityEntry()
    ttl: TtlEntry | None = None


def _not_boolean(given: Any) -> Any:
    """For Python true is 1; for who wrote `version: yes` it is not."""
    return str(given).lower() if isinstance(given, bool) else given


class FileEntry(Entry):
    """The whole of `tidefold.yaml`."""

    version: Annotated[Literal[1], BeforeValidator(_not_boolean)]
    store: Text = Field(description="path relative to this file, file:///absolute/path, or s3://bucket/folder")
    spark: SparkConfig = SparkConfig()
    local: LocalConfig = LocalConfig()
    retention: RetentionConfig = RetentionConfig()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    logs: dict[str, LogEntry] = Field(min_length=1)


def json_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **FileEntry.model_json_schema()}


# Words that a later version will know: refused by name, so that nobody takes them for a typing mistake.
_LATER: dict[str, tuple[str, ...]] = {
    "connector": ("mysql", "mariadb", "mongodb", "sqlserver", "oracle", "db2", "vitess", "spanner", "informix"),
    "format": ("debezium-avro", "delta-cdf", "canal-json", "maxwell-json", "parquet", "avro", "csv"),
    "order": ("mysql", "mariadb"),
}
_MODELS: dict[str, type[Entry]] = {
    "spark": SparkConfig, "local": LocalConfig, "retention": RetentionConfig,
    "quality": QualityEntry, "snapshots": SnapshotsConfig, "ttl": TtlEntry,
}  # fmt: skip


def problems_of(error: ValidationError, place: Place, lines: Any) -> Iterator[Problem]:
    """Our words for what pydantic found below a place. `lines`: place -> line."""
    for detail in error.errors(include_url=False):
        here, model = _place_of(detail, place)
        code, message, hint = _explain(detail, here, model)
        yield Problem(code, lines(here), dotted(here), message, hint)


def _place_of(detail: ErrorDetails, place: Place) -> tuple[Place, type[Entry]]:
    """Where a mistake lies in the file, and the entry that it lies in. Pydantic also names the format of a source."""
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    at = loc.index("source") + 1 if "source" in loc else len(loc)
    of = SOURCE_ENTRIES.get(str(loc[at])) if at < len(loc) else None
    if of is None:
        missing = ("format",) if detail["type"].startswith("union_tag") else ()
        here = (*place, *loc, *missing)
        return here, _model_at(here)
    here = (*place, *loc[:at], *loc[at + 1 :])
    return here, entry_at(of, loc[at + 1 : -1])


def _explain(detail: ErrorDetails, place: Place, model: type[Entry]) -> tuple[str, str, str]:
    kind, name, context = detail["type"], str(place[-1]) if place else "", detail.get("ctx", {})
    is_key = len(place) == 3 and place[0] == "logs" and name == "key"
    if is_key and kind in ("missing", "too_short"):
        return (
            "LOG_WITHOUT_KEY",
            "is missing: a log needs a key.",
            "Name the columns that tell rows apart: `key: [id]`.",
        )
    if kind in ("missing", "union_tag_not_found"):
        return "CONFIG_MISSING_KEY", "is missing.", _purpose(place, model)
    if kind == "extra_forbidden":
        return _unknown_key(place, model)
    if kind in ("literal_error", "column_type", "union_tag_invalid"):
        given, expected = context.get("tag", detail["input"]), context.get("expected") or context["expected_tags"]
        return _unknown_value(name, given, expected)
    if kind in ("greater_than_equal", "less_than_equal", "finite_number"):
        return "CONFIG_OUT_OF_RANGE", f"is out of range: {_sentence(detail['msg'])}", ""
    if kind == "retained":
        return "CONFIG_OUT_OF_RANGE", f"{detail['msg']}.", "Readers of the version before the newest need one more."
    if kind == "size":
        return "CONFIG_WRONG_TYPE", f"{detail['msg']}.", "As an example `500MB`, `20GB` (units of 1000) or `20GiB`."
    if kind in ("too_short", "string_too_short"):
        return "CONFIG_EMPTY_VALUE", "must not be empty.", ""
    if kind == "string_pattern_mismatch":
        return _pattern_mismatch(name)
    return "CONFIG_WRONG_TYPE", f"has the wrong type: {_sentence(detail['msg'])}", _type_hint(kind, detail["input"])


def _sentence(said: str) -> str:
    lowered = said[0].lower() + said[1:]
    for theirs, ours in (
        ("a valid dictionary or instance of ", "a mapping like "),
        (" or object to extract fields from", ""),
        ("dictionary", "mapping"),
        ("input", "it"),
    ):
        lowered = lowered.replace(theirs, ours)
    return f"{lowered}."


def _model_at(place: Place) -> type[Entry]:
    """The entry that a place lies in directly."""
    if len(place) == 1:
        return FileEntry
    if len(place) == 5 and place[2] == "columns":
        return ColumnEntry
    parent = str(place[-2])
    return LogEntry if len(place) == 3 and place[0] == "logs" else _MODELS.get(parent, FileEntry)


def _unknown_key(place: Place, model: type[Entry]) -> tuple[str, str, str]:
    allowed = [field.alias or name for name, field in model.model_fields.items()]
    near = get_close_matches(str(place[-1]).lower(), allowed, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else "Remove it; docs/config.md explains every key."
    return "CONFIG_UNKNOWN_KEY", f"is no known key. Allowed here: {', '.join(allowed)}.", hint


def _unknown_value(name: str, given: Any, expected: str) -> tuple[str, str, str]:
    shown = f"`{given}`" if isinstance(given, str | int | float) and len(str(given)) <= 40 else "what is given"
    allowed = expected.replace("'", "").replace(" or ", ", ")
    later = _LATER.get(name)
    if later is not None and (not later or given in later):
        return "NOT_IN_THIS_VERSION", f"cannot be {shown} in this version. Allowed: {allowed}.", f"Set it to {allowed}."
    near = get_close_matches(str(given).lower(), allowed.split(", "), n=1, cutoff=0.5)
    hint = f"Did you mean `{near[0]}`?" if near else ""
    return "CONFIG_UNKNOWN_VALUE", f"does not know {shown}. Allowed: {allowed}.", hint


def _pattern_mismatch(name: str) -> tuple[str, str, str]:
    if name == "master":
        hint = "Set `local[*]` (all cores) or, as an example, `local[4]`."
        return "NOT_IN_THIS_VERSION", "can only be local, local[N] or local[*] in this version.", hint
    return "CONFIG_WRONG_TYPE", "must be a whole number followed by m or g.", "As an example `2g`."


def _type_hint(kind: str, given: Any) -> str:
    if given is None:
        return "Give it a value, or remove the line."
    if kind == "list_type":
        return f"Write it as a list: `[{given}]`." if isinstance(given, str) else "Write it as a list: `[a, b]`."
    if kind == "string_type":
        return "Put it in quotes."
    return ""


def _purpose(place: Place, model: type[Entry]) -> str:
    known = model.model_fields.get(str(place[-1]))
    return f"It is the {known.description}." if known and known.description else "docs/config.md shows an example."
