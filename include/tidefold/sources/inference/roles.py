"""Finds the roles of columns in sampled rows: which are the key, which give the order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa

from tidefold.domain.table.types import parse_type
from tidefold.sources.inference.file_order import FileOrder
from tidefold.sources.inference.operations import Data, OpCandidate, Parts, text_of
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn
from tidefold.sources.records.text_forms import Spelling, in_normal_form

_KEY_NAMES = re.compile(r"key|uuid|guid|pk|code|sku|isin|email|number|no|nr", re.IGNORECASE)
_ORDER_NAMES = re.compile(
    r"_*((last_?)?(updated?|modified|changed?|mod)(_?(at|on|ts|time|date|timestamp|dt|utc|ms|us))?|"
    r"ts|time|timestamp|(dms|cdc|header_)_(timestamp|ts)|event_?(time|ts)|commit_?(time|ts|timestamp)|op_?ts|source_?ts|ts_?(ms|us|ns)|"
    r"lsn|scn|((change|commit|event|log|record|stream|tx)_?)?seq(uence)?(_?(no|num|number|id))?|version|row_?version|rev|revision|offset|"
    r"export(ed)?(_?(at|on|date|time|ts))?|extract(ed)?(_?(at|on|date|time|ts))?|snapshot_?(date|time|ts)|"
    r"load(ed)?(_?(at|on|date|time|ts))?|as_?of(_?date)?|valid_?from|ingest(ed)?_?(at|ts|time))",
    re.IGNORECASE,
)
# What counts the changes of the source, as its tool writes it.
_OWN_ORDER = re.compile(
    r"_ab_cdc_(cursor|lsn|log_pos)|(header_)?_?change_seq|hvr_integ_(seq|key)|_change_(ordinal|sequence_number)|_*\$?((start|commit|change)_)?lsn",
    re.IGNORECASE,
)
_OWN_POSITION = re.compile(r"pos|ccid", re.IGNORECASE)
_RESTARTS = "_change_ordinal"
_OWN_NOTE = "the source's own order"
_COUNTED = re.compile(r"\d{10,40}", re.ASCII)
_POSITION = re.compile(
    r"\d+|(\d{4}[-/.]\d\d|\d\d[-/.]\d\d[-/.]\d{2,4}).*|0x[0-9a-f]+|[0-9a-f]+/[0-9a-f]+|[0-9a-f:]{10,}", re.IGNORECASE
)
_CREATED_NAME = re.compile(r"_*(created?|occurred|happened|received)(_?(at|on|ts|time|date|ms|us))?", re.IGNORECASE)
_WHENCE = re.compile(
    r"schema|database|db|table|(table|schema|source|stream|topic)_?name|source|stream|topic|partition", re.IGNORECASE
)
# What tools write beside a row.
_OF_TOOL = re.compile(r"metadata\$|__\$|header__|versions_|_(commit|change|airbyte|fivetran|sdc)_", re.IGNORECASE)
_LONG_TEXT, _SEVERAL = 64, 2
# A key that this share of a file and the next one have comes again.
_SOME, _MOST = 0.1, 0.8
# A column with at most this share of ties orders rows; the file decides between these.
_FEW = 0.5
# Times of fewer values say too little.
_TIMES = 8


def describes_row(name: str) -> bool:
    """Returns whether a field beside a row tells, by its name, when or whence it came, and so is no column."""
    return name.startswith("_") or bool(
        _ORDER_NAMES.fullmatch(name) or _CREATED_NAME.fullmatch(name) or _WHENCE.fullmatch(name)
    )


def find_keys(
    log: str, columns: Sequence[ProposedColumn], rows: Data, op: OpCandidate | None, parts: Parts = (), once: Parts = ()
) -> list[tuple[str, ...]]:
    """Returns columns that may be the key, the likeliest first; several together only if none alone is unique.

    parts: the rows of each file. A key may come once in each: as an update, or in each full extract.
    once: rows that have each key once: those of one snapshot or extract.
    """
    usable = [c.name for c in columns if _can_be_key(c, rows) and not _OF_TOOL.match(c.name)]
    inserts = [row for row in rows if op and op.is_insert(row)]
    told = inserts if len(inserts) >= _SEVERAL else rows
    repeated = find_repeated(usable, once)
    fit = [name for name in usable if name not in repeated and not _has_few_values(name, rows)]
    several = [part for part in parts if len(part) >= _SEVERAL] if op is None else []
    again = {name: _find_again((name,), several) for name in fit if all(_is_unique((name,), part) for part in several)}
    unique = [name for name in fit if _is_unique((name,), told) or again.get(name, 0) >= _SOME]
    # A key that was deleted may be inserted again.
    lives_of = op.lives_of if op else ""
    is_named = {name for name in fit if name == lives_of or key_score(log, name) >= (2 if op else 3)}
    named = [name for name in fit if name in is_named and name not in unique]
    keys = sorted(unique, key=lambda name: (-key_score(log, name), -again.get(name, 0)))
    orders = {c.name for c in columns if order_score(c) >= 2}
    if not named and {*keys} <= orders:
        ids = sorted({*usable} - orders, key=lambda name: (-key_score(log, name), usable.index(name)))[:5]
        return [*_find_sets(ids, told, several), *((name,) for name in keys)]
    best = [(name,) for name in keys if key_score(log, name) == 3]
    return [*best, *((name,) for name in named), *((name,) for name in keys if key_score(log, name) < 3)]


def _find_sets(names: Sequence[str], rows: Data, parts: Parts) -> list[tuple[str, ...]]:
    """Returns the smallest sets of columns that are unique: in each file, if they come again in others; else in all."""
    for among, share in ((parts, _MOST), ([rows], 0.0)):
        sets: list[tuple[str, ...]] = []
        for one in (one for size in (2, 3) for one in combinations(names, size)):
            is_larger = any({*one} > {*smaller} for smaller in sets)
            if among and not is_larger and all(_is_unique(one, part) for part in among):
                sets += [one] if _find_again(one, among) >= share else []
        if sets:
            return sets[:3]
    return []


def find_repeated(names: Sequence[str], once: Parts) -> list[str]:
    """Returns the columns that have a value twice among rows that have each key once."""
    return [name for name in names if any(len(part) >= _SEVERAL and not _is_unique((name,), part) for part in once)]


def _has_few_values(name: str, rows: Data) -> bool:
    """Whether a column has so few values that it only counts or groups rows, as the number of a line."""
    return len({row.get(name) for row in rows}) ** 2 < len(rows)


def find_shared(key: Sequence[str], parts: Parts) -> float:
    """Returns the lowest share of the keys of a file that the next file has, too; 0 for one file."""
    keys = [{tuple(row.get(name) for name in key) for row in part} for part in parts]
    return min((len(one & other) / len(one) for one, other in pairwise(keys)), default=0.0)


def _find_again(key: Sequence[str], parts: Parts) -> float:
    """Returns the lowest share of the keys of a file that other files have, too; 0 for one file."""
    keys = [{tuple(row.get(name) for name in key) for row in part} for part in parts]
    counts = Counter(value for part in keys for value in part)
    return min((sum(counts[value] > 1 for value in part) / len(part) for part in keys), default=0.0)


def find_same(parts: Parts) -> float:
    """Returns the lowest share of the rows of a file that the next file has, too; 0 for one file."""
    rows = [set(map(_freeze, part)) for part in parts]
    return min((len(one & other) / len(one) for one, other in pairwise(rows)), default=0.0)


def is_window(key: Sequence[str], parts: Parts) -> bool:
    """Whether the rows that each file has no longer are, by some column, those before all that it has."""

    def place(row: Mapping[str, Any], name: str) -> tuple[int, str]:
        return len(text_of(row.get(name))), text_of(row.get(name))

    def find_lost(one: Data, other: Data) -> list[Mapping[str, Any]]:
        kept = {tuple(row.get(name) for name in key) for row in other}
        return [row for row in one if tuple(row.get(name) for name in key) not in kept]

    steps = [(find_lost(one, other), other) for one, other in pairwise(parts)]
    return all(len(lost) >= _SEVERAL for lost, _ in steps) and any(
        all(max(place(row, name) for row in lost) < min(place(row, name) for row in other) for lost, other in steps)
        for name in parts[0][0]
    )


def key_score(log: str, name: str) -> int:
    """Returns how likely a name is a key: from 3 (`id`, or `order_id` of orders) to 0 (not at all)."""
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold().strip("_")
    parts = [part for part in re.split(r"[^a-z0-9]+", log.casefold()) if part]
    # In `order_lines`, neither `order_id` nor `line_no` alone is a key.
    singulars = {form for part in [*parts[-1:], log.casefold()] for form in _singulars(part)}
    if plain in ("id", "_id") or any(plain in (f"{s}_id", f"{s}id", f"{s}_key") for s in singulars):
        return 3
    if plain in ("uuid", "guid", "key", "pk", *singulars):
        return 2
    return 1 if plain.endswith(("_id", "_key", "_uuid")) or _KEY_NAMES.fullmatch(plain) else 0


def _singulars(word: str) -> set[str]:
    forms = {word}
    if word.endswith("ies"):
        forms.add(f"{word[:-3]}y")
    if word.endswith("es"):
        forms.add(word[:-2])
    return forms | ({word[:-1]} if word.endswith("s") else set())


def _can_be_key(column: ProposedColumn, rows: Data) -> bool:
    if column.type is None or not parse_type(column.type).can_be_key:
        return False
    if column.encoding or column.type.startswith(("decimal", "timestamp", "date", "boolean")):
        return False
    values = [row.get(column.name) for row in rows]
    return bool(values) and all(isinstance(v, str | int) and len(str(v)) <= _LONG_TEXT for v in values)


def _is_unique(names: Sequence[str], rows: Data) -> bool:
    seen = {tuple(row.get(name) for name in names) for row in rows}
    return len(rows) >= _SEVERAL and len(seen) == len({_freeze(row) for row in rows})


def _freeze(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns a comparable form of a row, so that a repeated row counts once."""
    return tuple(f"{name}={value!r}" for name, value in row.items())


