"""`python docker/check_health.py COMPONENT`: asks the api-server; fails unless it reports the component as healthy."""

from __future__ import annotations

import json
import sys
import urllib.request


def main() -> None:
    [component] = sys.argv[1:]
    with urllib.request.urlopen("http://airflow-apiserver:8080/api/v2/monitor/health", timeout=8) as response:
        status = json.load(response)[component]["status"]
    if status != "healthy":
        sys.exit(f"{component}: {status}")


if __name__ == "__main__":
    main()
