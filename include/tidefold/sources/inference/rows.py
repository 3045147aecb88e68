"""Proposes a log for a feed of rows: its shape, from a sample of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidefold.domain.table.table_spec import VERSION
from tidefold.sources.extract.source import find_date
from tidefold.sources.inference import roles
from tidefold.sources.inference.columns import ask_types, is_placeholder, name_column
from tidefold.sources.inference.file_order import FileOrder, read_file_order
from tidefold.sources.inference.operations import Data, OpCandidate, find_lacks, find_ops, op_question
from tidefold.sources.inference.profiled import OPERATION, ProfiledSample
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog
from tidefold.sources.inference.values import UNZONED

# What ExtractNewRecordState adds to a row: the mark of a delete, and parts of the envelope.
UNWRAPPED = re.compile(r"__(deleted|op|table|db|schema|lsn|scn|txId|gtid|file|pos|ts_[mun]s|(source|transaction)_\w+)")
# What pandas calls the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
# Shares of the keys, or of the rows, that a full extract has in common with the next one.
_HALF, _MOST = 0.5, 0.8
# Formats whose files can order rows.
_BY_FILE = ("csv", "json", "parquet")
_PARTIAL = "partial"
_NO_ZONE = "ASSUMED time_zone = UTC. Reason: its times have no zone. Another zone moves every one of them."


@dataclass(frozen=True, slots=True)
class SampledFeed:
    """Sampled rows of one folder.

    id, topic, path, format: as the log has them.
    columns: each with the type that fits.
    rows: the values by their names in the source.
    options: options of the source, as far as the files show them.
    sampled: what was sampled.
    key: the key of the records, if they have one.
    ordered: whether the offset of a record orders it.
    has_headers: whether records have headers, which may name the former key.
    notes, questions: what is already open.
    row_field: the field of a record that contains the row, if the record itself is not the row.
    names: of all its files.
    parts: the rows by the name of their file, of those that were sampled.
    folder_columns: columns whose values are in the names of folders.
    marker: the file that marks an extract as complete; empty: there is none.
    refused: how many of its rows a run would refuse.
    profiled: the sample as the profile of its tool reads it.
    """

    id: str
    topic: str
    path: str
    format: str
    columns: tuple[ProposedColumn, ...]
    rows: Sequence[Mapping[str, Any]]
    sampled: str
    options: Mapping[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    ordered: bool = False
    has_headers: bool = False
    notes: tuple[str, ...] = ()
    questions: tuple[ProposalQuestion, ...] = ()
    row_field: str = ""
    names: Sequence[str] = ()
    parts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    folder_columns: tuple[ProposedColumn, ...] = ()
    marker: str = ""
    refused: int = 0
    profiled: ProfiledSample | None = None


def propose_rows(feed: SampledFeed) -> ProposedLog:
    """Returns the log with its best candidates, and a question for each choice that the sample does not prove."""
    best = _choose(feed)
    feed, op, extract, columns = best.feed, best.op, best.extract, best.columns
    ignored = tuple(c.name for c in columns if c.type is None or _INDEX.fullmatch(c.name))
    # The folders of extracts have their date, which is in no row.
    by_folder = () if extract else feed.folder_columns
    is_json, listed = feed.format == "json", (*columns, *by_folder)
    named = {c.name: name_column(c, of_json=is_json) for c in listed if c.name not in ignored}
    questions = tuple(_list_questions(best))
    notes = (*feed.notes, *(() if named or feed.notes else ("no column was found",)))
    zone = _assume_zone(feed, columns)
    return ProposedLog(
        id=feed.id,
        topic=feed.topic,
        path=feed.path,
        key=tuple(named[name].name for name in best.key if name in named),
        columns=tuple(named.values()),
        connector="",
        order=VERSION if extract else "position" if feed.ordered else "",
        records=len(feed.rows),
        usable=not notes and all(question.sure for question in questions),
        notes=notes,
        format=feed.format,
        options=tuple({**feed.options, **zone, **_list_options(best, by_folder)}.items()),
        sampled=feed.sampled,
        order_by=_split_order(best.orders[0], named) if best.orders and not best.appends else (),
        appends=best.appends,
        merge=_PARTIAL if best.unsent else "",
        questions=questions,
        ignored=ignored,
        warnings=(
            *_explain_unwrapped(feed, op),
            *_explain_refused(feed, op),
            *_explain_lacks(feed),
            *([_NO_ZONE] if zone else []),
        ),
        refused=feed.refused,
        op_column=next((name_column(c) for c in feed.columns if op and c.name == op.column and c.type), None),
    )


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The columns of a feed by their roles, best first.

    columns: those of the table; optional: some rows lack it.
    lacks: the columns that rows lack which are no deletes, each with whether only older files lack it.
    parts: the rows of each file.
    once: samples that have each row once.
    ties: the columns that may order rows, each with the share of its ties.
    files: by what its files may order rows; None: they do not.
    """

    feed: SampledFeed
    ops: Sequence[OpCandidate]
    columns: Sequence[ProposedColumn]
    lacks: Mapping[str, bool]
    parts: Sequence[Data]
    once: Sequence[Data]
    keys: Sequence[tuple[str, ...]]
    extract: ProposalQuestion | None
    ties: Mapping[str, float]
    orders: Sequence[str]
    files: FileOrder | None

    @property
    def op(self) -> OpCandidate | None:
        return self.ops[0] if self.ops else None

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys[0] if self.keys else ()

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows, and a note says why. Then no question is needed."""
        return not self.feed.rows and bool(self.feed.notes)

    @property
    def appends(self) -> bool:
        """Whether rows have no key, no operation and no order."""
        return not (self.keys or self.ops or self.is_empty or self.feed.ordered)

    @property
    def unsent(self) -> list[str]:
        """The columns that rows lack which are no deletes, or that the tool always leaves out."""
        if self.feed.profiled and self.feed.profiled.profile.absent == "partial":
            return [c.name for c in self.columns]
        return [c.name for c in self.columns if not (self.lacks.get(c.name, True) or self.appends or self.extract)]


def _choose(feed: SampledFeed) -> _Candidates:
    as_any = feed.format == "json"
    feed = replace(feed, columns=tuple(roles.read_position(c, feed.rows, as_any=as_any) for c in feed.columns))
    told = feed.profiled
    ops = [OPERATION] if told else find_ops([c.name for c in feed.columns], feed.rows)
    op = ops[0] if ops else None
    names = [] if told and told.profile.absent == "null" else [c.name for c in feed.columns]
    lacks = find_lacks(names, [*feed.parts.values()] or [feed.rows], op)
    columns = [
        c if c.optional or c.name not in lacks else c.make_optional()
        for c in feed.columns
        if op is None or c.name != op.column
    ]
    parts = [part for part in feed.parts.values() if part]
    snapshot = [row for row in feed.rows if op and op.is_of_snapshot(row)]
    once = [*_find_extracts(feed, columns, op, parts), snapshot]
    own = [c for c in columns if not told or c.name not in told.profile.fields]
    keys = [feed.key] if feed.key else roles.find_keys(feed.id, own, feed.rows, op, parts, once)
    key = keys[0] if keys else ()
    extract = None if op else _find_extract(feed, key)
    feed = replace(feed, ordered=feed.ordered or extract is not None)
    formats = feed.options.get("timestamp_formats", ())
    rising = [c.name for c in columns if not feed.ordered and roles.never_falls(c, parts, formats)]
    ties = {} if feed.ordered else roles.find_orders(columns, feed.rows, key, rising)
    files = _read_files(feed, columns, keys)
    orders = roles.add_files(columns, ties, files) if files else [*ties]
    # What counts the changes differs in all rows, too.
    keys = sorted(keys, key=lambda key: files is not None and key[0] in files.rising)
    return _Candidates(feed, ops, columns, lacks, parts, once, keys, extract, ties, orders, files)


def _read_files(
    feed: SampledFeed, columns: Sequence[ProposedColumn], keys: Sequence[tuple[str, ...]]
) -> FileOrder | None:
    """Returns by what the files may order the rows; None: not at all, or a column has the name `file`."""
    if feed.ordered or feed.format not in _BY_FILE or any(c.name == "file" for c in columns):
        return None
    parts = {name.removeprefix(f"{feed.path}/"): part for name, part in feed.parts.items()}
    names = [name.removeprefix(f"{feed.path}/") for name in feed.names]
    return read_file_order(names or [*parts], parts, columns, keys)


def _list_questions(best: _Candidates) -> Iterator[ProposalQuestion]:
    feed = best.feed
    yield from (*feed.questions, *([] if feed.profiled else op_question(best.ops, feed.rows)))
    if not feed.key and not best.is_empty:
        yield roles.key_question(feed.id, best.keys, feed.rows, best.op, best.parts, best.once)
    keeps = feed.profiled.profile if feed.profiled and feed.profiled.profile.absent in ("kept", _PARTIAL) else None
    yield from (
        *_ask_merge(best.unsent, keeps.title if keeps else ""),
        *ask_types(best.columns),
        *([best.extract] if best.extract else []),
    )
    if not feed.ordered and not best.is_empty and not best.appends:
        is_alone = best.op is None and _is_one_day(feed)
        yield roles.order_question(best.columns, best.orders, best.ties, feed.rows, best.files, is_alone)


def _find_extracts(
    feed: SampledFeed, columns: Sequence[ProposedColumn], op: OpCandidate | None, parts: Sequence[Data]
) -> Sequence[Data]:
    """Returns the rows of each file, if nothing orders them and each file may have all rows; else nothing."""
    keys = [] if feed.key or feed.ordered or op else roles.find_keys(feed.id, columns, feed.rows, op, parts)
    if not keys or roles.find_orders(columns, feed.rows, keys[0]):
        return ()
    return parts if len(parts) == 1 or roles.find_shared(keys[0], parts) >= _HALF else ()


def _ask_merge(names: Sequence[str], tool: str) -> list[ProposalQuestion]:
    """Returns the question what rows have that lack something. tool: the one that leaves out what did not change."""
    text = f"some rows lack {', '.join(names)}. Are these null there, or as they were? As they were: `merge: partial`. "
    because = f"{tool} leaves out what did not change" if tool else ""
    text += "Null: remove that line"
    return [ProposalQuestion("merge", text, (_PARTIAL, "last"), bool(tool), because)] if names else []


def _assume_zone(feed: SampledFeed, columns: Iterable[ProposedColumn]) -> dict[str, str]:
    """Returns the option for times without a zone; empty: each time has one."""
    formats = feed.options.get("timestamp_formats", ())
    unzoned = any(column.note == UNZONED for column in columns) or any(
        "%M" in one and "%z" not in one for one in formats
    )
    return {"time_zone": "UTC"} if unzoned else {}


def _list_options(best: _Candidates, by_folder: Sequence[ProposedColumn]) -> dict[str, Any]:
    """Returns the options that follow from what was chosen."""
    options: dict[str, Any] = {}
    feed, op, extract = best.feed, best.op, best.extract
    if extract:
        options["extract"] = "full" if extract.candidates == ("full",) else {"marker": feed.marker or "?"}
    if by_folder:
        options["folder_columns"] = [column.name for column in by_folder]
    if not op and (sums := feed.options.get("op")):
        column = next(name_column(one).name for one in feed.columns if one.name == sums["column"])
        options["op"] = {**sums, "column": column}
    if feed.profiled:
        return options
    if op:
        row = {"row": feed.row_field} if feed.row_field else {}
        options["op"] = {**op.write_option(as_were=bool(best.unsent)), **row}
    return options


def _is_one_day(feed: SampledFeed) -> bool:
    """Whether there is only one file, with a date in its name."""
    return len(feed.parts) == 1 and find_date(next(iter(feed.parts)), None) is not None


def _find_extract(feed: SampledFeed, key: Sequence[str]) -> ProposalQuestion | None:
    """Returns the assumption that each file has all rows of the table; None: the files do not look like that."""
    dates: dict[int, list[Mapping[str, Any]]] = {}
    for name, part in feed.parts.items():
        if (date := find_date(name, None)) is None:
            return None
        dates.setdefault(date.instant, []).extend(part)
    parts = [part for part in dates.values() if part]
    if not key or len(parts) < 2:
        return None
    shared, same = roles.find_shared(key, parts), roles.find_same(parts)
    once = all(len({tuple(row.get(name) for name in key) for row in part}) == len(part) for part in parts)
    if not once or shared < _HALF or (shared < _MOST and same < _HALF):
        return None
    why = f"each name has a date, and {shared:.0%} of the keys of a file are in the next one, each once"
    if roles.is_window(key, parts):
        text = "has each file all rows, or those of some days? Then set `order: file` in place of it: older rows stay"
        return ProposalQuestion("extract", text, ("full",), False)
    if len(dates) == len(feed.parts):
        return ProposalQuestion("extract", "does each file have all rows of the table?", ("full",), True, why)
    text = "do the files of a date have all rows of the table, and what shows that they are all there?"
    marker = f"{{marker: {feed.marker or '?'}}}"
    return ProposalQuestion("extract", text, (marker,), bool(feed.marker), why.replace("a file", "a date"))


def _explain_refused(feed: SampledFeed, op: OpCandidate | None) -> tuple[str, ...]:
    why = "they have another number of values than the header, or text behind a closing quote"
    bad = feed.refused
    # Other numbers of JSON were read as decimals.
    not_json = sum(any(isinstance(value, float) for value in row.values()) for row in feed.rows)
    if feed.format == "json" and not_json:
        why, bad = "NaN and Infinity are no JSON; let the source write null", not_json
    count = feed.refused + len(feed.rows)
    refused = (f"{bad:,} of {count:,} sampled rows would be refused: {why}",) if bad else ()
    if not (sums := feed.options.get("op")):
        return refused
    name, texts = sums["column"], ", ".join(sums["ignore"])
    left_out = "`op` leaves them out" if op is None else "they are taken for rows: land files without them"
    return (*refused, f"rows at the end of files whose `{name}` is {texts} look like sums: {left_out}")


def _explain_lacks(feed: SampledFeed) -> tuple[str, ...]:
    """Returns what the tool of a profile cannot say, and what of its records would be refused."""
    if feed.profiled is None:
        return ()
    told = feed.profiled.profile
    return (*([f"{told.title}: {told.lacks}"] if told.lacks else []), *feed.profiled.remarks)


def _split_order(order: str, named: Mapping[str, ProposedColumn]) -> tuple[str, ...]:
    """Returns the parts of a proposed order, by the names of the columns in the table."""
    column = order.removesuffix(", file")
    parts = (column, *(("file",) if column != order else ()))
    return tuple(named[part].name if part in named else part for part in parts)


def _explain_unwrapped(feed: SampledFeed, op: OpCandidate | None) -> tuple[str, ...]:
    """Describes what rows lack that Debezium's ExtractNewRecordState took out of their envelopes; empty: it did not."""
    marks = [column.name for column in feed.columns if UNWRAPPED.fullmatch(column.name)]
    unsent = any(is_placeholder(value) for row in feed.rows for value in row.values())
    if not marks and not unsent:
        return ()
    shown = f"{', '.join(marks)}: " if marks else ""
    kept = "its row keeps the value" if feed.ordered else "its record is refused, because columns order the log"
    if feed.ordered and not feed.has_headers:
        kept += ". They have no headers with the former key: land `headers`, or a changed key leaves its row out"
    lacks = {"__op", "__lsn"}.difference(marks) or not {"__txId", "__source_ts_ms"}.intersection(marks)
    late = "DEFERRABLE keys lose rows without `add.fields=op,lsn,txId` and deletes as rows. "
    deletes = late if lacks else ""
    deletes += "" if op else "Deletes are seen only if they come as null values (tombstones). "
    return (
        f"{shown}these rows look like those of Debezium's ExtractNewRecordState. They lack the position in the source, "
        "so records that are sent again count again; truncates; and the begin of a new snapshot, so rows that were "
        f"deleted before it stay. {deletes}A large value that did not change is not sent: {kept}. "
        "Without that transformation, `format: debezium-json` has all of it.",
    )
