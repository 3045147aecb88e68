"""A log that a program writes, without landed files, lives like every other. Requirements C1, A1; promise I5."""

from __future__ import annotations

from pathlib import Path

from support.pipelines import judge_all, table_rows
from tidefold.changelog.writer import Changelog
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.requests import Fold
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.wiring import open_pipeline

CONFIG = """
version: 1
store: store
logs:
  orders:
    order: arrival
    key: [id]
    columns: {id: int, text: string}
    key_groups: 16
    buckets: 4
"""


def test_what_a_program_writes_is_folded_and_published(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    model: dict[int, str | None] = {}
    for number in range(3):
        with Changelog(pipeline.store) as changelog:
            log = changelog.log("orders", pipeline.log("orders").shape)
            log.append([{"id": i, "text": f"{number} {i}"} for i in range(number, number + 30)])
            log.append(
                [{"id": number, "_op": "delete"}, {"id": 7, "text": "first"}, {"id": 7, "text": f"{number} last"}]
            )
        model |= {i: f"{number} {i}" for i in range(number, number + 30)}
        del model[number]
        model[7] = f"{number} last"
        assert ingest(pipeline, ["orders"], in_process)[0].status == "nothing"
        assert materialize(pipeline, ["orders"], Fold(f"run-{number}"), in_process)[0].status == "staged"
        judge_all(pipeline, "orders")
        confirm(pipeline, "orders")
        assert table_rows(pipeline, "orders") == model


def test_its_configuration_names_no_source(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    log = load_config(tmp_path / "tidefold.yaml").logs["orders"]
    assert (log.source, log.shape.order) == (None, "arrival")
