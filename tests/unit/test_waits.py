"""Tests do not wait by the clock. Those that must wait for another process poll, and stand in this list."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# How often a file sleeps, and why it has to.
WAITS = {
    "lab/cluster/rig.py": (1, "an outage lasts, while the run beside it goes on"),
    "lab/compose/__main__.py": (1, "a container's state can only be asked for"),
    "lab/sources/attest_proof.py": (2, "writers have a fixed rate, and long transactions"),
    "lab/sources/cost.py": (1, "the CPU time of a backend counts when it has ended"),
    "lab/sources/load_proof.py": (
        4,
        "kills at random times; what a server and the connector have reached can only be asked for",
    ),
    "lab/sources/overlap_proof.py": (1, "which transactions the server waits for can only be asked for"),
    "lab/sources/replica_proof.py": (1, "what a replica has replayed can only be asked for"),
    "lab/sources/rig.py": (4, "landing and runs go on beside; the end of a connection can only be asked for"),
    "lab/torture/seed.py": (2, "a workload's pauses by chance; Debezium's progress can only be asked for"),
    "lab/torture/beginning.py": (1, "which transactions the server waits for can only be asked for"),
    "lab/torture/capture.py": (1, "Debezium's progress can only be asked for"),
    "lab/torture/servers.py": (1, "a database's first answer"),
    "lab/versions/live.py": (2, "Airflow's state can only be asked for"),
    "tests/airflow/test_page_screens.py": (1, "uvicorn's first answer"),
    "tests/contract/cli/test_cli.py": (1, "a job that the test kills while it sleeps"),
    "tests/faults/history.py": (3, "readers and workers take turns by chance, for minutes"),
    "tests/faults/servers.py": (1, "a server's first answer"),
    "tests/support/airflow_shop.py": (1, "Airflow's state can only be asked for"),
    "tests/support/airflow_stack.py": (1, "Airflow's state can only be asked for"),
    "tests/support/kafka_broker.py": (1, "the broker's first answer"),
    "tests/support/sftp_server.py": (1, "the server's first answer"),
    "tests/support/s3_server.py": (1, "the delay that a test asks the server for"),
}
_SLEEP = re.compile(r"\b(?:time|asyncio)\.sleep\(")


def test_nothing_sleeps_that_is_not_in_the_list() -> None:
    counts = {
        str(path.relative_to(ROOT)): len(_SLEEP.findall(path.read_text()))
        for folder in ("tests", "lab")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
    }
    assert {file: count for file, count in counts.items() if count} == {
        file: count for file, (count, _) in WAITS.items()
    }
