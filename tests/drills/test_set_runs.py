"""A set under a real scheduler: tasks of several processes publish all tables at one point, on Spark and without it.

The story goes on from test to test in one Airflow. After each step, rows read through the pointer are compared with a
naive replay of the captured bank.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_airflow.settings import PROJECT, Request
from local_airflow.stack import down, up
from support import bank_sets as bank
from support.airflow_shop import FAILS, MATERIALIZE, PASSES, Ran, Shop, wait_for
from support.airflow_stack import SELDOM, all_on_spark, java_started
from tidefold.operations.sets.restore import find_earlier_version

ALL = {name: bank.count_records(name) for name in (*bank.LOGS, bank.ENDS)}


@dataclass(frozen=True)
class BankShop:
    """The bank under its own Airflow. shop: starts and follows runs."""

    shop: Shop

    def land(self, share: float, **upto: int) -> None:
        bank.land(self._folder, {name: upto.get(name, int(count * share)) for name, count in ALL.items()})

    def suite(self, log: str, text: str) -> None:
        self.shop.suite(log, text)

    def trigger(self) -> Ran:
        return self.shop.trigger(MATERIALIZE)

    def check(self) -> int:
        """Returns the position that readers see; all their rows are those of the replay."""
        position = bank.check_bank(self.shop.pipeline)
        assert position is not None
        return position

    @property
    def version(self) -> int:
        version = self.shop.pipeline.set_ledger("bank").read().published
        return version.number if version else 0

    @property
    def _folder(self) -> Path:
        return self.shop.pipeline.config.path.parent


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BankShop]:
    root = tmp_path_factory.mktemp("bank")
    text = bank.config().replace("store: store", "store: store\nspark: {above: 64MB}")
    for log in bank.LOGS:
        text = text.replace(
            f"  {log}:\n    source", f"  {log}:\n    quality: {{suite: quality/{log}.yaml}}\n    source"
        )
    (root / "quality").mkdir()
    for log in bank.LOGS:
        (root / "quality" / f"{log}.yaml").write_text(PASSES)
    pipeline = bank.make_bank(root, text)
    dags = root / "dags"
    dags.mkdir()
    for file in (PROJECT / "dags").glob("*.py"):
        (dags / file.name).symlink_to(file)
    more = {**SELDOM, "TIDEFOLD_APPROVAL_HOURS": "1"}
    request = Request(root, pipeline.config.path, "", dags=dags, quick_spark=True, more=more)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        airflow = up(request, print)
        try:
            yield BankShop(Shop(pipeline, airflow=airflow, statsd=unused))
        finally:
            down(root, print)


def test_a_slow_topic_and_a_set_on_spark(story: BankShop) -> None:
    """Ingest, folds and gates of all tables run on Spark; the tellers' topic is behind."""
    story.land(0.6, tellers=900)
    with all_on_spark(story.shop.pipeline.config.path), java_started(story.shop.airflow) as java:
        story.trigger().green()
    assert any("jobs/materialize.py" in words for words in java)
    assert story.check() == 26598096


def test_the_rest_is_published_without_spark(story: BankShop) -> None:
    before = story.check()
    story.land(0.8)
    run = story.trigger().green()
    assert story.check() > before
    assert {run.result(f"confirm#{n}")[log]["result"] for n, log in enumerate(bank.LOGS)} <= {"published", "already"}


def test_a_killed_worker_leaves_no_mixture(story: BankShop) -> None:
    """The process of a task is killed while its Spark job folds. Its retry, or the next run, finishes the set."""
    before = story.check()
    story.land(0.9)
    with all_on_spark(story.shop.pipeline.config.path):
        run = story.trigger()
        wait_for(lambda: story.shop.kill_worker("materialize"), lambda: str(run.tasks))
        run.ended()
        assert story.check() >= before
        story.trigger().green()
    assert story.check() > before


def test_a_person_decides_for_the_whole_set(story: BankShop) -> None:
    before = story.check()
    story.suite("tellers", FAILS.replace("column: text", "column: bid").replace("never", "-1"))
    story.land(1)
    run = story.trigger().green()
    results = {log: run.result(f"confirm#{n}")[log]["result"] for n, log in enumerate(bank.LOGS)}
    assert results == {"accounts": "waits", "branches": "waits", "tellers": "asked", "history": "waits"}
    assert story.check() == before
    waiting = story.trigger().green()
    assert waiting.result("materialize")["history"]["result"] == "waits"
    [question] = story.shop.questions()
    question.reached("ask", "awaiting_input").answer({"ask": ("Approve", "the source is right")}).green()
    assert story.check() == max(bank.replay().rows)


def test_a_restored_version_and_the_next_run(story: BankShop) -> None:
    story.suite("tellers", PASSES)
    first = find_earlier_version(story.shop.pipeline, "bank", 1).position
    newest = story.check()
    restored = {"set": "bank", "version": 1, "log_position": "replay"}
    assert story.shop.trigger("tidefold_restore_set", **restored).green().tasks["confirm"] == "skipped"
    run = story.shop.trigger("tidefold_restore_set", **restored, dry_run=False).green()
    assert "asked" in {one["result"] for one in run.result("confirm").values()}
    assert story.check() == newest
    # The gate refuses fewer rows. A person lets them through, and the last answer publishes all tables.
    for question in story.shop.questions():
        question.reached("ask", "awaiting_input").answer({"ask": ("Approve", "the later changes were wrong")}).green()
    assert story.check() == first
    story.trigger().green()
    assert story.check() == newest
