"""`init` assumes an order by file only where names of files say it, and proposes none that a run refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tidefold.sources.inference.proposal import ProposalQuestion
from tidefold.sources.inference.propose import propose


def ask_order(root: Path, files: dict[str, Sequence[str]], head: str = "op,id,name,counted") -> ProposalQuestion:
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join([head, *lines, ""]))
    [log] = propose(root)
    [order] = (one for one in log.questions if one.about == "order")
    assert ", ".join(log.order_by) == next(iter(order.candidates), "")
    return order


# Rows of the same keys, by what may count the changes.
ONE = [f"I,{n},a{n},{10 * n}" for n in range(1, 9)]
TWO = [f"U,{n},b{n},{100 + n}" for n in range(1, 9)]


@pytest.mark.parametrize(
    ("names", "second", "sure", "candidates"),
    [
        (("t/2026-11-20/CDC0001.csv", "t/2026-11-20/CDC0002.csv"), TWO, False, ("counted", "file")),
        (("t/2026-11-20/CDC0001.csv", "t/2026-11-20/CDC0002.csv"), TWO[::-1], False, ("file",)),
        (("t/2026-11-20/x.csv", "t/2026-11-20/y.csv"), [line.replace("U,", "I,1") for line in TWO], False, None),
        (("t/2026-11-20/CDC0001.csv",), (), True, ("file",)),
        (("t/2026-11-20/part-0001.csv", "t/2026-11-20/part-0002.csv"), TWO, True, ("file",)),
        (("t/2026-11-20/a.csv", "t/2026-11-21/a.csv"), TWO, True, ("file",)),
        (("t/LOAD1.csv", "t/20261120-083825503.csv"), TWO, False, ("counted",)),
        (("t/LOAD1.csv", "t/20261120-083825503.csv"), TWO[::-1], False, ()),
    ],
)
def test_files_order_rows_only_if_their_names_tell_them_apart(
    tmp_path: Path, names: Sequence[str], second: Sequence[str], sure: bool, candidates: Sequence[str] | None
) -> None:
    """An order by the date of a folder, the same for all files, was assumed: a late file then gave wrong rows."""
    first, *others = sorted(names, reverse="LOAD" in names[0])
    if others and "LOAD" in first:
        first, others = others[0], [first]
    order = ask_order(tmp_path, {first: ONE, **dict.fromkeys(others, second)})
    assert order.sure is sure
    assert candidates is None or order.candidates == candidates
    if not sure:
        assert ("have the same time in their names" in order.text) is ("LOAD" not in "".join(names))
        assert ("never falls" in order.text) is ("counted" in order.candidates)


def test_files_of_one_time_that_share_no_key_may_have_an_order(tmp_path: Path) -> None:
    files = {"t/2026-11-20/x.csv": ONE, "t/2026-11-20/y.csv": [line.replace(",", ",9", 1) for line in ONE]}
    order = ask_order(tmp_path, {**files, "t/2026-11-21/x.csv": TWO})
    assert (order.sure, order.candidates) == (True, ("file",))
    order = ask_order(tmp_path, {"t/2026-11-20/z.csv": TWO})
    assert not order.sure


@pytest.mark.parametrize(
    ("names", "candidates"),
    [
        (("LOAD1", "20261120-083825503"), ("dms_timestamp",)),
        (("20261120-083825503", "20261121-083825503"), ("dms_timestamp, file", "file")),
        (("2026-11-20/CDC01", "2026-11-20/CDC02"), ("dms_timestamp", "file")),
    ],
)
def test_a_proposed_order_can_be_ingested(tmp_path: Path, names: Sequence[str], candidates: Sequence[str]) -> None:
    """`[dms_timestamp, file]` was proposed for AWS DMS, and every run refused the full load: LANDED_TIME."""
    lines = [f"{'IU'[at]},{n},{'ab'[at]},2026-11-2{at} 08:00:0{n}" for at in range(2) for n in range(1, 9)]
    files = dict(
        zip((f"t/{name}.csv" for name in names), (lines[:8], [*lines[8:], lines[9].replace("b", "c")]), strict=True)
    )
    assert ask_order(tmp_path, files, "Op,id,name,dms_timestamp").candidates == candidates
