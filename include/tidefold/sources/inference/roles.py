"""Finds the roles of columns in sampled rows: which has the operation, which are the key, which give the order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from tidefold.domain.table.types import parse_type
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn
from tidefold.sources.landing.name_times import find_time

Data = Sequence[Mapping[str, Any]]

_OP_NAME = re.compile(
    r"_*(op|oper|operation|operation_?name|op_?type|change_?type|change_?op(er)?|cdc_?op(eration)?|dml|dml_?type|action|event|event_?type|"
    r"row_?kind|kind|header__change_oper|metadata\$action)",
    re.IGNORECASE,
)
_DELETED_NAME = re.compile(r"_*(\w+_)?((is_?)?deleted(_flag)?|(is_?)?tombstone)", re.IGNORECASE)
_DELETED_AT_NAME = re.compile(r"_*(\w+_)?deleted_?(at|on|time|date|ts|timestamp)", re.IGNORECASE)
# Words that programs use for operations: each family has words for upserts and words for deletes.
_MESSAGES = ("schema", "state", "activate_version", "batch")
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("c", "i", "u", "r"), ("d",)),
    (("insert", "update", "upsert", "create", "read"), ("delete",)),
    (("inserted", "updated", "upserted", "created"), ("deleted",)),
    (("add", "modify", "replace"), ("remove",)),
    (("added", "modified", "changed", "replaced"), ("removed",)),
    (("new", "changed"), ("gone", "removed")),
    (("+i", "+u"), ("-d",)),
    (("snapshot", "load"), ()),
    (("put", "set"), ("del",)),
)
# Programs that write an update as two rows: the column, and its words for new, removed, and former rows.
_WITH_IMAGES: tuple[tuple[re.Pattern[str], tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (re.compile(r"__\$operation"), ("2", "4"), ("1",), ("3",)),
    (re.compile(r"header__change_oper"), ("I", "U"), ("D",), ("B",)),
    (re.compile(r"_change_type"), ("insert", "update_postimage"), ("delete",), ("update_preimage",)),
)
_MAXWELL = ("insert", "update", "bootstrap-insert"), ("delete",), ("bootstrap-start", "bootstrap-complete")
# The words that `op` knows by default.
_DEFAULT = ({"upsert", "insert", "update", "c", "r", "u", "I", "U"}, {"delete", "d", "D"})
_INSERTS = {"i", "c", "r", "insert", "create", "read", "inserted", "created", "add", "added", "new", "+i", "snapshot"}
_FALSE, _TRUE = {"false", "f", "0", "n", "no"}, {"true", "t", "1", "y", "yes"}
_KEY_NAMES = re.compile(r"key|uuid|guid|pk|code|sku|isin|email|number|no|nr", re.IGNORECASE)
_ORDER_NAMES = re.compile(
    r"_*((last_?)?(updated?|modified|changed?|mod)(_?(at|on|ts|time|date|timestamp|dt|utc|ms|us))?|"
    r"ts|time|timestamp|(dms|cdc|header_)_(timestamp|ts)|event_?(time|ts)|commit_?(time|ts|timestamp)|op_?ts|source_?ts|ts_?(ms|us|ns)|"
    r"lsn|scn|seq|sequence|sequence_?(no|number|id)|seq_?no|version|row_?version|rev|revision|offset|change_?seq|"
    r"export(ed)?(_?(at|on|date|time|ts))?|extract(ed)?(_?(at|on|date|time|ts))?|snapshot_?(date|time|ts)|"
    r"load(ed)?(_?(at|on|date|time|ts))?|as_?of(_?date)?|valid_?from|ingest(ed)?_?(at|ts|time))",
    re.IGNORECASE,
)
_CREATED_NAME = re.compile(r"_*(created?|occurred|happened|received)(_?(at|on|ts|time|date|ms|us))?", re.IGNORECASE)
_WHENCE = re.compile(
    r"schema|database|db|table|(table|schema|source|stream|topic)_?name|source|stream|topic|partition", re.IGNORECASE
)
_LONG_TEXT, _SEVERAL = 64, 2
# A key that this share of a file and the next one have comes again.
_SOME = 0.1
# A column with at most this share of ties orders rows; the file decides between these.
_FEW = 0.5
# What may be a date in a name, with the day first, without a century, or as a week or a number of seconds.
_DATE_LIKE = re.compile(
    r"(?<!\d)(\d\d?[-_. ]\d\d?[-_. ](\d{4}|\d\d)|\d{4}(19|20)\d\d|\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])|"
    r"(0[1-9]|[12]\d|3[01])(0[1-9]|1[0-2])\d\d|(?<![^\W_])(19|20)\d\d|1[5-9]\d{8}(\d{3})?)(?!\d)"
)


@dataclass(frozen=True, slots=True)
class OpCandidate:
    """The column that contains the operation of a row.

    sure: its name and all its values are of a known kind.
    usual: nothing needs to be listed.
    any_deletes: every value is a delete, and null is not.
    ignore: the values on lines that are not rows.
    """

    column: str
    upsert: tuple[str, ...]
    delete: tuple[str, ...]
    sure: bool
    usual: bool = False
    any_deletes: bool = False
    ignore: tuple[str, ...] = ()

    @property
    def option(self) -> dict[str, Any]:
        """Returns the option as `tidefold.yaml` has it."""
        if self.any_deletes:
            return {"column": self.column, "delete": "any"}
        if self.ignore:
            lists = {"upsert": list(self.upsert), "delete": list(self.delete), "ignore": list(self.ignore)}
            return {"column": self.column, **lists}
        lists = {} if self.usual else {"upsert": list(self.upsert), "delete": list(self.delete)}
        return {"column": self.column, **lists}

    def is_insert(self, row: Mapping[str, Any]) -> bool:
        return text_of(row.get(self.column)).casefold() in _INSERTS

    def is_delete(self, row: Mapping[str, Any]) -> bool:
        if self.any_deletes:
            return row.get(self.column) is not None
        return text_of(row.get(self.column)) in self.delete


def text_of(value: Any) -> str:
    """Returns the text by which a value is compared."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def describes_row(name: str) -> bool:
    """Returns whether a field beside a row tells, by its name, when or whence it came, and so is no column."""
    return name.startswith("_") or bool(
        _ORDER_NAMES.fullmatch(name) or _CREATED_NAME.fullmatch(name) or _WHENCE.fullmatch(name)
    )


