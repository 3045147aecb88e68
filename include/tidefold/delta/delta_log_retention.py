"""Finds the files of a Delta log that no reader needs: those before a checkpoint at or before every version in use."""

from __future__ import annotations

import re

import msgspec

from tidefold.domain.paths import LogPaths
from tidefold.errors import NotFoundError
from tidefold.storage import Store
from tidefold.storage.delta_tables import convert_errors, open_table
from tidefold.typed_json import decode_json

# What is written by Delta and tidefold for one version; files of other names stay.
_FILE = re.compile(r"(?P<version>\d{20})\.(?P<kind>json|crc|checkpoint\.parquet)")
_HINT = "_last_checkpoint"


def find_old_log_files(store: Store, log: str, oldest: int) -> tuple[str, ...]:
    """Returns the log files that nothing needs to read version `oldest` or a newer one, oldest first.

    They come before the newest checkpoint that is not newer than `oldest`. tidefold reads that checkpoint as a proof.
    `_last_checkpoint` must not name an older one. Raises CorruptError, StorageError.
    """
    table = LogPaths(log).table
    files: dict[int, dict[str, str]] = {}
    for entry in store.list(f"{table}/_delta_log"):
        name = _FILE.fullmatch(entry.path.rsplit("/", 1)[1])
        if name:
            files.setdefault(int(name["version"]), {})[name["kind"]] = entry.path
    commits = {version for version, kinds in files.items() if "json" in kinds}
    whole = {version for version, kinds in files.items() if {"json", "checkpoint.parquet"} <= kinds.keys()}
    first = max((version for version in whole if version <= oldest), default=None)
    old = [path for version in sorted(files) if first and version < first for path in files[version].values()]
    if not old or first is None or not set(range(first, max(commits) + 1)) <= commits:
        return ()
    if not _is_proved(store, table, first):
        return ()
    return tuple(old)


def _is_proved(store: Store, table: str, first: int) -> bool:
    """Whether the version can be read from its checkpoint, and `_last_checkpoint` names it or a newer one."""
    try:
        hint = decode_json(store.read(f"{table}/_delta_log/{_HINT}"), dict[str, object])
    except (NotFoundError, msgspec.DecodeError):
        return False
    with convert_errors(table):
        open_table(store, table, first)
    return isinstance(sent := hint.get("version"), int) and sent >= first
