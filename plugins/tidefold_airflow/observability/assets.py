"""One Airflow asset for each table: events report a published snapshot; OpenLineage gets the run's facts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import Asset, AssetAlias

from tidefold_airflow.airflow_versions import find_newest_event
from tidefold_airflow.operators.run_context import config_path, read_config, require_configured

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from tidefold.config import Config
    from tidefold.domain.log_state import Snapshot
    from tidefold.operations.ground.pipeline import Pipeline

# The tables that a run publishes are only known at its end: the confirm task has this outlet, and its events name the
# tables.
TABLES = AssetAlias("tidefold", group="tidefold")


def table_asset(log: str, config: str | None = None) -> Asset:
    """The asset of a log's table: `schedule=[table_asset("accounts")]`. Reads the configuration, no store.

    Raises InvalidInputError, NotFoundError.
    """
    loaded = read_config(config_path(config))
    require_configured(loaded, log)
    return asset_in(loaded, log)


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
    # Airflow knows an asset from its first event on. Before that, a query of its events is an error.
    with suppress(Exception):
        newest = find_newest_event(type(context["inlet_events"])([asset])[asset])
        return (newest.extra or {}).get("snapshot") if newest else None
    return None


def _root(config: Config) -> str:
    """Returns the address of the store in the form of Airflow's assets, where a file has a host."""
    address = config.store.rstrip("/")
    if "://" in address and not address.startswith("file:"):
        return address
    return f"file://localhost{quote(str((config.path.parent / address.removeprefix('file://')).resolve()))}"


def lineage_of(pipeline: Pipeline, published: Mapping[str, Snapshot]) -> OperatorLineage[Any, Any] | None:
    """Returns inputs and outputs of a publication; None: nothing was published, or there is no provider."""
    if not published:
        return None
    try:
        from airflow.providers.openlineage import conf

        if conf.is_disabled():
            return None
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    return OperatorLineage(
        inputs=[dataset for log in published for dataset in _inputs(pipeline, log)],
        outputs=[_output(pipeline, log, snapshot) for log, snapshot in published.items()],
    )


def _inputs(pipeline: Pipeline, log: str) -> list[Any]:
    from openlineage.client.event_v2 import InputDataset

    address = pipeline.log(log).address
    if not address:
        return []
    namespace, name = _split_address(address, pipeline.config.path.parent)
    return [InputDataset(namespace, name)]


def _output(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        dataset_version_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    from tidefold.domain.paths import LogPaths

    namespace, name = _split_address(pipeline.store.uri(LogPaths(log).table), pipeline.config.path.parent)
    shape = pipeline.log(log).shape
    columns = [schema_dataset.SchemaDatasetFacetFields(c.name, c.type) for c in shape.table_columns]
    inputs, field = _inputs(pipeline, log), column_lineage_dataset.InputField
    sources = {c.name: [field(one.namespace, one.name, c.name) for one in inputs] for c in shape.columns}
    return OutputDataset(
        namespace,
        name,
        facets={
            "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(
                {name: column_lineage_dataset.Fields(fields) for name, fields in sources.items()}
            ),
            "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot.table_version)),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=snapshot.rows, size=snapshot.bytes_full
            )
        },
    )


def _split_address(address: str, base: Path) -> tuple[str, str]:
    """Namespace and name by OpenLineage's naming: `file` and a path, or `s3://bucket` and a key."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return "file", str((base / parts.path).resolve())
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
