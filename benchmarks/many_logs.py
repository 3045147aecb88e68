"""What a run over thousands of configured logs costs if few of them have news. `make bench-scale` calls it.

Each size runs in a new process with a store on the local disk. Requests to the store are counted log by log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from support.page_store import client
from support.pipelines import judge_all, put
from tidefold.compute.runners import in_process
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold, find_busy_logs
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.full_run import FullRun
from tidefold.spark.steps import AnyStep
from tidefold.wiring import open_pipeline

NEWS = 200
PUBLISHED = 100
LOG_ENTRY = """  {name}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{name}}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 8
    buckets: 1
"""
_VERBS = ("read", "put_if_absent", "list", "open", "create", "delete", "link")


@dataclass(frozen=True)
class ManyLogs:
    """What one size cost.

    logs: how many are configured.
    open: seconds to read and check the configuration.
    idle, status: seconds and requests of each log, for a run without news and for `status`.
    news: seconds of a run in which NEWS logs have one new file each.
    page, search: seconds and requests (of all logs together) of the first page in Airflow, and of the first part of the
        search for logs that need attention.
    chosen: how many tasks `confirm` a DAG run with that news would get.
    """

    logs: int
    open: float
    idle: float
    idle_requests: float
    status: float
    status_requests: float
    news: float
    published: int
    page: float
    page_requests: int
    search: float
    search_requests: int
    chosen: int


def make(folder: Path, logs: int) -> None:
    """Makes a store with so many logs, through the operations that runs use. 100 of them have published."""
    names = [f"log_{number:05d}" for number in range(logs)]
    for name in names:
        (folder / "landing" / name).mkdir(parents=True)
    config = folder / "tidefold.yaml"
    config.write_text("version: 1\nstore: store\nlogs:\n" + "".join(LOG_ENTRY.format(name=name) for name in names))
    pipeline = open_pipeline(config)
    # What a run looks at is the same for a log that has published and one that has not begun to.
    published = names[:: max(1, logs // PUBLISHED)][:PUBLISHED]
    for name in published:
        put(pipeline, [{"id": 1, "text": "a"}], name)
    materialize(pipeline, published, Fold("run-1"), in_process)
    for name in published:
        judge_all(pipeline, name)
        confirm(pipeline, name)
    for name in set(names).difference(published):
        pipeline.ledger(name).begin(pipeline.log(name).shape)


def land(folder: Path, name: str) -> None:
    """Lands one more change of a log."""
    source = {"lsn": 2, "sequence": json.dumps([None, "2"]), "ts_ms": 2, "snapshot": "false", "table": name}
    value = {"op": "c", "ts_ms": 1, "before": None, "after": {"id": 2, "text": "b"}, "source": source}
    record = {"topic": name, "partition": 0, "offset": 1, "timestamp": 1, "key": {"id": 2}, "value": value}
    (folder / "landing" / name / f"{name}+0+0000000001.json").write_text(json.dumps(record) + "\n")


def count_calls(store: object, calls: Counter[str]) -> None:
    """Counts the calls of a store from now on."""

    def wrap(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def count_call(*arguments: object, **named: object) -> object:
            calls[name] += 1
            return call(*arguments, **named)

        return count_call

    for name in _VERBS:
        setattr(store, name, wrap(name, getattr(store, name)))


def run(pipeline: Pipeline, name: str) -> FullRun:
    pipeline = replace(pipeline, versions={})  # As the command line does.

    def step(asked: AnyStep, logs: Sequence[str]) -> list[Outcome]:
        found = run_without_spark(pipeline, asked, logs)
        assert not found.spark, found.spark[:3]
        return list(found.done)

    full = FullRun(pipeline, Fold(name), run_step=step)
    full.run(list(pipeline.config.logs))
    return full


def measure(folder: Path) -> ManyLogs:
    begun = time.perf_counter()
    pipeline = open_pipeline(folder / "tidefold.yaml")
    opened = time.perf_counter() - begun
    logs = list(pipeline.config.logs)
    calls: Counter[str] = Counter()
    count_calls(pipeline.store, calls)

    def measure_one(act: Callable[[], object]) -> tuple[float, float]:
        before, begun = calls.total(), time.perf_counter()
        act()
        return time.perf_counter() - begun, (calls.total() - before) / len(logs)

    shown = measure_one(lambda: status(pipeline, logs))
    pipeline = open_pipeline(folder / "tidefold.yaml")
    calls.clear()
    count_calls(pipeline.store, calls)
    idle = measure_one(lambda: run(pipeline, "idle"))
    pipeline = open_pipeline(folder / "tidefold.yaml")
    step = max(1, len(logs) // NEWS)
    for name in logs[::step][:NEWS]:
        land(folder, name)
    chosen = len(find_busy_logs(replace(pipeline, versions={}), logs))
    begun = time.perf_counter()
    full = run(pipeline, "news")
    news = time.perf_counter() - begun
    published = sum(one.status == "published" for one in full.outcomes["confirm"])
    page, search = measure_page(folder / "tidefold.yaml", "/"), measure_page(folder / "tidefold.yaml", "/?attention=1")
    return ManyLogs(len(logs), opened, *idle, *shown, news, published, *page, *search, chosen)


def measure_page(config: Path, address: str) -> tuple[float, int]:
    """Returns seconds and requests of a page in Airflow, whose server has read the configuration before."""
    pipeline, calls = open_pipeline(config), Counter[str]()
    count_calls(pipeline.store, calls)
    reader = client(pipeline)
    reader.get("/?name=no-log")  # Loads what the page is made with.
    calls.clear()
    begun = time.perf_counter()
    answer = reader.get(address)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - begun, calls.total()


def measure_apart(logs: int) -> ManyLogs:
    """Makes and measures one size in a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(logs)], check=True, capture_output=True, text=True)
    return ManyLogs(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        make(Path(made), int(sys.argv[1]))
        found = measure(Path(made))
        print(json.dumps(asdict(found)))
