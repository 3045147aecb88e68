"""What the import of Great Expectations loads: only what judging uses."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROGRAM = """
import sys
{before}
from tidefold.quality.run.gx_import import _load_used, load, load_for_spark
load()
unused = (
    "pyspark.ml", "azure", "boto3", "botocore", "psycopg2", "scipy.optimize", "altair.vegalite", "jsonschema.validators"
)
print(sorted(name for name in unused if sys.modules.get(name)))
{after}
"""


def loaded(before: str = "", after: str = "") -> list[str]:
    program = PROGRAM.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# Airflow's tasks log from INFO on.
LOGGED = "import logging; logging.basicConfig(level=logging.INFO, stream=sys.stdout)"
# No collection searches all that was loaded as if it were young.
WATCHED = """
import gc
young = []
gc.callbacks.append(lambda phase, info: young.append(phase == "start" and len(gc.get_objects(0))))
"""
# Another thread opens a store at the same time.
BESIDE = """
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
with ThreadPoolExecutor(1) as pool, _load_used():
    print(pool.submit(import_module, "azure").result().__name__, end=" ")
    try:
        import psycopg2
    except ModuleNotFoundError as error:
        print(error.name, max(young) < 50_000)
"""


@pytest.mark.rotates(3)
def test_a_process_loads_what_it_uses_and_hidden_libraries_are_there_afterwards() -> None:
    """And the log of a task has no lines about classes of Great Expectations."""
    after = "import botocore.config, pyspark.ml; from scipy import stats; print(stats.norm.cdf(0), pyspark.ml.__name__)"
    assert loaded(f"{LOGGED}\n{WATCHED}", f"{after}\n{BESIDE}") == ["[]", "0.5 pyspark.ml", "azure psycopg2 True"]


@pytest.mark.rotates(6)
def test_the_log_would_have_lines_about_classes_of_great_expectations() -> None:
    assert len(loaded(f"{LOGGED}; logging.getLogger('great_expectations').setLevel(logging.INFO)")) > 100


@pytest.mark.rotates(6)
def test_a_process_that_judged_without_spark_judges_on_spark_and_back() -> None:
    """A worker of Airflow lives long."""
    after = (
        "load_for_spark(); load()\n"
        "from great_expectations.compatibility import pyspark as known\n"
        "from great_expectations.expectations.metrics.column_aggregate_metrics import column_histogram\n"
        "import pyspark.ml.feature\n"
        "print(known.pyspark is pyspark, column_histogram.pyspark.Bucketizer is pyspark.ml.feature.Bucketizer)"
    )
    assert loaded(after=after) == ["[]", "True True"]
    assert loaded("import pyspark.ml.feature", after) == ["['pyspark.ml']", "True True"]


@pytest.mark.rotates(6)
def test_a_process_that_never_judges_on_spark_does_not_load_it() -> None:
    before = "from tidefold.quality.run import gx_import; gx_import.load('pyspark'); print('pyspark' in sys.modules)"
    after = "try:\n    load_for_spark()\nexcept RuntimeError as error:\n    print(error)"
    told = ["False", "[]", "This process has loaded Great Expectations without pyspark."]
    assert loaded(before, after) == told


def test_an_installation_of_tidefold_brings_no_sqlalchemy() -> None:
    """Airflow does, in a clone."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    wanted = list(map(Requirement, project["dependencies"]))
    while wanted:
        one = wanted.pop()
        if one.name.lower() not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(one.name.lower())
            wanted += map(Requirement, requires(one.name) or ())
    assert {"great-expectations", "pandas"} <= found
    assert not {"sqlalchemy", "duckdb-engine", "duckdb_engine"} & found
