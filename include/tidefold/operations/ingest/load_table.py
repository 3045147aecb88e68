"""Loads the rows of tables of PostgreSQL, as they were when the slot of their connector was made (decision 0096)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tidefold.domain.snapshot.snapshot_signal import find_table
from tidefold.domain.source_progress import parse_lsn
from tidefold.domain.table.table_spec import POSTGRESQL, TableSpec
from tidefold.domain.table.types import parse_type
from tidefold.domain.wording import clip_text, count_noun, format_cell, in_units
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ingest.load_files import Load
from tidefold.sources.database.catalogue import PARTITIONED, TABLE, SourceTable, read_table
from tidefold.sources.database.connection import Database, Reader, quote_name, quote_text
from tidefold.sources.database.propose import list_settings
from tidefold.sources.database.slot import SlotSnapshot, create_slot, drop_slot, find_slot
from tidefold.sources.database.types import find_form, to_column
from tidefold.sources.debezium.loaded_rows import LoadMark
from tidefold.sources.files.columns import explain_columns, misfit
from tidefold.sources.records.record_types import own_names

# So many bytes of a table become one file, which one task of the ingest reads.
_FILE = 32 << 20
# So many connections read at once.
_AT_ONCE = 4
_UNFIT = "\x01unfit"
# What has rows: a table, or the leaves of a partitioned one.
_LEAVES = """
select format('%I.%I', n.nspname, c.relname)::text as leaf, c.relkind::text as kind,
       pg_relation_size(c.oid) / current_setting('block_size')::int as pages,
       current_setting('block_size')::int as page,
       coalesce(amname, '') = 'heap' and current_setting('server_version_num')::int >= 140000 as is_ranged
