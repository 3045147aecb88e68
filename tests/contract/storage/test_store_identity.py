"""A store that is missing, empty or another one is never silently begun again. Promise I33."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support.counted import counted
from support.dict_store import DictStore
from support.golden import ARCHIVES, unpacked
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.errors import CorruptError, RefusedError
from tidefold.operations.ingest.ingest import ingest
from tidefold.storage import Store, open_store
from tidefold.storage.identity import IDENTITY, IdentityGuard, ensure_identity, read_identity
from tidefold.wiring import open_pipeline

CONFIG = """
version: 1
store: {store}
{line}
spark: {{above: 64MB}}
logs:
  items:
    source: {{format: csv, path: landing}}
    key: [id]
    columns: {{id: long, at: timestamp}}
    order: [at]
"""


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store("store", tmp_path)
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3").address, tmp_path)
    return DictStore()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/a.csv").write_text("id,at\n1,2026-01-01T00:00:00Z\n")
    configure(tmp_path)
    return tmp_path


def configure(folder: Path, line: str = "", store: str = "var/store") -> None:
    (folder / "tidefold.yaml").write_text(CONFIG.format(line=line, store=store))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_first_to_ask_gives_a_store_its_id_and_all_find_the_same(store: Store) -> None:
    assert read_identity(store) is None
    made, is_new = ensure_identity(store)
    assert is_new
    assert not made[0].isdigit()  # YAML would take 32 digits for a number.
    assert ensure_identity(store) == (made, False)
    assert json.loads(store.read(IDENTITY)) == {"format": 1, "id": made}


def test_an_empty_and_another_store_are_refused_by_name(store: Store) -> None:
    said: list[str] = []
    with pytest.raises(RefusedError, match=r"`store\.json` is missing") as absent:
        IdentityGuard(store, "a" * 32, said.append)
    assert (absent.value.code, absent.value.exit_code, store.list("")) == ("STORE_UNKNOWN", 3, [])
    assert "store_id" in absent.value.hint
    made, _ = ensure_identity(store)
    with pytest.raises(RefusedError, match="has the id"):
        IdentityGuard(store, "a" * 32, said.append)
    IdentityGuard(store, made, said.append).before_write()
    assert said == []


def test_one_that_was_begun_at_the_same_moment_keeps_the_first_id(store: Store) -> None:
    said: list[str] = []
    one, other = (IdentityGuard(store, None, said.append) for _ in range(2))
    one.before_write()
    other.before_write()
    assert len(said) == 1
    assert read_identity(store) in said[0]


@pytest.mark.parametrize(
    ("text", "code"), [("{", "STORE_IDENTITY"), ('{"format": 9}', "STORE_NEWER"), ('{"format": 1}', "STORE_IDENTITY")]
)
def test_an_identity_that_cannot_be_read_is_never_taken_for_none(store: Store, text: str, code: str) -> None:
    store.put_if_absent(IDENTITY, text.encode())
    with pytest.raises(CorruptError) as error:
        ensure_identity(store)
    assert error.value.code == code


def test_the_first_run_prints_the_line_and_reading_makes_nothing(folder: Path) -> None:
    for reading in (
        ("status",),
        ("validate",),
        ("snapshot", "history", "items"),
        (
            "check",
            "verify",
        ),
    ):
        call(*reading)
        assert not (folder / "var/store").exists(), reading
    first = call("step", "ingest")
    assert first.exit_code == 0, first.output
    made = json.loads((folder / "var/store/store.json").read_text())["id"]
    assert f"store_id: {made}" in first.stderr
    (folder / "landing/b.csv").write_text("id,at\n2,2026-01-01T00:00:00Z\n")
    again = call("step", "ingest")
    assert (again.exit_code, "store_id" in again.stderr) == (0, False)


def test_a_store_that_is_not_mounted_is_refused_by_every_command(folder: Path) -> None:
    call("step", "ingest")
    made = json.loads((folder / "var/store/store.json").read_text())["id"]
    configure(folder, f"store_id: {made}")
    assert call("step", "ingest").exit_code == 0
    shutil.move(folder / "var/store", folder / "elsewhere")
    (folder / "landing/b.csv").write_text("id,at\n2,2026-01-01T00:00:00Z\n")
    for command in ("status", "step ingest", "run", "check verify", "retain truncate"):
        refused = call(*command.split())
        assert (refused.exit_code, "[STORE_UNKNOWN]" in refused.stderr) == (3, True), command
        assert not (folder / "var/store").exists(), command
    configure(folder, f"store_id: {made}", "elsewhere")
    assert call("step", "ingest").exit_code == 0


def test_a_store_without_an_identity_gets_one_by_its_first_change_and_not_before(tmp_path: Path) -> None:
    golden = unpacked(ARCHIVES[0], tmp_path)
    [identity] = tmp_path.rglob(Path(IDENTITY).name)
    identity.unlink()
    before = files(tmp_path)
    said: list[str] = []
    pipeline = open_pipeline(golden.pipeline.config.path, said.append)
    log = next(log for log in pipeline.config.logs if pipeline.ledger(log).exists())
    pipeline.ledger(log).commit(lambda state: state)
    assert (files(tmp_path), said) == (before, [])  # Nothing was changed.
    pipeline.ledger(log).commit(lambda state: replace(state, fence=state.fence + 1))
    assert read_identity(pipeline.store) in said[0]


def test_an_idle_run_asks_for_the_identity_once_with_and_without_a_configured_id(folder: Path) -> None:
    """Without an id, too: the layout of the store may be newer, and then nothing else of it can be read."""
    call("step", "ingest")
    made = json.loads((folder / "var/store/store.json").read_text())["id"]

    def idle() -> None:
        pipeline = open_pipeline(folder / "tidefold.yaml")
        assert ingest(pipeline, ["items"], in_process)[0].status == "nothing"

    without = counted(idle)
    configure(folder, f"store_id: {made}")
    assert counted(idle) == without


@pytest.mark.parametrize("wrong", ["17", "yes", "'ABC'", "''"])
def test_an_id_that_is_none_is_a_mistake_of_the_file(folder: Path, wrong: str) -> None:
    configure(folder, f"store_id: {wrong}")
    refused = call("validate")
    assert refused.exit_code == 2
    assert "store_id" in refused.stderr
