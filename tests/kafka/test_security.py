"""TLS and SASL against the real broker. Secrets are in a connection alone; what a run writes or says has none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.certificates import Authority
from support.commands import attempt, call
from support.kafka_broker import KafkaBroker
from support.kafka_logs import TopicLog
from tidefold.operations.doctor.pipeline_checks import check_landing
from tidefold.spark.dispatch import run_without_spark
from tidefold.spark.request import Request, make_argument
from tidefold.spark.steps import IngestStep
from tidefold.wiring import open_pipeline


@pytest.fixture
def log(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    monkeypatch.chdir(tmp_path)
    made = TopicLog(broker, tmp_path)
    broker.create(made.topic)
    return made


def _list_ways(broker: KafkaBroker) -> dict[str, tuple[str, dict[str, str], dict[str, str]]]:
    """Returns of each protocol the servers, the settings of a client, and what is wrong in them first."""
    key, certificate = broker.authority.issue("reader")
    foreign, unknown = Authority().issue("reader")
    tls = {"ssl.ca.pem": broker.authority.pem}
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "reader", "sasl.password": broker.secret}
    mutual = {"ssl.key.pem": key, "ssl.certificate.pem": certificate}
    return {
        "SASL_SSL": (broker.sasl, {**tls, **plain}, {"sasl.password": "wrong-password"}),
        "SSL": (broker.tls, {**tls, **mutual}, {"ssl.key.pem": foreign, "ssl.certificate.pem": unknown}),
    }


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_secrets_stay_in_the_connection(
    log: TopicLog, protocol: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    log.send(range(4))
    log.servers, settings, wrong = _list_ways(log.broker)[protocol]
    log.configure(connection="shop_kafka")
    assert "CONNECTION_MISSING" in attempt("step", "ingest").output
    said = []
    for extra in ({**settings, **wrong}, settings):
        connection = {"conn_type": "kafka", "extra": {"security.protocol": protocol, **extra}}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", json.dumps(connection))
        said.append(attempt("run").output)
    assert "KAFKA_UNREADABLE" in said[0]
    assert log.read_rows() == dict.fromkeys(range(4), "a")
    said += [call(*words).output for words in (("status",), ("explain", "items", "1"), ("plan", "items"))]
    log.send([4])
    pipeline = open_pipeline(log.folder / "tidefold.yaml")
    found = run_without_spark(pipeline, IngestStep(), ["items"], above=0)
    said.append(make_argument(Request("tidefold.yaml", found.spark, found.step)))
    said.append(str(list(check_landing(pipeline.config))))
    assert "5 offsets" in said[-1]
    said.append(caplog.text)
    for extra in (settings, wrong):
        for secret in (extra.get("sasl.password"), extra.get("ssl.key.pem")):
            # Of a key in PEM its first line of bytes.
            for part in (secret or "").splitlines()[:2][-1:]:
                assert not [text for text in said if part in text]
                assert not log.files_with(part)


def test_a_broker_of_another_authority_is_refused(log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.servers, settings, _ = _list_ways(log.broker)["SASL_SSL"]
    log.configure(connection="shop_kafka")
    extra = {"security.protocol": "SASL_SSL", **settings, "ssl.ca.pem": Authority().pem}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_KAFKA", json.dumps({"conn_type": "kafka", "extra": extra}))
    output = attempt("step", "ingest").output
    assert "KAFKA_UNREADABLE" in output
    assert "certificate verify failed" in output
