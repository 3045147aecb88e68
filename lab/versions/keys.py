"""Keys that are whole numbers, as the product packs them, read by other engines, row by row.

    keys.py FOLDER write            in an environment with tidefold
    keys.py FOLDER read READER      in the reader's environment; `ICEBERG` names the jar of Iceberg's reader
    keys.py FOLDER compare          in an environment with tidefold: everything that was read

Each table has a key of another width, with the extreme values, several row groups, and rows that vectors mark. Iceberg
and pyiceberg read the same files without the vectors.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTHS = {"int": 32, "long": 64}
_ROWS = 300_000
_SPARK = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}


def write(folder: Path) -> None:
    """Publishes the tables, and their rows as plain Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import yaml

    shutil.rmtree(folder, ignore_errors=True)
    logs: dict[str, Any] = {}
    for name in WIDTHS:
        source = {"format": "parquet", "path": f"landing/{name}", "op": {"column": "op"}}
        columns = {"id": name, "value": "string"}
        logs[name] = {"source": source, "key": ["id"], "order": "file", "columns": columns, "buckets": 2}
        logs[name]["deletion_vectors"] = True
        (folder / "landing" / name).mkdir(parents=True)
    config = {"version": 1, "store": "store", "snapshots": {"kind": "incremental"}, "logs": logs}
    (folder / "tidefold.yaml").write_text(yaml.safe_dump(config))
    for phase in range(2):
        for name, bits in WIDTHS.items():
            keys = _choose_keys(bits)
            gone = keys[:: len(keys) // 50]
            chosen = gone if phase else keys
            values = {"id": pa.array(chosen, f"int{bits}"), "value": [f"v {key}" for key in chosen]}
            landed = pa.table({**values, "op": ["cd"[phase]] * len(chosen)})
            pq.write_table(landed, folder / "landing" / name / f"{phase}.parquet")
            if phase:
                _write_rows(folder / "rows" / f"{name}.parquet", sorted({*keys} - {*gone}), bits)
                _write_rows(folder / "rows" / f"{name}-whole.parquet", sorted(keys), bits)
        call = [sys.executable, "-m", "tidefold.cli", "run", "-c", str(folder / "tidefold.yaml")]
        print(subprocess.run(call, capture_output=True, text=True, check=True).stdout)
    for name in WIDTHS:
        for path in _first_files(folder, name):
            key = pq.ParquetFile(path).metadata.row_group(0).column(0)
            assert "DELTA_BINARY_PACKED" in key.encodings, (path, key)


def _choose_keys(bits: int) -> list[int]:
    """Keys in random order: the extreme ones, neighbours, and distances of each number of bits."""
    chance, low, high = random.Random(bits), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    keys = {low, low + 1, -1, 0, 1, high - 1, high, *range(-40_000, 40_000)}
    while len(keys) < _ROWS:
        keys.add(chance.choice((-1, 1)) * chance.getrandbits(chance.randint(1, bits - 1)))
    return chance.sample(sorted(keys), len(keys))


def _write_rows(path: Path, keys: list[int], bits: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(keys, f"int{bits}"), "value": [f"v {key}" for key in keys]}), path)


def read(folder: Path, reader: str) -> None:
    """Reads every table by one engine, and writes what it read."""
    out = folder / "read" / reader
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    act = {"spark": _read_by_spark, "iceberg": _read_by_iceberg}.get(reader, _read_here)
    act(folder, out)


def _read_by_spark(folder: Path, out: Path) -> None:
    """Vectorized and row by row; also a range of keys, for which Spark looks into pages."""
    from pyspark.sql import SparkSession

    from tidefold.spark.jars import fetch_missing, find_delta_jars

    fetch_missing()
    extension = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"}
    catalog = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
    builder = SparkSession.builder.master("local[1]")
    for key, value in {**_SPARK, **extension, **catalog, "spark.jars": ",".join(find_delta_jars())}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("Spark", spark.version)
    for vectorized in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        for name in WIDTHS:
            rows = spark.read.format("delta").load(str(folder / "store/tables" / name))
            rows.coalesce(1).write.parquet(str(out / f"{name}.vectorized-{vectorized}"))
            rows.where("id > 0").union(rows.where("id <= 0")).coalesce(1).write.parquet(
                str(out / f"{name}.ranges-{vectorized}")
            )


