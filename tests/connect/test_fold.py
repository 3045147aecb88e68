"""The fold of tests/spark, on a Spark Connect server. Requirements A1, N1; promises I5, I25."""

from spark.test_materialize_on_spark import (  # noqa: F401
    pipeline,
    test_an_unforeseen_error_is_one_task_s_and_says_what_it_was,
    test_answers_come_in_task_order_and_typed_errors_come_whole,
    test_both_logs_fold_in_one_round_and_spark_reads_the_same_rows,
    test_spark_and_one_process_make_the_same_rows,
)