def find_ops(names: Sequence[str], rows: Data) -> list[OpCandidate]:
    """Returns columns that may contain the operation, the likeliest first."""
    ops = [op for name in names if (op := _op(name, rows))]
    return sorted(ops, key=lambda op: (not op.sure, not any(map(op.is_delete, rows))))


def _op(name: str, rows: Data) -> OpCandidate | None:
    values = [row.get(name) for row in rows]
    if values and _DELETED_AT_NAME.fullmatch(name):
        return OpCandidate(name, (), (), name.startswith("_"), any_deletes=True)
    if not values or any(v is None or not isinstance(v, str | bool | int) for v in values):
        return None
    seen = {text_of(v) for v in values}
    if _DELETED_NAME.fullmatch(name) and {s.casefold() for s in seen} <= _FALSE | _TRUE:
        return _flag(name, seen)
    lower = {s.casefold() for s in seen}
    for names, upserts, deletes, before in _WITH_IMAGES:
        if names.fullmatch(name) and seen <= {*upserts, *deletes, *before}:
            return OpCandidate(name, upserts, deletes, sure=True, ignore=before)
    if "record" in lower and lower <= {"record", *_MESSAGES}:
        records, messages = (tuple(_match_case(word, seen) for word in words) for words in (("record",), _MESSAGES))
        return OpCandidate(name, records, (), sure=True, ignore=messages)
    if name == "type" and "bootstrap-insert" in seen and seen <= {*_MAXWELL[0], *_MAXWELL[1], *_MAXWELL[2]}:
        return OpCandidate(name, _MAXWELL[0], _MAXWELL[1], sure=True, ignore=_MAXWELL[2])
    families = [(ups, downs) for ups, downs in _FAMILIES if lower & {*ups, *downs}]
    words = {word for ups, downs in families for word in (*ups, *downs)}
    # A column `type` is usually business data, unless its values are inserts and updates.
    named = bool(_OP_NAME.fullmatch(name)) or (name == "type" and lower <= {*_FAMILIES[1][0], *_FAMILIES[1][1]})
    removes = {word for _, downs in families for word in downs}
    # A column of any other name must have both upserts and deletes.
    if not words or not lower <= words or not (named or (lower & removes and lower - removes)):
        return None
    upsert = [*dict.fromkeys(_match_case(word, seen) for ups, _ in families for word in ups)]
    delete = [*dict.fromkeys(_match_case(word, seen) for _, downs in families for word in downs if word not in upsert)]
    usual = seen <= _DEFAULT[0] | _DEFAULT[1]
    return OpCandidate(name, tuple(upsert), tuple(delete), named, usual)


def _match_case(word: str, seen: Iterable[str]) -> str:
    """Returns a known word in the upper or lower case that the file uses."""
    same = next((s for s in seen if s.casefold() == word), None)
    if same is not None:
        return same
    listed = list(seen)
    if all(s.isupper() for s in listed):
        return word.upper()
    return word.title() if all(s.istitle() for s in listed) else word


