"""The runs of benchmarks/growth.py by the code of two clones in turn, on copies of one table; prints medians.

    BEFORE=clone make bench-growth-before      (ROWS=100000000 RUNS=8; KEEP: a folder for the loaded table)

The table is loaded by the code of now. Each clone has one process. Its first run is not counted: the earlier code
takes over no counts of the later one, so its gate reads everything.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import growth
from growth_page import STEPS
from tables import folder

HERE = Path(__file__).parents[1]
ROWS = int(os.environ.get("ROWS", "100000000"))
RUNS = int(os.environ.get("RUNS", "8"))


def main() -> None:
    if len(sys.argv) > 1:
        _serve(Path(sys.argv[1]))
        return
    with folder() as scratch:
        clones = {"before": Path(os.environ["BEFORE"]).absolute(), "now": HERE}
        for name in clones:
            growth.find_base(scratch / name, ROWS)
        workers = {name: _start(clone, scratch / name) for name, clone in clones.items()}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in clones}
        for number in range(RUNS + 1):
            for name, worker in workers.items():
                load = os.getloadavg()[0]
                found[name].append(_ask(worker, number))
                print(number, name, f"load {load:.1f}", found[name][-1], flush=True)
        for worker in workers.values():
            worker.communicate()
    for step in (*STEPS, "all"):
        before, now = (statistics.median(_sum(run, step) for run in found[name][1:]) for name in ("before", "now"))
        print(f"| {step} | {before:.2f} | {now:.2f} | {now / before:.2f} |")


def _sum(run: dict[str, float], step: str) -> float:
    return sum(run.values()) if step == "all" else run[step]


def _ask(worker: subprocess.Popen[str], number: int) -> dict[str, float]:
    if not worker.stdin or not worker.stdout:
        raise SystemExit("a process without pipes")
    print(number, file=worker.stdin, flush=True)
    answer: dict[str, float] = json.loads(worker.stdout.readline())
    return answer


def _start(clone: Path, root: Path) -> subprocess.Popen[str]:
    paths = [clone / name for name in ("include", "plugins", "scripts", "tests", "benchmarks")]
    env = {**os.environ, "PYTHONPATH": ":".join(map(str, paths)), "RUNS": "0"}
    # -P: the modules beside this file are those of now.
    command = [sys.executable, "-P", __file__, str(root)]
    return subprocess.Popen(command, env=env, cwd=clone, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _serve(root: Path) -> None:
    """One run for each line; answers with the CPU seconds of each step."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    growth._warm_up(root.with_name(f"{root.name}-warm"))
    for line in sys.stdin:
        number = int(line)
        change = (1 + number * growth.CHANGES, f"run-{number}", growth._choose_ids(ROWS, number))
        [run] = growth._run(root, [change], ROWS)
        print(json.dumps({step: one["cpu"] for step, one in run.items()}), file=answers, flush=True)
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