def _read_by_iceberg(folder: Path, out: Path) -> None:
    """The files of the first snapshot become files of a table of Iceberg's."""
    from pyspark.sql import SparkSession

    lake = "spark.sql.catalog.lake"
    catalog = {lake: "org.apache.iceberg.spark.SparkCatalog", f"{lake}.type": "hadoop"}
    catalog[f"{lake}.warehouse"] = str(out.parent / "iceberg-lake")
    shutil.rmtree(out.parent / "iceberg-lake", ignore_errors=True)
    builder = SparkSession.builder.master("local[1]")
    for key, value in {**_SPARK, **catalog, "spark.jars": os.environ["ICEBERG"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("Spark", spark.version, os.environ["ICEBERG"])
    for name in WIDTHS:
        plain = out.parent / "iceberg-files" / name
        shutil.rmtree(plain, ignore_errors=True)
        plain.mkdir(parents=True)
        for path in _first_files(folder, name):
            shutil.copy(path, plain)
        type_ = {"long": "bigint"}.get(name, "int")
        spark.sql(f"CREATE TABLE lake.db.{name}_ (id {type_}, value string) USING iceberg")
        spark.sql(f"CALL lake.system.add_files(table => 'db.{name}_', source_table => '`parquet`.`{plain}`')")
        for vectorized in ("true", "false"):
            spark.sql(
                f"ALTER TABLE lake.db.{name}_ SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{vectorized}')"
            )
            rows = spark.table(f"lake.db.{name}_")
            try:
                rows.coalesce(1).write.parquet(str(out / f"{name}-whole.vectorized-{vectorized}"))
                ranges = rows.where("id > 0").union(rows.where("id <= 0"))
                ranges.coalesce(1).write.parquet(str(out / f"{name}-whole.ranges-{vectorized}"))
            except Exception as error:
                print(f"FAILED {name}, vectorized {vectorized}: {' '.join(str(error).split())[:400]}")


def _first_files(folder: Path, name: str) -> list[Path]:
    """The data files of the table's first version."""
    log = (folder / "store/tables" / name / "_delta_log" / f"{0:020d}.json").read_text()
    actions = [json.loads(line) for line in log.splitlines()]
    return [folder / "store/tables" / name / action["add"]["path"] for action in actions if "add" in action]


def _read_here(folder: Path, out: Path) -> None:
    """delta-rs, DuckDB, Polars and pyiceberg, as far as they are installed."""
    import deltalake
    import duckdb
    import polars
    import pyarrow as pa
    import pyarrow.parquet as pq

    print(f"delta-rs {deltalake.__version__}, DuckDB {duckdb.__version__}, Polars {polars.__version__}")
    for name in WIDTHS:
        uri = str(folder / "store/tables" / name)
        table = deltalake.DeltaTable(uri)
        for kind, where in (("whole", ("true",)), ("ranges", ("id > 0", "id <= 0"))):
            for part, condition in enumerate(where):
                query = deltalake.QueryBuilder().register("t", table).execute(f"SELECT * FROM t WHERE {condition}")
                _put(out / f"{name}.rs-{kind}", part, pa.table(query.read_all()))
                scanned = polars.scan_delta(uri).sql(f"SELECT * FROM self WHERE {condition}").collect()
                _put(out / f"{name}.polars-{kind}", part, scanned.to_arrow())
                files = [str(path) for path in _first_files(folder, name)]
                found = duckdb.execute(f"SELECT * FROM read_parquet({files}) WHERE {condition}").to_arrow_table()
                _put(out / f"{name}-whole.duckdb-{kind}", part, found)
        scanned = polars.scan_parquet([str(path) for path in _first_files(folder, name)]).collect()
        _put(out / f"{name}-whole.polars-files", 0, scanned.to_arrow())
        _put(out / f"{name}-whole.pyarrow", 0, pa.concat_tables([pq.read_table(p) for p in _first_files(folder, name)]))


def _put(path: Path, part: int, rows: Any) -> None:
    import pyarrow.parquet as pq

    path.mkdir(exist_ok=True)
    pq.write_table(rows.cast(rows.schema), path / f"{part}.parquet")


def compare(folder: Path) -> None:
    """Compares the rows of everything that was read."""
    import pyarrow.parquet as pq

    for path in sorted((folder / "read").glob("*/*.*")):
        expected = pq.read_table(folder / "rows" / f"{path.name.partition('.')[0]}.parquet")
        found = pq.read_table(path).select(["id", "value"]).cast(expected.schema).sort_by("id")
        print(
            f"{path.parent.name:20} {path.name:30} {len(found):8,} {'equal' if found.equals(expected) else 'DIFFERENT'}"
        )


if __name__ == "__main__":
    where, what, *how = sys.argv[1:]
    acts: dict[str, Callable[..., None]] = {"write": write, "read": read, "compare": compare}
    acts[what](Path(where), *how)
