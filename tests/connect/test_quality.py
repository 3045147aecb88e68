"""The gate of tests/spark, on a Spark Connect server: the same verdicts over hostile values. Promise I8."""

from spark.test_quality_engines_agree import (  # noqa: F401
    test_hostile_values_are_judged_alike,
    test_numbers_of_columns_are_alike,
)
