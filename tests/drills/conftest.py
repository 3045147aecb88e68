"""Drills: what takes too long for `make test`."""

from __future__ import annotations

import os

from local_airflow.settings import PROJECT

# Importing Airflow makes a folder; it must not be the user's.
os.environ["AIRFLOW_HOME"] = str(PROJECT / "var" / "pytest")
