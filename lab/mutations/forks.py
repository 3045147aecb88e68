"""Judges changes of functions without starting Python for each: a fork of a process that has loaded all tests.

The fork runs the changed code, and so does each process that a test of it starts: the file is changed too.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from mutations.changed_file import change_file
from mutations.generate import Generated, mutate

# By the clock, for tests that wait for what never comes; the processes of others make it long.
_PATIENCE = 900
# The functions of the program, by file and qualified name.
_LOADED: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)


@dataclass
class Trial:
    """What some tests said: the first that failed, how many passed before it, and the CPU seconds.

    ended: false if the limit of CPU seconds or of time ended the run; `failed` is then the test that ran.
    """

    failed: str = ""
    passed: int = 0
    seconds: float = 0
    ended: bool = True


class _Watch:
    def __init__(self, running: Path) -> None:
        self.trial = Trial()
        self._running = running

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running.write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.trial.failed:
            self.trial.failed = report.nodeid
        self.trial.passed += report.when == "call" and report.passed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.trial.failed:
            self.trial.failed = report.nodeid


class _Cases:
    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.names = [item.nodeid for item in session.items]


def load(clone: Path, tests: Sequence[str]) -> frozenset[str]:
    """Imports the tests and the program of a clone into this process. Returns the names of the cases."""
    os.chdir(clone)
    collected = _Cases()
    with _quiet():
        code = pytest.main(["--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *tests], plugins=[collected])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"the tests of {clone} cannot be collected: {code!r}")
    _list_functions(clone)
    return frozenset(collected.names)


def run_in_fork(clone: Path, mutant: Generated | None, tests: Sequence[str], limit: int) -> Trial:
    """Runs the tests until the first fails. No mutant: runs the program as it is."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    said, running = folder / "trial.json", folder / "running"
    with _apply(clone, mutant):
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            signal.alarm(_PATIENCE)
            os.environ["PYTHONPATH"] = "include:plugins:scripts"
            os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
            watch = _Watch(running)
            with _quiet():
                try:
                    if mutant:
                        replace_code(clone, mutant)
                    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
                    pytest.main([*options, f"--basetemp={folder / 'tests'}", *tests], plugins=[watch])
                    watch.trial.seconds = round(sum(os.times()[:4]), 1)
                    said.write_text(json.dumps(asdict(watch.trial)))
                finally:
                    os._exit(0)
        os.waitpid(child, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # What its tests started.
    if said.exists():
        trial = Trial(**json.loads(said.read_text()))
    else:
        trial = Trial(running.read_text() if running.exists() else "", seconds=limit, ended=False)
    shutil.rmtree(folder, ignore_errors=True)
    return trial


def _apply(clone: Path, mutant: Generated | None) -> AbstractContextManager[None]:
    if mutant is None:
        return nullcontext()
    path = clone / mutant.file
    return change_file(path, mutate(path.read_text(), mutant))


def replace_code(clone: Path, mutant: Generated) -> None:
    """Gives the functions that are loaded the changed code; a module that is not loaded yet reads its changed file."""
    path = str(clone / mutant.file)
    [code] = _find_code(compile(Path(path).read_text(), path, "exec"), mutant.function)
    for function in _LOADED[path, mutant.function]:
        function.__code__ = code


def _list_functions(clone: Path) -> None:
    """Once, as a look at all objects copies the memory of a fork."""
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and "tidefold" in one.__code__.co_filename:
            _LOADED[str(clone / one.__code__.co_filename), one.__code__.co_qualname].append(one)
    gc.freeze()


def _find_code(code: CodeType, name: str) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from [one] if one.co_qualname == name else _find_code(one, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing that the tests print comes out."""
    sys.stdout.flush()
    kept = [os.dup(1), os.dup(2)]
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, one in enumerate(kept, 1):
            os.dup2(one, number)
            os.close(one)
