"""Sources: every configuration is valid, every code and operation is there, and the source of extend.md works."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tidefold.config import Config, ConfigError, load_config
from tidefold.config.models.sources import SOURCE_ENTRIES
from tidefold.operations.ingest.ingest import ingest
from tidefold.wiring import open_pipeline

ROOT = Path(__file__).parents[3]
OWN = (ROOT / "docs/how-to/extend.md").read_text().split("## A source of your own\n")[1].split("\n## ")[0]
PAGE = (ROOT / "docs/reference/sources.md").read_text() + OWN
SOURCES = ROOT / "include/tidefold/sources"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def load(folder: Path, text: str) -> Config:
    (folder / "tidefold.yaml").write_text(text)
    return load_config(folder / "tidefold.yaml")


@pytest.fixture
def _pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the page, as an installer leaves it."""
    site = tmp_path / "site"
    info = site / "pairs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "pairs.py").write_text(blocks("python")[0])
    (info / "METADATA").write_text("Name: pairs\nVersion: 1.0\n")
    points = next(text for text in blocks("toml") if "entry-points" in text).replace(
        '[project.entry-points."tidefold.sources"]', "[tidefold.sources]"
    )
    (info / "entry_points.txt").write_text(points.replace('"', ""))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "pairs", raising=False)


@pytest.mark.usefixtures("_pairs")
def test_every_configuration_is_valid_and_all_formats_have_one(tmp_path: Path) -> None:
    configs = [load(tmp_path, text) for text in blocks("yaml")]
    formats = {log.source.format for config in configs for log in config.logs.values() if log.source}
    assert {name for name in SOURCE_ENTRIES if not name.startswith("debezium")} == formats


@pytest.mark.usefixtures("_pairs")
def test_the_source_of_the_page_takes_its_lines(tmp_path: Path) -> None:
    from tidefold.compute.runners import in_process

    (tmp_path / "tidefold.yaml").write_text(blocks("yaml")[-1])
    pipeline = open_pipeline(tmp_path / "tidefold.yaml")
    folder = tmp_path / "landing/notes"
    folder.mkdir(parents=True)
    (folder / "notes+0+0000000000.jsonl").write_text("id=7 text=hello\nid=8 text=you\nid=x\nid=9 other=1\nid=7\n")
    [outcome] = ingest(pipeline, ["notes"], in_process)
    assert (outcome.error_code, outcome.facts["refused"]) == ("UNKNOWN_COLUMN", {"NOT_A_RECORD": 1})
    [change_set] = pipeline.ledger("notes").read().change_sets
    assert change_set.rows == 2


def test_a_source_that_nobody_installed_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, blocks("yaml")[-1].replace("name: pairs", "name: unheard_of"))
    assert refused.value.code == "SOURCE_UNKNOWN"


def test_every_code_of_a_change_feed_is_named() -> None:
    texts = [path.read_text() for path in (SOURCES / "delta").glob("*.py")]
    codes = set(re.findall(r'"(DELTA_SOURCE_[A-Z]+)"', "".join(texts)))
    assert len(codes) >= 7
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_every_operation_of_a_state_is_named() -> None:
    text = (SOURCES / "state/source.py").read_text()
    kinds = dict(re.findall(r'^            "(\w+)": \{(.*?)\},$', text, re.MULTILINE | re.DOTALL))
    assert set(kinds) == {"value", "reducing", "list", "map", "queue"}
    for kind, operations in kinds.items():
        [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind}`")]
        assert all(f"`{name}`" in line for name in re.findall(r'"(\w+)": self', operations))
