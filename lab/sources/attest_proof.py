"""Attestations beside writers: none may cry without a fault, and every planted fault must be named."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sources.rig import SourceRig
from tidefold.operations.attest.faults import KeyFault
from tidefold.operations.attest.proof import AttestDetails
from torture.capture import Java
from torture.servers import Postgres, PostgresSession

_DDL = (
    "create table acct (id bigint primary key, name text, pad char(12), amount numeric(12,2), free numeric, "
    "rate float8, ok boolean, day date, at timestamptz, data bytea, doc jsonb, tags text[])"
)
_COLUMNS = (
    '{id: long, name: string, pad: string, amount: {type: "decimal(12,2)", encoding: string}, free: {type: string, '
    "encoding: decimal}, rate: double, ok: boolean, day: date, at: {type: timestamp, encoding: iso}, data: binary, "
    "doc: string, tags: array<string>}"
)
_NAMES = [
    part.strip().split(" ")[0] for part in _DDL.partition("(")[2].replace("(12,2)", "").replace("(12)", "").split(",")
]
# Keys that no writer touches, and what is done with their captured records. Ours: the columns that then differ.
_RESERVED = 10_000_000
_TEXTS = ["", "plain", "Ünïcödé ☃ 𝄞", "tab\tq\"'\\", " trailing  "]


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _draw(rnd: random.Random) -> list[str]:
    """Literals of a row, without its key."""
    return [
        _literal(rnd.choice(_TEXTS) + str(rnd.randrange(99))),
        _literal(rnd.choice(["x", "ab  c", ""])),
        f"{rnd.uniform(-9e9, 9e9):.2f}",
        rnd.choice(["1.500", "0", "1e-20", "123456789012345678901234567890.12", "'NaN'"]),
        rnd.choice(["0.1", "'-0'", "1e300", "'NaN'", "'Infinity'", "5e-324"]),
        rnd.choice(["true", "false"]),
        rnd.choice(["'2026-11-27'", "'0001-01-01'", "'9999-12-31'"]),
        f"'2026-11-{rnd.randrange(1, 28):02d} 10:00:00.5+02'",
        f"'\\x{rnd.randbytes(rnd.randrange(5)).hex()}'",
        f"'{{\"b\": {rnd.randrange(9)}}}'",
        rnd.choice(["'{}'", "array['a', null, 'q\"']"]),
    ]


class Writers:
    """Threads that write transactions at a fixed rate: one change or several, changes of keys, rollbacks, long ones."""

    def __init__(self, server: Postgres, database: str, rows: int, rate: float, count: int = 3) -> None:
        self._stop, self.done = threading.Event(), 0
        pause = count / rate
        opened = [server.session(database) for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._write, args=(one, number, rows, pause), daemon=True)
            for number, one in enumerate(opened)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, session: PostgresSession, number: int, rows: int, pause: float) -> None:
        rnd = random.Random(number)
        following = time.monotonic()
        while not self._stop.is_set():
            session.execute("begin")
            try:
                for _ in range(rnd.choice([1, 1, 1, 3, 10])):
                    session.execute(_draw_statement(rnd, rows))
                if rnd.random() < 0.02:
                    time.sleep(rnd.uniform(0.5, 1.5))
                session.execute("rollback" if rnd.random() < 0.1 else "commit")
                self.done += 1
            except Exception:  # A deadlock.
                session.execute("rollback")
            following = max(following + pause, time.monotonic() - 5)
            time.sleep(max(0.0, following - time.monotonic()))

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _draw_statement(rnd: random.Random, rows: int) -> str:
    key, what = rnd.randrange(1, rows + rows // 5), rnd.random()
    if what < 0.2:
        return f"delete from acct where id = {key}"
    if what < 0.4:
        return f"insert into acct values ({key}, {', '.join(_draw(rnd))}) on conflict (id) do nothing"
    if what < 0.45:
        new = key + rows * 2
        return f"update acct set id = {new} where id = {key} and not exists (select from acct where id = {new})"
    number = rnd.randrange(len(_NAMES) - 1)
    return f"update acct set {_NAMES[number + 1]} = {_draw(rnd)[number]} where id = {key}"


_Change = Callable[[dict[str, Any]], Any]
# By kind: how the row in a record is changed, and which columns then differ; None: the record is lost.
_WRONG: dict[str, tuple[_Change | None, tuple[str, ...]]] = {
    "lost update": (None, ("name",)),
    "lost insert": (None, ()),
    "lost delete": (None, ()),
    "wrong text": (lambda row: row.update(name=f"{row['name']}~"), ("name",)),
    "stale row": (lambda row: row.update(name="begin"), ("name",)),
    "wrong number": (lambda row: row.update(amount="0.01"), ("amount",)),
    "value lost": (lambda row: row.update(doc=None), ("doc",)),
    "blanks cut": (lambda row: row.update(pad=row["pad"].rstrip()), ("pad",)),
    "hour shifted": (lambda row: row.update(at="2026-11-01T09:00:00Z"), ("at",)),
    "wrong key": (lambda row: row.update(id=row["id"] + 500_000), ()),
}


def prove_attest(server: Postgres, java: Java, folder: Path, clean: int, rounds: int, rows: int) -> str:
    """Returns what went wrong; empty: nothing did."""
    rig = SourceRig(server, java, folder / "attested", "acct", _COLUMNS)
    rnd = random.Random(1)
    rig.session.execute(_DDL)
    keys = [*range(1, rows + 1), *range(_RESERVED, _RESERVED + rounds * len(_WRONG))]
    for first in range(0, len(keys), 500):
        values = (f"({key}, {', '.join(_draw(rnd))})" for key in keys[first : first + 500])
        rig.session.execute(f"insert into acct values {', '.join(values)}")
    rig.start()
    rig.await_caught_up(300)
    writers = Writers(server, rig.name, rows, rate=30.0)
    wrong = []
    try:
        for number in range(clean):
            outcome, told = _attest(rig, f"clean {number}")
            print(f"{told}; {writers.done} transactions", flush=True)
            wrong += [] if outcome.error is None else [told]
        for number in range(rounds):
            wrong += _prove_faults(rig, number)
    finally:
        writers.end()
        rig.end()
    return "; ".join(wrong + rig.failed[-1:])


def _attest(rig: SourceRig, what: str) -> tuple[Any, str]:
    begun = time.monotonic()
    outcome = rig.attest(looks=6, patience=30.0)
    details = outcome.details
    sent = f", {details.rows_sent} pairs, source {details.seconds:.2f} s" if isinstance(details, AttestDetails) else ""
    return outcome, f"{what}: {outcome.message}{sent}, {time.monotonic() - begun:.1f} s"


def _prove_faults(rig: SourceRig, number: int) -> list[str]:
    """Plants one fault of each kind, and returns what was not named as it should."""
    planned = {_RESERVED + number * len(_WRONG) + i: kind for i, kind in enumerate(_WRONG)}
    inserted = next(key for key, kind in planned.items() if kind == "lost insert")
    misplaced = next(key for key, kind in planned.items() if kind == "wrong key")
    rig.session.execute(f"delete from acct where id in ({inserted}, {misplaced})")
    rig.session.execute(
        f"update acct set name = 'begin', pad = 'x', amount = 1, doc = '1', at = now() where id in ({_list(planned)})"
    )
    rig.await_caught_up(300)
    rig.fault = lambda record: _change(record, planned)
    row = ", ".join(_draw(random.Random(number)))
    for key, kind in planned.items():
        if kind == "lost delete":
            rig.session.execute(f"delete from acct where id = {key}")
        elif key in (inserted, misplaced):
            rig.session.execute(f"insert into acct values ({key}, {row})")
        else:
            rig.session.execute(f"update acct set name = 'end' where id = {key}")
    rig.await_caught_up(300)
    rig.fault = None
    outcome, told = _attest(rig, f"faults {number}")
    print(told, flush=True)
    faults: dict[object, KeyFault] = {one.key["id"]: one for one in outcome.details.faults if not one.excuse}
    expected: dict[int, tuple[str, tuple[str, ...]]] = {}
    for key, kind in planned.items():
        shown = {"lost insert": "missing", "wrong key": "missing", "lost delete": "extra"}.get(kind, "changed")
        expected[key] = (shown, _WRONG[kind][1])
    expected[misplaced + 500_000] = ("extra", ())
    got = {key: (one.kind, one.columns) for key, one in faults.items()}
    _mend(rig, planned, misplaced)
    wrong = {key: (expected.get(key), got.get(key)) for key in {*expected, *got} if expected.get(key) != got.get(key)}  # type: ignore[call-overload,index]
    return [f"faults {number}: {wrong}"] if wrong else []


def _change(record: dict[str, Any], planned: Mapping[int, str]) -> dict[str, Any] | None:
    kind = planned.get((record["key"] or {}).get("id", -1))
    if kind is None:
        return record
    change = _WRONG[kind][0]
    if change is None:
        return None
    changed = copy.deepcopy(record)
    if changed["value"] and changed["value"]["after"]:
        change(changed["value"]["after"])
        changed["key"] = {"id": changed["value"]["after"]["id"]}
    return changed


def _mend(rig: SourceRig, planned: Mapping[int, str], misplaced: int) -> None:
    """Has the connector send all rows of the round again, as they are."""
    extra = [key for key, kind in planned.items() if kind == "lost delete"] + [misplaced + 500_000]
    for key in extra:
        rig.session.execute(f"insert into acct (id) values ({key})", f"delete from acct where id = {key}")
    rig.session.execute(f"update acct set ok = not ok where id in ({_list(planned)})")
    rig.await_caught_up(300)


def _list(keys: Mapping[int, str]) -> str:
    return ", ".join(map(str, keys))
