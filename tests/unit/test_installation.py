"""Where a clone and an installed package have their files."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tidefold import installation
from tidefold.cli.sample import PHASES
from tidefold.spark.steps import AnyStep


def test_a_clone_is_known_by_its_folders(tmp_path: Path) -> None:
    clone, site = tmp_path / "clone", tmp_path / "lib" / "site-packages"
    (clone / "include").mkdir(parents=True)
    site.mkdir(parents=True)
    (clone / "pyproject.toml").touch()
    assert installation.find_clone(clone / "include") == clone
    assert installation.find_clone(site) is None


def test_every_step_has_a_job_and_every_phase_its_input() -> None:
    for step in get_args(AnyStep):
        assert (installation.job_folder() / f"{step.name}.py").is_file()
    for phase in PHASES:
        assert list((installation.sample_folder() / phase).glob("*/*"))


def test_an_installed_package_uses_folders_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    monkeypatch.setattr(installation, "CLONE", None)
    monkeypatch.setattr(installation, "CODE", site)
    monkeypatch.setattr(installation, "PACKAGE", site / "tidefold")
    monkeypatch.delenv("TIDEFOLD_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    assert installation.jar_folder() == tmp_path / "cache" / "tidefold" / "jars"
    assert installation.default_config() == tmp_path / "airflow" / "tidefold.yaml"
    assert installation.job_folder() == site / "tidefold" / "spark" / "jobs"
    assert installation.sample_folder() == site / "tidefold" / "sample_data"
    assert installation.find_python_path() is None
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "mine"))
    assert installation.jar_folder() == tmp_path / "mine"


def test_other_folders_go_on_the_path_of_new_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "CODE", tmp_path / "include")
    assert installation.find_python_path() == str(tmp_path / "include")
