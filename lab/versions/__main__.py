"""`make test-versions CELL=...` installs tidefold beside other versions, runs it there and writes versions.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import wrap_text
from local_airflow.settings import PROJECT
from versions.cells import CELLS, Cell, freeze, install

PAGE = PROJECT / "docs" / "contributors" / "versions.md"
RECORD = PROJECT / "lab" / "data" / "versions.json"
FOLDER = Path(os.environ.get("VERSIONS", PROJECT / "var" / "versions"))
_MARK = "<!-- Written by `make test-versions` from here to the end. -->\n"
_PHASES = ("phase1", "phase2", "phase3")
_SHOWN = ("python", "pyspark", "apache-airflow", "pyarrow", "duckdb", "deltalake", "great-expectations", "pydantic")
# What a slice on small data does not show: types, old dates, checks that cannot be computed.
_SPARK_TESTS = ("test_quality_gate.py", "test_quality_catalogue.py", "test_readers_check.py")
_AIRFLOW_TESTS = ("test_airflow_versions.py",)
_SECONDS = 1_800
# A step of a cell that was interrupted, in the record.
_NOT_RUN = "not run"


class StepFailedError(Exception):
    """A step of a cell failed; the text is its last words."""


@dataclass
class Visit:
    """The work in one cell. `steps`: each with its seconds and its error; empty: it passed."""

    cell: Cell
    steps: list[tuple[str, float, str]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return FOLDER / self.cell.name

    @property
    def python(self) -> Path:
        return self.home / "env" / "bin" / "python"

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times what is done in it. A failure is kept, and the other steps still run."""
        began, error = time.monotonic(), ""
        try:
            yield
        except (StepFailedError, RuntimeError, subprocess.TimeoutExpired) as failed:
            error = str(failed)
        self.steps.append((name, round(time.monotonic() - began, 1), error))
        print(f"{self.cell.name}: {name}: {error or 'passed'} ({self.steps[-1][1]} s)", flush=True)

    def call(self, *arguments: str, python: Path | None = None, **environment: str) -> str:
        """Runs a command in the environment of the cell, or of another Python; returns its output."""
        program = python or self.python
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TIDEFOLD_CONFIG")}
        env |= {"PATH": f"{program.parent}:{env['PATH']}", "TIDEFOLD_JARS": str(FOLDER / "jars")}
        env |= {"TIDEFOLD_SPARK_C1": "1", "PYTHONUNBUFFERED": "1", **environment}
        done = subprocess.run(
            [str(program), *arguments], env=env, cwd=self.home, capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
        (self.home / "last.log").write_text(f"{arguments}\n{done.stdout}\n{done.stderr}")
        if done.returncode:
            lines = [line for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
            telling = [line for line in lines if re.search(r"Error\b|\[[A-Z_]{6,}\]|FAILED|^fail ", line)]
            said = " | ".join(line.strip() for line in (telling or lines)[-3:])
            raise StepFailedError(said.replace(f"{PROJECT}/", "").replace(f"{self.home}/", "")[:600])
        return done.stdout

    def slice(self, *arguments: str, python: Path | None = None) -> str:
        """Runs a part of `slice.py`."""
        code = {"PYTHONPATH": f"{PROJECT}/include"} if python else {}
        return self.call(str(PROJECT / "lab/versions/slice.py"), *arguments, python=python, **code)

    def tidefold(self, store: Path, *arguments: str, python: Path | None = None) -> str:
        """Runs a command of tidefold."""
        code = {"PYTHONPATH": f"{PROJECT}/include"} if python else {}
        command = ("-m", "tidefold.cli", *arguments, "-c", str(store / "tidefold.yaml"))
        return self.call(*command, python=python, **code)

    def pytest(self, *files: str) -> None:
        """Runs files of tests of the clone. An option may be among them."""
        code = ":".join(str(PROJECT / folder) for folder in ("include", "plugins", "scripts", "tests"))
        paths = [file if file.startswith("-") else str(PROJECT / "tests" / file) for file in files]
        options = ("-q", "-p", "no:cacheprovider", f"--rootdir={PROJECT}", f"--config-file={PROJECT}/pyproject.toml")
        self.call("-m", "pytest", *options, *paths, PYTHONPATH=code)


def visit(cell: Cell) -> Visit:
    """Runs all steps of a cell."""
    found = Visit(cell)
    found.home.mkdir(parents=True, exist_ok=True)
    with found.step("install"):
        if changed := install(cell, found.home / "env"):
            raise StepFailedError(f"the package changed {changed}")
    if not found.python.exists():
        return found
    with found.step("import"):
        found.slice(".", "import")
    with found.step("jars"):
        found.call("-m", "tidefold.cli", "spark", "jars")
    _run_phases(found, "in process")
    _exchange(found)
    if cell.airflow:
        _visit_airflow(found)
    else:
        _visit_spark(found)
    return found


def _visit_spark(found: Visit) -> None:
    warm = found.cell.name != "spark35"
    where = "on Spark, with vectors" + (", the last two on a warm server" if warm else "")
    store = _run_phases(found, where, spark=True, warm=warm)
    with found.step("verify --deep --spark"):
        found.tidefold(store, "check", "verify", "--deep", "--spark")
    with found.step(f"tests: {', '.join(_SPARK_TESTS)}"):
        found.pytest(*(f"spark/{file}" for file in _SPARK_TESTS))


def _visit_airflow(found: Visit) -> None:
    _run_phases(found, "on Spark, with vectors", spark=True)
    with found.step("a run by the scheduler, and a decision about a refused snapshot"):
        found.call(str(PROJECT / "lab/versions/live.py"), str(found.home / "airflow"), str(PROJECT))
    with found.step(f"tests: {', '.join(_AIRFLOW_TESTS)}"):
        # Their conftest is for the packages of the lock.
        found.pytest("--noconftest", *(f"airflow/{file}" for file in _AIRFLOW_TESTS))


def _run_phases(found: Visit, name: str, spark: bool = False, warm: bool = False) -> Path:
    """Three phases of three logs: each phase ingests, folds and judges all logs at once."""
    store = _make_store(found, "spark" if spark else "process")
    if not spark:
        with found.step("doctor"):
            # Airflow's own checks need its home.
            said = found.tidefold(store, "validate") + _diagnose(found, store)
            if failed := [line for line in said.splitlines() if line.startswith(("fail", "warn  versions"))]:
                raise StepFailedError(" | ".join(failed))
    with found.step(f"three phases {name}, rows as in the database's dump"):
        _run_phase(found, store, _PHASES[0], "engine: spark" if spark else "")
        if warm:
            found.tidefold(store, "spark", "start")
        try:
            for phase in _PHASES[1:]:
                _run_phase(found, store, phase, "server works on" if warm else "engine: spark" if spark else "")
        finally:
            if warm:
                found.tidefold(store, "spark", "stop")
        found.slice(str(store), "compare", "phase3")
    return store


def _run_phase(found: Visit, store: Path, phase: str, expected: str) -> None:
    """Lands a phase and runs the pipeline. expected: text of its output that only this way of running prints."""
    found.slice(str(store), "land", phase)
    found.tidefold(store, "run")
    if expected not in (found.home / "last.log").read_text():
        raise StepFailedError(f"the run of {phase} does not say: {expected}")


def _diagnose(found: Visit, store: Path) -> str:
    """The lines of the doctor, without those about Airflow."""
    try:
        said = found.tidefold(store, "check", "doctor", "--seconds", "120")
    except StepFailedError:
        said = (found.home / "last.log").read_text()
    return "\n".join(line for line in said.splitlines() if line[6:].split(" ")[0] != "airflow")


def _exchange(found: Visit) -> None:
    """The lock's own environment and the cell write one store in turn; each reads the other's ledger."""
    newest = PROJECT / ".venv" / "bin" / "python"
    with found.step("a store written in turn with the packages of the lock, verify --deep by both"):
        store = _make_store(found, "exchange")
        for phase, python in zip(_PHASES, (newest, None, newest), strict=True):
            found.slice(str(store), "land", phase, python=python)
            found.tidefold(store, "run", python=python)
        sums = []
        for reader in (None, newest):
            found.tidefold(store, "check", "verify", "--deep", python=reader)
            said = found.slice(str(store), "compare", _PHASES[-1], python=reader)
            sums.append([line.split()[:3] for line in said.splitlines()])
        if sums[0] != sums[1]:
            raise StepFailedError(f"the checksums of content differ: {sums}")


def _make_store(found: Visit, name: str) -> Path:
    store = found.home / name
    shutil.rmtree(store, ignore_errors=True)
    found.slice(str(store), "prepare", name)
    return store


def record(found: Visit) -> None:
    """Keeps what came of a cell, and writes the page."""
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    packages = {"python": found.cell.python}
    if found.python.exists():
        packages = freeze(found.python)
        packages["python"] = found.call("-c", "import platform; print(platform.python_version())").strip()
    known[found.cell.name] = {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "versions": {name: packages[name] for name in _SHOWN if name in packages},
        "steps": found.steps,
    }
    RECORD.write_text(json.dumps({name: known[name] for name in CELLS if name in known}, indent=1) + "\n")
    write_page()


def write_page() -> None:
    """Writes the part of docs/contributors/versions.md below the mark."""
    cells = json.loads(RECORD.read_text())
    lines = [_MARK, "| cell | versions | tried on | result | seconds |\n|---|---|---|---|---|\n"]
    for name, cell in cells.items():
        states = {_name_state(error) for _, _, error in cell["steps"]}
        result = next(state for state in ("red", _NOT_RUN, "green") if state in states)
        seconds = sum(step[1] for step in cell["steps"])
        shown = ", ".join(f"{package} {version}" for package, version in cell["versions"].items())
        lines.append(f"| `{name}` | {shown} | {cell['day']} | **{result}** | {seconds:,.0f} |\n")
    for name, cell in cells.items():
        lines.append(f"\n### {name}\n\n| step | result | seconds |\n|---|---|---|\n")
        for step, seconds, error in cell["steps"]:
            shown = _name_state(error)
            shown += f": `{error.replace('|', '/').replace('`', chr(39))}`" if shown == "red" else ""
            lines.append(f"| {step} | {shown} | {seconds:,.0f} |\n")
    PAGE.write_text(wrap_text.wrap(PAGE.read_text().partition(_MARK)[0] + "".join(lines)))


def _name_state(error: str) -> str:
    return (error if error == _NOT_RUN else "red") if error else "green"


def main(names: str) -> int:
    """Visits the cells that are named, or all six; 1 if one is red."""
    bad = 0
    for name in names.split(",") if names else CELLS:
        found = visit(CELLS[name])
        record(found)
        bad |= any(error for _, _, error in found.steps)
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
