"""`source.kafka`: what it can stand beside, and where its records land."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidefold.config import ConfigError, load_config
from tidefold.config.models.source_options import list_options, list_reading
from tidefold.errors import InvalidInputError
from tidefold.sources.kafka.client import Topic, read_settings

_KAFKA = "kafka: {servers: 'a:9092,b:9092', topic: shop.items}"


def _write(folder: Path, source: str, store: str = "store") -> Path:
    file = folder / "tidefold.yaml"
    text = f"version: 1\nstore: {store}\nlogs:\n  items:\n    source: {{{source}}}\n"
    file.write_text(f"{text}    key: [id]\n    columns: {{id: long}}\n")
    return file


@pytest.mark.parametrize(
    ("store", "landing"), [("store", "/store"), ("s3://bucket/below", "s3://bucket/below"), ("file:///data", "/data")]
)
def test_a_topic_lands_in_the_store(tmp_path: Path, store: str, landing: str) -> None:
    log = load_config(_write(tmp_path, f"format: json, {_KAFKA}", store)).logs["items"]
    assert log.landing == f"{tmp_path if store == 'store' else ''}{landing}/landed/items"
    assert log.source is not None
    # Neither servers nor a connection reach tasks, and they decide no value.
    assert "kafka" not in list_options(log.source)
    assert list_reading(log.source) == {}


@pytest.mark.parametrize(
    ("source", "store", "code", "line"),
    [
        (f"format: json, path: landing, {_KAFKA}", "store", "CONFIG_KAFKA", "kafka"),
        ("format: json", "store", "CONFIG_MISSING_KEY", "path"),
        ("format: csv", "store", "CONFIG_MISSING_KEY", "path"),
        (f"format: csv, {_KAFKA}", "store", "CONFIG_KAFKA", "kafka"),
        (f"format: debezium-avro, connector: mysql, {_KAFKA}", "store", "CONFIG_KAFKA", "kafka"),
        (f"format: json, record: value, {_KAFKA}", "store", "CONFIG_KAFKA", "kafka"),
        ("format: json, kafka: {servers: 'user:word@a:9092', topic: t}", "store", "CONFIG_PATH", "kafka.servers"),
        (
            "format: json, row: payload, kafka: {servers: 'a:1', topic: t, registry: 'http://user:word@a'}",
            "store",
            "CONFIG_PATH",
            "kafka.registry",
        ),
        ("format: json, kafka: {servers: 'a:1', topic: t, registry: 'http://a'}", "store", "CONFIG_KAFKA", "payload"),
        (f"format: json, {_KAFKA}", "ftp://a/b", "NOT_IN_THIS_VERSION", "store"),
    ],
)
def test_mistakes(tmp_path: Path, source: str, store: str, code: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(_write(tmp_path, source, store))
    assert code in {problem.code for problem in refused.value.problems}
    assert line in str(refused.value)
    assert "user:word" not in str(refused.value)


@pytest.mark.parametrize(
    ("format_", "place", "code"),
    [
        ("debezium-json", "", "SET_TRANSACTIONS"),
        ("debezium-json", f"transactions: landing/t, {_KAFKA}", "CONFIG_KAFKA"),
        ("debezium-avro", _KAFKA, "CONFIG_KAFKA"),
    ],
)
def test_a_set_has_one_place_for_its_transactions(tmp_path: Path, format_: str, place: str, code: str) -> None:
    file = _write(tmp_path, f"format: {format_}, connector: postgresql, path: landing/items")
    text = file.read_text()
    file.write_text(f"{text}sets:\n  bank: {{logs: [items], {place}}}\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert [problem.code for problem in refused.value.problems] == [code]


def test_the_transactions_of_a_set_land_where_no_log_does(tmp_path: Path) -> None:
    file = _write(tmp_path, f"format: debezium-json, connector: postgresql, {_KAFKA}")
    text = file.read_text()
    file.write_text(f"{text}sets:\n  bank: {{logs: [items], {_KAFKA}}}\n")
    chosen = load_config(file).sets["bank"]
    assert chosen.topic == f"{tmp_path}/store/landed/set/bank"
    assert chosen.topic_name == "shop.items"


@pytest.mark.parametrize("stored", [None, "no json with s3cr3t", '{"extra": "s3cr3t"}', '{"extra": ["s3cr3t"]}'])
def test_a_connection_without_settings_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, stored: str | None) -> None:
    if stored:
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", stored)
    with pytest.raises(InvalidInputError, match="no connection `shop`") as refused:
        read_settings("shop")
    assert "s3cr3t" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(InvalidInputError, match="confluent-kafka"):
        Topic("a:9092", "shop.items", {}).describe()
