"""The doctor's card on the page, and who sees it; alarms of a log on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from support.page_store import HOSTILE, Story, client
from tidefold.domain.alarms import AlarmRecord
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel, write_report
from tidefold.operations.inspect.alarms import write_alarm_record
from tidefold.wiring import open_pipeline
from tidefold_airflow.ui.app import build_app
from tidefold_airflow.ui.views.overview import view_doctor
from tidefold_airflow.ui.visible_pipelines import VisiblePipelines, Work

FAIL, WARN, OK = FindingLevel.FAIL, FindingLevel.WARN, FindingLevel.OK
NOW = "2026-11-05T12:00:00+00:00"


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A pipeline of which nothing was begun."""
    return Story(tmp_path)


def test_without_a_report_there_is_no_card(story: Story) -> None:
    assert "Doctor" not in client(story.pipeline).get("/").text


def test_what_must_be_mended_comes_first_and_what_is_good_is_not_listed(story: Story) -> None:
    findings = [
        DoctorFinding("java", OK, "Java 17."),
        DoctorFinding("retention", WARN, "It grows.", "Set a number."),
        DoctorFinding("landing", FAIL, HOSTILE, "Mend it."),
    ]
    write_report(story.pipeline.store, findings, NOW)
    text = client(story.pipeline).get("/").text
    assert "1 failed" in text
    assert text.index("Mend it.") < text.index("Set a number.")
    assert "Java 17." not in text
    assert "<script>alert" not in text
    write_report(story.pipeline.store, findings[:1], NOW)
    assert "all ok" in client(story.pipeline).get("/").text


def test_who_sees_some_logs_alone_does_not_see_what_the_doctor_found(story: Story) -> None:
    write_report(story.pipeline.store, [DoctorFinding("landing", FAIL, "tellers: gone.", "Mend it.")], NOW)
    some = VisiblePipelines({"dag": (Work("", frozenset({"accounts"})),)})
    page = TestClient(build_app((), (), lambda request: some, opened=lambda config: story.pipeline))
    assert "tellers" not in page.get("/").text
    assert "tellers: gone." in client(story.pipeline).get("/").text


def test_a_damaged_report_is_none(story: Story) -> None:
    write_report(story.pipeline.store, [], NOW)
    Path(story.pipeline.store.uri("doctor/0000000001.json")).write_text("{")
    assert view_doctor(story.pipeline) is None


def test_alarms_of_a_log_are_counted_and_named(story: Story) -> None:
    path = story.pipeline.config.path
    path.write_text(path.read_text().replace("store: store\n", "store: store\nalarms: {failures: 0}\n"))
    story.land("accounts", [1, 2])
    story.ingest("accounts")
    story.cycle("accounts", 1)
    record = AlarmRecord(1, "run-9", 4, NOW, "ingest: STORAGE")
    write_alarm_record(story.pipeline.store, "accounts", record)
    write_alarm_record(story.pipeline.store, "tellers", replace(record, failures=0))
    page = client(open_pipeline(path))
    text = page.get("/").text
    assert "1 alarm<" in text
    assert "ALARM failures: 4 runs failed in a row, since 2026-11-05 12:00 UTC: ingest: STORAGE" in text
    assert "ALARM failures" in page.get("/logs/accounts").text
