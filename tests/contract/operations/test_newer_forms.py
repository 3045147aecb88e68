"""Every stored form has the number of its form, and a program that is older refuses it by name: I23."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from local_airflow.settings import PROJECT
from support.arrival import Landing
from support.pipelines import contents
from tidefold.domain.paths import LogPaths
from tidefold.errors import CorruptError
from tidefold.sources.kafka.landed import LandedOffsets
from tidefold.storage import open_store

NEWER = 99
# An edit of the configuration that needs a plan.
EDIT = ("v: string}", "v: string}\n    merge: first")
DEBEZIUM = "format: debezium-json, connector: postgresql"
Plant = Callable[[Path], Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a plan, a savepoint, a proof, a failed run and a file that waits; and an empty log."""
    at = Landing.make(tmp_path_factory.mktemp("newer"), {"o": "order: file\nkey: [id]\ncolumns: {id: long, v: string}"})
    rows = [{"op": "c", "id": number, "v": "a"} for number in range(3)]
    at.land("a.jsonl", rows)
    at.run()
    at.call("check", "verify", "--share", "100%")
    at.call("move", "savepoint", "o", "--to", str(at.folder / "saved"))
    at.edit(*EDIT)
    at.call("plan", "o", code=None)
    at.run(code=None)
    at.edit(*reversed(EDIT))
    at.land("b.jsonl", rows)
    text = (at.folder / "tidefold.yaml").read_text()
    stream = f"  s:\n    source: {{{DEBEZIUM}, path: landing/s}}\n    key: [id]\n    columns: {{id: long}}\n"
    (at.folder / "landing/s").mkdir()
    (at.folder / "tidefold.yaml").write_text(text + stream)
    return at.folder


@pytest.fixture
def at(whole: Path, tmp_path: Path) -> Landing:
    shutil.copytree(whole, tmp_path / "at")
    return Landing(tmp_path / "at")


def edited(pattern: str, key: str = "format") -> Plant:
    """The newest document of this form, as a newer program would write it."""

    def plant(folder: Path) -> Path:
        path = max(folder.glob(pattern))
        document = json.loads(path.read_bytes())
        assert isinstance(document[key], int)
        path.unlink()
        path.write_text(json.dumps({**document, key: NEWER, "colour": "red"}))
        return path

    return plant


def added(path: str) -> Plant:
    """A document that no command here writes."""

    def plant(folder: Path) -> Path:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps({"format": NEWER}))
        return folder / path

    return plant


def without_ledger(plant: Plant) -> Plant:
    def lose(folder: Path) -> Path:
        shutil.rmtree(folder / "store/logs/o/ledger")
        return plant(folder)

    return lose


def segment(folder: Path) -> Path:
    path = min((folder / "store/changelog").rglob("*.seg"))
    data = bytearray(path.read_bytes())
    data[len(b"TDFSEG")] = NEWER
    path.unlink()
    path.write_bytes(data)
    return path


def configuration(folder: Path) -> Path:
    path = folder / "tidefold.yaml"
    path.write_text(path.read_text().replace("version: 1", f"version: {NEWER}"))
    return path


# Each form, and commands that read it. The ledger of a log names its pages, refused records and reports by checksum,
# so its number is theirs, too; a set's ledger is in `test_golden_set.py`.
FORMS: dict[str, tuple[Plant, str]] = {
    "configuration": (configuration, "validate; run; status"),
    "store": (
        edited("store/store.json"),
        "run; step ingest; status; read o; explain o 1; snapshot history o; retain clean; retain truncate; "
        "check verify; check verify --share 5%; check doctor; move rebuild o; move savepoint o --to elsewhere",
    ),
    "ledger": (edited("store/logs/o/ledger/*.json"), "run; step ingest; status; read o; retain clean; check verify"),
    "segment": (segment, "read o --changes"),
    "manifest": (without_ledger(edited("store/logs/o/snapshots/*/manifest")), "move rebuild o --yes"),
    "mark": (
        without_ledger(added("store/tables/o/_delta_log/_tidefold/ledger-0000000099")),
        "move rebuild o --yes",
    ),
    "intent": (added("store/changelog/intents/x/000001.json"), "retain clean"),
    "verdict": (edited("store/logs/o/quality/*/verdict-*.json"), "snapshot report o"),
    "failed runs": (edited("store/logs/o/alarms/*.json"), "status"),
    "proofs": (edited("store/logs/o/proofs/*.json"), "status; check verify --share 5%"),
    "plan": (edited("store/plans/o/*/records/*.json"), "plan o"),
    "savepoint": (edited("saved/savepoint.json", "version"), "move import o saved"),
    "load": (added("store/landed/s/_load/0001.json"), "step ingest s"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_newer_form_is_refused_by_name_and_nothing_is_changed(at: Landing, form: str) -> None:
    plant, commands = FORMS[form]
    if form == "plan":
        at.edit(*EDIT)
    path = plant(at.folder)
    before = contents(at.folder)
    for words in commands.split("; "):
        said = at.call(*words.split(), code=None)
        assert said.exit_code, (words, said.output)
        plain = " ".join(said.output.split())
        assert "STORE_NEWER" in plain, (words, plain)
        assert path.name in plain, (words, plain)
        assert "Update tidefold" in plain, (words, plain)
        assert contents(at.folder) == before, words


def test_the_page_of_upgrades_shows_the_words(at: Landing) -> None:
    """Only the name of the log and the numbers differ."""
    edited("store/logs/o/ledger/*.json")(at.folder)
    page = (PROJECT / "docs/how-to/upgrade.md").read_text().replace("orders", "o")
    [block] = re.findall(r"^```console\n\$ tidefold run\n(.*?)```$", page, re.DOTALL | re.MULTILINE)
    said = at.call("run", code=None).output
    for line in block.splitlines():
        assert re.sub(r"\d+", "N", line) in re.sub(r"\d+", "N", said), said


def test_a_newer_mark_of_a_topic_is_refused_by_name(tmp_path: Path) -> None:
    paths = LogPaths("o")
    (tmp_path / paths.offsets).mkdir(parents=True)
    (tmp_path / paths.offsets / "borrowed+0+1+2.json").write_text("{}")
    with pytest.raises(CorruptError, match="borrowed") as refused:
        LandedOffsets.read(open_store(str(tmp_path), tmp_path), paths)
    assert refused.value.code == "STORE_NEWER"
