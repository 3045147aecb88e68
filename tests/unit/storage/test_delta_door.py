"""Every call of deltalake passes one door, which tells a damaged table from a store that does not answer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

import tidefold
from tidefold.errors import CorruptError, StorageError, TidefoldError
from tidefold.storage.delta_tables import convert_errors

_PACKAGE = Path(tidefold.__file__).parent
_PLUGIN = _PACKAGE.parents[1] / "plugins"
# `testing` is what others test their stores with.
_OUTSIDE = ("storage/delta_tables.py", "testing/")


def _opens_tables(path: Path) -> bool:
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(isinstance(one, ast.Name) and one.id == "DeltaTable" for one in calls)


def test_only_the_door_opens_tables() -> None:
    files = [path for root in (_PACKAGE, _PLUGIN) for path in root.rglob("*.py")]
    named = {path.as_posix() for path in files if _opens_tables(path)}
    assert [one for one in named if not any(part in one for part in _OUTSIDE)] == []
    assert len(files) > 300


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (DeltaError("Kernel error: Error interacting with object store: Generic S3 error"), StorageError, "STORAGE"),
        (DeltaError("Generic MicrosoftAzure error: error decoding response body"), StorageError, "STORAGE"),
        (DeltaError("Generic GCS error: end of file before message length reached"), StorageError, "STORAGE"),
        (CommitFailedError("Failed to commit transaction: 0"), StorageError, "STORAGE"),
        (OSError("\x1b[31mConnection reset by peer\x1b[0m"), StorageError, "STORAGE"),
        (DeltaError("Invalid JSON in log record, version=0, line=`x`"), CorruptError, "DELTA_TABLE"),
        (DeltaError("Kernel error: No table metadata or protocol found in delta log."), CorruptError, "DELTA_TABLE"),
    ],
)
def test_a_lost_or_cut_answer_is_no_damage(error: Exception, kind: type[TidefoldError], code: str) -> None:
    with pytest.raises(kind) as told, convert_errors("tables/t"):
        raise error
    assert told.value.code == code
    assert "\x1b" not in told.value.message
