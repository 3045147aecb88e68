"""Eight real processes work on one store while some are killed and stopped: `python -m faults.history MINUTES STORE`.

Every version of each ledger is read in its order, which is the one serial order; outcomes that were acknowledged must
lie in it as they followed each other in time, and each published version must equal a plain fold at its position.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.product import LOGS, LogHistory, configure, land, preload, tidefold
from faults.servers import MEMORY, versitygw
from faults.workers import Worker
from support.processes import FORK

PROCESSES = 8
# How long between two files, and between two blows, in seconds.
_LANDS, _STRIKES = 1.5, 2.0


@dataclass
class Found:
    """What a run found."""

    minutes: float
    commands: int = 0
    acknowledged: int = 0
    refused: int = 0
    killed: int = 0
    stopped: int = 0
    crashed: int = 0
    versions: int = 0
    ledger_versions: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        return len(self.wrong)


def observe(root: Path, store: str, answer: Any) -> None:
    """Reads every ledger version and every published version as they come; ends with what is wrong."""
    try:
        _observe(root, store, answer)
    except Exception:
        answer.put(([traceback.format_exc()], 0, 0))


def _observe(root: Path, store: str, answer: Any) -> None:
    histories = {log: LogHistory(root, log, store) for log in LOGS}
    while not (root / "finished").exists():
        for log, history in histories.items():
            history.advance()
            history.note_newest(root / f"newest-{log}")
        time.sleep(0.2)
    for history in histories.values():
        history.advance()
    events = list(_events(root))
    wrong = [w for history in histories.values() for w in (*history.wrong, *check_order(history, events))]
    answer.put((wrong, sum(h.shown for h in histories.values()), sum(h.version for h in histories.values())))


def _events(root: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(root.glob("events-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # Its writer was killed.


def check_order(history: LogHistory, events: list[dict[str, Any]]) -> list[str]:
    """What does not fit: acknowledged effects that are not there, or that are not in the order of time."""
    found: list[tuple[float, float, int, str]] = []
    wrong = []
    for event in events:
        for one in event.get("outcomes", ()):
            effect = (one["result"], one["snapshot"])
            if one["log"] != history.log or one["error"] or one["result"] not in ("published", "aborted", "staged"):
                continue
            at = history.effects.get(effect)
            if at is None:
                wrong.append(f"{history.log}: acknowledged and not there: {effect} of `{event['command']}`")
            else:
                found.append((event["began"], event["ended"], at, f"{effect} of `{event['command']}`"))
    return wrong + list(_reversed_pairs(found))


def _reversed_pairs(found: list[tuple[float, float, int, str]]) -> Iterator[str]:
    """Pairs where one ended before the other began, and comes after it in the ledger."""
    ended = sorted(found, key=lambda one: one[1])
    newest, what, index = 0, "", 0
    for began, _, at, effect in sorted(found):
        while index < len(ended) and ended[index][1] < began:
            if ended[index][2] > newest:
                newest, what = ended[index][2], ended[index][3]
            index += 1
        if at < newest:
            yield f"{effect} is version {at}, and {what}, which ended before it began, is version {newest}"


def play(minutes: float, store: str | None = None, seed: int = 0) -> Found:
    """Works for so long, then lets all end, brings each log to its end, and checks."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY))
    try:
        return _play(folder, minutes, store or "store", seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _play(root: Path, minutes: float, store: str, seed: int) -> Found:
    configure(root, store, keep=4, local=False)
    preload()
    chance, found, landed = random.Random(seed), Found(minutes), Counter[str]()
    _land_next(root, chance, landed)
    answer = FORK.Queue()
    observer = FORK.Process(target=observe, args=(root, store, answer), daemon=True)
    observer.start()
    seeds = iter(range(seed * 100_000, sys.maxsize))
    workers = [_start(root, number, next(seeds)) for number in range(PROCESSES)]
    end, lands, strikes = time.monotonic() + minutes * 60, 0.0, time.monotonic() + 5
    paused: dict[int, float] = {}
    while (now := time.monotonic()) < end:
        if now >= lands:
            _land_next(root, chance, landed)
            lands = now + _LANDS
        for number in [n for n, until in paused.items() if now >= until]:
            workers[number].pause(stop=False)
            del paused[number]
        if now >= strikes:
            strikes = now + chance.uniform(0.5, 1.5) * _STRIKES
            number = chance.randrange(PROCESSES)
            if number in paused:
                continue
            if not workers[number].is_alive():
                # As a kill: the store must bear it. It is counted, since nobody sent a signal.
                found.crashed += 1
                print(f"worker {number} ended by itself with {workers[number].exit_code}", flush=True)
                workers[number] = _start(root, number, next(seeds))
                continue
            if chance.random() < 0.5:
                workers[number].kill()
                workers[number] = _start(root, number, next(seeds))
                found.killed += 1
            else:
                workers[number].pause(stop=True)
                paused[number] = now + chance.uniform(0.5, 6)
                found.stopped += 1
        time.sleep(0.05)
    for number in paused:
        workers[number].pause(stop=False)
    _end(root, workers, found)
    (root / "finished").touch()
    found.wrong, found.versions, found.ledger_versions = _merged(found, answer.get())
    observer.join()
    _count(root, found)
    return found


def _merged(found: Found, answer: tuple[list[str], int, int]) -> tuple[list[str], int, int]:
    wrong, shown, versions = answer
    return [*found.wrong, *wrong], shown, versions


def _start(root: Path, number: int, seed: int) -> Worker:
    return Worker(root, number, seed, root / f"events-{number}-{seed}.jsonl")


def _land_next(root: Path, chance: random.Random, landed: Counter[str]) -> None:
    for log in LOGS:
        first = landed[log]
        changes = [(chance.randrange(40), chance.choice("uuud")) for _ in range(chance.randint(1, 6))]
        land(root, log, first, changes)
        landed[log] += len(changes)


def _end(root: Path, workers: list[Worker], found: Found) -> None:
    """All stop; then one process brings each log to its end."""
    (root / "stop").touch()
    waits = time.monotonic() + 120
    while any(worker.is_alive() for worker in workers) and time.monotonic() < waits:
        time.sleep(0.2)
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            found.wrong.append(f"worker {worker.number} did not end")
    answers = FORK.Queue()
    last = FORK.Process(target=_finish, args=(root, answers))
    last.start()
    found.wrong += answers.get()
    last.join()


def _finish(root: Path, answers: Any) -> None:
    wrong = []
    for log in LOGS:
        for command in (f"run {log} --takeover", f"retain clean {log}", f"check verify {log}"):
            said = tidefold(root, command)
            if said.exit:
                wrong.append(f"in the end `{command}`: {said.text[-600:]}")
    answers.put(wrong)


def _count(root: Path, found: Found) -> None:
    codes: Counter[str] = Counter()
    for event in _events(root):
        if "ended" not in event:
            continue
        found.commands += 1
        found.acknowledged += event["exit"] == 0
        found.refused += event["exit"] != 0
        if event["exit"]:
            codes.update(event["codes"] or ["no code"])
        # Nothing is damaged here: exit code 5 would send a person to look for damage.
        unnamed = event["exit"] in (1, 5) or {"UNEXPECTED", "UNFORESEEN"} & set(event["codes"])
        if unnamed or (event["exit"] and not event["codes"]):
            found.wrong.append(f"not by name: `{event['command']}`: {event.get('text', '')}")
    found.codes = dict(codes.most_common())


def main(minutes: float = 10, stores: str = "disk,s3", seed: int = 0) -> int:
    from faults.page import record_history

    failed = 0
    for name in stores.split(","):
        if name == "s3":
            with versitygw() as (bucket, _):
                found = play(minutes, f"s3://{bucket}/store", seed)
        else:
            found = play(minutes, seed=seed)
        print(f"{name}: {found}", flush=True)
        for one in found.wrong[:20]:
            print(f"{name}: {one}", flush=True)
        record_history({"disk": "local disk", "s3": "versitygw 1.8.0 (S3)"}[name], found)
        failed += found.violations
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if sys.argv[1:] else 10, *sys.argv[2:3], *map(int, sys.argv[3:4])))
