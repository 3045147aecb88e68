"""Writes docs/contributors/benchmarks/torture.md from what the runs recorded in lab/data/torture.json.

`make torture ... RECORD=1` records each seed; `python -m torture.page` writes the page again.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutations.__main__ import read_mutants
from tidefold.domain.paths import STORED_FORMAT

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "lab" / "data" / "torture.json", ROOT / "docs" / "contributors" / "benchmarks" / "torture.md"
_CODE = re.compile(r"[A-Z]+(?:_[A-Z]+)+")
# What `make mutants-torture` found without each mend.
MENDS = RECORD.with_name("torture-mutants.json")
# Found at a seed: what the product did wrong, or a fault of the rig, a server or the engine.
Seed = Mapping[str, Any]
_NAMES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB"}
_HEAD = ("database", "seeds", "phases", "comparisons", "rows compared", "records", "engine killed", "CPU s a seed")
_DEEDS = (
    *("chain", "swap", "there_and_back", "reuse", "truncate", "incremental snapshot"),
    *("blocking snapshot", "copy", "transaction: spans phases", "export"),
    *("alter: drop", "alter: come back", "alter: scale"),
)


def read_record() -> dict[str, Seed]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def read_mends() -> dict[str, Seed]:
    return json.loads(MENDS.read_text()) if MENDS.exists() else {}


def record(seed: int, found: Seed) -> None:
    """Stores the result of a seed, in place of an earlier one, and writes the page."""
    known = {**read_record(), str(seed): {"code": commit(), "stored": STORED_FORMAT, **found}}
    ordered = dict(sorted(known.items(), key=lambda item: int(item[0])))
    RECORD.write_text(json.dumps(ordered, indent=1, sort_keys=False) + "\n")
    PAGE.write_text(render(ordered))


def commit() -> str:
    said = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return said.stdout.strip()


def render(known: Mapping[str, Seed]) -> str:
    """The page. `page_begin.md` and `page_end.md` are written by hand."""
    begin, end = (Path(__file__).with_name(name).read_text().strip() for name in ("page_begin.md", "page_end.md"))
    current = {number: seed for number, seed in known.items() if is_current(seed)}
    older = f"{len(known) - len(current)} of the seeds ran with older code: their rows say so, and count here, too."
    parts = [begin, _totals(known), older, _draws(current), _deeds(known), _seeds(known), _mends(), end]
    return "\n\n".join(parts) + "\n"


def _totals(known: Mapping[str, Seed]) -> str:
    rows = []
    for database, name in _NAMES.items():
        seeds = [seed for seed in known.values() if seed["database"] == database]
        sums = [sum(seed[one] for seed in seeds) for one in ("phases", "comparisons", "rows", "records", "kills")]
        cpu = sum(seed["cpu"] for seed in seeds) / max(1, len(seeds))
        rows.append((name, len(seeds), *(f"{one:,}" for one in sums), f"{cpu:.0f}"))
    found = [number for number, seed in known.items() if seed["found"]]
    said = f"Unequal, blocked or silent: {len(found)} of {len(known)} seeds{': ' if found else ''}{', '.join(found)}."
    return "\n".join(["| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|", *map(_line, rows), "", said])


def _draws(current: Mapping[str, Seed]) -> str:
    """How many seeds of today's code tried each dimension, by database."""
    tried: dict[str, Counter[str]] = {name: Counter() for name in _NAMES}
    for seed in current.values():
        tried[seed["database"]].update(one for one in seed["workload"] if one.startswith(("draw: ", "form: ")))
    names = sorted({name for counts in tried.values() for name in counts})
    rows = [(name.partition(": ")[2], *(counts[name] for counts in tried.values())) for name in names]
    heads = ["| tried by seeds of today's code | " + " | ".join(_NAMES.values()) + " |", "|---|---|---|"]
    return "\n".join([*heads, *map(_line, rows)])


def _deeds(known: Mapping[str, Seed]) -> str:
    """How often the workloads did what is hard, over all seeds."""
    done: Counter[str] = Counter()
    for seed in known.values():
        done.update(seed["workload"])
    altered = sum(count for deed, count in done.items() if deed.startswith("alter"))
    rows = [(deed.removeprefix("transaction: ").replace("_", " "), f"{done[deed]:,}") for deed in _DEEDS]
    rows.append(("ALTER TABLE (add, drop, rename, type)", f"{altered:,}"))
    commands: Counter[str] = Counter()
    for seed in known.values():
        commands.update(seed["commands"])
    rows += [(f"`{name}`", f"{count:,}") for name, count in sorted(commands.items()) if name.islower()]
    return "\n".join(["| done in all seeds | times |", "|---|---|", *map(_line, rows)])


def _seeds(known: Mapping[str, Seed]) -> str:
    rows = (
        (number, seed["database"], _form(seed), seed["code"], _describe(seed["found"]))
        for number, seed in known.items()
    )
    return "\n".join(["| seed | database | records | code | |", "|---|---|---|---|---|", *map(_line, rows)])


def _describe(found: str) -> str:
    """What a seed ended with: records that wait are named with their codes, so a person is told."""
    kind, _, rest = found.partition(":")
    if kind in ("unequal", "silent"):
        return f"**{kind}**"
    codes = ", ".join(f"`{one}`" for one in sorted(set(_CODE.findall(rest.partition("}")[0]))))
    known = {"": "equal", "the rig": "the connector or a server ended", "missed": "missed: its fast test alone"}
    return known.get(kind, f"stopped with {codes}, told")


def _mends() -> str:
    """Which seed finds each mend of the source's changes that is taken out; each has a fast test."""
    rows, found = [], read_mends()
    for one in read_mutants():
        if one.row == "CDC":
            outcome = found.get(one.without)
            said = "its fast test alone" if one.seed is None else f"{one.seed}: not played"
            if outcome and one.seed is not None:
                said = f"{one.seed}, {outcome['code']}: {_describe(outcome['said'])}"
            rows.append((one.without, f"`{one.test.rsplit('::', 1)[-1].partition('[')[0]}`", said))
    heads = ["| taken out | the fast test that fails | the seed that finds it |", "|---|---|---|"]
    return "\n".join(["## Without each mend", "", *heads, *map(_line, rows)])


def _form(seed: Seed) -> str:
    """What its records were; seeds of stored forms that are refused today say so."""
    form = next((deed.removeprefix("form: ") for deed in seed["workload"] if deed.startswith("form: ")), "envelope")
    return form if is_current(seed) else f"{form} (older code)"


def is_current(seed: Seed) -> bool:
    return seed.get("stored") == STORED_FORMAT


def _line(cells: tuple[object, ...]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    PAGE.write_text(render(read_record()))
