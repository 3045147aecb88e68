"""Debezium's engine: one Java process for as long as it lives, one capture after the other in it."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from pathlib import Path

_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:ActiveProcessorCount=1")


class CaptureError(Exception):
    """The engine ended by itself, or never caught up."""


class Java:
    """A process that runs captures; a killed one is replaced when the next capture starts."""

    def __init__(self, classes: Path, log: Path) -> None:
        self._classes, self._log = classes, log
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()
        self.starts = 0

    def ask(self, command: str, answer: str, seconds: float = 90) -> None:
        process = self._living()
        assert process.stdin is not None
        process.stdin.write(command + "\n")
        process.stdin.flush()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=0.2)
            except queue.Empty:
                if process.poll() is not None:
                    raise CaptureError(f"The engine's process ended: see {self._log.name}") from None
                continue
            if line == answer:
                return
            raise CaptureError(f"{line}: see {self._log.name}")
        raise CaptureError(f"The engine did not answer to {command}: see {self._log.name}")

    def poll(self) -> int | None:
        """The exit code of a process that has ended."""
        if not self._lines.empty():
            raise CaptureError(f"{self._lines.get()}: see {self._log.name}")
        return None if self._process is None else self._process.poll()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)

    def _living(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            path = f"{self._classes}/classes:{self._classes}/lib/*"
            level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
            with self._log.open("ab") as errors:
                self._process = subprocess.Popen(
                    ["java", *_JAVA, level, "-cp", path, "Capture"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            self._lines = queue.Queue()
            threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
            self.starts += 1
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(("STARTED", "STOPPED", "ENDED")):
                lines.put(line.rstrip("\n"))


class Capture:
    """The capture of one seed: its properties, its offsets and the folder of its files."""

    def __init__(self, java: Java, folder: Path, properties: dict[str, object], rotate: int) -> None:
        self._java, self._rotate = java, rotate
        self.out, self._file = folder / "captured", folder / "engine.properties"
        self.out.mkdir(parents=True)
        storage = "org.apache.kafka.connect.storage.FileOffsetBackingStore"
        own = {"offset.storage": storage, "offset.storage.file.filename": folder / "offsets.dat"}
        lines = (f"{name}={value}\n" for name, value in {**properties, **own}.items())
        self._file.write_text("".join(lines))
        self.running = False
        self.kills = self.stops = 0

    def start(self, kill: int = 0) -> None:
        self._java.ask(f"start {self._file} {self.out} {self._rotate} {kill}", "STARTED")
        self.running = True

    def stop(self) -> None:
        self._java.ask("stop", "STOPPED")
        self.running = False
        self.stops += 1

    def kill(self) -> None:
        self._java.kill()
        self.running = False
        self.kills += 1

    def is_killed(self) -> bool:
        """Whether the engine has ended itself, as it was told; then it no longer runs."""
        if self._java.poll() is None:
            return False
        self.kills += self.running
        self.running = False
        return True

    def await_marker(self, topic: str, marker: int, seconds: float = 120) -> None:
        """Until the row `marker` of the marker's table is in the files; a killed engine is started again."""
        deadline = time.monotonic() + seconds
        while not self._has(topic, marker):
            if self.is_killed():
                self.start()
            if time.monotonic() > deadline:
                raise CaptureError(f"marker {marker} did not come within {seconds:.0f} s")
            time.sleep(0.15)

    def is_cut_short(self, topic: str) -> bool:
        """Whether the last snapshot of a table has begun, and its last row never came. Unwrapped rows do not say it."""
        is_open = False
        for file in sorted((self.out / topic).glob("*.jsonl")):
            # The engine may be writing the last line.
            for line in file.read_text().rpartition("\n")[0].splitlines():
                value = json.loads(line)["value"] or {}
                value = value.get("payload", value) or {}
                mark = str((value.get("source") or {}).get("snapshot")) if value.get("op") == "r" else ""
                is_open = not mark.startswith("last") and (is_open or mark.startswith("first"))
        return is_open

    def _has(self, topic: str, marker: int) -> bool:
        for file in sorted((self.out / topic).glob("*.jsonl"), reverse=True):
            for line in reversed(file.read_text().splitlines()):
                try:
                    value = json.loads(line)["value"]
                except ValueError:
                    continue
                value = value.get("payload", value) if value else None
                row = value.get("after", value) if value else None
                if row and row.get("id") == marker:
                    return True
        return False
