"""Takes one behaviour of Flink out of the program at a time, and shows that a test fails: `make mutants`.

`mutants.toml` lists what is taken out. The outcomes are written into flink.md. Names on the command line: only
these rows. The rows `DAG` (the wiring of the DAGs) and `CDC` (what a source committed is never lost without a word)
are no behaviours of Flink; their outcomes are printed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from mutations.changed_file import change_file

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/contributors/flink.md"
OTHERS = ("DAG", "CDC")
_BEGIN, _END = "<!-- mutants -->", "<!-- end of mutants -->"
_COPIED = ("include", "plugins", "scripts", "tests", "dags", "docs")


@dataclass(frozen=True)
class Mutant:
    """One behaviour that is taken out.

    row: the row of docs/contributors/flink.md.
    without: what the program then does no more.
    file, old, new: the change; `old` occurs once in the file.
    test: the test that must fail.
    airflow: it is also tried in a real Airflow.
    seed: the seed of `make torture` that finds it, too; None: none does, or none was looked for.
    """

    row: str
    without: str
    file: str
    old: str
    new: str
    test: str
    airflow: bool = False
    seed: int | None = None


def read_mutants() -> list[Mutant]:
    data = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())
    return [Mutant(**entry) for entry in data["mutant"]]


def copy_project(target: Path) -> None:
    for name in _COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "var"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, target / name)


def run_tests(folder: Path, *tests: str) -> bool:
    """Whether the tests pass there."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(folder / "tmp"),
        *tests,
    ]
    environment = {"PYTHONPATH": "include:plugins:scripts", "HOME": str(folder)}
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 1):
        raise SystemExit(f"{', '.join(tests)} did not run: {found.stdout[-2000:]}{found.stderr[-1000:]}")
    return found.returncode == 0


def judge_by_hand(folder: Path, mutant: Mutant, *tests: str) -> str:
    """Runs the tests without the behaviour, and puts the file back."""
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return f"outdated: the text occurs {text.count(mutant.old)} times in the file"
    with change_file(path, text.replace(mutant.old, mutant.new)):
        return "SURVIVES" if run_tests(folder, *tests) else "fails"


def write_page(judged: dict[Mutant, str]) -> None:
    """Writes the outcomes; those of mutants that were not run stay as they are."""
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    former, _, tail = rest.partition(_END)
    lines = ["| row | taken out | test | the test then |", "|---|---|---|---|"]
    for mutant in (one for one in read_mutants() if one.row not in OTHERS):
        begin = f"| {mutant.row} | {mutant.without} | `{mutant.test.rsplit('::', 1)[-1]}` | "
        known = next((line for line in former.splitlines() if line.startswith(begin)), f"{begin}not run |")
        lines.append(f"{begin}{judged[mutant]} |" if mutant in judged else known)
    PAGE.write_text("\n".join([head + _BEGIN, *lines, _END + tail]))


def main(rows: list[str]) -> int:
    mutants = [m for m in read_mutants() if not rows or m.row in rows]
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        copy_project(folder)
        judged = {}
        for mutant in mutants:
            judged[mutant] = outcome = judge_by_hand(folder, mutant, mutant.test)
            print(f"{mutant.row:4} {outcome:9} {mutant.without} ({mutant.test.rsplit('::', 1)[-1]})", flush=True)
        # The same tests pass when nothing is taken out.
        passed = run_tests(folder, *sorted({m.test for m in judged}))
    if passed:
        write_page(judged)
    else:
        print("a test fails without a mutant")
    return int(not passed or any(outcome != "fails" for outcome in judged.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
