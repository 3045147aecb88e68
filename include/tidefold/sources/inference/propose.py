"""Samples landed files and proposes logs for them. `tidefold init` writes the proposals for people to check.

`rows.py` proposes one log, `roles.py` its key, order and operations.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from tidefold.domain.source_progress import NameReading
from tidefold.domain.wording import count_noun
from tidefold.sources.debezium.connect_schema import numeric_forms
from tidefold.sources.inference import layout, roles
from tidefold.sources.inference.columns import is_placeholder, list_names
from tidefold.sources.inference.dialect import find_unnamed, patterns_of
from tidefold.sources.inference.envelopes import find_key, is_envelope, propose_envelopes
from tidefold.sources.inference.files import (
    NO_HEADERS,
    Headers,
    find_tables,
    group_typed,
    propose_files,
    propose_tables,
    sample_records,
)
from tidefold.sources.inference.json_samples import (
    explain_texts,
    find_record_path,
    objects_of,
    raw_lines,
    read_objects,
    sample_files,
)
from tidefold.sources.inference.operations import OpCandidate, find_ops, text_of
from tidefold.sources.inference.profiled import ProfiledSample, Profiles, sample_profiles
from tidefold.sources.inference.proposal import ProposedColumn, ProposedLog, log_ids
from tidefold.sources.inference.rows import UNWRAPPED, SampledFeed, propose_rows
from tidefold.sources.inference.strange_rows import explain_strange_rows
from tidefold.sources.inference.values import column_of_values
from tidefold.sources.json_lines.source import Json
from tidefold.sources.landing.folders import Place, name_at
from tidefold.sources.landing.listing import LandedFile, list_any
from tidefold.sources.profiles.profile import list_shipped
from tidefold.sources.records.extended_json import to_plain

_FEW = 3
# Names that a Kafka sink may have given. Other programs use names with a dash too.
_DATED = re.compile(r"(19|20)\d\d-[01]\d-[0-3]\d\.[^/]*$")
_NAMED = re.compile(r"(?:(?P<plus>[\w.-]+)\+\d+\+\d+|(?P<dash>[\w.-]+)-\d+-\d+)\.(jsonl?(\.gz)?|gz)", re.ASCII)
# TiCDC's schemas of tables.
_SCHEMA = re.compile(r"(.*/)?meta/schema_\d+_\d+\.json")
_WRAPPERS = ("_source", "record", "payload")
Topics = dict[str, list[LandedFile]]


def propose(
    directory: Place,
    headers: Headers = NO_HEADERS,
    left_out: Sequence[layout.TransactionTopic] = (),
    profiles: Profiles | None = None,
) -> list[ProposedLog]:
    """Returns one proposal for each feed with files below `directory`. Raises NotFoundError if it does not exist.

    headers: the column names of logs whose CSV files have no header line.
    left_out: topics that become no log.
    profiles: of change feeds; None: the shipped ones.
    """
    profiles = list_shipped() if profiles is None else profiles
    kinds = find_tables(directory)
    tables = list(kinds)
    unnamed = find_unnamed(directory, tables)
    skipped = {file.name for topic in left_out for file in topic.files}
    files = [*list_any(directory, Json.endings)[0], *unnamed.objects]
    schemas = [file.name for file in files if _SCHEMA.fullmatch(file.name)]
    topics, folders = _group_files(files, tables, {*skipped, *schemas})
    homes = {topic: layout.landing_folder(members) for topic, members in topics.items()}
    proposals: list[ProposedLog] = []
    for topic, members in topics.items():
        shared = [t for t, folder in homes.items() if t != topic and folder.is_relative_to(homes[topic])]
        notes = [f"its folder also holds {', '.join(shared)}: give each topic a folder of its own"] if shared else []
        texts = explain_texts(members)
        notes += [texts] if texts else []
        taken = [p.id for p in proposals]
        if _is_plain(sample := _sample(members)) or texts:
            proposed = _propose_kafka_rows(taken, topic, homes[topic], notes, members, profiles)
        else:
            proposed = [propose_envelopes(log_ids([topic], taken)[0], topic, homes[topic], notes, sample)]
        proposals += (replace(one, options=(*one.options, *_names_option(members))) for one in proposed)
    typed = group_typed(directory, tables, skipped)
    for (format_, topic), members in typed.items():
        [log] = log_ids([topic], [p.id for p in proposals])
        sample = sample_files(members, partial(_read_typed, format_))
        typed_log = propose_envelopes(log, topic, layout.landing_folder(members), [], sample)
        proposals.append(replace(typed_log, format=format_, options=_names_option(members)))
    for folder, members in folders.items():
        name = folder.name or layout.stem_of(members[0]) or name_at(directory)
        proposals += _propose_lines([p.id for p in proposals], name, folder, members, profiles)
    others = {file for members in typed.values() for file in members}
    others |= {file for topic in left_out for file in topic.files}
    taken = [p.id for p in proposals]
    proposals += propose_files(directory, taken, tables, headers, unnamed=unnamed, others=others)
    proposals = [_leave_schemas(one, schemas) for one in proposals]
    return [*proposals, *propose_tables(directory, kinds, [p.id for p in proposals])]


def _leave_schemas(log: ProposedLog, schemas: Sequence[str]) -> ProposedLog:
    """Returns the log without what TiCDC writes beside the changes in its folder."""
    if not any(PurePosixPath(name).is_relative_to(log.path) for name in schemas):
        return log
    return replace(log, options=(*log.options, ("leave_out", ["*meta/schema_*.json", "*.index"])))


def _read_typed(format_: str, file: LandedFile, count: int) -> list[dict[str, Any]]:
    return [_unwrap(record) for record in sample_records(format_, file, count)]


def _names_option(files: Sequence[LandedFile]) -> tuple[tuple[str, str], ...]:
    """Returns the option that sets how the names of a sink are read, if the default does not fit."""
    dashes = any("+" not in PurePosixPath(file.name).name for file in files)
    return (("names", str(NameReading.KAFKA_DASH)),) if dashes else ()


def _group_files(
    files: Sequence[LandedFile], tables: Sequence[PurePosixPath], skipped: Collection[str]
) -> tuple[Topics, dict[PurePosixPath, list[LandedFile]]]:
    """Groups JSON files by topic if a Kafka sink named them, and all others by folder.

    A name such as `orders-2026-11-01.jsonl` counts as a sink's name only if the lines are Kafka or Debezium records.
    """
    topics: Topics = {}
    others = []
    for file in files:
        if file.name in skipped or any(PurePosixPath(file.name).is_relative_to(table) for table in tables):
            continue
        match = _NAMED.fullmatch(PurePosixPath(file.name).name)
        # The end of a name with a date looks like a partition and an offset.
        if match and (match["plus"] or (not _DATED.search(file.name) and _is_of_kafka(file))):
            topics.setdefault(match["plus"] or match["dash"], []).append(file)
        else:
            others.append(file)
    return dict(sorted(topics.items())), layout.by_folder(others)


def _is_of_kafka(file: LandedFile) -> bool:
    sample = list(islice(_records(file), _FEW))
    return bool(sample) and (not _is_plain(sample) or any("value" in r and "offset" in r for r in sample))


def _is_plain(sample: Sequence[dict[str, Any]]) -> bool:
    """Whether the records are rows, not Debezium envelopes."""
    rows = [r["value"] if isinstance(r.get("value"), dict) else r for r in sample]
    return bool(rows) and not any(map(is_envelope, rows))


def _propose_kafka_rows(
    taken: Sequence[str],
    topic: str,
    folder: PurePosixPath,
    notes: Sequence[str],
    files: Sequence[LandedFile],
    profiles: Profiles,
) -> list[ProposedLog]:
    """Proposes a log for each table in JSON of a Kafka sink. A row is the value or the line; its offset orders it."""
    lines = sample_files(files, read_objects)
    alone = not any("value" in record and "offset" in record for record in lines)
    rows = [value for value in (lines if alone else [r.get("value") for r in lines]) if isinstance(value, dict)]
    samples = sample_profiles(rows, profiles)
    strange = None if samples else explain_strange_rows(rows)
    if not alone and not all({"topic", "partition", "offset"} <= line.keys() for line in lines):
        strange = (
            "its records have an offset, but not each has a topic and a partition: land all three, or values alone"
        )
    base = SampledFeed(
        "", topic, str(folder), "json", (), [] if strange else rows, f"Topic {topic}, {len(lines):,} records sampled.",
        {"record": "value"} if alone else {}, key=() if alone else tuple(find_key(lines)), ordered=True,
        has_headers=any("headers" in line for line in lines), notes=tuple(filter(None, (*notes, strange))),
    )  # fmt: skip
    feeds = [_fill_feed(base, files, log, told) for log, told in _name_logs(samples, topic, taken)]
    # A clear has no place among the offsets of several partitions.
    return [_order_by(f, f.profiled.order if f.profiled and f.profiled.profile.clear else ()) for f in feeds]


def _name_logs(
    samples: Sequence[ProfiledSample], name: str, taken: Sequence[str]
) -> Iterator[tuple[str, ProfiledSample | None]]:
    """Yields the samples of the tables, each with the id of its log; one without a sample if no profile fits."""
    names = [one.table for one in samples] if len(samples) > 1 else [name]
    return zip(log_ids(names, taken), samples or (None,), strict=True)


def _order_by(feed: SampledFeed, columns: Sequence[str]) -> ProposedLog:
    """Proposes the log with these columns as its order, if there are any."""
    if not columns:
        return propose_rows(feed)
    return replace(propose_rows(replace(feed, ordered=True)), order="", order_by=tuple(columns))


def _propose_lines(
    taken: Sequence[str], name: str, folder: PurePosixPath, files: Sequence[LandedFile], profiles: Profiles
) -> list[ProposedLog]:
    """Proposes a log for each table in JSON files of any name: each line is a row, and its columns order it."""
    path = find_record_path(files)
    files = [replace(file, record_path=path) for file in files]
    lines = sample_files(files, read_objects)
    stems = layout.strange_stems(files)
    notes = [f"its folder holds files of several kinds ({', '.join(stems[:4])}): give each a folder"] if stems else []
    if not lines and (texts := explain_texts(files)):
        notes.append(texts)
    elif not lines:
        notes.append("no line is a JSON object: write one object on each line")
    samples = sample_profiles(lines, profiles)
    strange = None if samples else explain_strange_rows(lines, _row_field(lines)[0])
    if lines and all({"op", "source", "after"} <= _envelope_of(line).keys() for line in lines):
        strange = (
            "its lines are Debezium's envelopes, and their order needs the offset in the name: land each file as "
            "`TOPIC+0+0000000000.jsonl`, with the offset of its first record in ten digits"
        )
    if strange:
        lines, notes = [], [*notes, strange]
    seen = layout.choose_sample(files)
    named = ", ".join(PurePosixPath(file.name).name for file in seen)
    base = SampledFeed(
        "", str(folder), str(folder), "json", (), lines,
        f"Files of {folder}, {count_noun(len(lines), 'record')} of {named}.",
        {**patterns_of(files, Json.endings), "record": "value", **({"record_path": path} if path else {})},
        names=[file.name for file in files],
        notes=tuple(notes), parts={file.name: sample_files([file], read_objects) for file in seen if not notes},
    )  # fmt: skip
    feeds = [_fill_feed(base, files, log, told) for log, told in _name_logs(samples, name, taken)]
    proposed = []
    for feed in feeds:
        named_by_folders = layout.find_folder_columns(files, [column.name for column in feed.columns])
        by_folder = tuple(column_of_values(name, texts) for name, texts in named_by_folders.items())
        order = feed.profiled.order if feed.profiled else ()
        proposed.append(_order_by(replace(feed, folder_columns=by_folder), order))
    return proposed


def _fill_feed(
    base: SampledFeed, files: Sequence[LandedFile], log: str, profiled: ProfiledSample | None
) -> SampledFeed:
    """Returns the feed of one table. The row may be in one field, next to the field with the operation."""
    options, rows = dict(base.options), [dict(row) for row in base.rows]
    if any(to_plain(line) != line for file in layout.choose_sample(files) for line in islice(raw_lines(file), _FEW)):
        options["extended_json"] = True
    field, op = _row_field(rows) if profiled is None else ("", None)
    if profiled:
        rows, options = [*profiled.rows], {**options, **profiled.options}
        if profiled.profile.unpack == "extended-json":
            options.pop("extended_json", None)
    # `format: json` does not read the schema beside a row.
    told = numeric_forms(next((row["schema"] for row in rows if field in row and "schema" in row), None))
    if field and op is None:
        options["row"] = field
        rows, field = [row[field] for row in rows], ""
    if field and op is not None:
        rows = [row for row in rows if text_of(row.get(op.column)) not in op.ignore]
        # Other fields next to the row do not belong to it.
        rows = [{**row[field], op.column: row.get(op.column)} for row in rows]
    columns = []
    for name in filter(None, list_names(rows)):
        column = column_of_values(name, [row[name] for row in rows if name in row and not is_placeholder(row[name])])
        if name in told:
            column = ProposedColumn(name, told[name][0], "as the schema beside the rows says", told[name][1])
        elif column.type is None:
            column = ProposedColumn(name, "string", "objects or values of several kinds, as JSON", "json")
        columns.append(column)
    inner = field or options.get("row", "")
    parts = dict(base.parts)
    for name, part in base.parts.items():
        own = [{**line, **line[inner]} for line in part if isinstance(line.get(inner), dict)] if inner else part
        parts[name] = profiled.read(part) if profiled else own
    names = profiled.key if profiled else base.key
    key = tuple(name for name in names if any(name in row for row in rows))
    notes = (*base.notes, *(profiled.notes if profiled else ()))
    return replace(
        base, id=log, columns=tuple(columns), rows=rows, options=options, row_field=field, profiled=profiled, key=key,
        notes=notes, parts=parts,
    )  # fmt: skip


def _row_field(rows: Sequence[dict[str, Any]]) -> tuple[str, OpCandidate | None]:
    """Returns the field that contains the rows, and the field with the operation; empty if the lines are the rows."""
    names = list_names(rows)
    objects = [n for n in names if any(isinstance(row.get(n), dict) for row in rows)]
    ops = find_ops([n for n in names if n not in objects], rows)
    op = ops[0] if ops else None
    of_rows = [row for row in rows if op is None or text_of(row.get(op.column)) not in op.ignore]
    always = [name for name in objects if of_rows and all(isinstance(row.get(name), dict) for row in of_rows)]
    if op is None or op.any_deletes:
        # What is beside the row is lost: it may only be what a tool says of it. Kafka Connect sends its schema.
        beside = {name for name in names if name != "schema" and not name.startswith("_")} - {op.column if op else ""}
        field = next((name for name in always if name in _WRAPPERS and beside <= {name}), "")
        return field, op if field else None
    if UNWRAPPED.fullmatch(op.column):
        return "", None
    named = [name for name in always if name in (*_WRAPPERS, "data", "row", "after", "detail")]
    if not named and all(map(roles.describes_row, {*names} - {*objects, op.column})):
        named = always
    return (named[0], op) if len(named) == 1 else ("", None)


def _sample(files: Sequence[LandedFile]) -> list[dict[str, Any]]:
    return sample_files(files, lambda file, count: islice(_records(file), count))


def _records(file: LandedFile) -> Iterator[dict[str, Any]]:
    return (record for value in objects_of(file) if (record := _unwrap(value)))


def _unwrap(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record with its value, both without their schemas. The schema of the value is kept separately."""
    if "value" not in record and ("op" in record or "payload" in record):
        record = {"value": record}
    for part in ("key", "value"):
        inner = record.get(part)
        if isinstance(inner, dict) and "payload" in inner and "op" not in inner:
            record = {**record, part: inner["payload"], f"{part} schema": inner.get("schema")}
    return record


def _envelope_of(line: dict[str, Any]) -> dict[str, Any]:
    value = _unwrap(line).get("value")
    return value if isinstance(value, dict) else {}
