"""Spark job: registers the published tables in the catalog of its session."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
