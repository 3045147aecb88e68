"""Spark job: compares what Spark's Delta reader returns of the published tables with the published snapshots."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
