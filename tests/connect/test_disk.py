"""Local copies where the server has the address of this machine and another disk, as in docker-compose.yaml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline, put
from tidefold.spark.connect import run_connected
from tidefold.spark.local_server import LocalServer
from tidefold.spark.steps import IngestStep

_STEP = """
import sys
from pathlib import Path
from tidefold.spark.connect import run_connected
from tidefold.spark.steps import IngestStep
from tidefold.wiring import open_pipeline

for outcome in run_connected(open_pipeline(Path(sys.argv[1])), IngestStep(), ["accounts"], sys.argv[2]):
    print(outcome.error_code or outcome.status, outcome.message)
"""


def test_the_servers_disk_is_asked_for_not_guessed_from_its_address(server: LocalServer, tmp_path: Path) -> None:
    """In a mount namespace another folder lies at the place of the copies."""
    pipeline = make_pipeline(
        tmp_path, CONFIG.replace("store: store", "store: store\nlocal: {mode: files, path: local}")
    )
    local = tmp_path / pipeline.config.local.folders[0]
    other = tmp_path / "other disk"
    for folder in (local, other):
        folder.mkdir(exist_ok=True)
    put(pipeline, [{"id": 1, "text": "a"}])
    here = f'mount --bind "{other}" "{local}" && exec "$@"'
    call = ["unshare", "-m", "sh", "-c", here, "sh", sys.executable, "-c", _STEP]
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here: they need root")
    done = subprocess.run(
        [*call, str(pipeline.config.path), server.connection], capture_output=True, text=True, check=False
    )
    assert "LOCAL_ON_CLUSTER" in done.stdout, done.stderr
    assert f"Set `spark.master: {server.address}`" in done.stdout
    assert list(local.glob(".seen-*")) == list(other.glob(".seen-*")) == []
    [outcome] = run_connected(pipeline, IngestStep(), ["accounts"], server.connection)
    assert outcome.error is None, outcome
