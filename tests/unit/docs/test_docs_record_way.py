"""way-of-one-record.md lists the functions that a record and a truncate pass through, by their first calls."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from support.landing import fold_waiting, land, make_landing, record
from tidefold.compute.runners import in_process
from tidefold.operations.ingest.ingest import execute, prepare
from tidefold.operations.retention.truncate import truncate

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "include" / "tidefold"
PAGE = (ROOT / "docs" / "contributors" / "way-of-one-record.md").read_text()


def list_functions(heading: str) -> list[tuple[str, str]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\d+\. `(\S+)`: (.*)$", section, re.MULTILINE)
    return [(file, name) for file, names in lines for name in re.findall(r"`(\w+)`", names)]


@contextmanager
def record_calls() -> Iterator[dict[tuple[str, str], None]]:
    """The functions of the package in the order of their first calls."""
    called: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PACKAGE}/"):
            called.setdefault((file.removeprefix(f"{PACKAGE}/"), frame.f_code.co_name))

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def test_a_record_and_a_truncate_pass_through_the_listed_functions(tmp_path: Path) -> None:
    listed, of_truncate = list_functions("A record"), list_functions("A truncate")
    assert 25 < len(listed) <= 35
    assert len(of_truncate) <= 10
    pipeline = make_landing(tmp_path)
    land(tmp_path, 0, [record(0)])
    with record_calls() as called:
        execute(pipeline, prepare(pipeline, ["items"]), in_process)
        fold_waiting(pipeline, "first")
    assert [one for one in called if one in listed] == listed
    land(tmp_path, 1, [record(1)])
    execute(pipeline, prepare(pipeline, ["items"]), in_process)
    fold_waiting(pipeline, "second")
    with record_calls() as called:
        truncate(pipeline, "items")
    assert [one for one in called if one in of_truncate] == of_truncate
