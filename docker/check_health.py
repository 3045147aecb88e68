"""`python docker/check_health.py COMPONENT`: fails unless a component of Airflow, or the Spark server, is healthy."""

from __future__ import annotations

import json
import sys
import urllib.request

from tidefold.spark.server_supervisor import answers

_SPARK_PORT = 15002


def main() -> None:
    """Asks the Spark server itself, and the api-server for all else."""
    [component] = sys.argv[1:]
    if component == "spark":
        sys.exit(not answers(_SPARK_PORT))
    with urllib.request.urlopen("http://airflow-apiserver:8080/api/v2/monitor/health", timeout=8) as response:
        status = json.load(response)[component]["status"]
    if status != "healthy":
        sys.exit(f"{component}: {status}")


if __name__ == "__main__":
    main()