from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_am a on a.oid = c.relam
where c.oid in (select relid from pg_partition_tree($1::regclass) where isleaf union select $1::regclass)
and c.relkind <> 'p' order by 1
"""
_PUBLISHED = """
select 1 as there from pg_publication p join pg_publication_tables t on t.pubname = p.pubname where p.pubname = $1
and t.schemaname = $2 and t.tablename = $3 and p.pubinsert and p.pubupdate and p.pubdelete and p.pubtruncate
"""


@dataclass(frozen=True, slots=True)
class TableLoad:
    """What a person asks for.

    connection: of Airflow, or of the environment. slot, publication: of the connector.
    table: in place of the one that the topic of the log names. tell: is told how far the load has come.
    """

    connection: str
    slot: str
    publication: str
    by: str
    table: str = ""
    tell: Callable[[str], None] = field(default=lambda text: None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDetails(Details):
    """rows: of the load. position: of its slot, as PostgreSQL writes it. connector: what the connector needs."""

    rows: int
    position: str
    slot: str
    connector: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _PageRange:
    """Rows of a table: some pages of it."""

    load: Load
    select: str
    number: int


def load_tables(pipeline: Pipeline, logs: Sequence[str], asked: TableLoad) -> list[Outcome]:
    """Loads tables as they were at one moment, that of a new slot. Nothing is loaded unless all are.

    Raises TidefoldError.
    """
    database = Database.find(asked.connection, pipeline.connections)
    loads, outcomes = [Load.begin(pipeline, log) for log in logs], list[Outcome]()
    try:
        tables, mark = _read(database, loads, asked)
        # No connection is open any more: what breaks from here on leaves the slot to the loads that are complete.
        for load, table in zip(loads, tables, strict=True):
            load.finish(replace(mark, table=table.full_name))
            rows = sum(load.files.values())
            message = f"{count_noun(rows, 'row')} of {table.full_name} loaded, as they were at {mark.position}"
            connector = make_connector(database, load, tables, asked)
            details = LoadDetails(rows=rows, position=mark.position, slot=mark.slot, connector=connector)
            outcomes.append(Outcome(load.log, Status.TAKEN, message, details=details))
        return outcomes
    except BaseException:
        for load in loads:
            load.discard()
        raise


def drop(pipeline: Pipeline, logs: Sequence[str], asked: TableLoad) -> str:
    """Drops the slot that a broken load left. Returns what it held. Raises TidefoldError."""
    database = Database.find(asked.connection, pipeline.connections)
    with database.begin() as reader:
        slot = find_slot(reader, asked.slot)
    if slot and slot.active:
        raise RefusedError("SLOT_ACTIVE", f"A connector reads slot `{asked.slot}`, so it is not dropped.")
    if slot:
        drop_slot(database, asked.slot)
    for log in logs:
        Load.begin(pipeline, log).forget(asked.slot)
    if slot is None:
        raise NotFoundError("SLOT_MISSING", f"The database of `{asked.connection}` has no slot `{asked.slot}`.")
    return f"slot `{asked.slot}` is dropped; it held {in_units(slot.held or 0)} of WAL"


def _read(database: Database, loads: Sequence[Load], asked: TableLoad) -> tuple[list[SourceTable], LoadMark]:
    """Makes the slot, and writes the rows of its snapshot. Returns the tables, and what the marks of the loads say."""
    mark = LoadMark("", (), 0, "", "", asked.by, now(), asked.slot, asked.connection)
    slots = list[SlotSnapshot]()
    with ExitStack() as opened:
        opened.enter_context(_drop_if_broken(database, loads, asked, slots))
        # Holds a lock on each table before the slot is made: a table that is rewritten meanwhile would look empty.
        guard = opened.enter_context(database.begin())
        tables = [_check_table(guard, load, asked) for load in loads]
        if find_slot(guard, asked.slot):
            message = f"The database of `{asked.connection}` has a slot `{asked.slot}` already."
            names = f"{' '.join(one.log for one in loads)} --connection {asked.connection} --slot {asked.slot}"
            hint = (
                f"If a load left it: `tidefold source load {names} --drop-slot`. If a connector has it, name another."
            )
            raise RefusedError("SLOT_EXISTS", message, hint=hint)
        for load in loads:
            load.note(mark)
        slot = opened.enter_context(create_slot(database, asked.slot, asked.tell))
        slots.append(slot)
        asked.tell(f"slot `{asked.slot}` begins at {slot.position}; its snapshot is read")
        parts, made = list[_PageRange](), find_slot(guard, asked.slot)
        for load, (table, select) in zip(loads, tables, strict=True):
            load.order, load.since = (parse_lsn(slot.position), 0), (made.begins if made else 0) or 0
            load.time = guard.list("select (extract(epoch from clock_timestamp()) * 1000000)::bigint as t")[0]["t"]
            parts += _split(guard, load, table, select)
        _read_parts(database, slot, parts, asked)
        with database.begin() as reader:
            state = find_slot(reader, asked.slot)
        if state is None or state.status == "lost":
            raise RefusedError(
                "SLOT_LOST", f"Slot `{asked.slot}` was dropped or lost its WAL while its rows were read."
            )
    return [table for table, _ in tables], replace(mark, position=slot.position)


@contextmanager
def _drop_if_broken(
    database: Database, loads: Sequence[Load], asked: TableLoad, slots: Sequence[SlotSnapshot]
) -> Iterator[None]:
    """Drops the slot if the load breaks off, or tells that it may be left."""
    try:
        yield
    except BaseException as error:
        try:
            if slots:
                drop_slot(database, asked.slot)
            if slots or (isinstance(error, TidefoldError) and not isinstance(error, StorageError)):
                for load in loads:
                    load.forget(asked.slot, load.folder)
                raise
        except StorageError:
            pass
        asked.tell(f"the slot `{asked.slot}` may be left, and hold WAL: call the command again with --drop-slot")
        raise


def _check_table(guard: Reader, load: Load, asked: TableLoad) -> tuple[SourceTable, str]:
    """Returns the table of a log and what is selected of it. Raises RefusedError, InvalidInputError."""
    shape = load.pipeline.log(load.log).shape
    if shape.order != POSTGRESQL:
        raise InvalidInputError("LOAD_FORMAT", f"`{load.log}` follows `{shape.order}`, and only PostgreSQL is read.")
    table = read_table(guard, asked.table or find_table(load.topic))
    if why := _find_obstacle(guard, table):
        hint = "Load a table, as a user with BYPASSRLS where it has policies."
        raise RefusedError("LOAD_RELATION", f"{table.full_name} {why}: its rows cannot be loaded.", hint=hint)
    if not guard.list(_PUBLISHED, asked.publication, table.schema, table.name):
        raise RefusedError(
            "PUBLICATION_MISSING",
            f"Publication `{asked.publication}` does not publish all changes of {table.full_name} under this name.",
            hint=f"CREATE PUBLICATION {quote_name(asked.publication)} FOR TABLE {table.quoted} "
            "WITH (publish_via_partition_root = true); or add the table to it.",
        )
    guard.list(f"select 1 as one from {table.quoted} limit 0")
    names = own_names(shape, [one.name for one in table.columns])
    if wrong := misfit(names, shape, ()):
        raise InvalidInputError("LOAD_COLUMNS", f"{table.full_name} {wrong}.", hint=explain_columns(names, shape, ()))
    load.columns = tuple(one for one in shape.columns if one.name in names)
    return table, _select(table, names, shape)


def _find_obstacle(guard: Reader, table: SourceTable) -> str:
    """Returns why a table has rows that no load reads, or no stream of its changes; empty: nothing does."""
    if table.kind not in (TABLE, PARTITIONED):
        return f"is {table.described_kind}"
    if not table.is_logged:
        return "is not logged, so no stream has its changes"
    if table.has_policies:
        return "shows this user only the rows that its policies allow"
    kinds = {leaf["kind"] for leaf in guard.list(_LEAVES, table.quoted)}
    return "has a foreign partition" if kinds - {TABLE} else ""


def _select(table: SourceTable, names: Sequence[str], shape: TableSpec) -> str:
    """Returns the columns of a log as SQL, and one that names a column whose value the log cannot have."""
    types, selected, unfit = {one.name: one.type for one in shape.columns}, [], []
    for source, name in zip(table.columns, names, strict=True):
        if name not in types:
            continue
        form = find_form(source, types[name])
        if form is None:
            raise InvalidInputError(
                "LOAD_COLUMNS",
                f"{table.full_name} has `{source.name}` of type {source.declared}, which is not read as {types[name]}.",
                hint="`tidefold init --connection NAME` proposes the types of `columns`.",
            )
        form = form.of(quote_name(source.name))
        selected.append(f"{form.select} as {quote_name(name)}")
        unfit += [f"when {form.unfit} then {quote_text(name)}"] if form.unfit else []
    named = f"case {' '.join(unfit)} end" if unfit else "null"
    selected.append(f"{named}::text as {quote_name(_UNFIT)}")
    return ", ".join(selected)


def _split(guard: Reader, load: Load, table: SourceTable, select: str) -> Iterator[_PageRange]:
    """Yields the parts of a table: ranges of pages. At least one, of which an empty table has no row."""
    number = 0
    for leaf in guard.list(_LEAVES, table.quoted):
        step = max(1, _FILE // leaf["page"])
        for first in range(0, max(1, leaf["pages"]), step) if leaf["is_ranged"] else [0]:
            last = first + step >= leaf["pages"] or not leaf["is_ranged"]
            where = f"ctid >= '({first},0)'" + ("" if last else f" and ctid < '({first + step},0)'")
            yield _PageRange(load, f"select {select} from only {leaf['leaf']} where {where}", number)
            number += 1


def _read_parts(database: Database, slot: SlotSnapshot, parts: Sequence[_PageRange], asked: TableLoad) -> None:
    """Reads all parts inside the snapshot, some at once. The first error ends it."""
    waiting, done, failed, lock = iter(parts), 0, threading.Event(), threading.Lock()

    def work() -> None:
        nonlocal done
        with database.begin(slot.snapshot) as reader:
            for part in waiting:
                if failed.is_set():
                    return
                try:
                    with reader.stream(part.select) as batches:
                        part.load.write(part.number, _fit(batches, part.load))
                except BaseException:
                    failed.set()
                    raise
                with lock:
                    done += 1
                    held = find_slot(reader, asked.slot)
                    told = f"the slot {held.told}" if held else "the slot is gone"
                    asked.tell(f"{done:,} of {count_noun(len(parts), 'part')} read; {told}")

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for one in [pool.submit(work) for _ in range(min(_AT_ONCE, len(parts)))]:
            one.result()


def _fit(batches: pa.RecordBatchReader, load: Load) -> Iterator[pa.RecordBatch]:
    """Yields rows with the types of the log. Raises InvalidInputError for a value that it cannot have."""
    for batch in batches:
        told = batch.column(_UNFIT)
        for row in pc.indices_nonzero(pc.is_valid(told))[:1].to_pylist():
            raise _misfit(load, batch, row, told[row].as_py())
        values = (to_column(pa.chunked_array([batch.column(one.name)]), one.type) for one in load.columns)
        yield pa.record_batch([one.combine_chunks() for one in values], schema=load.schema)


def _misfit(load: Load, batch: pa.RecordBatch, row: int, name: str) -> InvalidInputError:
    shape = load.pipeline.log(load.log).shape
    key = ", ".join(f"{one}={clip_text(format_cell(batch.column(one)[row].as_py()))}" for one in shape.key)
    return InvalidInputError(
        "LOAD_VALUE",
        f"Row {key} has a `{name}` that the column of log `{load.log}` cannot have. Nothing was loaded.",
        hint="Correct the row, or the type in `columns`: a `string` has every value. Then load again.",
    )


def make_connector(
    database: Database, load: Load, tables: Sequence[SourceTable], asked: TableLoad
) -> Mapping[str, str]:
    """Returns the settings of the connector that goes on where the load ends, without its password."""
    prefix = load.topic.removesuffix(f".{tables[0].full_name}")
    settings = dict(line.split("=", 1) for line in list_settings(tables, prefix)[1:])
    address = urlsplit(database.address)
    encodings = {parse_type(one.type).name: one.encoding or "" for one in load.columns}
    decimals = {"string": "string", "number": "double"}.get(encodings.get("decimal", "string"), "precise")
    binary = {"hex": "hex", "base64url": "base64-url-safe"}.get(encodings.get("binary", ""), "bytes")
    return settings | {
        "database.hostname": address.hostname or "",
        "database.port": str(address.port),
        "database.dbname": unquote(address.path[1:]),
        "database.user": unquote(address.username or ""),
        "slot.name": asked.slot,
        "publication.name": asked.publication,
        "snapshot.mode": "no_data",
        "decimal.handling.mode": decimals,
        "binary.handling.mode": binary,
    }
