"""Whole runs of DAGs in this process by Airflow's own `dag.test()`, over a metadata database of their own.

Trigger rules, parameters, templates and results are Airflow's. There is no scheduler, no api-server and no process for
each task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.listeners import hookimpl
from airflow.models.asset import AssetEvent
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk.listener import get_listener_manager
from airflow.utils.db import initdb
from sqlalchemy import select

from airflow import settings

_FOLDER = "AIRFLOW__CORE__DAGS_FOLDER"


@dataclass(frozen=True)
class PlayedRun:
    """A run that has ended. `tasks`: the state of each task, of a mapped one with its index; `lines`: all logs."""

    dag: str
    id: str
    state: str
    tasks: dict[str, str]
    results: dict[str, Any]
    lines: str

    @property
    def name(self) -> str:
        """Returns its name in the ledger."""
        return f"{self.dag}/{self.id}"

    def green(self) -> PlayedRun:
        assert self.state == "success", (self.tasks, self.lines)
        return self

    def red(self) -> PlayedRun:
        assert self.state == "failed", self.tasks
        return self


class DagTests:
    """DAG files that are named as their DAGs. Each has a folder, because a run reads all files of its folder."""

    def __init__(self, root: Path, files: Collection[Path]) -> None:
        self._folders = {file.stem: root / "dags" / file.stem for file in files}
        for file in files:
            self._folders[file.stem].mkdir(parents=True)
            (self._folders[file.stem] / file.name).symlink_to(file)

    def play(self, dag: str, *, at: datetime | None = None, marked: str = "", **conf: Any) -> PlayedRun:
        """Runs a DAG once, with these parameters.

        :param at: the logical date and the name of the run, None as of a run by hand. The same date again is the same
            run with all tasks cleared.
        :param marked: a pattern of the tasks that are marked as done and do not run.
        """
        os.environ[_FOLDER] = str(self._folders[dag])
        # Read again, because a run leaves its parameters in the DAG.
        read = DagBag(str(self._folders[dag]), bundle_name="dags-folder").dags[dag]
        with _logs() as lines:
            run = read.test(logical_date=at, run_after=at, run_conf=conf, mark_success_pattern=marked or None)
        instances = run.get_task_instances()
        return PlayedRun(
            dag,
            run.run_id,
            str(run.state),
            {_name(one.task_id, one.map_index): str(one.state) for one in instances},
            _find_results(run),
            "\n".join(lines),
        )


def find_runs(dag: str) -> list[DagRun]:
    """Returns the runs of a DAG, also those that a task began and nobody has played."""
    with settings.Session() as session:
        return list(session.scalars(select(DagRun).where(DagRun.dag_id == dag)))


def find_asset_events() -> list[dict[str, Any]]:
    """Returns what each event of an asset carries, the oldest first."""
    with settings.Session() as session:
        return [event.extra for event in session.scalars(select(AssetEvent).order_by(AssetEvent.id))]


@contextmanager
def airflow_database(root: Path, files: Collection[Path], **env: str) -> Iterator[DagTests]:
    """An empty metadata database of this process, with this environment and these DAG files."""
    own = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{root}/airflow.db",
        _FOLDER: str(root),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPENLINEAGE__DISABLED": "True",
        **env,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        _connect()
        initdb()
        yield DagTests(root, files)
    _connect()


def _connect() -> None:
    settings.dispose_orm()
    settings.configure_vars()
    settings.configure_orm()


def _find_results(run: DagRun) -> dict[str, Any]:
    with settings.Session() as session:
        of_run = (XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id, XComModel.key == "return_value")
        return {
            _name(one.task_id, one.map_index): XComModel.deserialize_value(one)
            for one in session.scalars(select(XComModel).where(*of_run))
        }


def _name(task: str, index: int) -> str:
    return task if index < 0 else f"{task}#{index}"


class _Lines(logging.Handler):
    """Collects what tasks log and the errors with which they fail."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "tidefold" in record.name:
            self.lines.append(record.getMessage())

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
        self.lines.append(f"{task_instance.task_id}: {error}")


@contextmanager
def _logs() -> Iterator[list[str]]:
    collector, root = _Lines(), logging.getLogger()
    level = root.level
    root.addHandler(collector)
    root.setLevel(logging.INFO)
    get_listener_manager().add_listener(collector)
    try:
        yield collector.lines
    finally:
        get_listener_manager().pm.unregister(collector)
        root.removeHandler(collector)
        root.setLevel(level)
