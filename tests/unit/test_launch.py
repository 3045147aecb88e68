"""What Spark is started with, on one machine and on a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import CONFIG, make_pipeline
from tidefold import launch


def on(folder: Path, master: str = "local[2]") -> dict[str, str]:
    return launch.spark_conf(make_pipeline(folder, f"{CONFIG}\nspark: {{master: '{master}'}}\n").config)


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_one_machine_has_delta_in_its_class_path_and_talks_over_sockets_of_its_own(short: Path) -> None:
    found = on(short)
    assert len(found["spark.driver.extraClassPath"].split(":")) == 2
    assert found["spark.python.unix.domain.socket.dir"] == str(short / "var" / "spark")
    assert "spark.jars" not in found


def test_a_cluster_is_sent_the_jars_and_talks_over_the_network(short: Path) -> None:
    found = on(short, "spark://somewhere:7077")
    assert len(found["spark.jars"].split(",")) == 2
    assert not {"spark.driver.extraClassPath", "spark.python.unix.domain.socket.enabled"} & set(found)


def test_a_folder_too_long_for_the_address_of_a_socket_is_not_used(short: Path) -> None:
    folder = short / ("x" * launch._LONGEST)
    folder.mkdir()
    assert not [key for key in on(folder) if "socket" in key]


@pytest.mark.parametrize("there", [True, False])
def test_classes_come_from_the_archive_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    archive = tmp_path / "a folder" / "spark.jsa"
    archive.parent.mkdir()
    if there:
        archive.touch()
    monkeypatch.setattr(launch, "ARCHIVE", archive)
    options = on(tmp_path)["spark.driver.extraJavaOptions"]
    assert (f'"-XX:SharedArchiveFile={archive}"' in options) == there
