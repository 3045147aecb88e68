"""The worked example with Debezium is what happens, and the reference names every encoding and reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.domain.table.types import encodings_of, parse_type
from tidefold.domain.wording import format_cell
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.storage import open_store

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "include" / "tidefold" / "sources"
PAGE = (ROOT / "docs" / "reference" / "debezium.md").read_text()
EXAMPLE = (ROOT / "docs" / "tutorials" / "debezium.md").read_text()


def block(kind: str) -> str:
    return re.findall(rf"```{kind}\n(.*?)```", EXAMPLE, re.DOTALL)[0]


def test_the_example_gives_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(block("yaml"))
    [name] = re.findall(r"A file `(landing/\S+)`", EXAMPLE)
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(block("json"))
    pipeline = Pipeline(load_config(tmp_path / "tidefold.yaml"), open_store("store", tmp_path))
    [outcome] = ingest(pipeline, ["orders"], in_process)
    assert f"gives `{outcome.message}`" in EXAMPLE
    schema, batches = read_rows(pipeline, "orders", ReadRequest(What.LIVE))
    rows = [[format_cell(value) for value in row.values()] for batch in batches for row in batch.to_pylist()]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [schema.names, *rows])
    assert table.replace("\n", "\n|---|---|---|---|\n", 1) in EXAMPLE


@pytest.mark.parametrize("type_", ["boolean", "decimal(5,2)", "date", "timestamp", "binary"])
def test_every_encoding_is_explained(type_: str) -> None:
    for encoding in encodings_of(parse_type(type_)):
        assert f"`{encoding}`" in PAGE


def test_every_reason_is_named() -> None:
    code = "".join((SOURCES / name).read_text() for name in READS_DEBEZIUM)
    reasons = set(re.findall(r'RefusedRecordError\(\s*"([A-Z_]+)"', code))
    assert len(reasons) > 12
    assert {reason for reason in reasons if f"`{reason}`" not in PAGE} == set()


READS_DEBEZIUM = (
    *("debezium/connect_schema.py", "debezium/envelope.py", "debezium/ordering.py", "records/accounting.py"),
    *("records/parse_file.py", "records/errors.py", "records/row_decoder.py"),
)
