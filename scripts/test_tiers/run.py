"""Runs the lanes of a tier beside each other and counts CPU seconds, also of processes that outlive their parents."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from test_tiers.cpu import adopt_orphans, measure_tree
from test_tiers.durations import read_records
from test_tiers.pace import Pace
from test_tiers.recorder import ENVIRONMENT
from test_tiers.tiers import Lane

_PROGRESS_EVERY, _PACE_EVERY = 30, 15
# Files of a run of `make test` take 3 GB.
_MEMORY, _ROOM, _PREFIX = Path("/dev/shm"), 8_000_000_000, "tidefold-tests-"


@dataclass
class RunningLane:
    """A lane under way. `log`: what its commands print. `exit_code`: the first that is not 0."""

    lane: Lane
    log: Path
    env: Mapping[str, str]
    arguments: tuple[str, ...]
    seed: int
    exit_code: int = 0
    pid: int | None = None
    _next: int = field(default=0, init=False)

    def start_next(self) -> bool:
        """Starts the next command. Returns False if there is none."""
        if self._next == len(self.lane.commands):
            self.pid = None
            return False
        command = self.lane.commands[self._next]
        self._next += 1
        with self.log.open("ab") as stream:
            argv = [sys.executable, "-m", "pytest", "-p", "test_tiers.recorder", f"--hypothesis-seed={self.seed}"]
            argv += [*self.arguments, *command]
            env = {**self.env, "TIDEFOLD_TEST_SEED": str(self.seed)}
            # A session of its own: Ctrl-C reaches it once, by `stop`.
            self.pid = subprocess.Popen(argv, env=env, stdout=stream, stderr=stream, start_new_session=True).pid
        return True

    def stop(self) -> None:
        """Asks pytest to end as Ctrl-C does, so that its fixtures stop their servers."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGINT)


@dataclass(frozen=True)
class RunResult:
    """exit_code: 0 or 1. cpu: CPU seconds of everything that the lanes started. slowness: see Pace."""

    exit_code: int
    cpu: float
    slowness: float


def run_lanes(lanes: tuple[Lane, ...], records: Path, seed: int, arguments: tuple[str, ...]) -> RunResult:
    """Runs everything, one command of each lane at a time."""
    adopt_orphans()
    folder = _make_folder()
    # Also where a shell that runs this in the background has told it to ignore Ctrl-C; the lanes inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    env = {**os.environ, ENVIRONMENT: str(records), "TMPDIR": folder}
    running = [
        RunningLane(
            lane,
            records / f"{lane.name}.log",
            env,
            arguments,
            seed if lane.seed is None else lane.seed,
        )
        for lane in lanes
    ]
    before, begun, printed, paced = measure_tree(), time.monotonic(), 0.0, 0.0
    pace = Pace()
    told: set[str] = set()
    for lane in running:
        lane.start_next()
    try:
        while any(lane.pid for lane in running):
            _reap(running)
            seconds = time.monotonic() - begun
            if seconds - paced > _PACE_EVERY:
                paced = seconds
                pace.measure()
            if seconds - printed > _PROGRESS_EVERY:
                printed = seconds
                _print_progress(records, printed, told)
            time.sleep(0.2)
    except KeyboardInterrupt:
        for lane in running:
            lane.stop()
        while any(lane.pid for lane in running) and _reap(running, starts_next=False):
            time.sleep(0.2)
        raise
    for lane in running:
        print(f"\n---- {lane.lane.name}\n{lane.log.read_text(errors='replace')}")
    # A lane that a signal ended has a negative code.
    code = int(any(lane.exit_code for lane in running))
    if code:
        print(f"\nFiles of the tests: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return RunResult(code, measure_tree() - before - pace.cpu, pace.slowness)


def _make_folder() -> str:
    """Returns a folder for the files of the tests: in memory if there is room, because a store syncs each file."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM
    parent = _MEMORY if has_room else Path(tempfile.gettempdir())
    # The folder of a run that failed stays until the next one.
    for left in parent.glob(f"{_PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)


def _reap(running: list[RunningLane], starts_next: bool = True) -> bool:
    """Collects processes that have ended; a lane's next command starts. Returns False if there is no process."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        for lane in running:
            if lane.pid == pid:
                lane.exit_code = lane.exit_code or os.waitstatus_to_exitcode(status)
                lane.pid = None
                if starts_next:
                    lane.start_next()


def _print_progress(records: Path, seconds: float, told: set[str]) -> None:
    """Prints how many tests ended, and each failure once."""
    ended = read_records(records)
    failed = {record.test for record in ended if record.outcome == "failed"} - told
    minutes = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
    print(
        "\n".join([f"{minutes}  {len(ended):,} tests ended", *(f"      failed: {test}" for test in sorted(failed))]),
        flush=True,
    )
    told |= failed
