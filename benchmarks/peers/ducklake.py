"""DuckLake as a peer: DuckDB's MERGE into a table partitioned by bucket and sorted by its key, catalog in DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import duckdb_extension_ducklake

from worker import serve

_LATEST = "QUALIFY row_number() OVER (PARTITION BY id ORDER BY _o0 DESC) = 1"
# One MERGE does one kind of change to rows that match. Two of them are one transaction.
_MERGES = (
    "MERGE INTO lake.bench t USING (SELECT id FROM latest WHERE _op = 1) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE INTO lake.bench t USING (SELECT * FROM latest WHERE _op = 0) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET amount = s.amount, seen = s.seen, city = s.city, text = s.text "
    "WHEN NOT MATCHED THEN INSERT (id, amount, seen, city, text) VALUES (s.id, s.amount, s.seen, s.city, s.text)",
)
# Every file that has deleted rows is written again, then the small files of a bucket become one.
_COMPACTION = (
    "CALL ducklake_rewrite_data_files('lake', 'bench', delete_threshold => 0)",
    "CALL ducklake_merge_adjacent_files('lake', 'bench')",
)


def prepare(told: dict[str, str]) -> Mapping[str, Callable[..., None]]:
    [extension] = Path(duckdb_extension_ducklake.__file__).parent.glob("extensions/*/ducklake.duckdb_extension")
    live = Path(told["live"])

    @contextmanager
    def open_bench() -> Iterator[duckdb.DuckDBPyConnection]:
        # The benchmark puts the files of the table back between two runs: nothing of them may stay open.
        with duckdb.connect() as db:
            for setting in ("threads = 2", "TimeZone = 'UTC'", "enable_progress_bar = false"):
                db.execute(f"SET {setting}")
            db.execute("SET memory_limit = ?", [told["heap"].upper() + "B"])
            db.execute("SET temp_directory = ?", [told["scratch"]])
            db.execute(f"LOAD '{extension}'")
            db.execute(f"ATTACH 'ducklake:{live / 'catalog.ducklake'}' AS lake (DATA_PATH '{live / 'data'}')")
            yield db
            db.execute("DETACH lake")

    def load(table: str, files: list[str]) -> None:
        with open_bench() as db:
            db.execute("CALL lake.set_option('parquet_compression', 'zstd')")
            db.execute(
                "CREATE TABLE lake.bench (id BIGINT, amount DOUBLE, seen TIMESTAMPTZ, city VARCHAR, text VARCHAR)"
            )
            db.execute("ALTER TABLE lake.bench SET PARTITIONED BY (bucket(16, id))")
            db.execute("ALTER TABLE lake.bench SET SORTED BY (id)")
            db.execute(f"INSERT INTO lake.bench SELECT id, amount, seen, city, text FROM read_parquet({files})")

    def merge(table: str, changes: str, compact: bool) -> None:
        with open_bench() as db:
            db.execute(f"CREATE TEMP TABLE latest AS SELECT * FROM read_parquet('{changes}/*.parquet') {_LATEST}")
            db.execute("BEGIN")
            for statement in _MERGES:
                db.execute(statement)
            db.execute("COMMIT")
            for statement in _COMPACTION if compact else ():
                db.execute(statement)

    def read(table: str) -> None:
        """Every column of every row, for nobody."""
        with open_bench() as db:
            db.sql("SELECT bit_xor(hash(id, amount, seen, city, text)) FROM lake.bench").fetchall()

    def export(table: str, path: str) -> None:
        Path(path).mkdir()
        with open_bench() as db:
            db.execute(f"COPY (SELECT id, amount, seen, city, text FROM lake.bench) TO '{path}/0.parquet'")

    return {"load": load, "merge": merge, "read": read, "export": export}


if __name__ == "__main__":
    serve(prepare)
