"""The mapping for Prometheus: one name has one set of labels. What a run really sends is in test_scheduled_life.py."""

from __future__ import annotations

from metrics_reference import OTHER_GAUGES
from support.statsd_mapping import map_names
from tidefold_airflow.observability.metrics import SET_AGE, SET_GAUGES, STATUS_GAUGES, TOPIC_GAUGES


def test_each_gauge_has_a_name_and_a_name_has_one_set_of_labels() -> None:
    """Prometheus refuses a name with changing labels."""
    gauges = [name for name in {**STATUS_GAUGES, **TOPIC_GAUGES, **OTHER_GAUGES} if "<" not in name]
    gauges += ["uploads.latency_ms.100", "uploads.queue.more", "alarm.quarantine", "quality.failed",
               "quality.checks_failed", "quality.seconds", "materialize.read.local.bytes"]  # fmt: skip
    sets = [*SET_GAUGES, SET_AGE]
    names = [f"airflow.tidefold.my-log.{name}" for name in gauges] + [f"tidefold.set.bank.{name}" for name in sets]
    found = map_names(names)
    assert len({name for name, _ in found}) == len(found)
    assert {
        ("tidefold_alarm", frozenset({"log", "kind"})),
        ("tidefold_uploads_latency_ms", frozenset({"log", "bucket"})),
        ("tidefold_step_failed", frozenset({"log", "step"})),
        ("tidefold_quality_checks_failed", frozenset({"log"})),
        ("tidefold_materializations_failed", frozenset({"log"})),
        ("tidefold_materialize_read_local_bytes", frozenset({"log"})),
        ("tidefold_set_lag_transactions", frozenset({"set"})),
        ("tidefold_set_age_seconds", frozenset({"set"})),
    } <= found
