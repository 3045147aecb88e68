"""A user's own Airflow: the wheel in a new environment, a DAG of three lines, Spark's own cluster, a store in S3.

No process of it runs in the clone or has it on a path.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from local_airflow.api import AirflowApi
from local_airflow.processes import Register, stop
from local_airflow.settings import PROJECT
from package.installed import Installed, build_wheel, install
from support.airflow_stack import wait_until
from support.s3_server import ENVIRONMENT, S3Bucket, S3Server
from tidefold import __version__
from tidefold.spark.local_server import free_port

_DAG = """\
from tidefold_airflow import tidefold_dag

dag = tidefold_dag("bank", schedule="* * * * *", config="{config}", max_active_tasks=1)
"""
_MINUTES = 25


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    root = tmp_path_factory.mktemp("user")
    return install(root, build_wheel(root / "dist"))


def test_the_package_is_whole(installed: Installed) -> None:
    """Nothing of it needs the clone: the demo publishes, and every path of the program is in the environment."""
    installed.run("tidefold", "demo", "--format", "json")
    assert len(DeltaTable(str(installed.root / "tidefold-demo/store/tables/accounts")).to_pyarrow_table()) == 5_048
    told = installed.run(
        "python", "-c", "from tidefold import installation as i; print(i.CLONE, i.job_folder(), i.sample_folder())"
    )
    assert told.split()[0] == "None"
    [examples] = (installed.programs.parent / "lib").glob("python*/site-packages/tidefold_airflow/example_dags")
    assert (examples / "tidefold_restore.py").is_file()
    assert str(PROJECT) not in told
    assert "next: " in installed.run("tidefold", "explain", "LANDED_CHANGED")


def test_the_install_page_copies_a_ready_dag(installed: Installed) -> None:
    page = (PROJECT / "docs" / "tutorials" / "airflow.md").read_text()
    [command] = re.findall(r"^```bash\n(cp .*?)^```$", page, re.DOTALL | re.MULTILINE)
    folder = installed.root / "copied"
    (folder / "dags").mkdir(parents=True)
    subprocess.run(["bash", "-euc", command], cwd=folder, env=installed.env(), check=True)
    assert (folder / "dags" / "tidefold_restore.py").is_file()


def test_airflow_knows_the_provider_and_the_plugin(installed: Installed) -> None:
    providers = json.loads(installed.run("airflow", "providers", "list", "--output", "json"))
    [found] = [one for one in providers if one["package_name"] == "tidefold"]
    assert found["version"] == __version__
    plugins = json.loads(installed.run("airflow", "plugins", "--output", "json"))
    assert "tidefold" in [one["name"] for one in plugins]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Bucket]:
    server = S3Server()
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    found = S3Bucket(server, "bucket")
    found.client.create_bucket(Bucket="bucket")
    yield found
    server.stop()


class Processes:
    """Programs of the environment. Each ends with all that it has started."""

    def __init__(self, installed: Installed) -> None:
        self._installed = installed
        self._register = Register(installed.root / "processes.json")

    def start(self, name: str, program: str, *words: str, more: dict[str, str]) -> None:
        call = [str(self._installed.programs / program), *words]
        self._register.start(name, call, self._installed.env(more), self._installed.root / f"{name}.log")

    def stop(self) -> None:
        for started in reversed(self._register.read()):
            stop(started)


@pytest.fixture
def processes(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    # They work in the folder from which they are started.
    monkeypatch.chdir(installed.root)
    found = Processes(installed)
    yield found
    found.stop()


def test_a_dag_of_three_lines_publishes_on_a_cluster_into_s3(
    installed: Installed, bucket: S3Bucket, processes: Processes
) -> None:
    root, port, page, web = installed.root, free_port(), free_port(), free_port()
    store = {**ENVIRONMENT, "AWS_ENDPOINT_URL": bucket.server.url, "SPARK_LOCAL_IP": "127.0.0.1"}
    master = f"spark://127.0.0.1:{port}"
    _start_cluster(processes, master, page, store)
    installed.run("tidefold", "spark", "jars")
    config = _land(installed, bucket.address, master)
    dags = root / "airflow" / "dags"
    dags.mkdir(parents=True)
    (dags / "bank.py").write_text(_DAG.format(config=config))
    airflow = {
        **store,
        "TIDEFOLD_SPARK_C1": "1",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "spark://127.0.0.1", "port": port}),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{web}/execution/",
        "AIRFLOW__API__PORT": str(web),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{web}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(16),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    processes.start("airflow", "airflow", "standalone", more=airflow)
    _wait_for_a_green_run(root, f"http://127.0.0.1:{web}")
    address = f"{bucket.address}/tables/accounts"
    options = {"aws_endpoint": bucket.server.url, "aws_allow_http": "true", **ENVIRONMENT}
    assert len(DeltaTable(address, storage_options=options).to_pyarrow_table()) == 5_048
    assert {app["name"] for app in _read(page)["completedapps"]} >= {
        "tidefold ingest",
        "tidefold materialize",
    }


def _wait_for_a_green_run(root: Path, address: str) -> None:
    """Waits until the scheduler's first run has succeeded. A DAG that cannot be loaded or a failed run ends it."""
    passwords = root / "airflow" / "simple_auth_manager_passwords.json.generated"

    def is_green() -> bool:
        if not passwords.exists():
            return False
        api = AirflowApi(address, "admin", json.loads(passwords.read_text())["admin"])
        if api.health().get("scheduler") != "healthy":
            return False
        assert api.import_errors() == []
        if not api.dags():
            return False
        states = {str(run["state"]) for run in api.runs("bank")}
        assert "failed" not in states, (root / "airflow.log").read_text()[-5000:]
        return "success" in states

    wait_until(is_green, _MINUTES * 60, every=2)


def _start_cluster(processes: Processes, master: str, page: int, env: dict[str, str]) -> None:
    port = master.rpartition(":")[2]
    words = ("--host", "127.0.0.1", "--port", port, "--webui-port", str(page))
    processes.start("master", "spark-class", "org.apache.spark.deploy.master.Master", *words, more=env)
    wait_until(lambda: bool(_read(page)), 120, every=0.5)
    words = ("--cores", "2", "--memory", "2g", master)
    processes.start("worker", "spark-class", "org.apache.spark.deploy.worker.Worker", *words, more=env)
    wait_until(lambda: int(_read(page)["aliveworkers"]) > 0, 120, every=0.5)


def _read(page: int) -> dict[str, object]:
    """What Spark's master tells; nothing until it is up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


def _land(installed: Installed, store: str, master: str) -> Path:
    """The sample of the package, with its store in S3, and Spark for all that has more than a few bytes."""
    folder = installed.root / "bank"
    installed.run(
        "python",
        "-c",
        "import sys; from pathlib import Path; from tidefold.cli.sample import land, prepare; "
        "land(prepare(Path(sys.argv[1])), 'phase1')",
        str(folder),
    )
    config = folder / "tidefold.yaml"
    text = re.sub(r"^local: .*\n", "", config.read_text(), flags=re.MULTILINE)
    text = text.replace("store: store", f"store: {store}")
    config.write_text(text.replace("spark: {", f'spark: {{master: "{master}", '))
    installed.run("tidefold", "validate", "-c", str(config))
    return config