def never_falls(column: ProposedColumn, parts: Parts, formats: Sequence[str]) -> bool:
    """Whether the times of a column rise from row to row of each file, and none is null."""
    seen = set[Any]()
    for part in parts if column.type == "timestamp" else ():
        values: list[Any] = [row.get(column.name) for row in part]
        if None not in values and all(isinstance(one, str) for one in values):
            values = in_normal_form(pa.array(values), "timestamp", Spelling(formats)).to_pylist()
        if None in values or any(one > other for one, other in pairwise(values)):
            return False
        seen.update(values)
    return len(seen) >= _TIMES


def find_orders(
    columns: Sequence[ProposedColumn], rows: Data, key: Sequence[str], rising: Collection[str] = ()
) -> dict[str, float]:
    """Returns columns that may order the rows of a key, the likeliest first, each with the share of its ties.

    They are never null. Ties: rows that follow another row of their key, and have the value of another one.
    rising: the columns whose times never fall. Such a one may be too coarse for rows of one minute.
    """
    names = [c.name for c in columns]  # A delete that brings its row as it was comes after it.
    contents = [{name: row.get(name) for name in names} for row in rows]
    distinct = [*{_freeze(row): row for row in contents}.values()] if key else []

    def count(*places: str) -> int:
        return len({tuple(row.get(name) for name in places) for row in distinct})

    changes = max(1, len(distinct) - count(*key))
    fit = [c for c in columns if c.name not in key and _can_order(c) and not _count_nulls(c, rows) and rows]
    ties = {c.name: (len(distinct) - count(*key, c.name)) / changes for c in fit}
    likely = [c for c in fit if ties[c.name] <= _FEW or order_score(c) >= 2 or c.name in rising]
    return {c.name: ties[c.name] for c in sorted(likely, key=lambda c: (-order_score(c), ties[c.name] > 0))}


