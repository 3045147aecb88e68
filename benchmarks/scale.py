"""What a run of many buckets and change sets sends to Spark's processes, and what planning and unpacking it costs.

`make bench-scale` writes scale.md. It starts no Spark: it pickles what the runner on Spark pickles.
A run that was stopped goes on where it ended: each result is added to var/bench-scale.json, which the page replaces.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from many_logs import NEWS, ManyLogs, count_calls, measure_apart
from support.dealing import DealtBytes, count_bytes, tasks_of
from support.pipelines import CONFIG, put
from tables import folder, machine, write_page
from tidefold.compute.broadcast_work import BroadcastWork
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.source_progress import StreamPosition
from tidefold.fold.plan_fold import sort_by_weight
from tidefold.fold.tasks import FoldWork, serialize_tasks
from tidefold.operations.inspect.status import status
from tidefold.wiring import open_pipeline

LOGS = (100, 1_000, 5_000)
STEP = 500
LEDGERS = (100, 1_000, 10_000, 100_000)
SIZES = ((100, 100), (100, 1_000), (1_000, 1_000), (10_000, 100), (10_000, 1_000))
EXECUTORS, GOAL = 4, 20e6
RESULTS = Path(__file__).parents[1] / "var" / "bench-scale.json"
T = TypeVar("T")


def keep(name: str, measure: Callable[[], Any]) -> Any:
    """Returns a result of an earlier, unfinished run, or measures and stores it."""
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if name not in found:
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        found[name] = measure()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1))
    return found[name]


def cpu_seconds(act: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    result = act()
    return time.process_time() - begun, result


def line(buckets: int, change_sets: int) -> str:
    sent = count_bytes(buckets, change_sets)
    tasks = tasks_of(buckets, change_sets)
    planned, (work, texts) = cpu_seconds(lambda: serialize_tasks(sort_by_weight(tasks)))
    pickled = pickle.dumps(BroadcastWork(work))
    unpacked, _ = cpu_seconds(lambda: _unpack(pickled, texts))
    copied = sent.tasks + buckets * change_sets * _length_of_a_change_set()
    sizes = [sent.shared, sent.tasks, sent.function * sent.partitions, _all(sent), copied]
    cells = [f"{buckets:,}", f"{change_sets:,}", *map(_megabytes, sizes)]
    return f"| {' | '.join(cells)} | {planned:.2f} s | {unpacked:.2f} s | {_verdict(buckets, change_sets, sent)} |"


def _unpack(pickled: bytes, texts: list[str]) -> int:
    """What the processes of one executor do together: the work once, each task, and a look for its change sets."""
    work = pickle.loads(pickled).work
    assert isinstance(work, FoldWork)
    return sum(len(task.find_change_sets(task.recipes[0])) for task in map(work.task, texts))


def _all(sent: DealtBytes) -> int:
    return sent.shared * EXECUTORS + sent.tasks + sent.function * sent.partitions


def _length_of_a_change_set() -> int:
    [task, *_] = tasks_of(1, 1)
    return len(msgspec.json.encode(task.plan.change_sets))


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.2f} MB"


def _verdict(buckets: int, change_sets: int, sent: DealtBytes) -> str:
    if (buckets, change_sets) != SIZES[-1]:
        return ""
    return f"< {GOAL / 1e6:.0f} MB: {'met' if _all(sent) < GOAL else '**missed**'}"


def log_line(found: ManyLogs) -> str:
    cells = [f"{found.logs:,}", f"{found.open:.1f} s", f"{found.idle:.1f} s", f"{found.idle_requests:.2f}"]
    cells += [f"{found.status:.1f} s", f"{found.status_requests:.2f}", f"{found.news:.1f} s", f"{found.published:,}"]
    seconds = found.open + found.idle
    goal = f"<= 30 s and 3 requests: {'met' if seconds <= 30 and found.idle_requests < 3.1 else '**missed**'}"
    return f"| {' | '.join(cells)} | {goal if found.logs == LOGS[-1] else ''} |"


def page_line(found: ManyLogs) -> str:
    cells = [f"{found.logs:,}", f"{found.page:.2f} s", f"{found.page_requests:,}"]
    cells += [f"{found.search:.2f} s", f"{found.search_requests:,}", f"{found.chosen:,}"]
    return f"| {' | '.join(cells)} |"


def ledger_line(count: int) -> str:
    with folder() as made:
        (made / "tidefold.yaml").write_text(CONFIG)
        pipeline = open_pipeline(made / "tidefold.yaml")
        put(pipeline, [{"id": 1, "text": "a"}])
        state = pipeline.ledger("accounts").read()
        [change_set], [landed], [position] = state.change_sets, state.landed, state.positions
        place = change_set.location
        step = max(STEP, count // 20)
        for begin in range(1, count, step):
            files = [
                IngestedFile(
                    replace(landed, number=0, name=f"accounts+0+{n:010d}.jsonl", first_offset=n, next_offset=n + 1),
                    replace(
                        change_set,
                        sqn=0,
                        high=(1, n),
                        location=replace(place, segment=f"changelog/bench/{n}.seg"),
                    ),
                    replace(position, next_offset=n + 1, stream=StreamPosition((1, n))),
                )
                for n in range(begin, min(begin + step, count))
            ]
            pipeline.ledger("accounts").commit(partial(append, arrivals=files))
        calls, taken = 0, float("inf")
        for _ in range(3):
            cold, counted = open_pipeline(made / "tidefold.yaml"), Counter[str]()
            count_calls(cold.store, counted)
            begun = time.perf_counter()
            [found] = status(cold, ["accounts"])
            calls, taken = counted.total(), min(taken, time.perf_counter() - begun)
            assert found.change_sets == count, found
        head = max(entry.bytes for entry in cold.store.list("logs/accounts/ledger")[-1:])
        return f"| {count:,} | {calls:,} | {taken:.2f} | {head:,} |"


def describe_dealing(dealt: Sequence[str]) -> list[str]:
    """Returns the part of the page on what a fold sends."""
    return [
        "A fold has one task for each bucket. The **plan** (change sets, schemas, table definition) is broadcast:",
        f"each of {EXECUTORS} executors gets it once, and each process decodes it once. The **texts** name a",
        "bucket and its base files. A task of Spark's gets the texts that it was dealt, and no others. The",
        "**function** is sent with each of Spark's tasks, of which there is one for each bucket on a cluster.",
        "",
        "**Copied** is the size of all texts when each names its change sets itself, as before. Each task of",
        "Spark's then carried all of them.",
        "",
        "Base files have statistics of five columns. CPU seconds are of one process: plan is what the driver does",
        "to sort and encode the tasks. Unpack is what all executors do together to decode them and to find the",
        "change sets of each.",
        "",
        "| buckets | change sets | plan | texts | function | all | copied | plan, CPU | unpack, CPU | goal |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *dealt,
    ]


def describe_logs(many: Sequence[ManyLogs]) -> list[str]:
    """Returns the part of the page on runs over many logs."""
    return [
        "## Many logs",
        "",
        "A pipeline on the local disk in one process. **Open** reads and checks the configuration. **Idle** is a",
        f"run without news. **News** is a run in which {NEWS} logs (or all, if they are fewer) have one new file;",
        "it publishes them one after the other. Requests are calls of the store for each log. A run without news",
        "lists the ledger twice and reads one version; in S3, 64 logs at the same time. Landing folders are",
        "listed besides. A run over at most 100 logs takes each of them through every step.",
        "",
        "| logs | open | idle | requests | status | requests | news | published | goal |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(log_line, many),
        "",
        "**Page** is the first page in Airflow. **Search** is the first part of the search for logs that need",
        "attention. Their requests are those of all logs together. The server has read the configuration before.",
        "**Tasks** is how many tasks `confirm` a DAG run with that news has; each other step is one task.",
        "",
        "| logs | page | requests | search | requests | tasks |",
        "|---|---|---|---|---|---|",
        *map(page_line, many),
    ]


def describe_ledgers(ledgers: Sequence[str]) -> list[str]:
    """Returns the part of the page on ledgers of many change sets."""
    return [
        "## Ledger",
        "",
        "A cold `status` of one log whose change sets wait. Its requests are three listings, the head of the",
        "ledger, and the pages, which are read side by side. The least seconds of three are listed.",
        "",
        "| change sets | requests | seconds | bytes of the head |",
        "|---|---|---|---|",
        *ledgers,
        "",
        "The goals are at most 20 requests, one second, and 65,536 bytes of the head.",
    ]


def main() -> None:
    dealt = [keep(f"{size[0]} buckets, {size[1]} change sets", partial(line, *size)) for size in SIZES]
    many = [ManyLogs(**keep(f"{logs} logs", lambda logs=logs: asdict(measure_apart(logs)))) for logs in LOGS]
    ledgers = [keep(f"{count} change sets", partial(ledger_line, count)) for count in LEDGERS]
    write_page(
        "scale.md",
        [
            "# What a run of many buckets and change sets sends",
            "",
            "Written by `make bench-scale` (benchmarks/scale.py). It counts what the runner on Spark pickles, and",
            "starts no Spark.",
            machine(),
            "",
            *describe_dealing(dealt),
            "",
            *describe_logs(many),
            "",
            *describe_ledgers(ledgers),
            "",
            "## Not measured here",
            "",
            "- CPU seconds for each row with 1 to 4 executors: "
            "[From one to four executors](../capacity.md#from-one-to-four-executors) has them.",
        ],
    )
    RESULTS.unlink()


if __name__ == "__main__":
    main()
