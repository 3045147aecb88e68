"""Reports to OpenLineage the source of a log and its table. Reports nothing if OpenLineage is disabled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from tidefold.config.models.catalog import CatalogEntry
    from tidefold.domain.log_state import Snapshot
    from tidefold.operations.pipeline import Pipeline


def lineage_of(pipeline: Pipeline, published: Mapping[str, Snapshot]) -> OperatorLineage[Any, Any] | None:
    """Returns inputs and outputs of a publication; None: nothing was published, or there is no provider."""
    try:
        from airflow.providers.openlineage import conf
        from airflow.providers.openlineage.extractors import OperatorLineage
    except ImportError:
        return None
    if not published or conf.is_disabled():
        return None
    return OperatorLineage(
        inputs=[found for log in published for found in _inputs(pipeline, log)],
        outputs=[_output(pipeline, log, snapshot) for log, snapshot in published.items()],
    )


def _inputs(pipeline: Pipeline, log: str) -> list[Any]:
    from openlineage.client.event_v2 import InputDataset

    source = pipeline.log(log).source
    if source is None:
        return []
    namespace, name = _split_address(source.address, pipeline.config.path.parent)
    return [InputDataset(namespace, name)]


def _output(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset, schema_dataset

    from tidefold.domain.paths import LogPaths

    namespace, name = _split_address(pipeline.store.uri(LogPaths(log).table), pipeline.config.path.parent)
    entry = pipeline.config.catalog
    columns = [schema_dataset.SchemaDatasetFacetFields(c.name, c.type) for c in pipeline.log(log).shape.table_columns]
    return OutputDataset(
        namespace,
        name,
        facets={
            "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(snapshot.table_version)),
            **({"symlinks": _name_in_catalog(entry, log)} if entry else {}),
        },
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=snapshot.rows, size=snapshot.bytes_full
            )
        },
    )


def _name_in_catalog(entry: CatalogEntry, log: str) -> Any:
    """The name under which Spark registered the table, so that jobs that read it by name meet in one dataset."""
    from openlineage.client.facet_v2 import symlinks_dataset

    metastore = entry.settings.get("spark.hadoop.hive.metastore.uris", "")
    namespace = f"hive://{urlsplit(metastore.split(',')[0]).netloc}" if metastore else entry.name
    named = symlinks_dataset.Identifier(namespace=namespace, name=f"{entry.database}.{log}", type="TABLE")
    return symlinks_dataset.SymlinksDatasetFacet(identifiers=[named])


def _split_address(address: str, base: Path) -> tuple[str, str]:
    """Namespace and name by OpenLineage's naming: `file` and a path, or `s3://bucket` and a key."""
    parts = urlsplit(address)
    if parts.scheme in ("", "file"):
        return "file", str((base / parts.path).resolve())
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
