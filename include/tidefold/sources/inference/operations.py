"""Finds the column that says what a row does: insert, update, delete, or how a row was before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from tidefold.sources.inference.proposal import ProposalQuestion
from tidefold.sources.records.operation_names import DELETED, DELETED_AT, ONLY_OPERATION, SURELY_OPERATION, option_of

Data = Sequence[Mapping[str, Any]]
Parts = Sequence[Data]

# Names that may be business data, too.
_OP_NAME = re.compile(rf"_*({ONLY_OPERATION}|action|event|event_?type|kind)|_sign", re.IGNORECASE)
# As of audit tables and webhooks. Such a column is asked for, never taken.
_NEAR_OP_NAME = re.compile(
    r"\w+_(action|event|operation|op|op(er)?_?type)|(action|row|record|update|delta|sync|mutation|event|journal)_?"
    r"(flag|code|cd|ind(icator)?|type|mode|kind|status)|verb|topic|subscription_?type|column_\d+",
    re.IGNORECASE,
)
# Words that programs use for operations: each family has words for upserts and words for deletes.
_FAMILIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("c", "i", "u", "r"), ("d",)),
    (("insert", "update", "upsert", "create", "read", "replace", "import"), ("delete", "destroy")),
    (("inserted", "updated", "upserted", "created"), ("deleted", "destroyed")),
    (("add", "modify", "replace"), ("remove",)),
    (("added", "modified", "changed", "replaced"), ("removed",)),
    (("new", "changed"), ("gone", "removed")),
    (("snapshot", "load", "refresh"), ()),
    (("put", "set"), ("del",)),
    (("mutation",), ("deletion", "expiration")),
    (("neu", "neuanlage", "anlage", "änderung", "aenderung"), ("löschung", "loeschung")),
    (("angelegt", "geändert", "geaendert"), ("gelöscht", "geloescht")),
    (("création", "creation", "ajout", "modification"), ("suppression",)),
    (("alta", "modificación", "modificacion"), ("baja",)),
)
_ANY_NAME = re.compile(".*", re.DOTALL)
# Programs that write an update as two rows: the column, and its words for new, removed, and former rows. A former row
# is a delete, which the new row outranks if their key is the same one (decision 0083).
_WITH_IMAGES: tuple[tuple[re.Pattern[str], tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (re.compile(r"__\$operation"), ("2", "4"), ("1",), ("3",)),
    (re.compile(r"header__change_oper", re.IGNORECASE), ("i", "u"), ("d",), ("b",)),
    (_ANY_NAME, ("insert", "update_postimage"), ("delete",), ("update_preimage",)),
    (_ANY_NAME, ("insert", "update_after"), ("delete",), ("update_before",)),
    (_ANY_NAME, ("+i", "+u"), ("-d",), ("-u",)),
    (re.compile(r"enttyp", re.IGNORECASE), ("pt", "up"), ("dl",), ("ub",)),
    (re.compile(r"_value_kind", re.IGNORECASE), ("0", "2"), ("3",), ("1",)),
    (re.compile(r"_sign|mz_diff", re.IGNORECASE), ("1",), (), ("-1",)),
    (re.compile(r"hvr_op", re.IGNORECASE), ("1", "2"), ("0",), ("3", "4")),
    (re.compile(r"_hoodie_operation"), ("i", "u"), ("d",), ("-u",)),
)
# The words that `op` knows by default.
_DEFAULT = ({"upsert", "insert", "update", "c", "r", "u", "I", "U"}, {"delete", "d", "D"})
_SNAPSHOT = {"r", "read", "snapshot", "load", "refresh"}
_INSERTS = {"i", "c", "insert", "create", "inserted", "created", "add", "added", "new", "+i", "pt"} | _SNAPSHOT
_UPDATES = {"u", "update", "modify"}
_FALSE, _TRUE = {"false", "f", "0", "n", "no"}, {"true", "t", "1", "y", "yes"}
_MOST_WORDS, _LONGEST_WORD = 12, 40
# Codes of operations in any language: one begins the rows of a key, one ends them, and others come between.
_CODE, _CODES, _SEVERAL = re.compile(r"[^\W\d_]{1,2}"), (3, 4), 2
# Webhooks: `products/create`, `customer.deleted`.
_WHAT = re.compile(r"[a-z].*[./:]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OpCandidate:
    """The column that contains the operation of a row.

    sure: its name and all its values are of a known kind.
    usual: nothing needs to be listed.
    any_deletes: every value is a delete, and null is not.
    ignore: the values on lines that are not rows.
    has_gaps: some rows have none.
    unknown: its values that no list has.
    images: those of `delete` that a row had before an update.
    inserts: those of `upsert` that begin the rows of a key.
    lives_of: the column whose rows show what its codes mean; empty: its words are known.
    """

    column: str
    upsert: tuple[str, ...]
    delete: tuple[str, ...]
    sure: bool
    usual: bool = False
    any_deletes: bool = False
    ignore: tuple[str, ...] = ()
    has_gaps: bool = False
    unknown: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    inserts: tuple[str, ...] = ()
    lives_of: str = ""

    def write_option(self, *, as_were: bool) -> dict[str, Any]:
        """Returns the option as `tidefold.yaml` has it. as_were: fields that a row lacks are as they were."""
        if self.any_deletes:
            return {"column": self.column, "delete": "any"}
        if self.images and as_were:  # A delete would take what the new row lacks.
            kept = tuple(word for word in self.delete if word not in self.images)
            return replace(self, delete=kept, ignore=self.images, images=()).write_option(as_were=True)
        lists: dict[str, Any] = {} if self.usual else {"upsert": list(self.upsert), "delete": list(self.delete)}
        lists |= {"ignore": list(self.ignore)} if self.ignore else {}
        lists |= {"pairs": True} if self.images or self.column.upper() == "METADATA$ACTION" else {}
        return {"column": self.column, **lists, **({"missing": "upsert"} if self.has_gaps else {})}

    def is_insert(self, row: Mapping[str, Any]) -> bool:
        is_update = _plain(row.get("METADATA$ISUPDATE")) in _TRUE  # The stream of a Snowflake table.
        return (_plain(row.get(self.column)) in _INSERTS or row.get(self.column) in self.inserts) and not is_update

    def is_of_snapshot(self, row: Mapping[str, Any]) -> bool:
        """Whether the operation says that the row was read, not changed."""
        return _plain(row.get(self.column)) in _SNAPSHOT

    def is_delete(self, row: Mapping[str, Any]) -> bool:
        if self.any_deletes:
            return row.get(self.column) is not None
        return text_of(row.get(self.column)) in self.delete


_UNSEEN = OpCandidate("", (), (), sure=False, usual=True)


def text_of(value: Any) -> str:
    """Returns the text by which a value is compared."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: Any) -> str:
    """Returns the word of a value, whatever its case, the blanks around it, and what is changed."""
    return _WHAT.sub("", text_of(value).strip().casefold(), count=1)


