"""Writes the table of checks in docs/reference/quality.md from the classes of the catalogue."""

from __future__ import annotations

import typing
from pathlib import Path

from tidefold.quality.suite.arguments import ColumnTypes
from tidefold.quality.suite.catalogue import CATALOGUE, CatalogueCheck

_PAGE = Path(__file__).parent.parent / "docs" / "reference" / "quality.md"
_HEAD = "| entry | passes when | columns |\n|---|---|---|\n"
_EXAMPLES = {"to": "to: LOG.COLUMN", "max_age": "max_age: 2 days"}


def _form(kind: str, check: type[CatalogueCheck]) -> str:
    fields = sorted(check.model_fields, key=lambda name: not check.model_fields[name].is_required())
    if fields == ["columns"]:
        return f"`{kind}: bid`, `{kind}: [a, b]`"
    return f"`{kind}: {{{', '.join(_EXAMPLES.get(name, name) for name in fields)}}}`"


def _columns(check: type[CatalogueCheck]) -> str:
    if "columns" in check.model_fields:
        return "all"
    field = check.model_fields.get("column")
    families = next((m.families for m in field.metadata if isinstance(m, ColumnTypes)), ()) if field else ()
    return ", ".join("numbers" if family == "number" else family for family in families)


def render_table() -> str:
    """The table, one line for each kind of check."""
    rows = (f"| {_form(k, c)} | {typing.cast(str, c.__doc__)} | {_columns(c)} |\n" for k, c in CATALOGUE.items())
    return _HEAD + "".join(rows).replace("|  |", "| |")


def insert_table(page: str) -> str:
    """The page with the table as it is now."""
    begin = page.index(_HEAD)
    end = page.index("\n\n", begin) + 1
    return page[:begin] + render_table() + page[end:]


if __name__ == "__main__":
    _PAGE.write_text(insert_table(_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
