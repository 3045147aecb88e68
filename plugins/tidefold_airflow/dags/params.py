"""Parameters of the DAGs as forms that accept only valid values. The operators check the values again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import Param

from tidefold_airflow.operators.run_context import config_path

if TYPE_CHECKING:
    from tidefold.config import Config

AS_CONFIGURED = "configured"


def list_configured_logs(config: str | None = None) -> list[str]:
    """Returns the logs of the configuration, for a form to offer; none if there is no such file yet.

    Raises InvalidInputError: with an invalid configuration the DAG is an import error, which names file and line.
    """
    found = _find_config(config)
    return list(found.logs) if found else []


def list_configured_sets(config: str | None = None) -> list[str]:
    """Returns the sets of the configuration. Raises as `list_configured_logs`."""
    found = _find_config(config)
    return list(found.sets) if found else []


def has_catalog(config: str | None = None) -> bool:
    """Whether the configuration names a catalog in which tables are registered."""
    found = _find_config(config)
    return found is not None and found.catalog is not None


def _find_config(config: str | None) -> Config | None:
    from tidefold.config import load_config

    path = config_path(config)
    return load_config(path) if path.exists() else None


def logs_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """Selects some of the given logs, or of all."""
    offered = list(logs) or list_configured_logs(config)
    items = {"type": "string", "enum": offered} if offered else {"type": "string"}
    return Param(
        None,
        type=["null", "array"],
        items=items,
        uniqueItems=True,
        examples=offered,
        title="Logs",
        description="Work only on these logs. Empty: all logs.",
    )


def log_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """Selects exactly one of the given logs, or of all."""
    offered = list(logs) or list_configured_logs(config)
    choice = {"enum": offered} if offered else {"minLength": 1}
    return Param(type="string", title="Log", description="The log whose table to work on.", **choice)


def snapshot_param() -> Param:
    """Takes the id of a snapshot, which is required."""
    described = "Id of the snapshot. The page of the log and `tidefold history LOG` list the ids."
    return Param(type="integer", minimum=1, title="Snapshot", description=described)


def set_param(config: str | None = None) -> Param:
    """Selects one of the configured sets."""
    offered = list_configured_sets(config)
    choice = {"enum": offered} if offered else {"minLength": 1}
    return Param(type="string", title="Set", description="The set whose tables to work on.", **choice)


def version_param() -> Param:
    """Takes the number of a version of a set, which is required."""
    described = "Number of the version. The page of the set and `tidefold sets NAME` list the numbers."
    return Param(type="integer", minimum=1, title="Version", description=described)


def log_position_param() -> Param:
    """Selects what a restore does with the changes after the snapshot."""
    display = {
        "replay": "replay: fold them again with the next run",
        "skip": "skip: leave them out for good",
        "carry": "carry: as replay, and do not fold those of a tail now",
    }
    return Param(
        "replay", type="string", enum=list(display), values_display=display, title="Changes after the snapshot"
    )


def dry_run_param(default: bool) -> Param:
    """Switches the dry run of everything that deletes or replaces."""
    described = "Change nothing. The tasks' logs say what a real run would do."
    return Param(default, type="boolean", title="Dry run", description=described)


def kind_param() -> Param:
    """Selects the kind of snapshot, if not as configured."""
    display = {
        AS_CONFIGURED: "as configured (`snapshots.kind`)",
        "full": "full: has its own files",
        "incremental": "incremental: shares files with earlier snapshots",
    }
    return Param(AS_CONFIGURED, type="string", enum=list(display), values_display=display, title="Kind of snapshot")
