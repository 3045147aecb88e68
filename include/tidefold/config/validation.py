"""Checks a configuration beyond the types of its values: columns, keys, paths, and logs that share folders.

An option that has no effect is a mistake. So is a source whose files do not determine the rows of the table.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from tidefold.config.models.file import LogEntry, TtlUpdate
from tidefold.config.models.sets import SetEntry, find_set_mistakes
from tidefold.config.models.sources import (
    LANDING_SCHEMES,
    CsvEntry,
    CustomEntry,
    DebeziumEntry,
    DeltaFeedEntry,
    DeltaTableEntry,
    JsonEntry,
    OpEntry,
    ParquetEntry,
    StateJsonEntry,
)
from tidefold.config.spark_validation import check_spark
from tidefold.config.table_spec import mistakes, shape_of
from tidefold.domain.key_groups import RedistributionMode
from tidefold.domain.paths import check_log_id
from tidefold.domain.table.table_spec import COLUMNS, Deletes, Engine
from tidefold.domain.table.table_spec_validation import Mistake
from tidefold.domain.table.types import parse_type
from tidefold.errors import InvalidInputError
from tidefold.sources.registry import custom_sources
from tidefold.storage.azure.address import ACCOUNT_VARIABLE, AzureAddress
from tidefold.storage.azure.address import SCHEMES as AZURE_SCHEMES
from tidefold.storage.gcs.address import SCHEME as GCS_SCHEME
from tidefold.storage.gcs.address import GcsAddress
from tidefold.storage.plugins import find_schemes
from tidefold.storage.s3.address import S3Address
from tidefold.yaml_files.document import ConfigProblem, Place, YamlDocument, format_place

_NO_TEXT = ("binary", "array")


def source_mistakes(entry: LogEntry) -> Iterator[Mistake]:
    """Yields the mistakes of a log together with its source; each alone is valid."""
    source = entry.source
    if source is None:
        yield from _encodings(entry, "for a log that a program writes")
    if isinstance(source, ParquetEntry):
        yield from _header(entry, source)
        yield from _places(entry, source)
        yield from _types(entry, source)
    if isinstance(source, JsonEntry):
        yield from _any_names(entry, source)
    if isinstance(source, DebeziumEntry) and source.schemas and source.format != "debezium-json":
        hint = "Remove `schemas`. Or let the sink write JSON with base64, and set `format: debezium-json`."
        yield "SCHEMAS_WITHOUT_EFFECT", ("source", "schemas"), "works only with `format: debezium-json`.", hint
    if isinstance(source, CustomEntry) and source.name not in custom_sources():
        hint = f"Install the package that provides it. Installed sources: {', '.join(custom_sources()) or 'none'}."
        yield "SOURCE_UNKNOWN", ("source", "name"), f"is `{source.name}`, which no installed package provides.", hint
    if isinstance(source, StateJsonEntry):
        yield from _state(entry, source)
    if isinstance(source, DeltaFeedEntry):
        yield from _encodings(entry, f"with format {source.format}")
        if shape_of(entry).merge.engine is Engine.AGGREGATE:
            hint = "Use the engine `last`, and aggregate the rows when you read the table."
            yield "SOURCE_ENGINE", ("merge",), "cannot be `aggregate`: an update contains the whole row.", hint
    yield from _extracts(entry)
    if isinstance(source, ParquetEntry | JsonEntry):
        yield from _ops(source.op)
        yield from _commit_time(entry, source.commit_time)


def _commit_time(entry: LogEntry, name: str | None) -> Iterator[Mistake]:
    """Checks `commit_time`. Deletes have only the columns of key and order; a date does not say when on its day."""
    by = shape_of(entry).order_by
    if name is None or (name in by and name in entry.columns and entry.columns[name].type == "timestamp"):
        return
    times = [one for one in by if one in entry.columns and entry.columns[one].type == "timestamp"]
    hint = (
        f"Set it to {' or '.join(f'`{one}`' for one in times)}."
        if times
        else ("Remove it, or add a timestamp column to `order`.")
    )
    yield "SOURCE_COMMIT_TIME", ("source", "commit_time"), f"is `{name}`, not a timestamp column of `order`.", hint


def _ops(op: OpEntry | None) -> Iterator[Mistake]:
    if op is None:
        return
    if op.delete == "any":
        for name in sorted({"upsert", "ignore"} & op.model_fields_set):
            hint = "Remove it: with `delete: any`, null means upsert and every other value means delete."
            yield "OP_TWICE", ("source", "op", name), "has no effect with `delete: any`.", hint
        return
    meanings = dict.fromkeys(op.upsert, "upsert")
    for name, listed in (("delete", op.delete), ("ignore", op.ignore)):
        for i, said in enumerate(listed):
            if (other := meanings.setdefault(said, name)) != name:
                at = ("source", "op", name, i)
                yield "OP_TWICE", at, f"is `{said}`, which is also in `{other}`.", "Remove it from one of them."


def _header(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    """Checks `header`: without a header line, it must give the position of every column of a CSV file."""
    if not isinstance(source, CsvEntry) or source.header is True:
        return
    beside = [name for name in (source.op.column if source.op else None, source.offset) if name]
    known = source.header if isinstance(source.header, list) else list(entry.columns)
    if missing := [name for name in beside if name not in known]:
        message = f"does not give the position of column `{missing[0]}`."
        hint = f"Name all columns in the order of the files: `header: [{', '.join([*missing, *known])}]`."
        yield "SOURCE_HEADER", ("source", "header"), message, hint


def _places(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    """Checks a source without offsets: only the content of its rows distinguishes and orders them."""
    shape = shape_of(entry)
    if source.offset is not None or source.extract:
        return
    if shape.merge.engine in (Engine.AGGREGATE, Engine.APPEND):
        message = f"cannot be `{shape.merge.engine}`: without offsets, tidefold counts equal rows once."
        hint = "Name the column that numbers the rows: `source: {offset: COLUMN}`."
        yield "SOURCE_OFFSET", ("merge",), message, hint
    elif shape.order == COLUMNS and not shape.order_by:
        hint = (
            "Name the columns that order the rows of a key (`order: [updated_at]`), or set `source: {offset: COLUMN}`."
        )
        yield "SOURCE_ORDER", ("order",), "is missing: nothing shows which row of the files is newer.", hint


def _extracts(entry: LogEntry) -> Iterator[Mistake]:
    """Checks a log of full extracts: their dates order the rows, and a row has no operation."""
    source = entry.source
    if not isinstance(source, ParquetEntry | JsonEntry | DeltaTableEntry) or not source.extract:
        return
    merge = shape_of(entry).merge
    if merge.engine not in (Engine.LAST, Engine.HISTORY) or merge.deletes is not Deletes.APPLY:
        hint = "Leave `merge` out, or set `merge: history` to keep the versions of each row."
        yield "EXTRACT_MERGE", ("merge",), "must be `last` or `history`, with deletes, for full extracts.", hint
    if isinstance(entry.order, list):
        hint = "Leave it out: the date of an extract says which row is the newer one."
        yield "ORDER_INVALID", ("order",), "cannot be columns for full extracts.", hint
    useless: list[Place] = [("source", name) for name in ("op", "offset", "names") if getattr(source, name, None)]
    useless += [("source", "record")] if getattr(source, "record", "") == "kafka" and _is_set(source, "record") else []
    useless += [("ttl",)] if entry.ttl else []
    if isinstance(source, DeltaTableEntry):
        of_files = {"marker", "row_count", "date_format"} & source.extract.model_fields_set
        useless += [("source", "extract", name) for name in sorted(of_files)]
    for place in useless:
        yield (
            "EXTRACT_OPTION",
            place,
            "has no effect beside `extract`: every line of a full extract is a current row.",
            "Remove it.",
        )


def _is_set(source: ParquetEntry | JsonEntry | DeltaTableEntry, name: str) -> bool:
    return name in source.model_fields_set


def _any_names(entry: LogEntry, source: JsonEntry) -> Iterator[Mistake]:
    """Checks `names: any`: only the content of the rows distinguishes and orders them."""
    if source.names != "any" or source.extract:
        return
    shape = shape_of(entry)
    if shape.merge.engine in (Engine.AGGREGATE, Engine.APPEND):
        message = f"cannot be `{shape.merge.engine}` with `names: any`: tidefold counts equal rows once."
        yield "SOURCE_OFFSET", ("merge",), message, "Land the files under Kafka names: `topic+partition+offset`."
    elif shape.order != COLUMNS or not shape.order_by:
        hint = "Name the columns that order the rows of a key: `order: [updated_at]`."
        yield "SOURCE_ORDER", ("order",), "is missing: with `names: any`, nothing shows which row is newer.", hint


def _encodings(entry: LogEntry, where: str) -> Iterator[Mistake]:
    for name, column in entry.columns.items():
        if column.encoding:
            message = f"has an encoding, which has no effect {where}."
            yield "ENCODING_WITHOUT_EFFECT", ("columns", name), message, "Remove it."


def _types(entry: LogEntry, source: ParquetEntry) -> Iterator[Mistake]:
    yield from _encodings(entry, f"with format {source.format}")
    for name, column in entry.columns.items():
        if isinstance(source, CsvEntry) and parse_type(column.type).name in _NO_TEXT:
            message = f"cannot be {column.type} with format csv."
            yield "SOURCE_TYPE", ("columns", name), message, "Land it as Parquet or JSON."


def _state(entry: LogEntry, source: StateJsonEntry) -> Iterator[Mistake]:
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


_STORE_SCHEMES = ("", "file", "s3", "gs", "abfss", "abfs")
_SCHEME_EXAMPLES = {
    "": "a path",
    "file": "file:///absolute/path",
    "s3": "s3://bucket/folder",
    "gs": "gs://bucket/folder",
    "abfss": "abfss://container@account.dfs.core.windows.net/folder",
    "abfs": "abfs://container/folder",
}
_CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")


def check_log(log: str, entry: LogEntry, document: YamlDocument) -> Iterator[ConfigProblem]:
    """Yields the mistakes of one log whose values have the right types."""
    place: Place = ("logs", log)

    def problem(code: str, at: Place, message: str, hint: str = "") -> ConfigProblem:
        here = (*place, *at)
        return ConfigProblem(code, document.line(here), format_place(here), message, hint)

    try:
        check_log_id(log)
    except InvalidInputError as error:
        yield problem(error.code, (), "cannot be the id of a log.", error.hint)
    for code, at, message, hint in (
        *_feeding(entry),
        *mistakes(entry),
        *source_mistakes(entry),
        *_paths(entry),
        *_ages(entry),
        *_owners(entry),
    ):
        yield problem(code, at, message, hint)
    if entry.buckets > entry.key_groups:
        message = f"({entry.buckets}) is more than `key_groups` ({entry.key_groups})."
        yield problem("BUCKETS_INVALID", ("buckets",), message, "Lower `buckets`, or raise `key_groups`.")


_Found = tuple[str, Place, str, str]
_OWNER_TYPES = ("string", "int", "long")


def _feeding(entry: LogEntry) -> Iterator[_Found]:
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


def _ages(entry: LogEntry) -> Iterator[_Found]:
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


def _owners(entry: LogEntry) -> Iterator[_Found]:
    found = entry.redistribution
    if found is None or found.owner is None:
        return
    if found.mode is RedistributionMode.SPLIT:
        hint = "Remove it, or set `mode: union` or `mode: broadcast`."
        yield "OWNER_INVALID", ("redistribution", "owner"), "has no effect with `mode: split`.", hint
    elif found.owner not in entry.key or entry.columns[found.owner].type not in _OWNER_TYPES:
        hint = "Else rows of different workers replace each other."
        message = "must be a column of `key`, of type string, int or long."
        yield "OWNER_INVALID", ("redistribution", "owner"), message, hint


def _paths(entry: LogEntry) -> Iterator[_Found]:
    given: list[tuple[Place, str | None, tuple[str, ...]]] = [(("quality", "suite"), entry.quality.suite, ("",))]
    if entry.source:
        given.insert(0, (("source", entry.source.place_key), entry.source.place, entry.source.schemes))
        given.insert(1, (("source", "schemas"), getattr(entry.source, "schemas", None), entry.source.schemes))
    for at, path, schemes in given:
        found = _path_mistake(path, schemes) if path else None
        if found:
            code, message, hint = found
            yield code, at, message, hint


def _path_mistake(address: str, schemes: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Describes what is wrong with an address, without repeating it: it may contain a secret."""
    scheme = urlsplit(address).scheme if "://" in address else ""
    # `abfss://container@account...` names a container before the `@`, and no user.
    secret = r"://[^/]*:[^/]*@" if scheme in _CONTAINER_SCHEMES else r"://[^/]*@"
    if re.search(secret, address):
        hint = "Remove it. Change the password, because it was in a file."
        return "CONFIG_SECRET", "contains a user name or password.", hint
    if scheme not in schemes:
        named = [_SCHEME_EXAMPLES.get(known, f"{known}://...") for known in schemes]
        allowed = " or ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
        return "NOT_IN_THIS_VERSION", f"cannot be a `{scheme}:` address in this version.", f"Use {allowed}."
    if scheme == "s3":
        return _s3_mistake(address)
    if scheme in AZURE_SCHEMES:
        return _azure_mistake(address)
    if scheme == GCS_SCHEME:
        return _gcs_mistake(address)
    if scheme not in _STORE_SCHEMES:
        return None  # The package that brings the store knows what its addresses look like.
    rest = address.removeprefix(f"{scheme}://") if scheme else address
    if scheme == "file" and not rest.startswith("/"):
        return "CONFIG_PATH", "must have three slashes after `file:`.", "For example `file:///data/store`."
    if rest.startswith("~") or "::" in rest or "\0" in rest or ".." in Path(rest).parts or not rest.strip():
        message = "must be a plain path without `~`, `..`, `::`."
        return "CONFIG_PATH", message, "Write an absolute path, or one below the folder of this file."
    if "%" in rest:
        return "CONFIG_PATH", "must not contain `%`, which Delta readers decode.", "Choose another folder."
    return None


