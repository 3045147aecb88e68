"""Runs tasks in this process, in threads or on Spark."""

from __future__ import annotations

import gc
import json
import logging
import pickle
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from tidefold.compute.broadcast_work import BroadcastWork, ReceivedWork, TaskWork
from tidefold.compute.connect_session import explain_errors, find_connected, mark_operations
from tidefold.errors import TidefoldError, from_wire, to_wire, wrap_unexpected
from tidefold.storage.cancellation import cancel_writes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD, Broadcast, SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# One answer a task, in task order. An error is an answer too, so that one log's damaged file does not stop the others.
TaskAnswer = str | TidefoldError
Runner = Callable[[TaskWork, Sequence[str]], list[TaskAnswer]]

# As many as read and hash side by side when a snapshot is taken over; each may also have to merge a bucket.
_THREADS = 4
# Spark's tasks for each core: enough that none waits long for the last one; each costs as much as a small bucket.
PARTITIONS_PER_CORE = 4
# Spark's tasks on a Spark Connect server, whose cores are not known. Each carries the work and all texts.
_CONNECT_PARTITIONS = 256
# The tasks of one of Spark's tasks, by their numbers.
Partition = list[tuple[int, str]]


@dataclass(frozen=True)
class _OfCores:
    """A runner whose cores are known."""

    run: Runner
    cores: int

    def __call__(self, work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        return self.run(work, tasks)


def count_cores(runner: Runner) -> int:
    """Returns how many tasks a runner runs at the same time; 0: not known, or one after the other."""
    return runner.cores if isinstance(runner, _OfCores) else 0


def in_process(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
    """Runs the tasks one after the other in this process."""
    return [_answer(_run_guarded(work, task)) for task in tasks]


def in_threads(tell: Callable[[int, int], None] = lambda done, total: None) -> Runner:
    """Returns a runner for work that mostly waits for disks and network: some tasks at a time, in threads.

    `tell` receives how many are done, and of how many.
    """

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        done, lock = 0, threading.Lock()

        def one(task: str) -> TaskAnswer:
            nonlocal done
            answer = _answer(_run_guarded(work, task))
            with lock:
                done += 1
                tell(done, len(tasks))
            return answer

        with ThreadPoolExecutor(_THREADS) as pool:
            # What was not begun is left when one of them is interrupted.
            answers = pool.map(one, tasks)
            try:
                return list(answers)
            except BaseException:
                with cancel_writes():
                    pool.shutdown(cancel_futures=True)
                raise

    return run


def on_spark(spark: SparkSession) -> Runner:
    """A runner that deals the tasks to Spark's, in the order given (put the largest first).

    The work is broadcast: a process gets it once. A task of Spark's carries the texts of its own tasks only.
    """
    if spark is find_connected():
        return on_connect(spark)

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if not tasks:
            return []
        partitions = min(len(tasks), _count_partitions(spark))
        context = spark.sparkContext
        shared = context.broadcast(BroadcastWork(work))
        prefer = getattr(work, "prefer", None)
        places = []
        if prefer and partitions == len(tasks) and (present := find_executors(context)):
            places = [prefer(task, present) for task in tasks]
        divided = partition_tasks(tasks, partitions)
        try:
            distributed = _place(context, divided, places) if any(places) else context.parallelize(divided, partitions)
            collected = distributed.mapPartitions(partial(work_partitions, shared)).collect()
        finally:
            shared.destroy()
        return [_answer(text) for _, text in sorted(collected)]

    return _OfCores(run, spark.sparkContext.defaultParallelism)


def find_executors(context: SparkContext) -> frozenset[str]:
    """Returns the hosts that have executors, by the names that Spark has for them."""
    scala: Any = context._jsc.sc()
    executors = [executor.host() for executor in scala.statusTracker().getExecutorInfos()]
    executors.remove(scala.env().blockManager().blockManagerId().host())  # The driver counts as one.
    return frozenset(executors)


def _place(context: SparkContext, partitions: Sequence[Partition], places: Sequence[tuple[str, ...]]) -> RDD[Partition]:
    """Gives one partition to each of Spark's tasks, which runs on the host with one of its names, if it is soon free.

    Python's Spark has no such call. Its Scala has.
    """
    from pyspark import RDD
    from pyspark.serializers import CPickleSerializer

    jvm: Any = context._jvm
    serializer = CPickleSerializer()
    pairs = jvm.java.util.ArrayList()
    for partition, names in zip(partitions, places, strict=True):
        pairs.add(jvm.scala.Tuple2(bytearray(serializer.dumps(partition)), jvm.PythonUtils.toSeq(list(names))))
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), jvm.scala.reflect.ClassTag.Any())
    return RDD(made.toJavaRDD(), context, serializer)


