"""What a topic can do between two runs: offsets without records, deleted records, another topic, a dead broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.commands import attempt, call
from support.kafka_broker import KafkaBroker
from support.kafka_logs import TopicLog, dump
from tidefold.compute.runners import in_process
from tidefold.domain.alarms import AlarmThresholds
from tidefold.operations.doctor.finding import FindingLevel
from tidefold.operations.doctor.pipeline_checks import check_landing
from tidefold.operations.ingest.ingest import execute, prepare
from tidefold.operations.ingest.land_topic import land_topics
from tidefold.operations.ingest.stages import has_news
from tidefold.operations.inspect.alarms import find_alarms
from tidefold.operations.inspect.status import status as read_status
from tidefold.presentation.remarks import remarks
from tidefold.sources.kafka.client import KafkaRecord, Topic
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.request import Request, make_argument, parse_argument
from tidefold.spark.steps import IngestStep
from tidefold.wiring import open_pipeline
from tidefold_airflow.observability.metrics import of_status
from tidefold_airflow.ui.health import to_do
from tidefold_airflow.ui.views.log import view_log


@pytest.fixture
def log(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    monkeypatch.chdir(tmp_path)
    made = TopicLog(broker, tmp_path)
    broker.create(made.topic)
    made.configure()
    return made


def _ingest(*words: str) -> str:
    return call("step", "ingest", *words).output


def _fail(*words: str) -> str:
    done = attempt(*(words or ("step", "ingest")))
    assert done.exit_code
    return done.output


def test_files_then_the_topic_then_files(log: TopicLog) -> None:
    landing = log.folder / "landing"
    landing.mkdir()
    lines = [
        {"topic": log.topic, "partition": 0, "offset": i, "key": {"id": i}, "value": {"id": i, "text": "a"}}
        for i in range(9)
    ]

    def land(begin: int, end: int) -> None:
        file = landing / f"{log.topic}+0+{begin:010d}.jsonl"
        file.write_bytes(b"".join((dump(line) or b"") + b"\n" for line in lines[begin:end]))

    log.configure(source="path: landing")
    land(0, 3)
    call("run")
    log.send(range(6))
    log.configure()
    assert "LOG_OWNED" in _fail()
    assert log.list_landed() == []
    call("step", "ingest", "--own")
    assert log.list_landed() == [f"{log.topic}+0+0000000003.jsonl.zst"]
    log.configure(source="path: landing")
    land(6, 9)
    call("step", "ingest", "--own")
    call("run")
    assert log.read_rows() == dict.fromkeys(range(9), "a")
    log.send(range(6, 12))
    log.configure()
    call("step", "ingest", "--own")
    assert log.list_landed()[1:] == [f"{log.topic}+0+0000000009.jsonl.zst"]
    assert "hole+0+6+9" in log.list_marks()
    # Without its ledger, the log needs what came from other files, too.
    call("retain", "drop", "items", "--yes")
    call("run")
    assert log.read_rows() == dict.fromkeys(range(12), "a")


def test_what_compaction_deleted_is_said(log: TopicLog) -> None:
    compacted = TopicLog(log.broker, log.folder)
    log.broker.create(compacted.topic, cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    compacted.configure()
    compacted.send([1, 2, 1, 1])
    log.broker.compact(compacted.topic, {"key": dump({"id": 9}), "value": dump({"id": 9, "text": "a"})}, 2)
    said = call("run").output
    assert "compaction left" in said
    assert "KAFKA_GAP" not in said
    assert compacted.read_rows() == {1: "a", 2: "a", 9: "a"}
    assert "compaction" not in _ingest()


def test_offsets_without_records(log: TopicLog) -> None:
    log.send_transaction(range(5), commits=False)
    assert "nothing new" in _ingest()
    assert "empty+0+0+6" in log.list_marks()
    log.send_transaction(range(3), commits=True)
    log.send_transaction(range(3, 5), commits=False)
    call("run")
    assert log.read_rows() == dict.fromkeys(range(3), "t")
    _ingest()
    assert [name for name in log.list_marks() if name.startswith("empty")] == ["empty+0+9+13"]
    # Retention deletes what no run needs: nothing is lost.
    log.broker.forget(log.topic, 13)
    log.send([7])
    call("run")
    assert log.read_rows() == {**dict.fromkeys(range(3), "t"), 7: "a"}


def test_an_open_transaction_holds_the_end(log: TopicLog) -> None:
    producer = log.broker.producer(**{"transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(log.topic, key=dump({"id": 1}), value=dump({"id": 1, "text": "t"}))
    producer.flush()
    log.send([2])
    assert "nothing new" in _ingest()
    producer.commit_transaction()
    log.broker.settle(log.topic)
    call("run")
    assert log.read_rows() == {1: "t", 2: "a"}


def test_deleted_records_are_counted_and_accepted_by_name(log: TopicLog) -> None:
    log.send(range(4))
    call("run")
    log.send(range(4, 20))
    log.broker.forget(log.topic, 9)
    # The doctor finds it before the run does.
    (finding,) = check_landing(open_pipeline(log.folder / "tidefold.yaml").config)
    assert "[KAFKA_GAP]" in finding.message
    assert "5 records" in finding.message
    said = _fail()
    assert "KAFKA_GAP" in said
    assert "5 records" in said
    # No connector is behind plain JSON.
    assert "let the source send their rows again" in " ".join(said.split())
    assert "KAFKA_GAP" in _fail("run")
    assert "KAFKA_NO_GAP" in _fail("step", "ingest", "--accept-gap", " ")
    call("step", "ingest", "--accept-gap", "the snapshot has them")
    call("run")
    assert log.read_rows().keys() == {*range(4), *range(9, 20)}
    told = " ".join(call("snapshot", "history", "items").output.split())
    assert "up to 5 records of partition 0, from offset 4 on, were given up by" in told
    assert told.endswith(": the snapshot has them")
    (gap,) = json.loads(call("snapshot", "history", "items", "--format", "json").stdout)["gaps"]
    assert (gap["begin"], gap["end"], gap["why"]) == (4, 9, "the snapshot has them")
    assert gap["by"]
    assert gap["at"]
    assert "KAFKA_NO_GAP" in _fail("step", "ingest", "--accept-gap", "again")
    (finding,) = check_landing(open_pipeline(log.folder / "tidefold.yaml").config)
    assert "answers" in finding.message


def test_a_topic_that_forgot_its_snapshot_says_so(log: TopicLog) -> None:
    rows = [(op, {"id": i, "text": "a"}) for i, op in enumerate("rrcu")]
    source = {"connector": "postgresql", "snapshot": "false"}
    sent = [
        {"op": op, "after": row, "source": {**source, "sequence": f'[null,"{100 + row["id"]}"]'}} for op, row in rows
    ]
    log.broker.send(log.topic, [{"key": dump({"id": v["after"]["id"]}), "value": dump(v)} for v in sent])
    log.broker.forget(log.topic, 2)
    file = log.folder / "tidefold.yaml"
    file.write_text(file.read_text().replace("format: json", "format: debezium-json, connector: postgresql"))
    said = " ".join(_ingest().split())
    assert "[SOURCE_SNAPSHOT_MISSING]" in said
    assert "at offset 2" in said
    assert "SOURCE_SNAPSHOT_MISSING" in call("status").output


def test_gaps_are_accepted_wherever_they_are(log: TopicLog) -> None:
    """Without a name, the command gives up what any topic lacks; logs without a gap, or without a topic, go on."""
    whole = TopicLog(log.broker, log.folder)
    log.broker.create(whole.topic)
    entry = f"{{format: json, kafka: {{servers: '{log.broker.servers}', topic: {whole.topic}}}}}"
    rest = "    key: [id]\n    columns: {id: long, text: string}\n"
    file = log.folder / "tidefold.yaml"
    text = file.read_text()
    file.write_text(f"{text}  a_first:\n    source: {entry}\n{rest}  by_program:\n    order: arrival\n{rest}")
    log.send(range(4))
    whole.send([1])
    call("run", "items", "a_first")
    log.send(range(4, 9))
    log.broker.forget(log.topic, 6)
    call("step", "ingest", "--accept-gap", "the snapshot has them")
    assert "given-up+0+4+6" in log.list_marks()
    assert "`items`, `a_first`, `by_program`" in " ".join(_fail("step", "ingest", "--accept-gap", "again").split())


def test_a_job_tells_what_the_landing_found(log: TopicLog) -> None:
    """What can be read of a topic with a gap may be large, so a job ingests it, and tells of the gap."""
    log.broker.grow(log.topic, 2)
    log.send(range(4))
    call("run")
    log.send(range(4, 9))
    log.send(range(10, 15), partition=1)
    log.broker.forget(log.topic, 6)
    pipeline = open_pipeline(log.folder / "tidefold.yaml")
    found = run_without_spark(pipeline, IngestStep(), ["items"], above=0)
    assert found.spark == ("items",)
    step = parse_argument(make_argument(Request("tidefold.yaml", found.spark, found.step))).step
    assert isinstance(step, IngestStep)
    (outcome,) = execute(pipeline, prepare(pipeline, found.spark, step.landed), in_process)
    assert outcome.error_code == "KAFKA_GAP"
    assert "5 changes" in outcome.message


@pytest.mark.parametrize("more", [0, 9])
def test_a_topic_made_again_is_refused(log: TopicLog, more: int) -> None:
    log.send(range(4))
    call("run")
    log.broker.delete(log.topic)
    assert "KAFKA_TOPIC_MISSING" in _fail()
    # As before the first start of its connector.
    (finding,) = check_landing(open_pipeline(log.folder / "tidefold.yaml").config)
    assert (finding.level, finding.hint.split(",")[0]) == (FindingLevel.WARN, "Start its connector")
    log.broker.create(log.topic)
    log.send(range(more), "other")
    assert "KAFKA_TOPIC_REPLACED" in _fail()
    assert log.read_rows() == dict.fromkeys(range(4), "a")


def test_a_run_is_bounded_and_more_partitions_join(log: TopicLog) -> None:
    log.configure(max_records=10)
    log.broker.grow(log.topic, 2)
    log.send(range(15))
    log.send(range(15, 18), partition=1)
    pipeline = open_pipeline(log.folder / "tidefold.yaml")
    assert has_news(pipeline, pipeline.ledger("items").peek(pipeline.log("items").shape))
    assert "10 more offsets of the topic wait for the next run, of 18" in _ingest()
    # Status, page and metrics say it without the broker.
    (status,) = read_status(pipeline, ["items"])
    assert [(one.partition, one.offsets, one.end) for one in status.topic] == [(0, 10, 15), (1, 0, 3)]
    for told in (remarks([status]), [note.text for note in to_do(status)]):
        assert any("10 offsets" in one and "behind its topic, as the last landing saw at" in one for one in told)
    gauges = {one.name: one.value for one in of_status([status], datetime.now(UTC))}
    assert gauges["lag.offsets"] == 10
    later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    alarms = [alarm.message for alarm in find_alarms(status, AlarmThresholds(lag=3600), later)]
    assert "10 offsets of its topic wait, the oldest for up to 2 h." in alarms
    log.broker.grow(log.topic, 3)
    log.send([18], partition=2)
    call("run")
    call("run")
    assert log.read_rows().keys() == set(range(19))
    # Nothing is behind: that is told, too, and is not what is told of a log without a topic.
    (table,) = [line for line in call("status").output.splitlines() if f"{log.topic} " in line and " 2 " in line]
    assert table.split()[-2:] == ["1", "0"]
    assert [one.behind for one in view_log(pipeline, pipeline.ledger("items").read()).places] == [0, 0, 0]
    assert not has_news(pipeline, pipeline.ledger("items").read())
    call("check", "verify")
    (finding,) = check_landing(pipeline.config)
    assert "3 partitions with 19 offsets" in finding.message


def test_what_landed_is_ingested_when_the_broker_is_gone(log: TopicLog, capfd: pytest.CaptureFixture[str]) -> None:
    log.send(range(4))
    land_topics(open_pipeline(log.folder / "tidefold.yaml"), ["items"])
    log.servers = "127.0.0.1:1"
    log.configure()
    capfd.readouterr()
    said = _fail()
    assert "KAFKA_UNREADABLE" in said
    assert "4 changes" in said
    assert "rdkafka" not in capfd.readouterr().err


@pytest.mark.parametrize("puts", [0, 1, 3, 5])
def test_a_run_that_dies_lands_nothing_twice(log: TopicLog, monkeypatch: pytest.MonkeyPatch, puts: int) -> None:
    from tidefold.operations.ingest import land_topic
    from tidefold.storage.local_store import LocalStore

    monkeypatch.setattr(land_topic, "_OFFSETS", 4)
    log.send(range(10))
    log.send_transaction(range(3), commits=False)
    left, put = [puts], LocalStore.put_if_absent

    def die(store: LocalStore, path: str, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        put(store, path, data)

    open_pipeline(log.folder / "tidefold.yaml").before_write()  # The store gets its id.
    with monkeypatch.context() as dying, suppress(KeyboardInterrupt):
        dying.setattr(LocalStore, "put_if_absent", die)
        land_topic.land_topics(open_pipeline(log.folder / "tidefold.yaml"), ["items"])
    log.send(range(10, 12))
    call("run")
    assert log.read_rows() == dict.fromkeys(range(12), "a")
    offsets = [json.loads(line)["offset"] for line in log.read_landed()]
    assert offsets == [*range(10), 14, 15]


def test_two_runs_at_once(log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run lands everything while the first one reads."""
    log.send(range(10))
    pipeline, read = open_pipeline(log.folder / "tidefold.yaml"), Topic.read

    def read_late(topic: Topic, partition: int, start: int, end: int) -> Iterator[KafkaRecord]:
        monkeypatch.setattr(Topic, "read", read)
        log.send([10])
        land_topics(pipeline, ["items"])
        yield from read(topic, partition, start, end)

    monkeypatch.setattr(Topic, "read", read_late)
    call("run")
    assert log.read_rows() == dict.fromkeys(range(11), "a")
    assert [json.loads(line)["offset"] for line in log.read_landed()] == [*range(11)]


