"""The one-liners of docs/how-to/read.md without Spark run on a published table."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from local_airflow.settings import PROJECT
from support.pipelines import CONFIG, judge_all, make_pipeline, put
from tidefold.compute.runners import in_process
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

PAGE = (PROJECT / "docs/how-to/read.md").read_text().split("### Without Spark\n")[1].split("\n## ")[0]
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A published table `orders` in `var/store`."""
    config = CONFIG.replace("store: store", "store: var/store").replace(
        "{id: int, text: string}", "{id: int, amount: int}"
    )
    pipeline = make_pipeline(tmp_path, config.replace("accounts", "orders", 1))
    put(pipeline, [{"id": 1, "amount": 40}, {"id": 2, "amount": 5}], "orders")
    materialize(pipeline, ["orders"], Fold("run-1"), in_process)
    judge_all(pipeline, "orders")
    confirm(pipeline, "orders")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def has_delta() -> bool:
    """Whether DuckDB has its extension here, or can fetch it."""
    try:
        duckdb.sql("LOAD delta")
    except duckdb.Error:
        return False
    return True


@pytest.mark.parametrize("block", PYTHON)
def test_a_one_liner_reads_the_table(folder: Path, block: str) -> None:
    if "delta_scan" in block and not has_delta():
        pytest.skip("DuckDB has no extension `delta` on this machine")
    *head, last = block.strip().split("\n")
    known: dict[str, object] = {}
    exec("\n".join(head), known)
    assert eval(last, known) is not None


def test_the_page_has_such_lines() -> None:
    assert len(PYTHON) == 3
