"""What a cell does with Spark and without: three phases of the sample, verified, read and compared.

Runs in the environment of the cell: `python slice.py FOLDER STEP PHASE`.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path
from typing import Any

BANK = Path(__file__).parents[2] / "tests" / "data" / "bank" / "truth"
# Packages that only an extra brings.
_LEFT_OUT = re.compile(r"tidefold\.(spark\.jobs|testing)|__main__|azure|gcs")


def import_all() -> None:
    """Imports every module."""
    import tidefold
    from tidefold.compute.spark_versions import SparkFeature, find_spark, find_version

    spark = find_version(find_spark())
    assert spark, find_spark()
    names = [module.name for module in pkgutil.walk_packages(tidefold.__path__, "tidefold.")]
    names = [name for name in names if not _LEFT_OUT.search(name)]
    if SparkFeature.DATA_SOURCE in spark.lacks or not importlib.util.find_spec("pyspark"):
        names = [name for name in names if name not in ("tidefold.spark.data_source", "tidefold.read.spark_reader")]
    for name in names:
        importlib.import_module(name)
    print(len(names), "modules")


def prepare(folder: Path, spark: bool) -> None:
    """Writes the sample's configuration: in process, or every step on Spark with deletion vectors."""
    from tidefold.cli import sample

    text = sample.prepare(folder, "0B" if spark else None).read_text()
    if spark:
        text = text.replace("logs:\n", "snapshots: {kind: incremental}\nlogs:\n", 1)
        text = text.replace("    quality: {", "    deletion_vectors: true\n    quality: {")
    (folder / "tidefold.yaml").write_text(text)


def land(folder: Path, phase: str) -> None:
    """Lands a phase of the sample."""
    from tidefold.cli import sample

    sample.land(folder / "tidefold.yaml", phase)


def read_truth(log: str, phase: str) -> list[tuple[Any, ...]]:
    """The rows of the database's own dump: the filler is a text, the rest numbers."""
    with gzip.open(BANK / phase / f"pgbench_{log}.csv.gz", "rt", newline="") as stream:
        header, *lines = csv.reader(stream)
    texts = {header.index("filler")}
    return sorted(tuple(v or None if i in texts else int(v) for i, v in enumerate(line)) for line in lines)


def compare(folder: Path, phase: str) -> None:
    """Compares the published tables, as their readers see them, with the dump; prints row counts and checksums."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    from tidefold.cli.sample import LOGS

    for log in LOGS:
        table = DeltaTable(str(folder / "store" / "tables" / log))
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
        rows = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert rows == read_truth(log, phase), f"{log}: {len(rows)} rows differ from the dump"
        if importlib.util.find_spec("polars"):
            assert sorted(_read_polars(table)) == rows, f"{log}: Polars reads other rows"
        print(log, len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())


def _read_polars(table: Any) -> list[tuple[Any, ...]]:
    import polars

    return list(polars.read_delta(table.table_uri).rows())


if __name__ == "__main__":
    where, what = Path(sys.argv[1]), sys.argv[2]
    if what == "import":
        import_all()
    elif what == "prepare":
        prepare(where, sys.argv[3] == "spark")
    elif what == "land":
        land(where, sys.argv[3])
    else:
        compare(where, sys.argv[3])
