"""A row that was left out is named until it is whole, or deleted: by the run, `status` and the gate (decision 0070)."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.commands import call
from support.landing import TOPIC, record
from tidefold.operations.inspect.status import status
from tidefold.wiring import open_pipeline
from tidefold_airflow.observability.metrics import of_status
from tidefold_airflow.ui.health import word_of_log

UNSENT = "__debezium_unavailable_value"
CONFIG = """\
version: 1
store: store
snapshots: {{kind: {kind}}}
logs:
  items:
    source: {{format: debezium-json, connector: postgresql, path: landing}}
    key: [id]
    columns: {{id: int, text: string}}
    key_groups: 16
    buckets: 4
    {more}
"""


class Shop:
    """A folder with the log `items`, whose keys 1 and 2 are published, and whose key 7 is left out."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "", kind: str = "auto") -> None:
        monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
        self.folder, self.offset, self._patch = folder, 0, monkeypatch
        (folder / "landing").mkdir(parents=True)
        (folder / "tidefold.yaml").write_text(CONFIG.format(more=more, kind=kind))
        monkeypatch.chdir(folder)
        self.take(record(0, 1), record(1, 2), code=0)

    def land(self, *records: dict[str, Any]) -> None:
        lines = "".join(json.dumps(one) + "\n" for one in records)
        (self.folder / f"landing/{TOPIC}+0+{self.offset:010d}.jsonl").write_text(lines)
        self.offset += len(records)

    def take(self, *records: dict[str, Any], code: int) -> str:
        self.land(*records)
        return call("run", code=code).output

    def told(self) -> list[str]:
        return [line for line in call("status").output.splitlines() if "UNAVAILABLE_VALUE" in line]

    def rows(self) -> dict[int, str]:
        return {one["id"]: one["text"] for one in json.loads(call("read", "items", "--format", "json").stdout)["rows"]}


def unsent(offset: int, item: int = 7) -> dict[str, Any]:
    return record(offset, item, "u", after={"id": item, "text": UNSENT})


ENDINGS = {
    "whole": (record(5, 7, "u"), "t1005"),
    "deleted": (record(5, 7, "d"), None),
    "incremental": (record(5, 7, "r", snapshot="incremental"), "t1005"),
    "truncated": (record(5, op="t", key=None, before=None, after=None), None),
}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", ["incremental", "full"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_key_is_named_until_it_is_whole_or_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, kind: str
) -> None:
    """Fault: the next snapshot, made of any other change, forgot it, and each run ended with exit code 0."""
    shop = Shop(tmp_path / "shop", monkeypatch, "deletion_vectors: true", kind)
    said = shop.take(unsent(2), code=2)
    assert 'keys left out: 1 (UNAVAILABLE_VALUE), the first: {"id": 7}, whose text was not sent' in said
    # Another key, the same bucket or not; nothing at all; and the same key again.
    for given in ([record(3, 1, "u")], [], [unsent(4)]):
        said = shop.take(*given, code=2) if given else call("run", code=2).output
        assert "[UNAVAILABLE_VALUE] The table of `items` lacks 1 row: a value was not sent." in said
        assert 'leaves out keys (UNAVAILABLE_VALUE, 1 in all): {"id": 7}' in shop.told()[0]
    last, text = ENDINGS[ending]
    said = shop.take(last, code=0)
    assert "left out" not in said
    assert shop.told() == []
    assert shop.rows().get(7) == text


def test_an_unwrapped_change_of_a_key_is_named_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: of key 1, which became 5, the large value was not sent, and the row was gone without a word."""
    shop = Shop(tmp_path / "shop", monkeypatch)
    shutil.rmtree(tmp_path / "shop")
    (tmp_path / "shop/landing").mkdir(parents=True)
    text = CONFIG.format(more="order: position", kind="auto").replace("debezium-json, connector: postgresql", "json", 1)
    text = text.replace("path: landing", 'path: landing, op: {column: gone, upsert: ["false"], delete: ["true"]}', 1)
    (tmp_path / "shop/tidefold.yaml").write_text(text)
    monkeypatch.chdir(tmp_path / "shop")
    shop.offset = 0

    def row(item: int, text: str | None, gone: str = "false") -> dict[str, Any]:
        whole = {"topic": TOPIC, "partition": 0, "offset": shop.offset, "key": {"id": item}, "headers": []}
        return {**whole, "value": {"id": item, "text": text, "gone": gone}}

    def take(*records: dict[str, Any], code: int) -> None:
        first = shop.offset
        shop.take(*({**one, "offset": first + at} for at, one in enumerate(records)), code=code)

    take(row(1, "large"), row(2, "other"), code=0)
    take(row(1, None, "true"), row(5, UNSENT), code=2)
    for _ in range(2):
        take(row(2, "newer"), code=2)
        assert '{"id": 5}' in shop.told()[0]
    take(row(5, "large"), code=0)
    assert shop.told() == []
    assert shop.rows() == {2: "newer", 5: "large"}


@pytest.mark.parametrize("layout", ["native", "canonical"])
def test_a_savepoint_an_import_a_restore_and_a_rebuild_carry_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    shop = Shop(tmp_path / "shop", monkeypatch)
    shop.take(unsent(2), code=2)
    call("restore", "items", "2", "--log-position", "skip", "--run", "back")
    call("step", "quality", "items")
    call("step", "confirm", "items")
    assert '{"id": 7}' in shop.told()[0]
    shutil.rmtree(tmp_path / "shop/store/logs/items/ledger")
    call("move", "rebuild", "items", "--yes")
    assert '{"id": 7}' in shop.told()[0]
    call("move", "savepoint", "items", "--to", str(tmp_path / "save"), "--as", layout)
    other = Shop(tmp_path / "other", monkeypatch)
    shutil.rmtree(tmp_path / "other/store")
    shutil.rmtree(tmp_path / "other/landing")
    (tmp_path / "other/landing").mkdir()
    text = (tmp_path / "other/tidefold.yaml").read_text()
    if layout == "canonical":
        (tmp_path / "other/tidefold.yaml").write_text(text.replace("key_groups: 16", "key_groups: 32"))
    call("move", "import", "items", str(tmp_path / "save"))
    call("step", "quality", "items")
    call("step", "confirm", "items")
    assert '{"id": 7}' in other.told()[0]
    call("run", code=2)
    other.offset = 3
    other.take(record(3, 7, "u"), code=0)
    assert other.told() == []
    assert other.rows() == {1: "t1000", 2: "t1001", 7: "t1003"}


def test_the_gate_warns_or_fails_above_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path / "shop", monkeypatch)
    assert "2 keys have no row: a value was not sent" in shop.take(unsent(2), unsent(3, 8), code=2)
    path = tmp_path / "shop/tidefold.yaml"
    [told] = status(open_pipeline(path), ["items"])
    assert word_of_log(told).text == "rows left out"
    assert {one.value for one in of_status([told], datetime.now(UTC)) if one.name == "left_out"} == {2}
    text = path.read_text()
    path.write_text(f"{text}    quality: {{max_left_out: 1}}\n")
    assert "2 keys have no row" in shop.take(record(4, 1, "u"), code=3)
    assert shop.rows()[1] == "t1000"
    path.write_text(f"{text}    quality: {{max_left_out: 2}}\n")
    shop.take(record(5, 2, "u"), code=0)
    assert shop.rows() == {1: "t1004", 2: "t1005"}
    # Those that are allowed are still named.
    assert "2 in all" in shop.told()[0]
