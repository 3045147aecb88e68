"""Checks a log beyond the types of its values: its columns, its key, and its source together with them.

An option that has no effect is a mistake. So is a source whose files do not determine the rows of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidefold.config.addresses import path_mistake
from tidefold.config.models import sources
from tidefold.config.models.log import LogConfig, TtlUpdate
from tidefold.config.models.table import change_mistakes
from tidefold.domain.key_groups import RedistributionMode
from tidefold.domain.paths import check_log_id
from tidefold.domain.table import table_spec_validation
from tidefold.domain.table.table_spec import COLUMNS, FILE, Deletes, Engine
from tidefold.domain.table.types import UNITS, parse_type
from tidefold.errors import InvalidInputError
from tidefold.sources.api import custom_sources
from tidefold.yaml_files.document import ConfigProblem, YamlDocument, YamlPath, format_place

_NO_TEXT = ("binary", "array")
_Found = tuple[str, YamlPath, str, str]
_OWNER_TYPES = ("string", "int", "long")
_REMEMBERING = (Engine.LAST, Engine.PARTIAL, Engine.HISTORY)


def check_log(log: str, entry: LogConfig, document: YamlDocument) -> Iterator[ConfigProblem]:
    """Yields the mistakes of one log whose values have the right types."""
    place: YamlPath = ("logs", log)

    def problem(code: str, at: YamlPath, message: str, hint: str = "") -> ConfigProblem:
        here = (*place, *at)
        return ConfigProblem(code, document.line(here), format_place(here), message, hint)

    try:
        check_log_id(log)
    except InvalidInputError as error:
        yield problem(error.code, (), "cannot be the id of a log.", error.hint)
    for code, at, message, hint in (
        *_feeding(entry),
        *_table_mistakes(entry),
        *_source_mistakes(entry),
        *_paths(entry),
        *_ages(entry),
        *_owners(entry),
    ):
        yield problem(code, at, message, hint)
    if entry.buckets > entry.key_groups:
        message = f"({entry.buckets}) is more than `key_groups` ({entry.key_groups})."
        yield problem("BUCKETS_INVALID", ("buckets",), message, "Lower `buckets`, or raise `key_groups`.")


def _source_mistakes(entry: LogConfig) -> Iterator[table_spec_validation.Mistake]:
    """Yields the mistakes of a log together with its source; each alone is valid."""
    source = entry.source
    if source is None:
        yield from _encodings(entry, "for a log that a program writes")
    if isinstance(source, sources.ParquetEntry):
        yield from _header(entry, source)
        yield from _places(entry, source)
        yield from _types(entry, source)
    if isinstance(source, sources.JsonEntry):
        yield from _any_names(entry, source)
    if isinstance(source, sources.CustomEntry):
        yield from _custom(source)
    if isinstance(source, sources.StateJsonEntry):
        yield from _state(entry, source)
    if isinstance(source, sources.DeltaFeedEntry):
        yield from _encodings(entry, f"with format {source.format}")
        if entry.shape.merge.engine is Engine.AGGREGATE:
            hint = "Use the engine `last`, and aggregate the rows when you read the table."
            yield "SOURCE_ENGINE", ("merge",), "cannot be `aggregate`: an update contains the whole row.", hint
    yield from _extracts(entry)
    if isinstance(source, sources.ParquetEntry | sources.JsonEntry):
        yield from _ops(source.op)
        yield from _commit_time(entry, source.commit_time)


def _custom(source: sources.CustomEntry) -> Iterator[table_spec_validation.Mistake]:
    if source.name not in custom_sources():
        hint = f"Install the package that provides it. Installed sources: {', '.join(custom_sources()) or 'none'}."
        yield "SOURCE_UNKNOWN", ("source", "name"), f"is `{source.name}`, which no installed package provides.", hint


def _commit_time(entry: LogConfig, name: str | None) -> Iterator[table_spec_validation.Mistake]:
    """Checks `commit_time`. Deletes have only the columns of key and order; a date does not say when on its day."""
    by = entry.shape.order_by
    if name is None or (name in by and name in entry.columns and entry.columns[name].type == "timestamp"):
        return
    times = [one for one in by if one in entry.columns and entry.columns[one].type == "timestamp"]
    hint = (
        f"Set it to {' or '.join(f'`{one}`' for one in times)}."
        if times
        else ("Remove it, or add a timestamp column to `order`.")
    )
    yield "SOURCE_COMMIT_TIME", ("source", "commit_time"), f"is `{name}`, not a timestamp column of `order`.", hint


def _ops(op: sources.OpEntry | None) -> Iterator[table_spec_validation.Mistake]:
    if op is None:
        return
    if op.delete == "any":
        for name in sorted({"upsert", "ignore"} & op.model_fields_set):
            hint = "Remove it: with `delete: any`, null means upsert and every other value means delete."
            yield "OP_TWICE", ("source", "op", name), "has no effect with `delete: any`.", hint
        return
    meanings = {} if op.upsert == "any" else dict.fromkeys(op.upsert, "upsert")
    if op.upsert == "any" and "delete" not in op.model_fields_set:
        hint = "Say which values mean delete: `delete: []` if none does."
        yield "CONFIG_MISSING_KEY", ("source", "op", "delete"), "is missing beside `upsert: any`.", hint
    for name, listed in (("delete", op.delete), ("ignore", op.ignore)):
        for i, value in enumerate(listed):
            if (other := meanings.setdefault(value, name)) != name:
                at = ("source", "op", name, i)
                yield "OP_TWICE", at, f"is `{value}`, which is also in `{other}`.", "Remove it from one of them."


def _header(entry: LogConfig, source: sources.ParquetEntry) -> Iterator[table_spec_validation.Mistake]:
    """Checks `header`: without a header line, it must give the position of every column of a CSV file."""
    if not isinstance(source, sources.CsvEntry) or source.header is True:
        return
    beside = [source.op.column] if source.op else []
    names = source.header if isinstance(source.header, list) else list(entry.columns)
    if missing := [name for name in beside if name not in names]:
        message = f"does not give the position of column `{missing[0]}`."
        hint = f"Name all columns in the order of the files: `header: [{', '.join([*missing, *names])}]`."
        yield "SOURCE_HEADER", ("source", "header"), message, hint


def _places(entry: LogConfig, source: sources.ParquetEntry) -> Iterator[table_spec_validation.Mistake]:
    """Checks a source without offsets: columns or files must order the changes of a key."""
    shape = entry.shape
    if shape.order == COLUMNS and not shape.order_by and not source.extract:
        hint = "Name the columns that order the rows of a key (`order: [updated_at]`), or set `order: file`."
        yield "SOURCE_ORDER", ("order",), "is missing: nothing shows which row of the files is newer.", hint


def _extracts(entry: LogConfig) -> Iterator[table_spec_validation.Mistake]:
    """Checks a log of full extracts: their dates order the rows, and a row has no operation."""
    source = entry.source
    if not isinstance(source, sources.ParquetEntry | sources.JsonEntry | sources.DeltaTableEntry) or not source.extract:
        return
    merge = entry.shape.merge
    if merge.engine not in (Engine.LAST, Engine.HISTORY) or merge.deletes is not Deletes.APPLY:
        hint = "Leave `merge` out, or set `merge: history` to keep the versions of each row."
        yield "EXTRACT_MERGE", ("merge",), "must be `last` or `history`, with deletes, for full extracts.", hint
    if isinstance(entry.order, list):
        hint = "Leave it out: the date of an extract says which row is the newer one."
        yield "ORDER_INVALID", ("order",), "cannot be columns for full extracts.", hint
    op = getattr(source, "op", None)
    names = ("names", *(() if op and op.upsert == "any" and not op.delete else ("op",)))
    useless: list[YamlPath] = [("source", name) for name in names if getattr(source, name, None)]
    useless += [("source", "record")] if getattr(source, "record", "") == "kafka" and _is_set(source, "record") else []
    useless += [("ttl",)] if entry.ttl else []
    if isinstance(source, sources.DeltaTableEntry):
        of_files = {"marker", "row_count", "date_format"} & source.extract.model_fields_set
        useless += [("source", "extract", name) for name in sorted(of_files)]
    for place in useless:
        yield (
            "EXTRACT_OPTION",
            place,
            "has no effect beside `extract`: every line of a full extract is a current row.",
            "Remove it.",
        )


def _is_set(source: sources.ParquetEntry | sources.JsonEntry | sources.DeltaTableEntry, name: str) -> bool:
    return name in source.model_fields_set


def _any_names(entry: LogConfig, source: sources.JsonEntry) -> Iterator[table_spec_validation.Mistake]:
    """Checks `names: any`: columns or files must order the changes of a key."""
    shape = entry.shape
    if shape.orders_by_file and source.names in ("kafka", "kafka-dash"):
        why = f"names `file`, but `names: {source.names}` gives each record an offset."
        yield "ORDER_FILE", ("order",), why, "Leave `file` out of `order`."
    if (source.names != "any" and source.record_path is None) or source.extract:
        return
    if shape.merge.engine is not Engine.APPEND and (shape.order != COLUMNS or not shape.order_by):
        hint = "Name the columns that order the rows of a key: `order: [updated_at]`. Or set `order: file`."
        why = "is missing: with `names: any` or `record_path`, nothing shows which row is newer."
        yield "SOURCE_ORDER", ("order",), why, hint


def _encodings(entry: LogConfig, where: str) -> Iterator[table_spec_validation.Mistake]:
    allowed = UNITS if isinstance(entry.source, sources.CsvEntry) else ()
    for name, column in entry.columns.items():
        if column.encoding and (column.type != "timestamp" or column.encoding not in allowed):
            message = f"has an encoding, which has no effect {where}."
            yield "ENCODING_WITHOUT_EFFECT", ("columns", name), message, "Remove it."


def _types(entry: LogConfig, source: sources.ParquetEntry) -> Iterator[table_spec_validation.Mistake]:
    yield from _encodings(entry, f"with format {source.format}")
    for name, column in entry.columns.items():
        if isinstance(source, sources.CsvEntry) and parse_type(column.type).name in _NO_TEXT:
            message = f"cannot be {column.type} with format csv."
            yield "SOURCE_TYPE", ("columns", name), message, "Land it as Parquet or JSON."


def _state(entry: LogConfig, source: sources.StateJsonEntry) -> Iterator[table_spec_validation.Mistake]:
    """Checks key and merge engine, which depend on the kind of state."""
    parts, whole, kind = source.state_key, list(entry.key), source.kind
    kept = {"map": 0 < len(parts) < len(whole), "queue": len(parts) < len(whole)}.get(kind, parts == whole)
    if not kept or parts != whole[: len(parts)]:
        wanted = {"map": "the first columns of `key`, not all", "queue": "the first columns of `key`, not all, or none"}
        message = f"must be {wanted.get(kind, 'the columns of `key`')} for a {kind} state."
        hint = "The other columns of `key` identify the entry of a map or the element of a queue."
        yield "STATE_KEY", ("source", "state_key"), message, hint
    unknown = [name for name in source.head if name not in entry.columns or "array" in entry.columns[name].type]
    if source.head and (kind != "queue" or unknown):
        which = f"names {', '.join(unknown)}, no column to sort by" if unknown else "has no effect"
        hint = "Name the columns by which the processor orders the queue, such as `head: [due, id]`."
        yield "STATE_HEAD", ("source", "head"), f"{which} for a {kind} state.", hint
    engine = Engine.AGGREGATE if kind in ("list", "reducing") else Engine.LAST
    if entry.merge.engine is not engine:
        yield "STATE_MERGE", ("merge",), f"must be `{engine}` for a {kind} state.", f"Set `engine: {engine}`."
    values = [name for name in entry.columns if name not in whole]
    if kind == "list" and entry.merge.aggregates != dict.fromkeys(values[:1], "list"):
        hint = "For example `columns: {id: long, items: array<string>}` and `aggregates: {items: list}`."
        yield "STATE_MERGE", ("merge", "aggregates"), "must be `list` for the one column of a list state.", hint


def _feeding(entry: LogConfig) -> Iterator[_Found]:
    """Checks that a log has either a source with its order, or `order: arrival`."""
    if entry.source is None and entry.order != "arrival":
        hint = "Name a folder of landed files. If a program writes the log, set `order: arrival` instead."
        yield "CONFIG_MISSING_KEY", ("source",), "is missing.", hint
    if entry.source is not None and isinstance(entry.order, str) and entry.order not in entry.source.orders:
        hint = f"Leave it out (the default is `{entry.source.orders[0]}`), or name columns: `order: [updated_at]`."
        message = f"cannot be `{entry.order}` for a log with a source of format {entry.source.format}."
        yield "ORDER_INVALID", ("order",), message, hint

    if entry.source is not None and isinstance(entry.order, list) and not getattr(entry.source, "by_columns", True):
        hint = f"Leave it out: `{entry.source.orders[0]}` already orders any two changes."
        yield "ORDER_INVALID", ("order",), f"cannot be columns with format {entry.source.format}.", hint


def _ages(entry: LogConfig) -> Iterator[_Found]:
    column = entry.columns.get(entry.ttl.column) if entry.ttl else None
    if entry.ttl and (column is None or column.type not in ("date", "timestamp")):
        hint = "Name a column that contains the time at which a row was created or changed."
        yield "TTL_INVALID", ("ttl", "column"), "must be a column of type date or timestamp.", hint
    if entry.ttl is None or entry.ttl.on is None:
        return
    if entry.ttl.on is TtlUpdate.READ_AND_WRITE:
        hint = "Set `on: create-and-write`."
        yield "TTL_ON", ("ttl", "on"), "cannot be known: nobody tells tidefold that a row of a table was read.", hint
    elif entry.source is None:
        hint = "Leave it out. The program that writes the log also writes the column."
        yield "TTL_ON", ("ttl", "on"), "needs a source, whose changes have commit times.", hint
    elif entry.ttl.column in (*entry.key, *(entry.order if isinstance(entry.order, list) else ())):
        hint = "Name another column. tidefold writes the commit time of each change to it."
        yield "TTL_ON", ("ttl", "column"), "cannot be a column of `key` or `order` with `on`.", hint


def _owners(entry: LogConfig) -> Iterator[_Found]:
    redistribution = entry.redistribution
    if redistribution is None or redistribution.owner is None:
        return
    if redistribution.mode is RedistributionMode.SPLIT:
        hint = "Remove it, or set `mode: union` or `mode: broadcast`."
        yield "OWNER_INVALID", ("redistribution", "owner"), "has no effect with `mode: split`.", hint
    elif redistribution.owner not in entry.key or entry.columns[redistribution.owner].type not in _OWNER_TYPES:
        hint = "Else rows of different workers replace each other."
        message = "must be a column of `key`, of type string, int or long."
        yield "OWNER_INVALID", ("redistribution", "owner"), message, hint


def _paths(entry: LogConfig) -> Iterator[_Found]:
    paths: list[tuple[YamlPath, str | None, tuple[str, ...]]] = [(("quality", "suite"), entry.quality.suite, ("",))]
    if entry.source:
        paths.insert(0, (("source", entry.source.place_key), entry.source.place, entry.source.schemes))
    for at, path, schemes in paths:
        mistake = path_mistake(path, schemes) if path else None
        if mistake:
            code, message, hint = mistake
            yield code, at, message, hint


def _table_mistakes(entry: LogConfig) -> Iterator[table_spec_validation.Mistake]:
    """Yields the mistakes in the description of the table."""
    shape = entry.shape
    types = {column.name: column.type for column in shape.columns}
    yield from table_spec_validation.column_mistakes(list(types))
    yield from table_spec_validation.type_mistakes(shape.columns)
    yield from table_spec_validation.key_mistakes(shape.key, types)
    yield from table_spec_validation.merge_mistakes(shape)
    yield from change_mistakes(shape)
    if entry.late and not (shape.order_by and shape.merge.engine in _REMEMBERING):
        hint = "Remove it: no change can be late if the source itself numbers its changes in order."
        yield "LATE_WITHOUT_EFFECT", ("late",), "has no effect on this log.", hint
    elif entry.late and shape.order_by[0] == FILE:
        yield "LATE_HORIZON", ("late",), "needs a column as the first order.", "Remove it: no file is too late."
    elif entry.late and shape.order_by[0] in types and entry.lateness is None:
        type_ = types[shape.order_by[0]]
        hint = "Write 36h or 7d for a timestamp, 7d for a date, a whole number for whole numbers."
        yield "LATE_HORIZON", ("late", "allowed_lateness"), f"does not fit `{shape.order_by[0]}` of type {type_}.", hint
