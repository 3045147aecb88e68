"""Compares the columns of a file of rows with those of its log, and says which lines of the configuration fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import Engine
from tidefold.sources.landing.folders import read_folders
from tidefold.sources.records.operation_names import explain_operation

# How alike two names are that may be one.
_NEAR = 0.75
_UNTAKEN = "Nothing of it was ingested."


def misfit(names: Sequence[str], shape: TableSpec, beside: Sequence[str]) -> str | None:
    """Returns what is wrong with the columns of a file; None: nothing."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"has column {', '.join(twice)} twice"
    columns = [column.name for column in shape.columns]
    expected = {*columns, *beside, *shape.ignored}
    unknown = [name for name in names if name not in expected]
    by = shape.column_order
    partial = shape.merge.engine is Engine.PARTIAL
    required = [column.name for column in shape.columns if not column.may_lack]
    needed = {*beside, *((*shape.key, *by) if partial else required)}
    missing = [name for name in (*columns, *beside) if name in needed and name not in names]
    if unknown:
        lacks = f". It lacks column {', '.join(dict.fromkeys(missing))[:200]}" if missing else ""
        return f"has column {', '.join(unknown)[:200]}, which is not configured{lacks}"
    if missing:
        return f"lacks column {', '.join(dict.fromkeys(missing))}, and a missing column does not count as null"
    return None


def or_land(hint: str) -> str:
    """Returns the lines of the configuration, or what else to do: land another file."""
    return f"{hint} {'Land' if hint == _UNTAKEN else 'Or land'} the file with the columns of the log."


def explain_columns(
    names: Sequence[str],
    shape: TableSpec,
    beside: Sequence[str],
    path: str = "",
    types: Mapping[str, str] | None = None,
) -> str:
    """Returns the lines of the configuration that make tidefold ingest a file with these columns.

    path: of the file. types: of its columns, as far as it says them; empty: no type fits.
    """
    expected = {*(column.name for column in shape.columns), *beside, *shape.ignored}
    unknown = [name for name in names if name not in expected]
    lacking = {*shape.key, *shape.column_order, *beside} - set(names)
    missing = [c for c in shape.columns if c.name not in names and not c.may_lack and not lacking]
    hint = _UNTAKEN
    in_folders = [c.name for c in missing if c.name in read_folders(path)]
    if in_folders:
        hint += f" Its folders have {', '.join(in_folders)}: set `folder_columns: [{', '.join(in_folders)}]` under "
        hint += "`source`."
    aliases = {alias: column.name for column in shape.columns for alias in column.aliases}
    for name in filter(aliases.get, unknown):
        hint += f" `{name}` is an alias of `{aliases[name]}`, and the file has both: remove one of them."
    unknown = [name for name in unknown if name not in aliases]
    lower = {c.name.lower(): c for c in shape.columns if c.name not in names and c.name not in in_folders}
    near = {name: lower[to] for name in unknown for to in get_close_matches(name.lower(), lower, 1, _NEAR)}
    for name, column in list(near.items())[:3]:
        hint += f" Did you mean `{name}` by column `{column.name}`? Correct it in `columns`, or set "
        hint += f"`{column.name}: {{type: '{column.type}', aliases: [{name}]}}` there."
    unknown = [name for name in unknown if name not in near]
    missing = [c for c in missing if c not in near.values() and c.name not in in_folders]
    marks = explain_operation(unknown) if not beside else ""
    hint += marks
    if unknown and not marks:
        if len(unknown) == len(missing) == 1:
            renamed = f"{missing[0].name}: {{type: '{missing[0].type}', aliases: [{unknown[0]}]}}"
            hint += f" If `{unknown[0]}` is the new name of `{missing[0].name}`, set `{renamed}` in `columns`."
        told = {name: "string" if types is None else types.get(name, "string") for name in unknown}
        lines = ", ".join([f"`{n}: {{type: '{type_}', default: null}}`" for n, type_ in told.items() if type_][:3])
        other = "" if types else " (or another type)"
        hint += f" To ingest it, add {lines}{other} to `columns`, or set" if lines else " No type fits: set"
        hint += f" `ignored: [{', '.join(unknown)}]` beside {'it' if lines else '`columns`'}."
    if missing:
        lines = ", ".join(f"`{c.name}: {{type: '{c.type}', default: null}}`" for c in missing[:3])
        hint += f" If such files have null there, set {lines} in `columns`."
    return hint