def _s3_mistake(address: str) -> tuple[str, str, str] | None:
    try:
        S3Address.parse(address)
    except InvalidInputError as error:
        if error.code == "STORE_SECRET":
            return "CONFIG_SECRET", "contains credentials.", error.hint
        return "CONFIG_PATH", "is not an S3 address: `s3://bucket/folder`.", error.hint
    return None


def _gcs_mistake(address: str) -> tuple[str, str, str] | None:
    try:
        GcsAddress.parse(address)
    except InvalidInputError as error:
        return "CONFIG_PATH", "is not an address in Google Cloud Storage: `gs://bucket/folder`.", error.hint
    return None


def _azure_mistake(address: str) -> tuple[str, str, str] | None:
    try:
        AzureAddress.parse(address, {ACCOUNT_VARIABLE: "any"})  # Only who opens the store needs the account.
    except InvalidInputError as error:
        return "CONFIG_PATH", "is not an address of a folder in Azure.", error.hint
    return None


def check_all(document: YamlDocument, base: Path, logs: Mapping[str, LogEntry]) -> Iterator[ConfigProblem]:
    """Checks the store, the local copies, and folders that overlap.

    tidefold would read the files of one overlapping folder as input of the other, or delete them there.
    """
    folders: list[tuple[Place, PurePath]] = []
    for place, address, schemes in _roots(document):
        found = _path_mistake(address, schemes)
        if found:
            code, message, hint = found
            yield ConfigProblem(code, document.line(place), format_place(place), message, hint)
        else:
            folders.append((place, _locate(address, base)))
    yield from _copies_somewhere(document)
    yield from check_spark(document)
    for log, entry in logs.items():
        # Several logs may read one Delta table, but only one may read a landing folder.
        source = entry.source
        if source and source.place_key == "path" and not _path_mistake(source.place, source.schemes):
            folders.append((("logs", log, "source", "path"), _locate(source.place, base)))
    for (place, folder), (other_place, other) in _find_overlaps(folders):
        same = "is the same folder as" if folder == other else "is inside, or contains,"
        message = f"{same} `{format_place(other_place)}` (line {document.line(other_place)})."
        hint = "Give each log, the store and each root of local copies its own folder."
        yield ConfigProblem("FOLDERS_OVERLAP", document.line(place), format_place(place), message, hint)


