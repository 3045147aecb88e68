"""A sample to copy: runs when a table has a new snapshot, and knows which one. Paused by default."""

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, AssetAny, get_current_context, task

from tidefold_airflow.dags.settings import list_configured_logs
from tidefold_airflow.observability.assets import table_asset

DOC = """
### Runs after a table has a new snapshot

| task | does |
|---|---|
| tell | logs which table shows which snapshot, with its facts |

Only a confirmed snapshot sends an event, not a staged, aborted or tail-only one. The event has `log`, `snapshot`,
`version` (of the Delta table), `rows`, `verdict`, `override_by` and `report`. Several snapshots between two runs of
this DAG come together, the newest last; to see one of them, read the table at `version`. In your own DAG:
`schedule=[table_asset("accounts")]`, with `from tidefold_airflow.observability.assets import table_asset`.
"""
TABLES = [table_asset(log) for log in list_configured_logs()]

with DAG(
    "tidefold_consumer",
    description="A sample: runs when a table has a new snapshot",
    doc_md=DOC,
    schedule=AssetAny(*TABLES) if TABLES else None,
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    is_paused_upon_creation=True,
    tags=["tidefold", "sample"],
) as dag:

    @task
    def tell() -> list[dict[str, Any]]:
        """Returns one entry for each event."""
        events = get_current_context()["triggering_asset_events"]
        told = [dict(event.extra) for of_table in events.values() for event in of_table]
        # Airflow does not guarantee the order of events.
        told.sort(key=lambda event: (event["log"], event["snapshot"]))
        for event in told:
            print(f"{event['log']} shows snapshot {event['snapshot']}: {event['rows']} rows, {event['verdict']}")
        return told

    tell()
