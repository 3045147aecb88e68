"""Decides what a reader of the page may see: the pipelines and logs of the DAGs that Airflow shows to this reader.

A DAG works on the configuration and the logs that its own tasks name. A reader without a DAG of a log cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidefold_airflow.ui.mount import pipeline_label, pipeline_name

Names = frozenset[str] | None
_CLEANING = ("TidefoldSubsumeOperator", "TidefoldTruncateOperator", "TidefoldCleanOperator")


@dataclass(frozen=True, slots=True)
class Work:
    """What a DAG works on.

    config: empty: that of TIDEFOLD_CONFIG.
    logs: None: all.
    cleans: its tasks delete what retention no longer needs.
    """

    config: str
    logs: Names = None
    cleans: bool = False


@dataclass(frozen=True, slots=True)
class KnownPipeline:
    """A pipeline by its name in addresses (empty: that of TIDEFOLD_CONFIG), with the DAGs that give access to it.

    cleaners: those of the DAGs that delete what retention no longer needs.
    """

    name: str
    config: str
    label: str
    dags: tuple[str, ...]
    cleaners: tuple[str, ...] = ()


@dataclass(frozen=True)
class VisiblePipelines:
    """The DAGs that a reader may see, and what each works on. A DAG without a task of tidefold works on nothing."""

    dags: Mapping[str, Sequence[Work]] = field(default_factory=dict)

    def pipelines(self) -> list[KnownPipeline]:
        """Returns the pipelines of which the reader may see something: that of TIDEFOLD_CONFIG first, then by name."""
        places: dict[str, tuple[str, list[str]]] = {}
        for dag, works in sorted(self.dags.items()):
            for work in works:
                _, dags = places.setdefault(pipeline_name(work.config), (work.config, []))
                dags.extend([] if dag in dags else [dag])
        return [
            KnownPipeline(name, config, pipeline_label(config), tuple(dags), self._find_cleaners(name, dags))
            for name, (config, dags) in sorted(places.items())
        ]

    def _find_cleaners(self, name: str, dags: Iterable[str]) -> tuple[str, ...]:
        return tuple(d for d in dags if any(w.cleans and pipeline_name(w.config) == name for w in self.dags[d]))

    def find(self, name: str) -> KnownPipeline | None:
        """Returns the pipeline of that name, if the reader may see something of it."""
        return next((one for one in self.pipelines() if one.name == name), None)

    def logs(self, name: str) -> Names:
        """Returns the logs of a pipeline that the reader may see; None: all."""
        return _union(w.logs for works in self.dags.values() for w in works if pipeline_name(w.config) == name)

    def of_dag(self, dag: str) -> list[tuple[KnownPipeline, Names]]:
        """Returns the pipelines that one DAG works on, and the logs of each."""
        works = self.dags.get(dag, ())
        alone = VisiblePipelines({dag: works}).pipelines()
        return [(one, _union(w.logs for w in works if pipeline_name(w.config) == one.name)) for one in alone]


def _union(parts: Iterable[Names]) -> Names:
    names: frozenset[str] = frozenset()
    for part in parts:
        if part is None:
            return None
        names |= part
    return names


def works_of(serialized: Mapping[str, Any]) -> tuple[Work, ...]:
    """Returns what a DAG works on, from Airflow's stored form. Ignores a configuration that a template computes."""
    tasks = [task.get("__var", {}) for task in serialized.get("dag", {}).get("tasks", ())]
    ours = [task for task in tasks if str(task.get("_task_module", "")).startswith("tidefold_airflow.")]
    logs_of: dict[str, list[Names]] = {}
    cleaned: set[str] = set()
    for task in ours:
        config = task.get("config") or task.get("partial_kwargs", {}).get("config") or ""
        if isinstance(config, str) and "{{" not in config:
            logs_of.setdefault(config, []).extend(_logs_of(task))
            cleaned |= {config} if task.get("task_type") in _CLEANING else set()
    return tuple(Work(config, _union(logs), config in cleaned) for config, logs in logs_of.items() if logs)


def _logs_of(task: Mapping[str, Any]) -> Iterator[Names]:
    """Yields the logs of a task. If another task chooses them, yields nothing: that task names them."""
    logs, only = task.get("logs"), task.get("only")
    if only:
        yield frozenset(map(str, only))
    elif isinstance(logs, list) and logs and not any("{{" in str(log) for log in logs):
        yield frozenset(map(str, logs))
    elif not (isinstance(logs, str) and "xcom_pull(" in logs) and "expand_input" not in task:
        yield None
