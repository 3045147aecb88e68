"""Text for and from people, on the command line and on the page in Airflow."""

from __future__ import annotations

import json
from typing import Any

from tidefold.domain.table.table_spec import TableSpec
from tidefold.domain.wording import choose_record_noun
from tidefold.errors import InvalidInputError


def mask_control_characters(text: str) -> str:
    """Without control characters: names and reasons come from landed data, and terminals obey escape sequences."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def key_text(words: list[str], shape: TableSpec) -> str:
    """The key as a JSON object: given as one, as the value of the only key column, or as pairs.

    Values are read by the types of their columns.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    types = {column.name: column.type for column in shape.columns}
    hint = f"Give it as {' '.join(f'{name}=...' for name in shape.key)}, or as a JSON object."
    if len(words) == len(shape.key) == 1 and "=" not in words[0]:
        words = [f"{shape.key[0]}={words[0]}"]
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name in values:
            raise InvalidInputError(
                "READ_KEY", f"`{word}` does not have the form `column=value`, or its column is given twice.", hint=hint
            )
        values[name] = _value(text, types.get(name, "string"))
    return json.dumps(values)


def _value(text: str, kind: str) -> str | int | bool:
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind in ("int", "long") and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit():
        return int(text)
    return text


def format_place(file: str, number: int) -> str:
    """Returns the position of a record, such as `row 3 of orders.csv`."""
    return f"{choose_record_noun(file)} {number} of {file}"
