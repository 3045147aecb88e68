"""Proposes a log for a feed of rows: its shape, with or without Debezium's envelope, from a sample of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tidefold.domain.table.table_spec import VERSION, Column, TableSpec
from tidefold.domain.table.table_spec_validation import column_mistakes
from tidefold.sources.debezium.envelope import envelope_reader
from tidefold.sources.extract.source import find_date
from tidefold.sources.feed import PLACEHOLDER
from tidefold.sources.inference import roles
from tidefold.sources.inference.operations import Data, OpCandidate, find_lacks, find_ops, op_question
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog
from tidefold.sources.inference.values import UNZONED
from tidefold.sources.records.accounting import FilePosition, ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError, infer_type
from tidefold.sources.records.unavailable_values import placeholder_of

_encode = msgspec.json.Encoder().encode


is_placeholder = placeholder_of(PLACEHOLDER).is_in
_Infer = Callable[[str, Sequence[Any]], ProposedColumn]
# What ExtractNewRecordState adds to a row: the mark of a delete, and parts of the envelope.
UNWRAPPED = re.compile(r"__(deleted|op|table|db|schema|lsn|scn|txId|gtid|file|pos|ts_[mun]s|(source|transaction)_\w+)")
# What pandas calls the index of a frame.
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
# Shares of the keys, or of the rows, that a full extract has in common with the next one.
_HALF, _MOST = 0.5, 0.8
# Formats whose files can order rows.
_BY_FILE = ("csv", "json", "parquet")
_COLUMN = re.compile(r"[^\W_]\w{0,127}")
_PARTIAL, _COLUMNS = "partial", "columns."
# An answer to the question of the order.
_EXTRACT = "extract: full"
_NO_ZONE = "ASSUMED time_zone = UTC. Reason: its times have no zone. Another zone moves every one of them."


def infer_column(name: str, seen: Sequence[Any], infer_plain: _Infer) -> ProposedColumn:
    """Infers a column from its values. It is text if only text fits; `infer_plain` decides for numbers and texts."""
    values = [value for value in seen if value is not None and not is_placeholder(value)]
    if values and all(isinstance(value, dict) and set(value) == {"scale", "value"} for value in values):
        return ProposedColumn(name, "string", "decimals, each with a scale of its own", "decimal")
    if values and all(isinstance(value, list) for value in values):
        kinds = {infer_type([one]) for value in values for one in value if one is not None}
        if not kinds:
            return ProposedColumn(name, "array<string>", "only empty lists seen: check the type")
        kind = kinds.pop() if len(kinds) == 1 else ""
        return ProposedColumn(name, kind) if kind else ProposedColumn(name, "string", "lists, as JSON", "json")
    column = infer_plain(name, values)
    if column.type is not None or not values:
        return column
    return ProposedColumn(name, "string", "values of several kinds, as JSON", "json")


def find_refused(
    key: Sequence[str], columns: Sequence[ProposedColumn], order: str, sample: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Describes the sampled records that the proposal would refuse, in one sentence; empty: none."""
    proposed = tuple(
        Column(c.name, c.type or "string", c.encoding, aliases=(c.alias,) if c.alias else ()) for c in columns
    )
    if next(column_mistakes([column.name for column in proposed]), None):
        return ()  # Another message reports this.
    shape = TableSpec(tuple(key), proposed, order, key_groups=1, buckets=1)
    reader, at = envelope_reader(shape), ReaderPosition(FilePosition("", 0), shape)
    reasons: Counter[str] = Counter()
    first = ""
    for record in sample:
        line = _encode(_wrap(record))
        at.begin_single_record(line, 0, 0)
        try:
            reader(at, line)
        except RefusedRecordError as refused:
            reasons[refused.reason] += 1
            first = first or refused.detail
        at.drain_batch()
    if not reasons:
        return ()
    counted = ", ".join(f"{number} {reason}" for reason, number in sorted(reasons.items()))
    return (f"{reasons.total()} of {len(sample)} sampled records would be refused ({counted}): {first}",)


