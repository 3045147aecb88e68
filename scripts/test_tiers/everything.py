"""`make test-all`: every part in turn, and a page of what ran, when, at which commit. PARTS: only these parts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from test_tiers.cpu import adopt_orphans, measure_tree

PAGE = Path("docs/contributors/tests.md")
_BEGIN, _END = "<!-- parts -->", "<!-- end of parts -->"
_HEAD = ["| part | command | date | commit | outcome | CPU s | minutes | load |", "|---|---|---|---|---|---|---|---|"]
_NOT_RUN = "not run at this version"
_CLOSING = re.compile(r"^=*\s*(.*\d+ (?:passed|failed|errors?)\b.*?)(?: in [\d.]+s.*)?=*$")


@dataclass(frozen=True)
class Part:
    """shows: what the part shows that `make test` does not. command: a target of make, with its variables."""

    name: str
    shows: str
    command: tuple[str, ...]


PARTS = (
    Part("test", "what decides whether a change may land", ("test",)),
    Part("release", "sdist and wheel as a user gets them, and the golden stores", ("release",)),
    Part("thorough", "each call that can fail, and more random cases", ("test-thorough",)),
    Part("connect", "Spark Connect and its failures", ("test-connect",)),
    Part("delta", "source tables by Spark, and Spark's commands on ours", ("test-delta",)),
    Part("cluster", "a killed worker and a busy S3 on a cluster", ("test-standalone",)),
    Part("package", "the wheel in a new environment, with an Airflow of its own", ("test-package",)),
    Part("drills", "long stories in a real Airflow", ("test-drills",)),
    Part("outages", "nine outages of a cluster through Airflow", ("test-cluster",)),
    Part("yarn", "YARN", ("test-yarn",)),
    Part("compose", "docker-compose.yaml in containers", ("test-compose",)),
    Part("versions", "other versions of Spark, Airflow and Python", ("test-versions",)),
    Part("mutants", "each behaviour, taken out, makes a test fail", ("mutants",)),
    Part("faults", "every operation with every fault", ("fault-matrix",)),
    Part("coordinators", "two processes on one log", ("two-coordinators",)),
    Part("soak", "processes that are killed and stopped at random", ("soak",)),
    Part("unsynced", "a machine that loses what was not synced", ("unsynced",)),
    Part("profiles", "random feeds of each tool with a profile", ("test-profiles",)),
    Part("kafka", "a broker and ingests of its topics that are killed", ("kafka-kills",)),
    Part("sources", "types, attestations and loads of a real PostgreSQL", ("test-sources",)),
    Part("mends", "the seed of torture that finds each mend, taken out", ("mutants-torture",)),
    Part("torture", "random tables of real databases under a real Debezium", ("torture",)),
)


def main(names: list[str]) -> int:
    if unknown := set(names) - {part.name for part in PARTS}:
        print(f"There is no part {', '.join(sorted(unknown))}. Parts: {', '.join(part.name for part in PARTS)}")
        return 2
    adopt_orphans()
    failed = [part.name for part in PARTS if (not names or part.name in names) and not run(part)]
    print(f"test-all: {'failed: ' + ', '.join(failed) if failed else 'every part passed'}; {PAGE} has the table")
    return int(bool(failed))


def run(part: Part) -> bool:
    """Runs a part, prints what it prints, and writes its row. Returns whether it passed."""
    print(f"==== {part.name}: make {' '.join(part.command)}", flush=True)
    before, begun, busy, closing = measure_tree(), time.monotonic(), os.getloadavg()[0], ""
    command = ["make", "--no-print-directory", *part.command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            sys.stdout.write(line)
            closing = match[1].strip() if (match := _CLOSING.match(line.strip())) else closing
    _reap_orphans()
    passed = process.returncode == 0
    outcome = closing or ("passed" if passed else f"exit code {process.returncode}")
    if not passed and "fail" not in outcome:
        outcome = f"FAILED, exit code {process.returncode}"
    cpu, minutes = measure_tree() - before, (time.monotonic() - begun) / 60
    load = f"{busy:.0f} to {os.getloadavg()[0]:.0f}"
    _write_row(part, f"{datetime.now(UTC):%Y-%m-%d}", outcome, f"{cpu:,.0f}", f"{minutes:.1f}", load)
    return passed


def _reap_orphans() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _find_commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write_row(part: Part, *cells: str) -> None:
    """Replaces the row of a part; the others stay as they are."""
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    former, _, tail = rest.partition(_END)
    rows = {line.split("|")[1].strip(): line for line in former.splitlines() if line.startswith("| ")}
    date, *others = cells
    words = [f"{part.name}: {part.shows}", f"`make {' '.join(part.command)}`", date, _find_commit(), *others]
    rows[words[0]] = f"| {' | '.join(words)} |"
    table = [*_HEAD, *(rows.get(f"{each.name}: {each.shows}", _row_without_run(each)) for each in PARTS)]
    PAGE.write_text("\n".join([head + _BEGIN, *table, _END + tail]))


def _row_without_run(part: Part) -> str:
    return f"| {part.name}: {part.shows} | `make {' '.join(part.command)}` | | | {_NOT_RUN} | | | |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