_Folder = tuple[Place, PurePath]


def _find_overlaps(folders: Sequence[_Folder]) -> Iterator[tuple[_Folder, _Folder]]:
    """Yields each folder with each earlier one that it equals, contains or lies in. Thousands of logs take no longer
    than their folders' names are long.
    """
    named: defaultdict[PurePath, list[int]] = defaultdict(list)
    inside: defaultdict[PurePath, list[int]] = defaultdict(list)
    for number, (_, folder) in enumerate(folders):
        around = [at for parent in (folder, *folder.parents) for at in named.get(parent, ())]
        for at in sorted({*around, *inside.get(folder, ())}):
            yield folders[number], folders[at]
        named[folder].append(number)
        for parent in folder.parents:
            inside[parent].append(number)


def check_sets(
    document: YamlDocument, base: Path, sets: Mapping[str, SetEntry], logs: Mapping[str, LogEntry]
) -> Iterator[ConfigProblem]:
    """Checks each set, that no log is in two sets, and that each transaction topic has a folder of its own."""
    if not sets:
        return
    owners: dict[str, str] = {}
    given = document.data.get("logs")
    unreadable = [log for log in given if log not in logs] if isinstance(given, dict) else []
    for name, entry in sets.items():
        found = [
            *find_set_mistakes(entry, logs, unreadable),
            *_find_set_names(name),
            *_find_set_folders(entry, base, logs),
        ]
        for i, log in enumerate(entry.logs):
            if (owner := owners.setdefault(log, name)) != name:
                message = f"is `{log}`, which is in set `{owner}`."
                found.append(("SET_LOG_TWICE", ("logs", i), message, "Put each log into one set."))
        for code, below, message, hint in found:
            place: Place = ("sets", name, *below)
            yield ConfigProblem(code, document.line(place), format_place(place), message, hint)


