"""Spark job: ingests the landed files of all requested logs into their changelogs."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