def on_connect(spark: SparkSession) -> Runner:
    """As `on_spark`, on a Spark Connect server, which has neither broadcasts nor RDDs.

    The work and all texts travel in the function, with each of Spark's tasks. A process unpacks them once. So there are
    few and large tasks.
    """

    def run(work: TaskWork, tasks: Sequence[str]) -> list[TaskAnswer]:
        if not tasks:
            return []
        mark_operations()
        with explain_errors():
            partitions = min(len(tasks), _count_connect_partitions(spark))
            packed = zlib.compress(pickle.dumps((BroadcastWork(work), partition_tasks(tasks, partitions))), 1)
            numbers = spark.range(0, partitions, 1, partitions)
            table = numbers.mapInArrow(partial(work_batches, packed), "number long, answer string").toArrow()
        answers = zip(*(table.column(name).to_pylist() for name in ("number", "answer")), strict=True)
        return [_answer(text) for _, text in sorted(answers)]

    with explain_errors():
        return _OfCores(run, _count_connect_cores(spark))


def _count_connect_partitions(spark: SparkSession) -> int:
    """How many tasks Spark gets at most: some for each core if the server is one process."""
    return min(_CONNECT_PARTITIONS, PARTITIONS_PER_CORE * _count_connect_cores(spark) or _CONNECT_PARTITIONS)


def _count_connect_cores(spark: SparkSession) -> int:
    cores = re.fullmatch(r"local\[(\d+)(,\d+)?\]", spark.conf.get("spark.master", "") or "")
    return int(cores[1]) if cores else 0


def work_batches(packed: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    received, partitions = _receive(packed)
    for partition in (number for batch in batches for number in batch.column(0).to_pylist()):
        for number, task in partitions[partition]:
            # Inside, so that an executor with other packages says which.
            answer = _run_guarded(lambda text: received.work(text), task)
            yield pa.RecordBatch.from_pydict({"number": [number], "answer": [answer]})
    _freeze()


@lru_cache(maxsize=1)
def _receive(packed: bytes) -> tuple[ReceivedWork, list[Partition]]:
    """Unpacks work and tasks once in each process, and forgets those before."""
    received: tuple[ReceivedWork, list[Partition]] = pickle.loads(zlib.decompress(packed))
    return received


def partition_tasks(tasks: Sequence[str], count: int) -> list[Partition]:
    """Divides the tasks in turns, so that each partition gets one of the largest first."""
    return [[(number, tasks[number]) for number in range(first, len(tasks), count)] for first in range(count)]


def _count_partitions(spark: SparkSession) -> int:
    """How many tasks Spark gets at most: a cluster may grow while it works, one machine does not."""
    context = spark.sparkContext
    return PARTITIONS_PER_CORE * context.defaultParallelism if re.match(r"local(\[|$)", context.master) else sys.maxsize


def work_partitions(shared: Broadcast[BroadcastWork], partitions: Iterable[Partition]) -> Iterator[tuple[int, str]]:
    for partition in partitions:
        for number, task in partition:
            # Inside, so that an executor that cannot unpickle the work says why.
            yield number, _run_guarded(lambda text: shared.value.work(text), task)
    _freeze()


@cache
def _freeze() -> None:
    """Excludes all objects that exist after the first task from garbage collection.

    Spark's worker collects garbage after each task, through everything that was imported. That took longer than a small
    task.
    """
    gc.freeze()


def _run_guarded(work: TaskWork, task: str) -> str:
    # Spark would flatten an error into a Java stack trace and end the job for all logs; code and hint must reach the
    # driver whole, and an error that nobody foresaw is one log's too.
    try:
        return json.dumps({"ok": work(task)})
    except TidefoldError as error:
        return json.dumps({"error": to_wire(error)})
    except Exception as error:
        failure = wrap_unexpected(error)
        _log.exception("A task failed.")
        return json.dumps({"error": to_wire(failure)})


def _answer(text: str) -> TaskAnswer:
    answer = json.loads(text)
    if "error" in answer:
        return from_wire(answer["error"])
    return str(answer["ok"])
