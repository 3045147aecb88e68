"""Compares the buckets of each log with the cores and the memory of this machine.

Here, and in docs/how-to/tune.md, stands what a Python task may take.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from tidefold.config import Config
from tidefold.config.models.spark import is_one_process
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import TidefoldError
from tidefold.ledger import Ledger
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.storage import open_store

# Measured: a process with its libraries, and each value of a bucket whose rows come with one load.
_PROCESS, _VALUE = 350_000_000, 45
# A bucket of fewer rows is not worth its file and its task.
_FEWEST_ROWS = 50_000


def weigh_tasks(rows: int, shape: TableSpec, buckets: int, cores: int) -> int:
    """The bytes that all Python tasks of a load take together, one for each core."""
    return min(cores, buckets) * (_PROCESS + _VALUE * len(shape.columns) * rows // buckets)


def advise(rows: int, shape: TableSpec, cores: int, memory: int) -> int:
    """How many buckets fit: at least one a core, and as many as the tasks of a load need to stay within the memory."""
    best = shape.buckets
    while best * 2 <= min(shape.key_groups, rows // _FEWEST_ROWS) and (
        best < cores or weigh_tasks(rows, shape, best, cores) > memory
    ):
        best *= 2
    return best


def check_buckets(config: Config, memory: int) -> Iterator[DoctorFinding]:
    """Finds logs whose table would do better with more buckets. Leaves out unreadable ledgers.

    memory: what this machine has beside Spark's driver. A cluster's is not known.
    """
    cores, advised = _count_cores(config.spark.master), False
    store = open_store(config.store, config.path.parent)
    for log in config.logs.values() if cores else ():
        with suppress(TidefoldError):
            state = Ledger(store, log.id).find_current()
            rows = state.latest.rows if state and state.latest else 0
            if (best := advise(rows, log.shape, cores, memory)) > log.shape.buckets:
                advised = True
                now, then = (weigh_tasks(rows, log.shape, n, cores) / 1e9 for n in (log.shape.buckets, best))
                message = (
                    f"{log.id}: a load of its {rows:,} rows takes about {now:.1f} GB in {log.shape.buckets} buckets"
                )
                message = f"{message} on {cores} cores, and {then:.1f} GB in {best}."
                level = FindingLevel.WARN if now * 1e9 > memory else FindingLevel.OK
                hint = f"Set `buckets: {best}`; the next full snapshot has them." if level is FindingLevel.WARN else ""
                yield DoctorFinding("buckets", level, message, hint)
    if not advised:
        yield DoctorFinding(
            "buckets", FindingLevel.OK, "Each log has enough buckets for cores and memory, as far as known."
        )


def _count_cores(master: str) -> int:
    """The cores of `local[...]`; 0: Spark runs elsewhere."""
    number = re.search(r"\d+", master)
    return (int(number[0]) if number else os.cpu_count() or 1) if is_one_process(master) and "[" in master else 0
