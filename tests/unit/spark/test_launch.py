"""What Spark is started with, on one machine and on a cluster."""

from __future__ import annotations

import pickle
import sys
import zipfile
from pathlib import Path

import pytest

from support.pipelines import CONFIG, make_pipeline
from tidefold.compute.broadcast_work import ReceivedWork, find_versions
from tidefold.compute.spark_session import CODE_SETTING
from tidefold.errors import NotFoundError, RefusedError
from tidefold.installation import CODE
from tidefold.spark import jars, submit


def on(folder: Path, master: str = "local[2]") -> dict[str, str]:
    return submit.spark_conf(make_pipeline(folder, f"{CONFIG}\nspark: {{master: '{master}'}}\n").config)


def test_one_machine_has_delta_in_its_class_path(tmp_path: Path) -> None:
    found = on(tmp_path)
    assert len(found["spark.driver.extraClassPath"].split(":")) == 2
    assert "spark.jars" not in found


def test_a_cluster_is_sent_the_jars(tmp_path: Path) -> None:
    found = on(tmp_path, "spark://somewhere:7077")
    assert len(found["spark.jars"].split(",")) == 2
    assert "spark.driver.extraClassPath" not in found


def test_no_other_user_of_the_machine_talks_to_the_driver(tmp_path: Path) -> None:
    """A cluster needs a secret that its workers know, too: its owner sets both in `spark-defaults.conf`."""
    assert on(tmp_path)["spark.authenticate"] == "true"
    assert "spark.authenticate" not in on(tmp_path, "spark://somewhere:7077")


def on_cluster(folder: Path, more: str) -> dict[str, str]:
    text = f"{CONFIG}\nspark: {{master: 'spark://somewhere:7077', {more}}}\n"
    return submit.spark_conf(make_pipeline(folder, text).config)


def test_what_the_user_sets_counts(tmp_path: Path) -> None:
    found = on_cluster(tmp_path, "conf: {spark.executor.cores: 4, spark.sql.shuffle.partitions: 200}")
    assert (found["spark.executor.cores"], found["spark.sql.shuffle.partitions"]) == ("4", "200")


def test_a_large_table_does_not_come_before_all_others(tmp_path: Path) -> None:
    """Snapshots that are judged side by side each have a pool of Spark's scheduler."""
    assert on(tmp_path)["spark.scheduler.mode"] == "FAIR"
    assert on_cluster(tmp_path, "conf: {spark.scheduler.mode: FIFO}")["spark.scheduler.mode"] == "FIFO"


def test_the_package_travels_with_the_job_if_workers_have_no_path_to_it(tmp_path: Path) -> None:
    found = on_cluster(tmp_path, "ship_code: true")
    assert "spark.executorEnv.PYTHONPATH" not in found
    archive = Path(found[CODE_SETTING])
    with zipfile.ZipFile(archive) as packed:
        assert "tidefold/compute/runners.py" in packed.namelist()
    assert on_cluster(tmp_path, "ship_code: true")[CODE_SETTING] == str(archive)
    assert list(archive.parent.glob("tidefold-*")) == [archive]


def test_packages_beside_tidefold_come_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a source of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"mine::{CODE}:/opt/more")
    assert on_cluster(tmp_path, "")["spark.executorEnv.PYTHONPATH"] == f"{CODE}:{tmp_path}/mine:/opt/more"


def test_executors_start_the_python_that_is_set(tmp_path: Path) -> None:
    found = on_cluster(tmp_path, "python: /opt/venv/bin/python")
    assert found["spark.pyspark.python"] == "/opt/venv/bin/python"
    assert found["spark.pyspark.driver.python"] == sys.executable


def test_on_other_machines_spark_chooses_the_drivers_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "spark.driver.host" not in on(tmp_path, "yarn")
    monkeypatch.setenv("TIDEFOLD_DRIVER_HOST", "driver.example")
    assert on(tmp_path, "yarn")["spark.driver.host"] == "driver.example"


