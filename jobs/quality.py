"""Spark job: judges the staged snapshots of all requested logs."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