def order_score(column: ProposedColumn) -> int:
    """Returns 3 for the source's own order, 2 if the name suggests a change time or version, 1 for a time, else 0."""
    if _OWN_ORDER.fullmatch(column.name) or column.note == _OWN_NOTE:
        return 3
    if _ORDER_NAMES.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name)):
        return 2
    return 1 if column.type in ("timestamp", "date") and not column.name.casefold().startswith("creat") else 0


def read_position(column: ProposedColumn, rows: Data, *, as_any: bool) -> ProposedColumn:
    """Returns a column whose digits are the source's own order as a number. as_any: values in quotes are texts."""
    texts = [row.get(column.name) for row in rows if row.get(column.name) is not None]
    is_own = _OWN_ORDER.fullmatch(column.name) or _OWN_POSITION.fullmatch(column.name)
    is_counted = all(isinstance(one, str) and _COUNTED.fullmatch(one) and int(one) < 2**63 for one in texts)
    if not (is_own and texts and is_counted and column.type in ("string", "long")):
        return column
    return replace(column, type="long", encoding="any" if as_any else "", note=_OWN_NOTE)


def _can_order(column: ProposedColumn) -> bool:
    named = order_score(column) >= 2 or _CREATED_NAME.fullmatch(column.name)
    return column.type in ("timestamp", "date") or (column.type in ("int", "long") and bool(named))


def _count_nulls(column: ProposedColumn, rows: Data) -> int:
    return sum(row.get(column.name) is None for row in rows)


