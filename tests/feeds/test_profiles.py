"""Feeds of known tools: `init` writes their profile, and `run` gives the rows of the source."""

from __future__ import annotations

import json
import random
import re
from decimal import Context, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from support import effort
from support.feeds.deliveries import lines
from support.feeds.profiled import TOOLS, live
from support.person import Person
from tidefold.sources.profiles.profile import shipped

# What the records of a file of facts do not show: it has few rows.
KEYS = {"dms": "LINE_ID", "wal2json": "a", "wal2json_1": "b, c"}


def _start(who: Person) -> None:
    (who.folder / "tidefold.yaml").unlink()
    for file in (who.folder / "landing").rglob("*.*"):
        file.unlink()


def _init(who: Person) -> str:
    done = who.call("init", "landing")
    assert done.exit_code == 0, done.output
    return done.stderr


def _run(who: Person) -> None:
    done = who.call("run", "--format", "json")
    assert done.exit_code == 0, done.output
    for step in json.loads(done.stdout)["steps"]["ingest"]:
        assert (step["facts"]["refused"], step["facts"]["problems"]) == ({}, []), step["message"]


def _table(who: Person, log: str) -> list[dict[str, Any]]:
    return DeltaTable(str(who.folder / "var/store/tables" / log)).to_pyarrow_table().to_pylist()


def _shown(rows: Any) -> list[tuple[str, ...]]:
    """Rows as texts: Canal writes all values as texts."""
    return sorted((f"{row.get('id', row.get('_id'))}", f"{row['name']}", f"{row['big']}") for row in rows)


@pytest.mark.parametrize("shift", range(effort.choose(2, 300)))
def test_a_feed_in_parts_of_any_order_becomes_the_rows_of_the_source(shift: int, person: Person) -> None:
    _start(person)
    chance, truth, later = random.Random(effort.SEED + shift), {}, []
    for name, tool in TOOLS.items():
        steps, rows = live(effort.SEED + shift, truncates=tool.truncates, moves=tool.moves)
        truth[name.replace("-", "_")] = rows
        records = [*tool.write(steps)]
        # `init` samples the first part.
        first = min(len(records), chance.randrange(9, 20))
        cuts = sorted({first, len(records), *(chance.randrange(first, len(records) + 1) for _ in range(3))})
        person.land(f"{name}/part_{chance.randrange(1000)}.jsonl", lines(*records[:first]))
        for at, (begin, end) in enumerate(pairwise(cuts)):
            later.append((f"{name}/part_{1000 * at + chance.randrange(1000)}.jsonl", lines(*records[begin:end])))
    said = _init(person)
    assert "question:" not in said, said
    path = person.folder / "tidefold.yaml"
    assert {*re.findall(r"(?m)^      profile: (\S+)", path.read_text())} == {*TOOLS}
    path.write_text(re.sub(r"max_row_drop: 0.5", "max_row_drop: 1", path.read_text()))
    _run(person)
    chance.shuffle(later)
    for half in (later[::2], later[1::2]):
        for place, text in half:
            person.land(place, text)
        _run(person)
    for name, rows in truth.items():
        assert _shown(_table(person, name)) == _shown(rows.values()), name


FACTS = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parents[1] / "data/profiles").iterdir())
}


def test_real_output_of_each_tool_becomes_its_rows(person: Person) -> None:
    _start(person)
    for name, facts in FACTS.items():
        assert facts["source"]
        person.land(f"{name}/part_1.jsonl", lines(*facts["records"]))
    said = _init(person)
    assert {*re.findall(r"(?m)^question: (\S+): (\S+?):", said)} == {(log, "key") for log in KEYS}, said
    path = person.folder / "tidefold.yaml"
    text = re.sub(r"(?m)^  # ( +\S|\w+:)", r"  \1", path.read_text())
    for log, key in KEYS.items():
        text = re.sub(rf"(?m)(^  {log}:(?s:.*?)^    key: )\[.*?\]", rf"\1[{key}]", text, count=1)
    path.write_text(re.sub(r"max_row_drop: 0.5", "max_row_drop: 1", text))
    _run(person)
    for name, facts in FACTS.items():
        names = facts["rows"][0]
        rows = [{n: row.get(n, row.get(n.strip("_"))) for n in names} for row in _table(person, name.replace("-", "_"))]
        assert _plain(rows) == _plain(facts["rows"]), name


def _plain(rows: list[dict[str, Any]]) -> list[str]:
    def text(value: Any) -> str:
        return f"{value.normalize(Context(prec=60)):f}" if isinstance(value, Decimal) else f"{value}"

    return sorted(str({name: text(value) for name, value in row.items()}) for row in rows)


def test_each_shipped_profile_is_written_by_a_tool_of_the_property() -> None:
    assert {*shipped()} - {"dynamodb-full", "singer", "airbyte"} == {*TOOLS}
    assert {*shipped()} - {"dynamodb-full"} == {*FACTS}