def _flag(name: str, seen: set[str]) -> OpCandidate:
    """Returns the candidate of a delete flag, with both of its values even if the sample has only one."""
    pairs = (("false", "true"), ("f", "t"), ("0", "1"), ("n", "y"), ("no", "yes"))
    low, high = next(pair for pair in pairs if {s.casefold() for s in seen} & set(pair))
    return OpCandidate(name, (_match_case(low, seen),), (_match_case(high, seen),), name.startswith("_"))


def find_keys(
    log: str, columns: Sequence[ProposedColumn], rows: Data, op: OpCandidate | None, parts: Sequence[Data] = ()
) -> list[tuple[str, ...]]:
    """Returns columns that may be the key, the likeliest first; several together only if none alone is unique.

    parts: the rows of each file. A key may come once in each: as an update, or in each full extract.
    """
    fit = [c.name for c in columns if _can_be_key(c, rows)]
    inserts = [row for row in rows if op and op.is_insert(row)]
    told = inserts if len(inserts) >= _SEVERAL else rows
    several = [part for part in parts if len(part) >= _SEVERAL] if op is None else []
    again = {name: _find_again((name,), several) for name in fit if all(_is_unique((name,), part) for part in several)}
    unique = [name for name in fit if _is_unique((name,), told) or again.get(name, 0) >= _SOME]
    # A key that was deleted may be inserted again.
    named = [name for name in fit if key_score(log, name) >= (2 if op else 3) and name not in unique]
    # The number of a line has few values; together with another column it may be the key.
    named = [name for name in named if len({row.get(name) for row in rows}) ** 2 >= len(rows)]
    keys = sorted(unique, key=lambda name: (-key_score(log, name), -again.get(name, 0)))
    if not keys and not named:
        ids = sorted(fit, key=lambda name: -key_score(log, name))[:5]
        pairs = [pair for size in (2, 3) for pair in combinations(ids, size) if _is_unique(pair, told)]
        return pairs[:3]
    best = [(name,) for name in keys if key_score(log, name) == 3]
    return [*best, *((name,) for name in named), *((name,) for name in keys if key_score(log, name) < 3)]


def find_shared(key: Sequence[str], parts: Sequence[Data]) -> float:
    """Returns the lowest share of the keys of a file that the next file has, too; 0 for one file."""
    keys = [{tuple(row.get(name) for name in key) for row in part} for part in parts]
    return min((len(one & other) / len(one) for one, other in pairwise(keys)), default=0.0)


def _find_again(key: Sequence[str], parts: Sequence[Data]) -> float:
    """Returns the lowest share of the keys of a file that other files have, too; 0 for one file."""
    keys = [{tuple(row.get(name) for name in key) for row in part} for part in parts]
    counts = Counter(value for part in keys for value in part)
    return min((sum(counts[value] > 1 for value in part) / len(part) for part in keys), default=0.0)


def find_same(parts: Sequence[Data]) -> float:
    """Returns the lowest share of the rows of a file that the next file has, too; 0 for one file."""
    rows = [set(map(_freeze, part)) for part in parts]
    return min((len(one & other) / len(one) for one, other in pairwise(rows)), default=0.0)


def is_window(key: Sequence[str], parts: Sequence[Data]) -> bool:
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


def find_orders(columns: Sequence[ProposedColumn], rows: Data, key: Sequence[str]) -> dict[str, float]:
    """Returns columns that may order the rows of a key, the likeliest first, each with the share of its ties.

    They are never null. Ties: rows that follow another row of their key, and have the value of another one.
    """
    names = [c.name for c in columns]  # A delete that brings its row as it was comes after it.
    contents = [{name: row.get(name) for name in names} for row in rows]
    distinct = [*{_freeze(row): row for row in contents}.values()] if key else []

    def count(*places: str) -> int:
        return len({tuple(row.get(name) for name in places) for row in distinct})

    changes = max(1, len(distinct) - count(*key))
    fit = [c for c in columns if c.name not in key and _can_order(c) and not _count_nulls(c, rows) and rows]
    ties = {c.name: (len(distinct) - count(*key, c.name)) / changes for c in fit}
    likely = [c for c in fit if ties[c.name] <= _FEW or order_score(c) == 2]
    return {c.name: ties[c.name] for c in sorted(likely, key=lambda c: (-order_score(c), ties[c.name] > 0))}


def order_score(column: ProposedColumn) -> int:
    """Returns 2 if the name suggests a change time or version, 1 for a time, 0 for a number."""
    if _ORDER_NAMES.fullmatch(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name)):
        return 2
    return 1 if column.type in ("timestamp", "date") and not column.name.casefold().startswith("creat") else 0


