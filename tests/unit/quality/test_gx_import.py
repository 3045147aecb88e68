"""What the import of Great Expectations loads: only what judging uses."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
{before}
from tidefold.quality.run.gx_import import load
load()
unused = ("pyspark", "boto3", "botocore", "scipy.optimize", "altair.vegalite")
print(sorted(name for name in unused if sys.modules.get(name)))
{after}
"""


def loaded(before: str = "", after: str = "") -> list[str]:
    program = PROGRAM.format(before=before, after=after)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_process_without_spark_loads_what_it_uses() -> None:
    assert loaded() == ["[]"]


def test_hidden_libraries_are_there_afterwards() -> None:
    after = "import botocore.config, pyspark.sql; from scipy import stats; print(stats.norm.cdf(0), pyspark.__name__)"
    assert loaded(after=after) == ["[]", "0.5 pyspark"]


def test_a_process_with_spark_judges_on_spark() -> None:
    after = (
        "import pyspark; load()\n"
        "from great_expectations.compatibility import pyspark as known\n"
        "print(known.pyspark is pyspark)"
    )
    assert loaded("import pyspark", after) == ["['pyspark']", "True"]


def test_spark_never_judges_where_great_expectations_knows_no_spark() -> None:
    after = "import pyspark\ntry: load()\nexcept RuntimeError as error: print(error)"
    assert loaded(after=after)[1] == "This process has judged without Spark. Judge on Spark in another process."