def find_ops(names: Sequence[str], rows: Data) -> list[OpCandidate]:
    """Returns columns that may contain the operation, the likeliest first."""
    ops = [op for name in names if (op := _op(name, rows))] or _find_codes(names, rows)
    return sorted(ops, key=lambda op: (not op.sure, not any(map(op.is_delete, rows))))


def _op(name: str, rows: Data) -> OpCandidate | None:
    is_mark = any(isinstance(row.get(name), dict) for row in rows) and DELETED.fullmatch(name)
    if rows and (is_mark or DELETED_AT.fullmatch(name)):
        return OpCandidate(name, (), (), name.startswith("_"), any_deletes=True)
    values = {row.get(name) for row in rows if isinstance(row.get(name), Hashable)}
    has_gaps, seen = None in values, {*map(text_of, values - {None})}
    is_word = all(isinstance(row.get(name), str | bool | int | None) for row in rows)
    if rows and not seen and is_word and option_of(name):  # Its words come later.
        return replace(
            _flag(name, ["false"]) if DELETED.fullmatch(name) else _UNSEEN, column=name, has_gaps=True, sure=False
        )
    if not seen or not is_word or len(seen) > _MOST_WORDS or max(map(len, seen)) > _LONGEST_WORD:
        return None
    if DELETED.fullmatch(name) and {*map(_plain, seen)} <= _FALSE | _TRUE:
        return replace(_flag(name, seen), has_gaps=has_gaps)
    op = _with_images(name, seen) or _of_families(name, seen)
    return replace(op, has_gaps=has_gaps, sure=op.sure and not has_gaps) if op else None


def _find_codes(names: Sequence[str], rows: Data) -> list[OpCandidate]:
    """Returns columns of a few letters that say when the rows of a key begin and end, whatever the language."""
    ops = []
    for name in names:
        codes = {row.get(name) for row in rows if isinstance(row.get(name), str | None)}
        if _CODES[0] <= len(codes) <= _CODES[1] and all(code and _CODE.fullmatch(code) for code in codes):
            keys = (key for key in names if key != name and all(isinstance(row.get(key), str | int) for row in rows))
            ops += [op for key in keys for op in _find_lives(name, key, rows)][:1]
    return ops


def _find_lives(name: str, key: str, rows: Data) -> Iterator[OpCandidate]:
    """Yields the operation if one code only begins the rows of a key, or comes after one that only ends them.

    Another code must follow itself, as updates do: a state is left for the next one.
    """
    last: dict[Any, str] = {}
    steps: Counter[tuple[str, str]] = Counter()
    for row in rows:
        code = row[name]
        steps[last.get(row[key], ""), code] += 1
        last[row[key]] = code
    codes = sorted({code for _, code in steps})
    for begin, end in permutations(codes, 2):
        between = [code for code in codes if code not in (begin, end)]
        begins = all((before in ("", end)) == (code == begin) for before, code in steps if before or code == begin)
        entered, left = (sum(steps[begin, code] for code in between), sum(steps[code, end] for code in between))
        again = max(steps[code, code] for code in between)
        if begins and min(steps["", begin], entered, left, again) >= _SEVERAL:
            yield OpCandidate(name, (begin, *between), (end,), sure=False, inserts=(begin,), lives_of=key)


