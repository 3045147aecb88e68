"""A configuration of thousands of logs: how it is read must not grow with the square of their number."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidefold.config import load_config
from tidefold.config.addresses import _find_overlaps
from tidefold.yaml_files.document import ConfigError, parse_document

LOG = """  {name}:
    source: {{format: debezium-json, connector: postgresql, path: landing/{name}}}
    key: [id]
    columns: {{id: int, on: string}}
"""
HERE = Path("tidefold.yaml")
folders = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda parts: PurePosixPath("/", *parts))


@given(st.lists(folders, max_size=8))
def test_overlaps_are_those_of_each_pair(found: list[PurePosixPath]) -> None:
    listed = [(("logs", str(number)), folder) for number, folder in enumerate(found)]
    naive = [
        (one, other)
        for number, one in enumerate(listed)
        for other in listed[:number]
        if one[1] == other[1] or one[1] in other[1].parents or other[1] in one[1].parents
    ]
    assert list(_find_overlaps(listed)) == naive


def test_no_folder_is_compared_with_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    equals = PurePosixPath.__eq__

    def count(one: PurePosixPath, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equals(one, other)

    names = [f"log_{number:05d}" for number in range(500)]
    file = tmp_path / "tidefold.yaml"
    file.write_text("version: 1\nstore: store\nlogs:\n" + "".join(LOG.format(name=name) for name in names))
    monkeypatch.setattr("pathlib.PurePath.__eq__", count)
    assert list(load_config(file).logs) == names
    assert compared < 50 * len(names)


BAD = [
    "a: &x 1",
    "a: *x",
    "a: !!python/name:os 1",
    "a: [",
    "a: b: c",
    "\ta: 1",
    "a: \x01",
    "---\na: 1\n---\nb: 2",
    "a: {",
]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_libyaml_finds_the_same_mistakes(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    def mistakes() -> list[tuple[str, int, str]]:
        with pytest.raises(ConfigError) as refused:
            parse_document(HERE, bad)
        return [(one.code, one.line, one.message) for one in refused.value.problems]

    found = mistakes()
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert mistakes() == found


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_libyaml_reads_the_same_values_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "version: 1\non: yes\nat: 2026-01-01\nn: 1_000\nlist:\n- a\n- {b: ~}\nlogs:\n" + LOG.format(name="orders")
    with monkeypatch.context() as libyaml:
        libyaml.delattr(yaml, "SafeLoader")
        read = parse_document(HERE, text)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert parse_document(HERE, text) == read