def _find_set_names(name: str) -> Iterator[Mistake]:
    try:
        check_log_id(name)
    except InvalidInputError as error:
        yield "SET_NAME", (), "cannot be the name of a set.", error.hint


def _find_set_folders(entry: SetEntry, base: Path, logs: Mapping[str, LogEntry]) -> Iterator[Mistake]:
    if not entry.transactions:
        return
    if wrong := _path_mistake(entry.transactions, (*LANDING_SCHEMES, "file")):
        code, message, hint = wrong
        yield code, ("transactions",), message, hint
        return
    folder = _locate(entry.transactions, base)
    for log, one in logs.items():
        if one.source and one.source.place_key == "path":
            other = _locate(one.source.place, base)
            if folder == other or folder in other.parents or other in folder.parents:
                message = f"is the same folder as, is inside, or contains `logs.{log}.source.path`."
                hint = "Land the transaction topic in a folder of its own."
                yield "FOLDERS_OVERLAP", ("transactions",), message, hint


def _locate(address: str, base: Path) -> PurePath:
    """Returns a form of an address that compares paths with paths and buckets with buckets."""
    if address.startswith(tuple(f"{scheme}://" for scheme in AZURE_SCHEMES)):
        place = AzureAddress.parse(address, {ACCOUNT_VARIABLE: os.environ.get(ACCOUNT_VARIABLE, "any")})
        return PurePosixPath(place.uri(place.prefix))
    if "://" in address and not address.startswith("file://"):
        return PurePosixPath(address)
    return (base / address.removeprefix("file://")).resolve()


