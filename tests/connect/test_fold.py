"""The fold of tests/spark, on a Spark Connect server. Requirements A1, N1; promises I5, I25."""

from spark.test_materialize_on_spark import (  # noqa: F401
    pipeline,
    test_both_logs_fold_in_one_round_and_spark_reads_the_same_rows,
    test_spark_and_one_process_make_the_same_rows,
)
from spark.test_runner_on_spark import TestOnSpark  # noqa: F401
