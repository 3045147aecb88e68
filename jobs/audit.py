"""Spark job: judges the newest completed snapshots of all requested logs again."""

import sys

from tidefold.spark.job_main import run_job

if __name__ == "__main__":
    sys.exit(run_job(sys.argv))
