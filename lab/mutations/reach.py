"""Which tests reach a line: coverage's contexts, by parts of the suites, so that a stopped run goes on.

`mutation_cases` is the plugin that these runs load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from coverage import CoverageData

# Neither Spark nor Airflow. Each judges what those before it left.
SUITES = (
    "unit",
    "contract/operations/ingest",
    "contract/delta",
    "contract/ledger",
    "contract/quality",
    "contract/fold",
    *(f"contract/operations/{name}" for name in ("verify", "retention", "savepoint", "quarantine", "quality")),
    *(f"contract/operations/{name}" for name in ("sets", "restore", "snapshot")),
    "contract/operations",
    "contract",
    "model",
    "feeds",
    "faults",
)
_FILES, _CASES = 10, 1


@dataclass(frozen=True)
class Part:
    """Some test files of one folder, and what a run of them showed.

    stem: where its files are.
    """

    clone: Path
    suite: str
    tests: tuple[str, ...]

    @property
    def stem(self) -> Path:
        return self.clone / "var/mutants" / sha256(" ".join(self.tests).encode()).hexdigest()[:12]

    @property
    def done(self) -> bool:
        return self.stem.with_suffix(".done").exists()

    @cached_property
    def effort(self) -> dict[str, float]:
        """The CPU seconds of each case that passed."""
        lines = map(json.loads, self.stem.with_suffix(".effort").read_text().splitlines())
        return {test: seconds for test, seconds, passed in lines if passed}

    def list_reaching(self, file: str, lines: Sequence[int]) -> list[str]:
        """Returns the tests that reach one of the lines, the cheapest first."""
        data = CoverageData(str(self.stem.with_suffix(".coverage")))
        data.read()
        contexts = data.contexts_by_lineno(str(self.clone / file))
        reaching = {context.rpartition("|")[0] for line in lines for context in contexts.get(line, ())}
        return sorted(reaching & self.effort.keys(), key=lambda test: (self.effort[test], test))

    def run(self, files: Collection[str]) -> None:
        """Runs its tests under coverage of these files, unless that was done."""
        if self.done:
            return
        effort, settings = self.stem.with_suffix(".effort"), self.stem.with_suffix(".ini")
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        effort.write_text("")
        settings.write_text("\n  ".join(["[run]\ninclude =", *sorted(files)]) + "\n")
        path = ["include", "plugins", "scripts", str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "COVERAGE_FILE": str(self.stem.with_suffix(".coverage")),
            "MUTATION_CASES": str(_CASES),
            "MUTATION_EFFORT": str(effort),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "mutation_cases"]
        made = subprocess.run(
            [*command, "--cov", f"--cov-config={settings}", "--cov-context=test", "--cov-report=", *self.tests],
            cwd=self.clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode not in (0, 1):
            raise SystemExit(f"{', '.join(self.tests)} did not run: {made.stdout[-2000:]}{made.stderr[-1000:]}")
        self.stem.with_suffix(".done").write_text(made.stdout[-4000:] + made.stderr[-2000:])


def list_parts(clone: Path, former: Path | None = None) -> Iterator[Part]:
    """Yields the parts of the suites; with a former clone only the test files that are not the same there."""
    seen: set[Path] = set()
    for suite in SUITES:
        files = sorted(set((clone / "tests" / suite).rglob("test_*.py")) - seen)
        seen.update(files)
        if former:
            files = [file for file in files if not _is_same(file, former / file.relative_to(clone))]
        for folder in sorted({file.parent for file in files}):
            names = [str(file.relative_to(clone)) for file in files if file.parent == folder]
            for first in range(0, len(names), _FILES):
                yield Part(clone, suite, tuple(names[first : first + _FILES]))


def _is_same(file: Path, former: Path) -> bool:
    return former.exists() and file.read_bytes() == former.read_bytes()
