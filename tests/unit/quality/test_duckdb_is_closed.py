"""The database of the gate judges its own rows: no statement in it reaches another file or loads an extension."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tidefold.quality.run.duckdb_rows import open_duckdb


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{0}/secret.txt')",
        "COPY (SELECT 1) TO '{0}/copy.csv'",
        "ATTACH '{0}/other.duckdb'",
        "LOAD '{0}/made.duckdb_extension'",
    ],
)
def test_a_statement_reaches_no_other_file(tmp_path: Path, sql: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    with open_duckdb() as engine, pytest.raises(duckdb.PermissionException):
        engine.connection.execute(sql.format(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["secret.txt"]
