"""The golden store of servers: what a topic of a real Kafka and a real PostgreSQL leave in a store.

It needs what the tests of both need: jars of a broker, its client, and the wheel of PostgreSQL.

In the store: landed files and marks of each kind beside them (ids, a compacted topic, offsets without a record, a gap
that a person accepted, a hole that files filled), records that landed and were not ingested, a load by a slot with the
stream behind it, a note of a load that broke off, and the proof of a comparison with the source.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from golden.kinds import call, truth_of_logs
from golden.life import pack
from support.kafka_broker import KafkaBroker, find_reason
from support.kafka_logs import dump
from support.landing import TOPIC as ITEMS
from support.landing import land
from support.slot_stream import SlotStream
from tidefold.operations.ingest.land_topic import land_topics
from tidefold.operations.ingest.load_files import Load
from tidefold.sources.debezium.loaded_rows import LoadMark
from tidefold.wiring import open_pipeline
from torture.servers import Postgres, PostgresSession

Row = dict[str, Any]
EVENTS, NEWEST = "shop.events", "shop.newest"
# Nobody is there.
NOWHERE = "127.0.0.1:1"
_FILES = f"path: landing/{EVENTS}"


def configure(root: Path, servers: str, events: str = "") -> None:
    """Writes the configuration. events: the source of the log `events`; empty: its topic."""
    topics = [f"kafka: {{servers: '{servers}', topic: {topic}}}" for topic in (EVENTS, NEWEST)]
    sources = {
        "events": f"format: json, {events or topics[0]}",
        "newest": f"format: json, {topics[1]}",
        "items": f"format: debezium-json, connector: postgresql, path: landing/{ITEMS}",
    }
    shape = "key: [id]\n    columns: {id: int, text: string}\n    key_groups: 4\n    buckets: 2"
    logs = "".join(f"  {log}:\n    source: {{{source}}}\n    {shape}\n" for log, source in sources.items())
    (root / "tidefold.yaml").write_text(f"version: 1\nstore: store\nlogs:\n{logs}")


def rows(ids: Iterable[int], text: str = "a") -> list[Row]:
    return [{"id": number, "text": text} for number in ids]


def send(broker: KafkaBroker, topic: str, sent: list[Row]) -> None:
    broker.send(topic, ({"key": dump({"id": one["id"]}), "value": dump(one)} for one in sent))


def send_in_vain(broker: KafkaBroker) -> None:
    """A transaction that is aborted: its offsets have no record for readers."""
    producer = broker.producer(**{"transactional.id": "golden"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(EVENTS, key=dump({"id": 99}), value=dump({"id": 99, "text": "never"}), partition=0)
    producer.flush()
    producer.abort_transaction()
    broker.settle(EVENTS)


def command(root: Path, words: str, *more: str, code: int = 0) -> None:
    call(root, *words.split(), *more, code=code)


def make_topics(root: Path, broker: KafkaBroker) -> None:
    broker.create(EVENTS)
    broker.create(NEWEST, cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    send(broker, NEWEST, rows([1, 2, 1, 1]))
    broker.compact(NEWEST, {"key": dump({"id": 9}), "value": dump({"id": 9, "text": "a"})}, 2)
    send(broker, EVENTS, rows(range(4)))
    send_in_vain(broker)
    command(root, "run events newest")
    # Files bring what follows, then the topic again: the landed files of the topic have a hole.
    (root / "landing" / EVENTS).mkdir(parents=True)
    begin = broker_end(broker)
    send(broker, EVENTS, rows([4, 5], "file"))
    lines = [
        {"topic": EVENTS, "partition": 0, "offset": begin + at, "key": {"id": one["id"]}, "value": one}
        for at, one in enumerate(rows([4, 5], "file"))
    ]
    path = root / "landing" / EVENTS / f"{EVENTS}+0+{begin:010d}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    configure(root, broker.servers, _FILES)
    command(root, "step ingest events --own")
    configure(root, broker.servers)
    send(broker, EVENTS, rows([6]))
    command(root, "step ingest events --own")
    lose_records(root, broker)
    send(broker, EVENTS, rows([1, 8], "landed"))
    land_topics(open_pipeline(root / "tidefold.yaml"), ["events"])


def lose_records(root: Path, broker: KafkaBroker) -> None:
    """Two records that the topic deletes before they are read, which a person gives up."""
    send(broker, EVENTS, rows([50, 51], "lost"))
    broker.forget(EVENTS, broker_end(broker))
    send(broker, EVENTS, rows([7]))
    command(root, "step ingest events", "--accept-gap", "the topic kept too little")
    command(root, "run events")


def broker_end(broker: KafkaBroker) -> int:
    from tidefold.sources.kafka.client import Topic

    [reach] = Topic(broker.servers, EVENTS, {}).describe()[1]
    return reach.end


def make_items(root: Path, session: PostgresSession) -> None:
    session.execute(
        "create table items (id int primary key, text text)",
        "insert into items select n, 't' || n from generate_series(1, 9) n",
        "create publication tidefold for table items",
    )
    (root / "landing" / ITEMS).mkdir(parents=True, exist_ok=True)
    command(root, "source load items --connection shop")
    stream = SlotStream(session)
    session.execute("update items set text = 'new' where id < 3", "delete from items where id = 9")
    follow(root, stream)
    command(root, "run items")
    command(root, "source attest items --connection shop --patience 0")
    # A key that differs waits: nobody lands this change.
    session.execute("update items set text = 'unsent' where id = 5")
    command(root, "source attest items --connection shop --patience 0", code=3)
    stream.read()
    Load.begin(open_pipeline(root / "tidefold.yaml"), "items").note(
        LoadMark("", (), 0, "0/1", "public.items", "ann", "2026-11-28T00:00:00+00:00", "left", "shop")
    )
    session.execute("insert into items values (10, 'last')")
    follow(root, stream)


def follow(root: Path, stream: SlotStream) -> None:
    """Lands what the slot has."""
    records = stream.read()
    land(root, records[0]["offset"], records)


# The rows of each log, and those after what has landed and is not ingested.
ROWS = {
    "events": (
        [*rows([0, 1, 2, 3]), *rows([4, 5], "file"), *rows([6, 7])],
        [*rows([0]), *rows([1], "landed"), *rows([2, 3]), *rows([4, 5], "file"), *rows([6, 7]), *rows([8], "landed")],
    ),
    "newest": (rows([1, 2, 9]), rows([1, 2, 9])),
    "items": (
        [*rows([1, 2], "new"), *({"id": n, "text": f"t{n}"} for n in range(3, 9))],
        [*rows([1, 2], "new"), *({"id": n, "text": f"t{n}"} for n in range(3, 9)), *rows([10], "last")],
    ),
}


def truth_of(root: Path) -> dict[str, Any]:
    return {
        **truth_of_logs(root, ROWS),
        "marks": {log: list_marks(root, log) for log in ("events", "newest")},
    }


def list_marks(root: Path, log: str) -> list[str]:
    """Returns the marks beside the landed files of a topic, with the id of the topic, which is a new one each time."""
    return sorted(path.stem for path in (root / "store/landed" / log / "_topic").iterdir())


def make_archive(archive: Path) -> None:
    """Makes the store and its truth."""
    if reason := find_reason():
        raise SystemExit(f"The golden store of servers cannot be made: {reason}.")
    with ExitStack() as stack:
        root, work = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        work.chmod(0o755)
        broker, server = KafkaBroker(work), Postgres(work / "postgres")
        stack.callback(server.stop)
        stack.callback(broker.kill)
        os.environ["AIRFLOW_CONN_SHOP"] = f"postgres://{server.user}@127.0.0.1:{server.port}/postgres"
        configure(root, broker.servers)
        make_topics(root, broker)
        session = server.session("")
        assert isinstance(session, PostgresSession)
        make_items(root, session)
        session.close()
        configure(root, NOWHERE)
        pack(root, truth_of(root), archive)
