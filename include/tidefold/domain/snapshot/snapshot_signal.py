"""The SQL statement that makes Debezium snapshot the rows of some keys again, with all columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# The most keys in one statement.
_MOST = 100


def find_table(topic: str) -> str:
    """Returns the table of a topic that is named `<prefix>.<schema or database>.<table>`: all but its prefix."""
    return ".".join(topic.split(".")[-2:])


def incremental_snapshot_signal(topic: str, keys: Sequence[Mapping[str, Any]]) -> str:
    """Returns SQL for the signalling table of the connector (`debezium_signal`, unless it has another name)."""
    table = find_table(topic)
    names = list(keys[0])
    rows = [", ".join(_literal(key[name]) for name in names) for key in keys[:_MOST]]
    listed = ", ".join(rows if len(names) == 1 else (f"({row})" for row in rows))
    which = names[0] if len(names) == 1 else f"({', '.join(names)})"
    conditions = [{"data-collection": table, "filter": f"{which} IN ({listed})"}]
    data = {"type": "incremental", "data-collections": [table], "additional-conditions": conditions}
    text = _literal(json.dumps(data))
    return f"INSERT INTO debezium_signal (id, type, data) VALUES ('tidefold', 'execute-snapshot', {text});"


def _literal(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).upper() if value is not None else "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
