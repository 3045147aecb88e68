"""Parameters of the DAGs as forms that cannot be filled wrongly. The operators check what they get once more."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk import Param

from tidefold_airflow.operators.run_context import config_path

AS_CONFIGURED = "configured"


def list_configured_logs(config: str | None = None) -> list[str]:
    """The logs of the configuration, for a form to offer; none where there is no such file yet.

    Raises InvalidInputError: a DAG of a configuration that cannot be is an import error, which names file and line.
    """
    from tidefold.config import load_config

    path = config_path(config)
    return list(load_config(path).logs) if path.exists() else []


def logs_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """Some logs of those given, or of all."""
    offered = list(logs) or list_configured_logs(config)
    items = {"type": "string", "enum": offered} if offered else {"type": "string"}
    return Param(
        None,
        type=["null", "array"],
        items=items,
        uniqueItems=True,
        examples=offered,
        title="Logs",
        description="None: all.",
    )


def log_param(config: str | None = None, logs: Sequence[str] = ()) -> Param:
    """One log, which must be named: of those given, or of all."""
    offered = list(logs) or list_configured_logs(config)
    choice = {"enum": offered} if offered else {"minLength": 1}
    return Param(type="string", title="Log", description="Its table.", **choice)


def snapshot_param() -> Param:
    """The id of a snapshot, which must be named."""
    described = "Its id: the page of the log and `tidefold history LOG` list them."
    return Param(type="integer", minimum=1, title="Snapshot", description=described)


def log_position_param() -> Param:
    """What a restore does with the changes after the snapshot."""
    display = {"replay": "replay: fold them again with the next run", "skip": "skip: leave them out for good"}
    return Param("replay", type="string", enum=list(display), values_display=display, title="What came after it")


def dry_run_param(default: bool) -> Param:
    """The switch of everything that removes or replaces."""
    described = "Only say in the tasks' logs what would be done; nothing changes."
    return Param(default, type="boolean", title="Dry run", description=described)


def kind_param() -> Param:
    """What a snapshot consists of, if not as configured."""
    display = {
        AS_CONFIGURED: "as `snapshots.kind` of the configuration says",
        "full": "full: files of its own",
        "incremental": "incremental: shares files with the one before",
    }
    return Param(AS_CONFIGURED, type="string", enum=list(display), values_display=display, title="Kind of snapshot")
