"""Rows that PostgreSQL's connector never sent: it was killed between the rows of one position (debezium#7531).

A COPY writes many rows with one record of the WAL, so they have one LSN. A connector before 3.7.0 that stored this LSN
after some of them leaves out the rest when it starts again. No captured record shows that; the WAL does.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torture.proof import find_key, read_records
from torture.tables import Key, Table

# As `pg_waldump` writes it.
_MANY = re.compile(r"lsn: ([0-9A-F]+)/([0-9A-F]+),.* MULTI_INSERT(?:\+INIT)? ntuples: (\d+)")


def read_written(text: str) -> dict[int, int]:
    """How many rows each LSN has, of the rows that were written many at once. text: of `pg_waldump`."""
    return {(int(high, 16) << 32) + int(low, 16): int(rows) for high, low, rows in _MANY.findall(text)}


def find_lost(folder: Path, table: Table, missing: Counter[Any], written: Mapping[int, int]) -> Counter[Any]:
    """Those of the missing rows that the connector lost; none, if it did not lose as many. folder: captured records.

    A row without a key cannot be told from others, so the connector must have lost exactly what is missing. One with a
    key must be in no record at all.
    """
    sent: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    seen: set[Key] = set()
    for record in read_records(folder):
        seen.add(find_key(table, record.key))
        if record.begins:
            sent.clear()
        if record.op == "c" and record.place[-1] in written:
            sent[record.place[-1]][record.run][json.dumps([record.key, record.row])] += 1
    lost = sum(written[lsn] - _union(runs).total() for lsn, runs in sent.items())
    if not table.key:
        return missing if missing.total() == lost else Counter()
    unseen = Counter({row: n for row, n in missing.items() if row[: len(table.key)] not in seen})
    return unseen if unseen.total() <= lost else Counter()


def _union(runs: Mapping[str, Counter[str]]) -> Counter[str]:
    """The rows that some run of the engine has sent; another one may have sent them again."""
    rows: Counter[str] = Counter()
    for one in runs.values():
        rows |= one
    return rows
