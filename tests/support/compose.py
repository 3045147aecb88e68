"""docker-compose.yaml, and what it needs of the clone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from local_airflow.settings import PROJECT

COMPOSE = yaml.safe_load((PROJECT / "docker-compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def prepare_compose(folder: Path) -> Path:
    """Copies what `docker/up` needs into a folder, and lets it prepare that."""
    for name in ("docker", "tests/data/bank"):
        shutil.copytree(PROJECT / name, folder / name)
    subprocess.run([folder / "docker" / "up", "--prepare"], check=True)
    return folder
