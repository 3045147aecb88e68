"""Spark job: stages a snapshot of each requested log: folded, restored, imported or as of an instant."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
