"""Processes that run commands of tidefold: forked from one that has loaded everything and opened nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from faults.product import LOGS, Said, tidefold
from support.processes import FORK


class Coordinator:
    """A process that runs the commands that it is sent."""

    def __init__(self, root: Path) -> None:
        self._near, far = FORK.Pipe()
        self._process = FORK.Process(target=_serve, args=(far, root), daemon=True)
        self._process.start()

    def send(self, command: str) -> None:
        self._near.send(command)

    def receive(self) -> Said:
        return self._near.recv()

    def stop(self) -> None:
        self._near.send(None)
        self._process.join()


def _serve(pipe: Connection, root: Path) -> None:
    while (command := pipe.recv()) is not None:
        pipe.send(tidefold(root, command))


class Worker:
    """A process that runs commands by chance, and writes when each began and what it said."""

    def __init__(self, root: Path, number: int, seed: int, events: Path) -> None:
        self.number = number
        self._process = FORK.Process(target=_work, args=(root, number, seed, events), daemon=True)
        self._process.start()
        self._stopped = False

    def kill(self) -> None:
        assert self._process.pid
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def pause(self, stop: bool) -> None:
        assert self._process.pid
        os.kill(self._process.pid, signal.SIGSTOP if stop else signal.SIGCONT)

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    def is_alive(self) -> bool:
        return self._process.is_alive()


def _work(root: Path, number: int, seed: int, events: Path) -> None:
    chance = random.Random(seed)
    turn = 0
    with events.open("a") as sink:
        while not (root / "stop").exists():
            turn += 1
            log = chance.choice(LOGS)
            for command in _commands(chance, root, log, f"w{number}-{seed}-{turn}"):
                began = time.monotonic()
                _write(sink, {"began": began, "command": command, "worker": number})
                said = tidefold(root, f"{command} --format json")
                outcomes = said_outcomes(said.text)
                more = {"ended": time.monotonic(), "exit": said.exit, "codes": said.codes, "outcomes": outcomes}
                if said.exit in (1, 5) or (said.exit and not said.codes):
                    more["text"] = said.text[-2000:]
                _write(sink, {"began": began, "command": command, "worker": number, **more})


def _write(sink: Any, event: dict[str, Any]) -> None:
    sink.write(json.dumps(event) + "\n")
    sink.flush()


def _commands(chance: random.Random, root: Path, log: str, run: str) -> list[str]:
    """What a worker does next."""
    whole = [f"run {log} --run {run}"]
    stages = [
        f"step ingest {log}",
        f"step materialize {log} --run {run}",
        f"step quality {log} --run {run}",
        f"step confirm {log}",
    ]
    choices: list[tuple[int, list[str]]] = [
        (6, whole),
        (3, [f"run {log} --run {run} --takeover"]),
        (3, stages),
        (2, [f"step ingest {log}"]),
        (1, [f"step materialize {log} --run {run} --takeover", f"step abort {log}"]),
        (1, [f"step abort {log}"]),
        (1, [f"retain subsume {log}", f"retain truncate {log}"]),
        (1, [f"retain truncate {log}"]),
        (1, ["retain clean"]),
        (1, [f"retain compact {log}"]),
        (1, [f"quarantine retry {log}"]),
        (1, [f"check verify {log} --quick"]),
        (2, _restore(chance, root, log, run)),
    ]
    return chance.choices([commands for _, commands in choices], [weight for weight, _ in choices])[0]


def _restore(chance: random.Random, root: Path, log: str, run: str) -> list[str]:
    """One of the newest snapshots comes back, as a new one."""
    newest = max((int(n) for n in _noted(root, log)), default=1)
    back = max(1, newest - chance.randint(0, 2))
    mode = chance.choice(("replay", "skip"))
    return [
        f"restore {log} {back} --log-position {mode} --run {run}",
        f"step quality {log} --run {run}",
        f"step confirm {log}",
    ]


def _noted(root: Path, log: str) -> list[str]:
    """The newest snapshot that the observer has seen."""
    path = root / f"newest-{log}"
    return path.read_text().split() if path.exists() else []


def said_outcomes(text: str) -> list[dict[str, Any]]:
    """The outcomes in the JSON object that a command printed, of all its steps."""
    begin = text.find("\n{")
    data = text[begin + 1 :] if not text.startswith("{") and begin >= 0 else text
    try:
        said, _ = json.JSONDecoder().raw_decode(data)
    except ValueError:
        return []
    found = [*said.get("outcomes", []), *(o for step in said.get("steps", {}).values() for o in step)]
    kept = ("log", "result", "snapshot", "error")
    return [{name: one.get(name) for name in kept} for one in found]
