"""Distributes work over Spark: a DataFrame of tasks, one Spark task each, run with mapInArrow."""

from __future__ import annotations

import gc
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tidefold.errors import TidefoldError, from_wire, to_wire, wrap_unexpected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Takes a JSON text, gives a JSON text; importable by name, since workers load it by pickle.
Work = Callable[[str], str]
# One answer a task, in task order. An error is an answer too, so that one log's damaged file does not stop the others.
Answer = str | TidefoldError
Runner = Callable[[Work, Sequence[str]], list[Answer]]

# As many as read and hash side by side when a snapshot is taken over; each may also have to merge a bucket.
_THREADS = 4
# Spark's tasks for each core: enough that none waits long for the last one; each costs as much as a small bucket.
_HANDS = 4
_RESULT = "task long, result string"


def in_process(work: Work, tasks: Sequence[str]) -> list[Answer]:
    """Runs the tasks one after the other in this process."""
    return [_answer(_run_guarded(work, task)) for task in tasks]


def in_threads(tell: Callable[[int, int], None] = lambda done, total: None) -> Runner:
    """Returns a runner for work that mostly waits for disks and network: some tasks at a time, in threads.

    `tell` receives how many are done, and of how many.
    """

    def run(work: Work, tasks: Sequence[str]) -> list[Answer]:
        done, lock = 0, threading.Lock()

        def one(task: str) -> Answer:
            nonlocal done
            answer = _answer(_run_guarded(work, task))
            with lock:
                done += 1
                tell(done, len(tasks))
            return answer

        with ThreadPoolExecutor(_THREADS) as pool:
            # What was not begun is left when one of them is interrupted.
            return list(pool.map(one, tasks))

    return run


def on_spark(spark: SparkSession) -> Runner:
    """A runner that deals the tasks to Spark's, in the order given (put the largest first)."""

    def run(work: Work, tasks: Sequence[str]) -> list[Answer]:
        if not tasks:
            return []
        hands = min(len(tasks), _hands(spark))
        numbers = spark.range(0, hands, 1, hands)
        rows = numbers.mapInArrow(partial(_work_batches, work, list(tasks), hands), _RESULT).collect()
        return [_answer(row["result"]) for row in sorted(rows, key=lambda row: int(row["task"]))]

    return run


def _hands(spark: SparkSession) -> int:
    """How many tasks Spark gets at most: a cluster may grow while it works, one machine does not."""
    context = spark.sparkContext
    return _HANDS * context.defaultParallelism if context.master.startswith("local") else sys.maxsize


def _work_batches(
    work: Work, tasks: list[str], hands: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = [number for hand in batch.column(0).to_pylist() for number in range(hand, len(tasks), hands)]
        results = [_run_guarded(work, tasks[number]) for number in numbers]
        yield pa.RecordBatch.from_pydict({"task": numbers, "result": results})
    _freeze()


@cache
def _freeze() -> None:
    """Excludes all objects that exist after the first task from garbage collection.

    Spark's worker collects garbage after each task, through everything that was imported. That took longer than a small
    task.
    """
    gc.freeze()


def _run_guarded(work: Work, task: str) -> str:
    # Spark would flatten an error into a Java stack trace and end the job for all logs; code and hint must reach the
    # driver whole, and an error that nobody foresaw is one log's too.
    try:
        return json.dumps({"ok": work(task)})
    except TidefoldError as error:
        return json.dumps({"error": to_wire(error)})
    except Exception as error:
        traceback.print_exc()
        return json.dumps({"error": to_wire(wrap_unexpected(error))})


def _answer(text: str) -> Answer:
    answer = json.loads(text)
    if "error" in answer:
        return from_wire(answer["error"])
    return str(answer["ok"])
