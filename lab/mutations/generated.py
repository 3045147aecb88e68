"""Judges mutants of a seed at a commit, in a clone of its own: `make mutants-generated TABLE=before AT=62e2f306`.

The first table fixes the mutants, and each later one judges the same: it leaves out those whose text has changed. A
stopped run goes on. A mutant that no test of the suites reaches is named, and the next one of the seed replaces it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path

from mutations.__main__ import DAGS, judge_by_hand, read_mutants
from mutations.forks import load, run_in_fork
from mutations.generate import PACKAGES, Generated, find_place, generate, share_out
from mutations.reach import SUITES, Part, list_parts

ROOT = Path(__file__).parents[2]
FIRST = "before"
SEED, NUMBER, SPARE = 32, 120, 0
# CPU seconds of the tests of one suite for a mutant that none of them catches; and for one run that hangs.
_SECONDS, _HANGS = 3, 40

CAUGHT, TIMEOUT = "caught", "time-out"
SURVIVES, LIMIT = "survives", "survives the limit"
UNREACHED, OUTDATED = "not reached", "outdated"
OPEN = "open"
# The tests of the wiring that need no scheduler, of a commit that has not those which `mutants.toml` names.
_OLDER = (
    *(f"tests/airflow/test_{name}.py" for name in ("dag_file", "idle_tasks")),
    "-k=not airflow_imports_them and not run_by_hand",
)


@dataclass
class Verdict:
    """What became of a mutant.

    test: the one that caught it.
    passed: cases that reach it and passed; left: those beyond the limit.
    seconds: CPU seconds of the cases that passed. suites: those that judged it.
    """

    mutant: Generated
    outcome: str = OPEN
    test: str = ""
    passed: int = 0
    left: int = 0
    seconds: float = 0
    suites: list[str] = field(default_factory=list)

    @property
    def package(self) -> str:
        return self.mutant.file.split("/")[2]


@dataclass
class Table:
    """The file of outcomes."""

    name: str
    commit: str
    verdicts: list[Verdict]
    wiring: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return ROOT / f"tests/data/mutants-{self.name}.json"

    def write(self, shares: dict[str, int]) -> None:
        counted = Counter((one.package, one.outcome) for one in self.choose(shares))
        lines = {
            package: {outcome: number for (of, outcome), number in sorted(counted.items()) if of == package}
            for package in PACKAGES
        }
        rows = [
            {**asdict(one.mutant), **{k: v for k, v in asdict(one).items() if k != "mutant"}} for one in self.verdicts
        ]
        data = {"commit": self.commit, "seed": SEED, "packages": lines, "wiring": self.wiring, "mutants": rows}
        self.path.write_text(json.dumps(data, indent=1) + "\n")

    def choose(self, shares: dict[str, int], spare: int = 0) -> list[Verdict]:
        """The first of each package that can be judged."""
        usable = [one for one in self.verdicts if one.outcome not in (UNREACHED, OUTDATED)]
        return [
            one
            for package in PACKAGES
            for one in islice((one for one in usable if one.package == package), shares[package] + spare)
        ]


def read_table(name: str) -> Table | None:
    table = Table(name, "", [])
    if not table.path.exists():
        return None
    data = json.loads(table.path.read_text())
    names = {one.name for one in fields(Generated)}
    for row in data["mutants"]:
        mutant = Generated(**{k: v for k, v in row.items() if k in names})
        table.verdicts.append(Verdict(mutant, **{k: v for k, v in row.items() if k not in names}))
    return replace(table, commit=data["commit"], wiring=data["wiring"])


def begin_table(name: str, commit: str, clone: Path, shares: dict[str, int]) -> Table:
    """The mutants of the seed, twice as many as are judged; for a later table those that the first one judged."""
    table = read_table(name)
    first = read_table(FIRST) if name != FIRST else None
    if first is None and table:
        return table
    if first is None:
        many = (
            mutant for package in PACKAGES for mutant in islice(generate(clone, package, SEED), 2 * shares[package])
        )
        return Table(name, commit, [Verdict(mutant) for mutant in many])
    verdicts = [
        Verdict(one.mutant, test=one.test, passed=0 if one.test else one.passed, left=0 if one.test else one.left)
        for one in first.verdicts
        if one.outcome not in (OPEN, UNREACHED)
    ]
    for one in verdicts:
        path = clone / one.mutant.file
        if not path.exists() or find_place(path.read_text(), one.mutant) is None:
            one.outcome, one.test = OUTDATED, ""
    if table is None:
        return Table(name, commit, verdicts)
    # The first table goes on meanwhile.
    judged = {one.mutant: one for one in table.verdicts}
    return replace(table, verdicts=[judged.get(one.mutant, one) for one in verdicts])


def judge(clone: Path, parts: Iterable[Part], verdict: Verdict, tests: Collection[str]) -> None:
    """Runs those of the given cases that reach the mutant in some parts, as long as its CPU seconds last."""
    efforts = {
        test: part.effort[test]
        for part in parts
        if part.done
        for test in _list_reaching(part, verdict.mutant)
        if test in tests
    }
    chosen, seconds = [], 0.0
    # First the tests of the same subject: they have its names.
    names = {verdict.package, *Path(verdict.mutant.file).with_suffix("").parts[3:]}
    for test in sorted(efforts, key=lambda test: (-_count_names(test, names), efforts[test], test)):
        if seconds + efforts[test] <= _SECONDS:
            chosen.append(test)
            seconds += efforts[test]
    verdict.left += len(efforts) - len(chosen)
    _try(clone, verdict, chosen)
    verdict.seconds = round(verdict.seconds + seconds, 1)


def _count_names(test: str, names: Collection[str]) -> int:
    return sum(name in test.partition("::")[0] for name in names)


def judge_as_before(clone: Path, former: Path, verdict: Verdict, tests: Collection[str]) -> None:
    """Runs the case that caught the mutant at the former commit, others of its function, then what reached it there.

    What it survived there it survives here, unless the test has changed: `list_parts` has those.
    """
    caught, verdict.test = verdict.test, ""
    if caught in tests:
        _try(clone, verdict, [caught])
    if caught and verdict.outcome == OPEN:
        _try(clone, verdict, sorted(one for one in tests if one.partition("[")[0] == caught.partition("[")[0]))
    if caught and verdict.outcome == OPEN:
        judge(clone, list_parts(former), verdict, tests)
    verdict.suites.append(FIRST)


def _list_reaching(part: Part, mutant: Generated) -> list[str]:
    line = find_place((part.clone / mutant.file).read_text(), mutant)
    assert line
    return part.list_reaching(mutant.file, range(line, line + mutant.old.count("\n")))


def _try(clone: Path, verdict: Verdict, tests: list[str]) -> None:
    if not tests:
        return
    trial = run_in_fork(clone, verdict.mutant, tests, _HANGS)
    verdict.passed += trial.passed
    if not trial.ended:
        verdict.outcome, verdict.test = TIMEOUT, trial.failed
    elif trial.failed:
        verdict.outcome, verdict.test = CAUGHT, trial.failed


def clone_at(commit: str) -> Path:
    clone = ROOT / "var/mutants" / commit
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, clone], check=True)
        subprocess.run(["git", "checkout", "--quiet", commit], cwd=clone, check=True)
        for name in (".venv", ".jars"):
            (clone / name).symlink_to(ROOT / name)
    # A run that was killed may have left a changed file.
    subprocess.run(["git", "checkout", "--quiet", commit, "--", "include"], cwd=clone, check=True)
    return clone.resolve()


def _list_open(table: Table, shares: dict[str, int]) -> Iterator[Verdict]:
    return (one for one in table.choose(shares, SPARE) if one.outcome == OPEN)


def judge_generated(name: str, commit: str) -> None:
    clone = clone_at(commit)
    shares = share_out(clone, NUMBER)
    table = begin_table(name, commit, clone, shares)
    first = read_table(FIRST) if name != FIRST else None
    former = clone_at(first.commit) if first else None
    parts = list(list_parts(clone, former))
    tests = load(clone, [file for part in list_parts(clone) for file in part.tests])
    for one in [one for one in _list_open(table, shares) if former and FIRST not in one.suites]:
        judge_as_before(clone, former, one, tests)
        table.write(shares)
        print(f"{FIRST} {one.outcome:9} {one.mutant.file} {one.mutant.function}", flush=True)
    while list(_list_open(table, shares)):
        for suite in SUITES:
            some = [part for part in parts if part.suite == suite]
            for part in some:
                part.run({one.mutant.file for one in table.verdicts})
            for one in [one for one in _list_open(table, shares) if suite not in one.suites]:
                judge(clone, some, one, tests)
                one.suites.append(suite)
                table.write(shares)
                print(f"{suite} {one.outcome:9} {one.mutant.file} {one.mutant.function}", flush=True)
        for one in _list_open(table, shares):
            one.outcome = LIMIT if one.left else SURVIVES if one.passed else UNREACHED
        tests -= _open_again(clone, table)
        table.write(shares)
    for mutant in (one for one in read_mutants() if one.row == DAGS and one.without not in table.wiring):
        named = [mutant.test] if _has_test(clone, mutant.test) else _OLDER
        table.wiring[mutant.without] = judge_by_hand(clone, mutant, *named)
        table.write(shares)


def _open_again(clone: Path, table: Table) -> frozenset[str]:
    """Returns the tests that also fail without a mutant: they caught none, and are asked no more."""
    asked = sorted({one.test for one in table.verdicts if one.outcome == CAUGHT})
    broken = frozenset(test for test in asked if run_in_fork(clone, None, [test], _HANGS).failed)
    for one in table.verdicts:
        if one.test in broken:
            one.outcome, one.test, one.suites = OPEN, "", []
    return broken


def _has_test(clone: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    return (clone / file).exists() and f"def {name}" in (clone / file).read_text()


if __name__ == "__main__":
    judge_generated(
        sys.argv[1], subprocess.check_output(["git", "rev-parse", "--short=8", sys.argv[2]], text=True).strip()
    )