def _with_images(name: str, seen: Collection[str]) -> OpCandidate | None:
    lower = {*map(_plain, seen)}
    for names, upserts, deletes, before in _WITH_IMAGES:
        is_shown = names is not _ANY_NAME or lower & {*before, upserts[1]} or upserts[0] == "+i"
        # Delta's words are small, those of Iceberg are not.
        is_shown = is_shown or (name == "_change_type" and ({*seen} == lower) is ("update_preimage" in before))
        if names.fullmatch(name) and is_shown and lower <= {*upserts, *deletes, *before}:
            images = _spell(before, seen)
            return OpCandidate(name, _spell(upserts, seen), (*_spell(deletes, seen), *images), sure=True, images=images)
    return None


def _of_families(name: str, seen: Collection[str]) -> OpCandidate | None:
    lower = {*map(_plain, seen)}
    families = [(ups, downs) for ups, downs in _FAMILIES if lower & {*ups, *downs}]
    words = {word for ups, downs in families for word in (*ups, *downs)}
    # A column `type` is usually business data, unless its values are inserts and updates.
    named = bool(_OP_NAME.fullmatch(name)) or (name == "type" and lower <= {*_FAMILIES[1][0], *_FAMILIES[1][1]})
    near = bool(_NEAR_OP_NAME.fullmatch(name))
    removes = {word for _, downs in families for word in downs}
    # A column of any other name must have both upserts and deletes, or inserts and updates. Events name an object, too.
    whole = {text.strip().casefold() for text in seen}
    is_both = bool(lower & removes and lower - removes) or bool(whole & _UPDATES and whole - _UPDATES)
    is_known = bool(words) and lower <= words and (named or near or is_both)
    if not is_known and not (words and (named or near)) and not SURELY_OPERATION.fullmatch(name):
        return None
    upsert = _spell([word for ups, _ in families for word in ups], seen)
    delete = _spell([word for _, downs in families for word in downs if word not in map(_plain, upsert)], seen)
    unknown = tuple(sorted(text for text in seen if _plain(text) not in words))
    usual = bool(words) and {*seen} <= _DEFAULT[0] | _DEFAULT[1]
    return OpCandidate(name, upsert, delete, named and is_known, usual, unknown=unknown)


def _spell(words: Sequence[str], seen: Collection[str]) -> tuple[str, ...]:
    """Returns known words as the file writes them: each way that was seen, else in its case, with its blanks."""
    listed = sorted(seen)
    width = max(map(len, listed)) if any(s != s.rstrip() for s in listed) else 0
    prefixes = {match[0] if (match := _WHAT.match(s)) else "" for s in listed}
    before = prefixes.pop() if len(prefixes) == 1 else ""
    spelled = []
    for word in words:
        cased = word.upper() if all(s == s.upper() for s in listed) else word
        cased = word.title() if word.isalpha() and len(word) > 1 and all(s.istitle() for s in listed) else cased
        spelled += [s for s in listed if _plain(s) == word] or [f"{before}{cased}".ljust(width)]
    return tuple(dict.fromkeys(spelled))


def _flag(name: str, seen: Collection[str]) -> OpCandidate:
    """Returns the candidate of a delete flag, with both of its values even if the sample has only one."""
    pairs = (("false", "true"), ("f", "t"), ("0", "1"), ("n", "y"), ("no", "yes"))
    low, high = next(pair for pair in pairs if {*map(_plain, seen)} & {*pair})
    return OpCandidate(name, _spell([low], seen), _spell([high], seen), name.startswith("_"))


def find_lacks(names: Sequence[str], parts: Parts, op: OpCandidate | None) -> dict[str, bool]:
    """Returns the columns that rows lack which are no deletes, each with whether only older files lack it.

    parts: the rows of each file, the oldest first.
    """
    kept = [[row for row in part if not (op and op.is_delete(row))] for part in parts]
    lacks = {}
    for name in names:
        shares = [sum(name in row for row in part) / len(part) for part in kept if part]
        if any(share < 1 for share in shares):
            lacks[name] = shares == sorted(shares) and {*shares} <= {0, 1}
    return lacks


def op_question(ops: Sequence[OpCandidate], rows: Data) -> list[ProposalQuestion]:
    """Asks which column marks deleted rows; nothing if no column looks like it."""
    if not ops:
        return []
    best = ops[0]
    words = sorted({text_of(row[best.column]) for row in rows if row.get(best.column) is not None})
    text, reason = "does this column say what a row does?", f"it says {', '.join(words)}"
    if not words and not best.any_deletes:
        text += " The sample has no value of it"
    elif best.any_deletes:
        reason = "its name says when a row was deleted"
    elif best.has_gaps and not best.sure:
        text += f" It {reason.removeprefix('it ')}; rows without it would be upserts, as in a full load beside changes."
    if best.lives_of:
        text += f" No row of a `{best.lives_of}` follows one with {best.delete[0]!r}, but with {best.inserts[0]!r}."
    if best.unknown:
        text += f" Nothing says what {', '.join(map(repr, best.unknown))} means: list it."
    return [ProposalQuestion("op", text, tuple(op.column for op in ops), best.sure, reason)]