def test_records_deleted_while_they_are_read(log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.send(range(10))
    read = Topic.read

    def read_late(topic: Topic, partition: int, start: int, end: int) -> Iterator[KafkaRecord]:
        log.broker.forget(log.topic, 4)
        yield from read(topic, partition, start, end)

    monkeypatch.setattr(Topic, "read", read_late)
    assert "4 records" in _fail()
    assert log.list_landed() == []


def test_a_log_starts_again_without_the_topic(log: TopicLog) -> None:
    log.send(range(4))
    call("run")
    log.broker.forget(log.topic, 4)
    call("retain", "drop", "items", "--yes")
    log.send([4])
    call("run")
    assert log.read_rows().keys() == set(range(5))
    (log.folder / "store/landed/items" / log.list_landed()[0]).unlink()
    call("retain", "drop", "items", "--yes")
    for _ in range(2):
        assert "KAFKA_GAP" in _fail()
    call("step", "ingest", "--accept-gap", "they are gone")
    call("run")
    assert log.read_rows().keys() == {4}


def test_values_that_are_no_json_cannot_forge_a_record(log: TopicLog) -> None:
    hostile = [
        b'null},"offset":99999,"x":{"a":1',
        b"no json",
        b"\xff\xfe",
        b'{"id":5,\n"text":"b"}',
        b"\x00\x00\x00\x00\x01ab",
    ]
    log.broker.send(log.topic, [{"key": dump({"id": 5}), "value": value} for value in hostile[:4]])
    log.send([6])
    call("run", code=None)
    assert log.read_rows() == {5: "b", 6: "a"}
    assert "offset 3" in call("explain", "items", "5").output
    log.broker.send(log.topic, [{"key": dump({"id": 5}), "value": hostile[4]}])
    assert "KAFKA_REGISTRY" in _fail()


def test_clean_deletes_what_was_ingested_long_ago(log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidefold.operations.ingest import land_topic
    from tidefold.operations.retention import clean

    monkeypatch.setattr(land_topic, "_OFFSETS", 2)
    log.configure(retention="{landed: 30d}")
    log.send(range(3))
    log.broker.send(log.topic, [{"key": dump({"id": 3}), "value": b"refused"}])
    log.send(range(4, 8))
    call("run", code=None)
    files = log.list_landed()
    assert len(files) == 4
    call("retain", "clean")
    assert log.list_landed() == files
    monkeypatch.setattr(clean, "now", lambda: "2100-01-01T00:00:00+00:00")
    assert files[0] in call("retain", "clean", "--dry-run", "--format", "json").output
    assert log.list_landed() == files
    call("retain", "clean")
    assert log.list_landed() == files[1:]
    log.broker.forget(log.topic, 1)
    call("retain", "drop", "items", "--yes")
    assert "up to 1 record were" in _fail()
