"""tidefold: changelogs in, verified and restorable Delta tables out."""

from pathlib import Path

__version__ = "0.1.0"
# The folder of dags, jobs, jars and settings.
PROJECT = Path(__file__).resolve().parents[2]