def _can_order(column: ProposedColumn) -> bool:
    named = order_score(column) == 2 or _CREATED_NAME.fullmatch(column.name)
    return column.type in ("timestamp", "date") or (column.type in ("int", "long") and bool(named))


def _count_nulls(column: ProposedColumn, rows: Data) -> int:
    return sum(row.get(column.name) is None for row in rows)


def key_question(
    log: str, keys: Sequence[tuple[str, ...]], rows: Data, op: OpCandidate | None, parts: Sequence[Data] = ()
) -> ProposalQuestion:
    """Asks which columns are the key."""
    text = "which columns tell rows apart? If rows only come, set `merge: append` in the place of `key`."
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
    sure = len(best) == 1 and named and len(rows) >= _SEVERAL
    rivals = [score for score in scores[1:] if score >= 2]
    return ProposalQuestion("key", text, tuple(", ".join(key) for key in keys), sure and not rivals, because)


def add_files(columns: Sequence[ProposedColumn], orders: Mapping[str, float]) -> list[str]:
    """Returns the orders, the likeliest first, for rows whose files have an order: by name or arrival.

    A date alone does not say which of two rows is the newer; one that does not name a change says nothing of it.
    """
    scores = {c.name: (order_score(c), c.type) for c in columns}
    if "file" in scores:
        return [*orders]
    dated = {name for name in orders if scores[name][1] == "date"}
    kept = [name for name in orders if name not in dated or scores[name][0] == 2]
    return [*(f"{name}, file" if name in dated or orders[name] else name for name in kept), "file"]


def order_question(
    columns: Sequence[ProposedColumn],
    orders: Sequence[str],
    ties: Mapping[str, float],
    rows: Data,
    names: Sequence[str],
    is_alone: bool,
) -> ProposalQuestion:
    """Asks which column orders two rows of a key.

    ties: see `find_orders`.
    names: of the files.
    is_alone: one day does not show whether each has all rows.
    """
    text = "which column says of two rows of a key which one is the newer?"
    scores = {name: order_score(c) for c in columns for name in (c.name, f"{c.name}, file")}
    best, second, *_ = *(scores.get(name, 0) for name in orders), 0, 0
    nulls = {c.name: _count_nulls(c, rows) for c in columns if order_score(c) == 2 and _can_order(c)}
    if best < 2 and (gap := next((name for name in nulls if nulls[name]), None)):
        count = f"{nulls[gap]:,} of {len(rows):,} rows"
        text += f" `{gap}` has nulls ({count}), and a row without an order is refused: fill it."
        return ProposalQuestion("order", text, tuple(orders))
    if not orders:
        text += " No such column was found: land one, as the time of the change or of the export"
        return ProposalQuestion("order", text)
    if orders[0] == "file":
        return _file_question(text, names, is_alone)
    first = orders[0].removesuffix(", file")
    because = f"rows with the same key and the same {orders[0]} have the same content"
    if ties[first]:
        because = "its name says when a row changed. Where it is the same, the later file or row counts"
    if ties[first] > _FEW:
        text += f" `{first}` is the same in different rows of a key."
    sure = best == 2 and second < 2 and ties[first] <= _FEW
    return ProposalQuestion("order", text, tuple(orders), sure, because if sure else "it is a time that is never null")


def _file_question(text: str, names: Sequence[str], is_alone: bool) -> ProposalQuestion:
    if is_alone:
        text += " If each file has all rows of the table, answer `extract: full`: below `source`, without `order`."
    unread = [name for name in names if find_time(name) is None]
    is_odd = bool(unread) and (len(unread) < len(names) or all(map(_DATE_LIKE.search, unread)))
    if is_odd:
        text += (
            f" No time can be read for sure from the name `{unread[0]}`. Land files under names such as "
            "`orders-2026-01-31.csv`; those without a time count by arrival."
        )
    how = "the time in its name" if names and not unread else "arrival"
    because = f"no column says when a row changed, so the later file counts: by {how}"
    return ProposalQuestion("order", text, ("file",), not (is_alone or is_odd), because)


def op_question(ops: Sequence[OpCandidate], rows: Data) -> ProposalQuestion | None:
    """Asks which column marks deleted rows; None if no column looks like it."""
    if not ops:
        return None
    best = ops[0]
    reason = f"it says {', '.join(sorted({text_of(row.get(best.column)) for row in rows}))}"
    if best.any_deletes:
        reason = "its name says when a row was deleted"
    return ProposalQuestion(
        "op", "does this column say what a row does?", tuple(op.column for op in ops), best.sure, reason
    )
