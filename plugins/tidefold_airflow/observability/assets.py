"""One Airflow asset for each table. Its events report that a snapshot was confirmed and published."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from tidefold_airflow.operators.run_context import config_path

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidefold.config import Config

# The tables that a run publishes are only known at its end: the confirm task has this outlet, and its events name the
# tables.
TABLES = AssetAlias("tidefold", group="tidefold")


def table_asset(log: str, config: str | None = None) -> Asset:
    """The asset of a log's table: `schedule=[table_asset("accounts")]`. Reads the configuration, no store.

    Raises InvalidInputError, NotFoundError.
    """
    from tidefold.config import load_config
    from tidefold.errors import NotFoundError

    found = load_config(config_path(config))
    if log not in found.logs:
        raise NotFoundError(
            "LOG_NOT_CONFIGURED",
            f"`{found.path}` has no log `{log}`.",
            hint=f"Configured logs: {', '.join(found.logs)}.",
        )
    return asset_in(found, log)


def asset_in(config: Config, log: str) -> Asset:
    """Returns the asset of a log's table from a configuration that was read before."""
    from tidefold.domain.paths import LogPaths

    return Asset(uri=f"{_root(config)}/{LogPaths(log).table}", group="tidefold")


def announce(context: Context, asset: Asset, extra: dict[str, Any]) -> None:
    """Adds an event to the task, which Airflow sends when the task succeeds. `extra` contains at least `snapshot`.

    A cleared task finds its work done, and does not announce the same snapshot twice in a row.
    """
    if _newest(context, asset) != extra["snapshot"]:
        context["outlet_events"][TABLES].add(asset, extra=extra)


def _newest(context: Context, asset: Asset) -> Any:
    events = type(context["inlet_events"])([asset])[asset].ascending(ascending=False).limit(1)
    # Airflow knows an asset from its first event on. Before that, a query of its events is an error.
    with suppress(Exception):
        return next(((event.extra or {}).get("snapshot") for event in events), None)
    return None


def _root(config: Config) -> str:
    """Returns the address of the store in the form of Airflow's assets, where a file has a host."""
    address = config.store.rstrip("/")
    if "://" in address and not address.startswith("file:"):
        return address
    return f"file://localhost{quote(str((config.path.parent / address.removeprefix('file://')).resolve()))}"