def _roots(document: YamlDocument) -> Iterator[tuple[Place, str, tuple[str, ...]]]:
    """Yields the addresses where tidefold itself stores files, each with its allowed schemes."""
    store = document.data.get("store")
    given: list[tuple[Place, Any, tuple[str, ...]]] = [(("store",), store, _find_store_schemes(store))]
    local = document.data.get("local")
    if isinstance(local, dict):
        paths = local.get("paths")
        given.append((("local", "path"), local.get("path"), ("",)))
        listed = paths if isinstance(paths, list) else []
        given += [(("local", "paths", i), path, ("",)) for i, path in enumerate(listed)]
    for place, address, schemes in given:
        if isinstance(address, str) and address:
            yield place, address, schemes


def _find_store_schemes(address: Any) -> tuple[str, ...]:
    """Returns the schemes that a store may have. Looks for installed packages only if the address needs one."""
    scheme = urlsplit(address).scheme if isinstance(address, str) else ""
    return _STORE_SCHEMES if scheme in _STORE_SCHEMES else (*_STORE_SCHEMES, *find_schemes())


def _copies_somewhere(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Checks that the folders of local copies are given, and in one way only."""
    local = document.data.get("local")
    given = [key for key in ("path", "paths") if isinstance(local, dict) and key in local]
    if isinstance(local, dict) and local.get("mode") == "files" and not given:
        hint = "Name a folder on a disk of this machine: `local: {mode: files, path: var/local}`."
        yield ConfigProblem("CONFIG_MISSING_KEY", document.line(("local",)), "local.path", "is missing.", hint)
    if len(given) > 1:
        hint = "Move that folder into the list, and remove `path`."
        line = document.line(("local", "paths"))
        yield ConfigProblem("LOCAL_PATHS", line, "local.paths", "cannot be used together with `local.path`.", hint)