def key_question(
    log: str, keys: Sequence[tuple[str, ...]], rows: Data, op: OpCandidate | None, parts: Parts = (), once: Parts = ()
) -> ProposalQuestion:
    """Asks which columns are the key. once: see `find_keys`."""
    text = "which columns tell rows apart? If rows only come, set `merge: append` in the place of `key`."
    for name in find_repeated([name for name in (rows[0] if rows else ()) if key_score(log, name) == 3], once):
        text += f" `{name}` alone does not: it comes twice in one snapshot or file."
    if not keys:
        none = "No column was found whose values differ in all rows."
        return ProposalQuestion("key", f"{text} {none}{'' if op else ' As written, each row is one more.'}")
    best, scores = keys[0], [key_score(log, key[0]) for key in keys if len(key) == 1]
    inserts = sum(map(op.is_insert, rows)) if op else 0
    seen = f"its values differ in all {inserts or len(rows):,} {'inserted ' if inserts else ''}rows of the sample"
    because = seen if _is_unique(best, [r for r in rows if op and op.is_insert(r)] or rows) else "its name"
    comes_again = op is None and _find_again(best, parts) >= _SOME and all(_is_unique(best, part) for part in parts)
    if comes_again:
        because = "its values differ in all rows of each file, and come again in others"
    named = scores[:1] >= [3 if because == "its name" else 2] or (comes_again and scores[:1] > scores[1:2])
    former = re.compile(rf"(bi|old|before|prev(ious)?|former)_?({'|'.join(map(re.escape, best))})", re.IGNORECASE)
    if told := next((name for name in rows[0] if former.fullmatch(name)), ""):
        text += f" `{told}` looks like the former key: if keys change, let the source write a delete and an insert."
    sure = len(best) == 1 and named and len(rows) >= _SEVERAL and not told
    rivals = [score for score in scores[1:] if score >= 2]
    return ProposalQuestion("key", text, tuple(", ".join(key) for key in keys), sure and not rivals, because)


def add_files(columns: Sequence[ProposedColumn], orders: Mapping[str, float], files: FileOrder) -> list[str]:
    """Returns the orders, the likeliest first, for rows whose files have an order: by name or arrival.

    A date alone does not say which of two rows is the newer; one that does not name a change says nothing of it.
    """
    scores = {c.name: (order_score(c), c.type) for c in columns}
    dated = {name for name in orders if scores[name][1] == "date"}
    kept = [name for name in orders if name not in dated or scores[name][0] >= 2]
    own = [f"{name}, file" if files.is_told and (name in dated or orders[name]) else name for name in kept]
    return [*own, *(name for name in files.rising if name not in kept), *([] if files.misfit else ["file"])]


def order_question(
    columns: Sequence[ProposedColumn],
    orders: Sequence[str],
    ties: Mapping[str, float],
    rows: Data,
    files: FileOrder | None,
    is_alone: bool,
) -> ProposalQuestion:
    """Asks which column orders two rows of a key.

    ties: see `find_orders`.
    files: None: these order nothing.
    is_alone: one day does not show whether each has all rows.
    """
    text = "which column says of two rows of a key which one is the newer?"
    scores = {name: order_score(c) for c in columns for name in (c.name, f"{c.name}, file")}
    best, second, *_ = *(scores.get(name, 0) for name in orders), 0, 0
    nulls = {c.name: _count_nulls(c, rows) for c in columns if order_score(c) >= 2 and _can_order(c)}
    if best < 2 and (gap := next((name for name in nulls if nulls[name]), None)):
        count = f"{nulls[gap]:,} of {len(rows):,} rows"
        text += f" `{gap}` has nulls ({count}), and a row without an order is refused: fill it."
        return ProposalQuestion("order", text, tuple(orders))
    unread = next((c for c in columns if best < 2 <= order_score(c) and _is_unread(c, rows)), None)
    if unread:
        example = next(row[unread.name] for row in rows if row.get(unread.name) is not None)
        text += f" `{unread.name}` says it, but as text, which orders nothing: {example}. Land it as a whole number of "
        text += "at most 18 digits, or as a time of ISO 8601 with at most 6 digits behind the second."
        return ProposalQuestion("order", text, tuple(orders))
    own = [name for name in orders if name.removesuffix(", file") in ties]
    if files and not own:
        return files.ask(text, orders, is_alone=is_alone)
    if not orders:
        text += " No such column was found: land one, as the time of the change or of the export"
        return ProposalQuestion("order", text)
    first = orders[0].removesuffix(", file")
    because = f"rows with the same key and the same {orders[0]} have the same content in the sample"
    if ties[first]:
        because = "its name says when a row changed. Where it is the same, the later file or row counts"
    if ties[first] > _FEW:
        text += f" `{first}` is the same in different rows of a key."
    if first == _RESTARTS:
        text += f" `{first}` begins again with each scan of the table: it orders the rows of one file only."
    sure = best >= 2 and second < best and ties[first] <= _FEW and first != _RESTARTS
    return ProposalQuestion("order", text, tuple(orders), sure, because if sure else "it is a time that is never null")


def _is_unread(column: ProposedColumn, rows: Data) -> bool:
    """Whether a column has times or positions that no run reads as a time or a number."""
    texts = [row[column.name] for row in rows if row.get(column.name) is not None]
    is_text = column.type == "string" or bool(column.type and column.type.startswith("decimal"))
    is_own = bool(_OWN_ORDER.fullmatch(column.name))
    return is_text and bool(texts) and (is_own or all(_POSITION.fullmatch(str(one)) for one in texts))
