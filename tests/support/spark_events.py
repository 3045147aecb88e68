"""The jobs in the event log of a Spark Connect server that `tidefold spark start` or Airflow's launcher has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SparkJob:
    """A job. `description`: what pages show; `tags`: without those of Spark itself; `pool`: of the scheduler."""

    description: str
    tags: frozenset[str]
    pool: str

    def has(self, step: str, log: str) -> bool:
        """Whether it has the names of a step and of a log."""
        return f"tidefold {step} {log}" in self.tags and step in self.description and log in self.description


def read_jobs(server: Path) -> list[SparkJob]:
    """The jobs of all applications of a server, by its folder."""
    files = sorted((server / "events").glob("*/events_*"))
    return [job for path in files for job in _read_file(path)]


def _read_file(path: Path) -> Iterator[SparkJob]:
    # The last line may be half written.
    for line in path.read_text().splitlines(keepends=True):
        if '"SparkListenerJobStart"' in line and line.endswith("\n"):
            found = json.loads(line)["Properties"]
            tags = found.get("spark.job.tags", "").split(",")
            own = frozenset(tag.partition("_Tag_")[2] for tag in tags if "_Tag_tidefold " in tag)
            yield SparkJob(found.get("spark.job.description", ""), own, found.get("spark.scheduler.pool", ""))