def _wrap(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record as it landed, without its position."""
    value, schema = record.get("value"), record.get("value schema")
    payload = {"schema": schema, "payload": value} if schema and value is not None else value
    key, key_schema = record.get("key"), record.get("key schema")
    return {"key": {"schema": key_schema, "payload": key} if key_schema and key else key, "value": payload}


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
    parts: the rows by the name of their file.
    folder_columns: columns whose values are in the names of folders.
    marker: the file that marks an extract as complete; empty: there is none.
    refused: how many of its rows a run would refuse.
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
    parts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    folder_columns: tuple[ProposedColumn, ...] = ()
    marker: str = ""
    refused: int = 0


def propose_rows(feed: SampledFeed) -> ProposedLog:
    """Returns the log with its best candidates, and a question for each choice that the sample does not prove."""
    as_any = feed.format == "json"
    feed = replace(feed, columns=tuple(roles.read_position(c, feed.rows, as_any=as_any) for c in feed.columns))
    ops = find_ops([c.name for c in feed.columns], feed.rows)
    op = ops[0] if ops else None
    # A mark of deletes in the row, beside what lines say that are no rows.
    outer = next((one for one in ops if feed.row_field and op and op.any_deletes and one.ignore), None)
    lacks = find_lacks([c.name for c in feed.columns], [*feed.parts.values()] or [feed.rows], op)
    beside = {one.column for one in (op, outer) if one}
    columns = [
        c if c.optional or c.name not in lacks else c.make_optional() for c in feed.columns if c.name not in beside
    ]
    parts = [part for part in feed.parts.values() if part]
    snapshot = [row for row in feed.rows if op and op.is_of_snapshot(row)]
    once = [*_find_extracts(feed, columns, op, parts), snapshot]
    keys = [feed.key] if feed.key else roles.find_keys(feed.id, columns, feed.rows, op, parts, once)
    key = keys[0] if keys else ()
    extract = None if op else _find_extract(feed, key)
    feed = replace(feed, ordered=feed.ordered or extract is not None)
    ties = {} if feed.ordered else roles.find_orders(columns, feed.rows, key)
    orders = roles.add_files(columns, ties) if feed.format in _BY_FILE and not feed.ordered else [*ties]
    zone = _assume_zone(feed, columns)
    questions = [*feed.questions, *op_question(ops, feed.rows)]
    empty = not feed.rows and bool(feed.notes)  # Then no question is needed.
    if not feed.key and not empty:
        questions.append(roles.key_question(feed.id, keys, feed.rows, op, parts, once))
    appends = not keys and not op and not empty and not feed.ordered
    unsent = [c.name for c in columns if not (lacks.get(c.name, True) or appends or extract)]
    questions += [*_ask_merge(unsent), *_ask_types(columns), *([extract] if extract else [])]
    if not feed.ordered and not empty and not appends:
        questions.append(_ask_order(feed, columns, orders, ties, is_alone=op is None and _is_one_day(feed)))
    ignored = tuple(c.name for c in columns if c.type is None or _INDEX.fullmatch(c.name))
    # The folders of extracts have their date, which is in no row.
    by_folder = () if extract else feed.folder_columns
    is_json, listed = feed.format == "json", (*columns, *by_folder)
    named = {c.name: name_column(c, of_json=is_json) for c in listed if c.name not in ignored}
    notes = [*feed.notes, *([] if named or feed.notes else ["no column was found"])]
    options = {**feed.options, **zone, **_list_options(feed, op, extract, by_folder)}
    if op and outer:
        options["op"] = {**outer.option, "row": feed.row_field, "deleted": op.column}
    return ProposedLog(
        id=feed.id,
        topic=feed.topic,
        path=feed.path,
        key=tuple(named[name].name for name in key if name in named),
        columns=tuple(named.values()),
        connector="",
        order=VERSION if extract else "position" if feed.ordered else "",
        records=len(feed.rows),
        usable=not notes and all(question.sure for question in questions),
        notes=tuple(notes),
        format=feed.format,
        options=tuple(options.items()),
        sampled=feed.sampled,
        order_by=_split_order(orders[0], named) if orders and not appends else (),
        appends=appends,
        merge=_PARTIAL if unsent else "",
        questions=tuple(questions),
        ignored=ignored,
        warnings=(*_explain_unwrapped(feed, op), *_explain_refused(feed, op), *([_NO_ZONE] if zone else [])),
        refused=feed.refused,
        op_column=next((name_column(c) for c in feed.columns if op and c.name == op.column and c.type), None),
    )


def _find_extracts(
    feed: SampledFeed, columns: Sequence[ProposedColumn], op: OpCandidate | None, parts: Sequence[Data]
) -> Sequence[Data]:
    """Returns the rows of each file, if nothing orders them and each file may have all rows; else nothing."""
    keys = [] if feed.key or feed.ordered or op else roles.find_keys(feed.id, columns, feed.rows, op, parts)
    if not keys or roles.find_orders(columns, feed.rows, keys[0]):
        return ()
    return parts if len(parts) == 1 or roles.find_shared(keys[0], parts) >= _HALF else ()


def _ask_merge(names: Sequence[str]) -> list[ProposalQuestion]:
    text = f"some rows lack {', '.join(names)}. Are these null there, or as they were? As they were: `merge: partial`. "
    return [ProposalQuestion("merge", f"{text}Null: remove that line", (_PARTIAL, "last"))] if names else []


def _ask_types(columns: Sequence[ProposedColumn]) -> list[ProposalQuestion]:
    """Returns the assumptions on columns whose values fit another type as well."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        if column.type and column.other:
            kinds.setdefault((column.type, column.other), []).append(column.name)
    because = {
        "double": "JSON does not say whether numbers with a point are exact",
        "long": "numbers since 1970, by name",
    }
    text = "which type have these numbers?"
    return [
        ProposalQuestion(f"{_COLUMNS}{', '.join(names)}", text, kind, sure=True, because=because[kind[1]])
        for kind, names in kinds.items()
    ]


def _ask_order(
    feed: SampledFeed,
    columns: Sequence[ProposedColumn],
    orders: Sequence[str],
    ties: Mapping[str, float],
    is_alone: bool,
) -> ProposalQuestion:
    names = [name.removeprefix(f"{feed.path}/") for name in feed.parts]
    return roles.order_question(columns, orders, ties, feed.rows, names, is_alone)


def _assume_zone(feed: SampledFeed, columns: Iterable[ProposedColumn]) -> dict[str, str]:
    """Returns the option for times without a zone; empty: each time has one."""
    formats = feed.options.get("timestamp_formats", ())
    unzoned = any(column.note == UNZONED for column in columns) or any(
        "%M" in one and "%z" not in one for one in formats
    )
    return {"time_zone": "UTC"} if unzoned else {}


def _list_options(
    feed: SampledFeed,
    op: OpCandidate | None,
    extract: ProposalQuestion | None,
    by_folder: Sequence[ProposedColumn],
) -> dict[str, Any]:
    """Returns the options that follow from what was chosen."""
    options: dict[str, Any] = {}
    if extract:
        options["extract"] = "full" if extract.candidates == ("full",) else {"marker": feed.marker or "?"}
    if by_folder:
        options["folder_columns"] = [column.name for column in by_folder]
    if not op and (sums := feed.options.get("op")):
        column = next(name_column(one).name for one in feed.columns if one.name == sums["column"])
        options["op"] = {**sums, "column": column}
    if op:
        # The stream of a Snowflake table, whose rows have no order.
        pairs = {"pairs": True} if any(one.name.upper() == "METADATA$ISUPDATE" for one in feed.columns) else {}
        options["op"] = {**op.option, **({"row": feed.row_field} if feed.row_field else {}), **pairs}
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


def name_column(column: ProposedColumn, *, of_json: bool = False) -> ProposedColumn:
    """Returns the column with a name that a table can have; the source's own name becomes an alias.

    of_json: no decoder of JSON finds a name with quotes or control characters.
    """
    if _COLUMN.fullmatch(column.name) or (of_json and re.search(r'[\\"\x00-\x1f]', column.name)):
        return column
    name = re.sub(r"\W+", "_", column.name).strip("_")[:128]
    if not _COLUMN.fullmatch(name):
        return column
    return replace(column, name=name, alias=column.name)


def apply_answers(log: ProposedLog, answers: Mapping[str, str]) -> ProposedLog:
    """Returns the log with a person's answers. An answer is a candidate of the question, or another text."""
    chosen = {about: tuple(part.strip() for part in text.split(",")) for about, text in answers.items() if text.strip()}
    options = dict(log.options)
    names = {column.alias or column.name: column.name for column in log.columns}
    columns = log.columns
    if chosen.get("op") == ("none",):
        name = str(options.pop("op")["column"])
        columns = (log.op_column or ProposedColumn(name, "string"), *columns)
    is_extract = chosen.get("order") == (_EXTRACT,)
    if is_extract:
        options["extract"] = "full"
    if "encoding" in chosen:
        options["encoding"] = chosen["encoding"][0]
    if "decimal" in chosen:
        mark = text.strip() if (text := answers["decimal"]) else "."
        options |= {"decimal": mark, "thousands": "." if mark == "," else ","}
    if "timestamp_formats" in chosen:
        options["timestamp_formats"] = list(chosen["timestamp_formats"])
    if chosen.get("merge") == ("last",):
        log = replace(log, merge="")
    for question in log.questions:
        wanted = answers.get(question.about, "").strip()
        if question.about.startswith(_COLUMNS) and wanted and wanted != question.candidates[0]:
            changed = question.about.removeprefix(_COLUMNS).split(", ")
            retyped = {
                c: replace(c, type=wanted, encoding="", note="") for c in columns if (c.alias or c.name) in changed
            }
            columns = tuple(retyped.get(c, c) for c in columns)
    left = tuple(
        replace(question, sure=True, because="") if question.about in chosen else question for question in log.questions
    )
    return replace(
        log,
        key=tuple(names.get(name, name) for name in chosen.get("key", log.key)),
        order=VERSION if is_extract else log.order,
        order_by=() if is_extract else tuple(names.get(name, name) for name in chosen.get("order", log.order_by)),
        columns=columns,
        options=tuple(options.items()),
        questions=left,
        usable=not log.notes and all(question.sure for question in left),
    )