def test_settings_of_the_installation_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any, a folder that does not exist: a JVM takes classes from an archive only then."""
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    config = make_pipeline(tmp_path).config
    home = tmp_path / "spark"
    (home / "conf").mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert not Path(submit.job_env(config)["SPARK_CONF_DIR"]).exists()
    (home / "conf" / "spark-defaults.conf").write_text("spark.executor.memory 4g\n")
    assert submit.job_env(config)["SPARK_CONF_DIR"] == str(home / "conf")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert submit.job_env(config)["SPARK_CONF_DIR"] == "/etc/spark"


def test_an_executor_with_other_packages_says_which() -> None:
    work = pickle.dumps(str.upper)
    assert ReceivedWork(work, find_versions()).work("a") == "A"
    with pytest.raises(RefusedError, match=r"VERSION_MISMATCH.* pyarrow .*\(driver: 1\.2\)"):
        _ = ReceivedWork(b"cannot be unpickled here", {**find_versions(), "pyarrow": "1.2"}).work


@pytest.mark.parametrize("there", [True, False])
def test_classes_come_from_the_archive_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    archive = tmp_path / "a folder" / "spark.jsa"
    archive.parent.mkdir()
    if there:
        archive.touch()
    monkeypatch.setattr(submit, "ARCHIVE", archive)
    options = on(tmp_path)["spark.driver.extraJavaOptions"]
    assert (f'"-XX:SharedArchiveFile={archive}"' in options) == there


def in_s3(folder: Path, step: str) -> dict[str, str]:
    config = make_pipeline(folder).config
    return submit.spark_conf(config.model_copy(update={"store": "s3://bucket/store"}), step)


def test_only_the_step_that_reads_tables_gets_a_client_for_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    found = in_s3(tmp_path, "verify")
    assert "hadoop-aws-" in found["spark.driver.extraClassPath"]
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert found["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert "canary" not in str(found)
    other = in_s3(tmp_path, "materialize")
    assert len(other["spark.driver.extraClassPath"].split(":")) == 2
    assert not [name for name in other if "s3a" in name]
    assert not [name for name in submit.spark_conf(make_pipeline(tmp_path).config, "verify") if "s3a" in name]


def test_a_client_for_s3_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "s3_folder", lambda: tmp_path / "none")
    with pytest.raises(NotFoundError, match="client for S3"):
        in_s3(tmp_path, "verify")


def with_jars(folder: Path, source: str, **update: str) -> dict[str, str]:
    config = make_pipeline(folder, f"{CONFIG}\nspark: {{jars: {source}}}\n").config
    return submit.spark_conf(config.model_copy(update=update), "verify")


def test_jars_of_spark_itself_need_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "none"))
    assert not [name for name in with_jars(tmp_path, "spark") if "jars" in name or "ClassPath" in name]


def test_spark_can_resolve_the_jars_as_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "none"))
    assert with_jars(tmp_path, "packages")["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.0"
    in_a_bucket = with_jars(tmp_path, "packages", store="s3://bucket/store")["spark.jars.packages"]
    assert in_a_bucket == "io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.hadoop:hadoop-aws:3.5.0"


def test_fetched_jars_that_are_missing_are_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "none"))
    with pytest.raises(NotFoundError, match=r"delta-spark_4\.2_2\.13-4\.4\.0\.jar") as caught:
        on(tmp_path)
    assert (caught.value.code, "tidefold spark jars" in caught.value.hint) == ("JARS_MISSING", True)


def test_without_pyspark_the_error_names_the_package_and_the_way_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: the error named missing jars, and the command that fetches them then named pyspark."""
    monkeypatch.setattr("tidefold.spark.jars.SPARK_SUBMIT", str(tmp_path / "spark-submit"))
    monkeypatch.setenv("TIDEFOLD_JARS", str(tmp_path / "none"))
    with pytest.raises(NotFoundError) as caught:
        on(tmp_path)
    assert (caught.value.code, "`spark: {above: 10GB}`" in caught.value.hint) == ("SPARK_MISSING", True)
