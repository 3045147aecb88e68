"""What Spark is started with, on one machine and on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline
from tidefold.spark import submit


def on(folder: Path, master: str = "local[2]") -> dict[str, str]:
    return submit.spark_conf(make_pipeline(folder, f"{CONFIG}\nspark: {{master: '{master}'}}\n").config)


def test_one_machine_has_delta_in_its_class_path(tmp_path: Path) -> None:
    found = on(tmp_path)
    assert len(found["spark.driver.extraClassPath"].split(":")) == 2
    assert "spark.jars" not in found


def test_a_cluster_is_sent_the_jars(tmp_path: Path) -> None:
    found = on(tmp_path, "spark://somewhere:7077")
    assert len(found["spark.jars"].split(",")) == 2
    assert "spark.driver.extraClassPath" not in found


@pytest.mark.parametrize("there", [True, False])
def test_classes_come_from_the_archive_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    archive = tmp_path / "a folder" / "spark.jsa"
    archive.parent.mkdir()
    if there:
        archive.touch()
    monkeypatch.setattr(submit, "ARCHIVE", archive)
    options = on(tmp_path)["spark.driver.extraJavaOptions"]
    assert (f'"-XX:SharedArchiveFile={archive}"' in options) == there
