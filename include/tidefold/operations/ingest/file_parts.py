"""Joins what was read of the parts of one file, so that the log gets what it gets from reading the file as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import accumulate
from typing import Any

import msgspec

from tidefold.operations.ingest.parse import FileResult
from tidefold.sources.quarantine.writer import Quarantined, QuarantineWriter
from tidefold.sources.records.accounting import Account
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_COUNTS = [field.name for field in fields(Account) if field.type == "int"]
_NOT_JOINED: dict[str, Any] = {**dict.fromkeys(_COUNTS, 0), "refused": {}}


def join_parts(store: Store, files: Iterable[FileResult]) -> tuple[dict[str, FileResult], frozenset[str]]:
    """Returns one result for each file, and the names of the files that must be read as one.

    Those are files of which a part has a problem, or knows more than counts: it is then told by the whole file.
    """
    parts: dict[str, list[FileResult]] = {}
    for one in sorted(files, key=lambda one: one.part):
        parts.setdefault(one.name, []).append(one)
    joined = {name: some[0] if len(some) == 1 else _join(store, some) for name, some in parts.items()}
    return {name: one for name, one in joined.items() if one}, frozenset(n for n, one in joined.items() if one is None)


def _join(store: Store, parts: Sequence[FileResult]) -> FileResult | None:
    accounts = [one.account for one in parts if one.account and not one.problem]
    if len(accounts) < len(parts) or any(_strip(one) != _strip(accounts[0]) for one in accounts):
        return None
    counts = {name: sum(getattr(one, name) for one in accounts) for name in _COUNTS}
    refused = sum((Counter(one.refused) for one in accounts), Counter[str]())
    # The number of the row before each part.
    before = [0, *accumulate(one.numbers for one in parts)][: len(parts)]
    written = [replace(p.written, rows_before=row) for p, row in zip(parts, before, strict=True) if p.written]
    return replace(
        parts[0],
        account=replace(accounts[0], **counts, refused=dict(refused)),
        written=written[0] if written else None,
        more=tuple(written[1:]),
        quarantine=_join_quarantine(store, parts, before) if refused else None,
    )


def _strip(account: Account) -> Account:
    return replace(account, **_NOT_JOINED)


def _join_quarantine(store: Store, parts: Sequence[FileResult], before: Sequence[int]) -> str | None:
    """Stores the refused records of all parts, with the numbers that they have in the file; returns the path."""
    folder = ""
    with QuarantineWriter() as writer:
        for part, row in zip(parts, before, strict=True):
            for text in store.read(part.quarantine).splitlines() if part.quarantine else ():
                entry = decode_json(text, Quarantined)
                if entry.file == part.name:
                    writer.write(msgspec.structs.replace(entry, line=entry.line + row))
            folder = part.quarantine.rpartition("/")[0] if part.quarantine else folder
        return writer.store(store, folder)
