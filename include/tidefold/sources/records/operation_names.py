"""Names of columns that say what a row does: its operation, that it is deleted, or when it was."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from tidefold.sources.records.errors import RefusedRecordError

# Names of nothing else.
ONLY_OPERATION = (
    r"op(er(ation)?)?(_?(name|type|flag|code|cd|ind(icator)?))?|change_?(type|op(er)?|flag|code|ind(icator)?|mode)|"
    r"(cdc|dml|iud)(_?(type|flag|ind|action|op(eration)?))?|row_?kind|(odq_)?changemode|0?recordmode|dtl__capxaction|"
    r"hvr_?op|mz_diff|cdc\$operation|enttyp|joentt|header__change_oper|__\$operation|metadata\$action|versions_operation"
)
SURELY_OPERATION = re.compile(rf"_*({ONLY_OPERATION})|_sign", re.IGNORECASE)
DELETED = re.compile(
    r"_*(\w+_)?((is_?)?(deleted|removed)|del(eted?)?_?(flag|ind(icator)?|mark|sign)_*|(is_?)?tombstoned?)|(is_?)?delete",
    re.IGNORECASE,
)
DELETED_AT = re.compile(r"_*(\w+_)?deleted_?(at|on|time|date|ts|timestamp)|@removed", re.IGNORECASE)

# Values of such fields that say nothing, as JSON.
_NOTHING = (b"null", b"false", b"0", b'""', b'"false"', b'"0"')


@lru_cache(1000)
def option_of(name: str) -> str:
    """Returns the option that reads a column with such a name; empty: it is not one."""
    column = f"column: {name if name[:1] != '@' else json.dumps(name)}"
    if DELETED_AT.fullmatch(name):
        return f"{{{column}, delete: any}}"
    if DELETED.fullmatch(name):  # Another word is refused, and named.
        return f'{{{column}, upsert: ["false"], delete: ["true"], missing: upsert}}'
    return f"{{{column}, missing: upsert}}" if SURELY_OPERATION.fullmatch(name) else ""


def explain_operation(names: Iterable[str], row: str = "") -> str:
    """Returns what to set if one of these columns says what a row does; empty: none does by its name.

    row: the field with the row, if the column is beside it.
    """
    name = next(filter(option_of, names), "")
    option = f"{option_of(name)[:-1]}, row: {row}}}" if row else option_of(name)
    place = "`source`, without `row` there" if row else "`source`"
    advice = (
        f" If `{name}` says what a row does, set `op: {option}` under {place}, and "
        f"`schema_evolution: {{read: evolve}}` beside it; else add it to {'' if row else '`columns` or '}`ignored`."
    )
    return advice if name else ""


def check_beside(fields: Mapping[str, bytes], expected: Collection[str], row: str, *, has_op: bool) -> None:
    """Refuses a record if a field beside its row says what the row does, and nothing reads it.

    expected: fields that are read, or ignored. has_op: whether the log reads an operation.
    """
    for name, value in fields.items():
        is_mark = name not in expected and option_of(name) and not (has_op and SURELY_OPERATION.fullmatch(name))
        if is_mark and bytes(value) not in _NOTHING:
            detail = f"The record has {name} beside its row, which is not configured.{explain_operation([name], row)}"
            raise RefusedRecordError("UNKNOWN_COLUMN", detail)
