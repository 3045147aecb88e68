"""docker-compose.yaml without an engine: its shape, and what `docker/up` prepares.

Its commands run as processes in tests/drills and tests/airflow. What no test shows is the images themselves.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from local_airflow.settings import PROJECT
from support.compose import COMPOSE, SERVICES, prepare_compose


def test_it_is_what_compose_takes() -> None:
    tool = Path(sys.executable).with_name("check-jsonschema")
    call = [str(tool), "--builtin-schema", "vendor.compose-spec", "docker-compose.yaml"]
    assert subprocess.run(call, cwd=PROJECT, check=False).returncode == 0


def test_what_it_names_is_there() -> None:
    """The schema does not look whether names mean anything."""
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in SERVICES[other], name
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert {volume for volume in volumes if not volume.startswith(".")} <= set(COMPOSE["volumes"]), name


def test_the_image_has_all_that_the_wheel_is_made_of() -> None:
    """Each file or folder that pyproject.toml puts into the wheel is copied, itself or with a folder above."""
    made = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    lines = (PROJECT / "docker" / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    for path in map(Path, (*made["packages"], *made["force-include"])):
        assert copied & {str(path), *map(str, path.parents)}, path


def test_settings_of_airflow_in_env_reach_each_part_of_it() -> None:
    """Metrics could not be switched on, and a connection in .env did not arrive."""
    parts = [service for name, service in SERVICES.items() if name.startswith("airflow-")]
    assert len(parts) == 5
    assert all(part["env_file"] == ".env" for part in parts)


def test_its_ports_are_open_on_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_up_makes_every_secret_it_needs_once(tmp_path: Path) -> None:
    prepared = prepare_compose(tmp_path)
    made = dict(line.split("=", 1) for line in (prepared / ".env").read_text().splitlines())
    needed = set(re.findall(r"\$\{([A-Z0-9_]+):\?", (PROJECT / "docker-compose.yaml").read_text()))
    assert needed == set(made)
    assert (prepared / ".env").stat().st_mode & 0o077 == 0
    (prepared / "data" / "tidefold.yaml").write_text("mine")
    subprocess.run([prepared / "docker" / "up", "--prepare"], check=True)
    assert dict(line.split("=", 1) for line in (prepared / ".env").read_text().splitlines()) == made
    assert (prepared / "data" / "tidefold.yaml").read_text() == "mine"
