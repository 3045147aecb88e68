"""Addresses of landing folders in object stores: what is refused, without a secret in the message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidefold.config import ConfigError, load_config

CONFIG = """\
version: 1
store: {store}
logs:
  items:
    source: {{format: csv, path: '{path}'}}
    key: [id]
    order: [seq]
    columns: {{id: int, text: string, seq: long}}
"""
REFUSED = {
    "s3://key:secret@bucket/x": "CONFIG_SECRET",
    "s3://b": "CONFIG_PATH",
    "s3://bucket/a?b=secret": "CONFIG_PATH",
    "wasb://bucket/x": "NOT_IN_THIS_VERSION",
    "abfss://user:secret@account1.dfs.core.windows.net/x": "CONFIG_SECRET",
    "abfss://data@evil.example.com/secret": "CONFIG_PATH",
    "abfs://data/a?sig=secret": "CONFIG_PATH",
    "gs://user:secret@bucket/x": "CONFIG_SECRET",
    "gs://bucket/a?secret=1": "CONFIG_PATH",
}
# Of a landing folder and a store.
OVERLAPS = [
    ("s3://bucket/landing/items", "s3://bucket/landing"),
    ("gs://bucket/landing/items", "gs://bucket/landing"),
    # One container by two names.
    ("abfs://data/landing/items", "abfss://data@account1.dfs.core.windows.net/landing"),
]


def refusal(root: Path, path: str, store: str = "store") -> tuple[str, str]:
    """The codes of the mistakes, and the whole message."""
    file = root / "tidefold.yaml"
    file.write_text(CONFIG.format(path=path, store=store))
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    return ",".join(problem.code for problem in refused.value.problems), str(refused.value)


def test_addresses_that_are_refused_and_not_repeated(tmp_path: Path) -> None:
    found = {address: refusal(tmp_path, address) for address in REFUSED}
    assert {address: code for address, (code, _) in found.items()} == REFUSED
    assert [a for a, (_, message) in found.items() if "secret" in message.replace("CONFIG_SECRET", "")] == []


def test_a_store_and_a_landing_folder_in_one_bucket_must_lie_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account1")
    assert {pair: refusal(tmp_path, *pair)[0] for pair in OVERLAPS} == dict.fromkeys(OVERLAPS, "FOLDERS_OVERLAP")
