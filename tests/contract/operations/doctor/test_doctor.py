"""Each check of the doctor in its good and in its bad state, made with things that are really broken.

Full disks, little memory and clocks are numbers that are put in.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hatchling.build import prepare_metadata_for_build_wheel
from packaging.requirements import Requirement
from typer.testing import CliRunner

from local_airflow.settings import PROJECT
from support.dict_store import DictStore
from support.pipelines import CONFIG, contents, make_pipeline, publish, put
from support.s3_server import S3Bucket
from tidefold.cli.app import app
from tidefold.compute import spark_versions
from tidefold.config import load_config
from tidefold.config.models.spark import Scheduled
from tidefold.domain.log_state import Column, TableSpec
from tidefold.operations.doctor import airflow_setup, doctor, machine, pipeline_checks
from tidefold.operations.doctor.airflow_setup import AirflowSetup
from tidefold.operations.doctor.buckets import advise
from tidefold.operations.doctor.doctor import CHECKS, DoctorCheck, Surroundings, diagnose, start_check
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.storage import identity, outage
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline

NO_SPARK = "pyspark is not installed: only steps that read less than `spark.above` run."
OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
GB = 1_000_000_000
Found = list[tuple[FindingLevel, str]]


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    """A pipeline that is in good health."""
    text = CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 5}\nalarms: {}\n")
    pipeline = make_pipeline(tmp_path, text)
    put(pipeline, [{"id": 1, "text": "a"}])
    path = tmp_path / "tidefold.yaml"
    store_id = json.loads((tmp_path / "store/store.json").read_text())["id"]
    path.write_text(text.replace("store: store\n", f"store: store\nstore_id: {store_id}\n"))
    return path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def no_airflow() -> AirflowSetup:
    return AirflowSetup("")


def look(name: str, config_path: Path, **around: Any) -> Found:
    """What one check says, with its level; each `warn` and `fail` must have a way out."""
    [check] = [check for check in CHECKS if check.name == name]
    given = Surroundings(PROJECT, config_path, (), no_airflow, load_config(config_path))
    findings = start_check(check, replace(given, **around), 20.0)()
    assert all(bool(f.hint) == (f.level is not OK) and f.check == name for f in findings)
    return [(f.level, f.message) for f in findings]


def levels(findings: Found) -> list[FindingLevel]:
    return [level for level, _ in findings]


def test_a_pipeline_in_good_health_fails_nothing_and_is_not_changed(config_path: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    jar = tmp_path / "a.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("a", "a")
    before = contents(tmp_path)
    found = diagnose(Surroundings(PROJECT, config_path, (jar,), no_airflow))
    assert {f.check for f in found if f.level is FAIL} <= {"disk", "memory", "java"}, found
    assert [f.check for f in found if f.check in ("configuration", "store", "clock", "landing", "suites", "retention")]
    assert contents(tmp_path) == before


def make_project(folder: Path, name: str, wanted: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "requirements.in").write_text(f"# what\n{name}>=1\n")
    (folder / "requirements.txt").write_text(f"{name}=={wanted} \\\n    --hash=sha256:00\n")
    return folder


def test_versions(config_path: Path, tmp_path: Path) -> None:
    installed = make_project(tmp_path / "p", "pytest", pytest.__version__)
    assert levels(look("versions", config_path, project=installed)) == [OK]
    [(level, said)] = look("versions", config_path, project=make_project(tmp_path / "p", "pytest", "0.1"))
    assert (level, f"pytest {pytest.__version__} (wanted: 0.1)" in said) == (WARN, True)
    [(level, said)] = look("versions", config_path, project=make_project(tmp_path / "p", "no-such-package", "1"))
    assert (level, said) == (FAIL, "Not installed: no-such-package.")
    assert levels(look("versions", config_path, project=tmp_path / "nowhere")) == [OK]
    old = list(machine.check_packages(machine.InstalledPackages((3, 10))))
    assert [f.level for f in old] == [FAIL]


@pytest.fixture(scope="module")
def wheel_metadata(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the metadata that the wheel has."""
    folder = tmp_path_factory.mktemp("wheel")
    with contextlib.chdir(PROJECT):
        prepare_metadata_for_build_wheel(str(folder))
    return folder


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    """Lets Python find these versions of packages first. They have no code."""
    for name, version in packages.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(folder))
    spark_versions.find_spark.cache_clear()
    monkeypatch.setattr(spark_versions, "find_spark", spark_versions.find_spark.__wrapped__)


@pytest.mark.parametrize(
    ("installed", "other"),
    [
        ({"pyspark": "3.5.9", "delta_spark": "3.3.3"}, ""),
        ({"pyspark": "3.5.9", "delta_spark": "3.3.3", "pandas": "3.1.1"}, "pandas 3.1.1 (wanted: <3,>=2.1.4)"),
        ({"pyspark": "4.0.5", "pyspark_client": "4.0.4", "pandas": "3.1.1"}, ""),
        ({"pyspark": "4.1.4", "pyspark_client": "4.1.3"}, ""),
        ({"pyspark": "4.2.1", "pyspark_client": "4.2.0"}, ""),
        ({"pyspark": "4.1.4", "pyspark_client": "4.2.0"}, "pyspark-client 4.2.0 (wanted: <4.2,>=4.1)"),
        ({"pyspark": "4.1.4", "pyspark_client": "4.1.3", "duckdb": "1.3.2"}, "duckdb 1.3.2 (wanted: <3,>=2.0)"),
    ],
)
def test_versions_of_the_wheel_are_those_of_the_extra_of_the_installed_spark(
    config_path: Path, tmp_path: Path, wheel_metadata: Path, monkeypatch: pytest.MonkeyPatch,
    installed: dict[str, str], other: str,
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(str(wheel_metadata))
    install(tmp_path / "site", monkeypatch, **installed)
    [(level, message)] = look("versions", config_path, project=None)
    assert (level, message.partition(" wants: ")[2]) == (WARN if other else OK, f"{other}." if other else "")


def test_a_package_that_tidefold_needs_is_missing(
    config_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "tidefold-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Name: tidefold\nProvides-Extra: s3\n"
        "Requires-Dist: no-such-package>=2\nRequires-Dist: no-other-package; extra == 's3'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert look("versions", config_path, project=None) == [(FAIL, "Not installed: no-such-package.")]


@pytest.mark.parametrize(
    ("says", "level"),
    [("17.0.9", OK), ("21", OK), ("25.0.1", OK), ("22", WARN), ("11.0.2", FAIL), ("1.8.0_392", FAIL), ("", FAIL)],
)
def test_java(
    config_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, level: FindingLevel
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert levels(look("java", config_path)) == [level]


def test_a_java_that_the_spark_was_seen_to_fail_with() -> None:
    [finding] = machine.check_java(machine.JavaInstallation("java", 25, breaks_on=25))
    assert (finding.level, finding.message) == (FAIL, "The installed Spark does not run on Java 25 (java).")


def test_no_java(config_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert look("java", config_path) == [(FAIL, f"Spark needs Java, and JAVA_HOME ({tmp_path}) does not contain it.")]


def test_jars(config_path: Path, tmp_path: Path) -> None:
    good, cut, missing = (tmp_path / name for name in ("good.jar", "cut.jar", "missing.jar"))
    with zipfile.ZipFile(good, "w") as made:
        made.writestr("a", "a")
    cut.write_bytes(good.read_bytes()[:20])
    assert look("jars", config_path, jars=(good,)) == [(OK, "good.jar.")]
    assert look("jars", config_path, jars=(good, cut, missing)) == [
        (FAIL, "cut.jar is not a jar file."),
        (WARN, "missing.jar is missing: only steps that read less than `spark.above` run."),
    ]  # fmt: skip


@pytest.mark.parametrize(("jars", "is_checked"), [("fetched", True), ("packages", False), ("spark", False)])
def test_fetched_jars_are_checked_where_they_are_used(config_path: Path, jars: str, is_checked: bool) -> None:
    change(config_path, "version: 1\n", f"version: 1\nspark: {{jars: {jars}}}\n")
    found = diagnose(Surroundings(PROJECT, config_path, (config_path.with_name("missing.jar"),), no_airflow))
    assert [f.check for f in found if f.check == "jars"] == ["jars"] * is_checked


def test_spark_and_its_master(config_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(look("spark", config_path)) == [OK]
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        change(config_path, "version: 1\n", f'version: 1\nspark: {{master: "spark://127.0.0.1:{port}"}}\n')
        assert levels(look("spark", config_path)) == [OK]
    [(level, said)] = look("spark", config_path)
    assert (level, said) == (FAIL, f"spark://127.0.0.1:{port} cannot be reached: Connection refused.")
    change(config_path, f"spark://127.0.0.1:{port}", "local")
    monkeypatch.setattr(machine, "SPARK_SUBMIT", str(tmp_path / "spark-submit"))
    client = spark_versions.find_spark()
    assert look("spark", config_path) == [(WARN, NO_SPARK)], "a client alone brings no Spark"
    change(config_path, "spark: {", "spark: {above: 0B, ")
    said = "`spark.above` is 0B, so every step with rows needs Spark."
    assert look("spark", config_path) == [(FAIL, f"pyspark is not installed: {said}")]
    assert look("jars", config_path, jars=(tmp_path / "a.jar",)) == [(FAIL, f"a.jar is missing: {said}")]
    change(config_path, "above: 0B", "above: 1000B")
    assert look("spark", config_path) == [(WARN, NO_SPARK)]
    landed = tmp_path / "landing/accounts/accounts-new.jsonl"
    landed.parent.mkdir(parents=True, exist_ok=True)
    landed.write_bytes(b" " * 2000)
    said = "accounts has 2.0 kB to ingest, more than 1.0 kB (`spark.above`)."
    assert look("spark", config_path) == [(FAIL, f"pyspark is not installed: {said}")]
    install(tmp_path / "site", monkeypatch, pyspark=f"{spark_versions.minor_of(client)}.99")
    assert look("spark", config_path) == [(FAIL, f"{tmp_path}/spark-submit is missing.")]


@pytest.mark.parametrize(
    ("version", "client", "master", "level", "said"),
    [
        ("4.3.0", "", "local", FAIL, "Spark 4.3.0 is not supported: tidefold runs on 3.5, 4.0, 4.1, 4.2."),
        ("4.1.4", "4.3.0", "local", FAIL, "pyspark 4.1.4 and pyspark-client 4.3.0 own the same files."),
        (
            "3.5.9",
            "",
            "sc://a:15002",
            FAIL,
            "Spark 3.5.9 does not have Spark Connect, and `spark.master` is sc://a:15002.",
        ),
        ("3.5.9", "", "local", OK, "Spark 3.5.9 does not have Spark Connect and the format `tidefold`."),
        ("4.0.5", "4.0.4", "local", OK, "submit, master local."),
    ],
)
def test_what_a_version_of_spark_cannot_do(
    version: str, client: str, master: str, level: FindingLevel, said: str
) -> None:
    setup = machine.SparkSetup("submit", True, master, version=version, client=client)
    [finding] = machine.check_spark(setup)
    assert (finding.level, finding.message.endswith(said)) == (level, True)
    assert bool(finding.hint) is (level is FAIL)


def test_two_minor_versions_are_mended_by_a_client_that_exists() -> None:
    """pyspark-client 4.1.4 was never released: the newest of its minor version serves."""
    [finding] = machine.check_spark(machine.SparkSetup("submit", True, "local", version="4.1.4", client="4.2.0"))
    wanted = [Requirement(text) for text in re.findall(r"'([^']+)'", finding.hint)]
    assert [one.name for one in wanted] == ["pyspark", "pyspark-client"]
    released = ["4.1.3", "4.1.4", "4.2.0"]
    assert [list(one.specifier.filter(released)) for one in wanted] == [["4.1.4"], ["4.1.3", "4.1.4"]]
    [mended] = machine.check_spark(machine.SparkSetup("submit", True, "local", version="4.1.4", client="4.1.3"))
    assert mended.level is OK


@pytest.mark.parametrize(
    ("total", "available", "driver", "level"),
    [(16, 12, 2, OK), (16, 1, 2, WARN), (2.2, 2.1, 2, WARN), (2, 2, 4, FAIL)],
)
def test_memory(total: float, available: float, driver: float, level: FindingLevel) -> None:
    sizes = (int(size * (1 << 30)) for size in (total, available, driver))
    assert [f.level for f in machine.check_memory(machine.MemorySize(*sizes))] == [level]


def test_memory_of_this_machine() -> None:
    found = machine.find_memory("512m")
    assert found.driver == 512 << 20
    assert 0 < found.available <= found.total


@pytest.mark.parametrize(
    ("free", "free_inodes", "wanted"),
    [
        (50 * GB, 500_000, [OK]),
        (4 * GB, 500_000, [WARN]),
        (GB // 10, 500_000, [FAIL]),
        (50 * GB, 30_000, [OK, WARN]),
        (50 * GB, 10, [OK, FAIL]),
    ],
)
def test_disks(free: int, free_inodes: int, wanted: list[FindingLevel]) -> None:
    disk = machine.DiskUsage("store", "/data", free, 100 * GB, free_inodes, 1_000_000)
    assert [f.level for f in machine.check_disks([disk])] == wanted
    assert [f.level for f in machine.check_disks([replace(disk, inodes=0)])] == wanted[:1]


def test_disks_of_this_machine_are_named_once(config_path: Path, tmp_path: Path) -> None:
    [disk] = doctor.find_disks(Surroundings(PROJECT, config_path, (), loaded=load_config(config_path)))
    assert disk.use == "store, scratch files"
    assert 0 < disk.free <= disk.total


def test_a_good_store_without_its_id_in_the_configuration(config_path: Path) -> None:
    assert levels(look("store", config_path)) == [OK]
    config_path.write_text("\n".join(line for line in config_path.read_text().splitlines() if "store_id" not in line))
    assert levels(look("store", config_path)) == [OK, WARN]


def test_a_store_that_does_not_exist_yet_is_not_made(tmp_path: Path) -> None:
    make_pipeline(tmp_path)
    path = tmp_path / "tidefold.yaml"
    assert levels(look("store", path)) == [OK]
    assert levels(look("clock", path)) == [OK]
    assert not (tmp_path / "store").exists()


def test_another_store_is_refused(config_path: Path, tmp_path: Path) -> None:
    (tmp_path / "store/store.json").write_text('{"format": 1, "id": "a0000000000000000000000000000000"}')
    [(level, said)] = look("store", config_path)
    assert (level, said.split("]")[0]) == (FAIL, "[STORE_UNKNOWN")


def test_a_store_that_is_a_file_fails(config_path: Path, tmp_path: Path) -> None:
    change(config_path, "store: store\n", "store: tidefold.yaml\n")
    config_path.write_text("\n".join(line for line in config_path.read_text().splitlines() if "store_id" not in line))
    assert levels(look("store", config_path)) == [FAIL]
    assert levels(look("clock", config_path)) == [WARN]


def test_a_store_that_replaces_what_is_there_fails(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its conditional writes are really tried."""

    class Careless(DictStore):
        address = "dict://careless"

        def put_if_absent(self, path: str, data: bytes) -> None:
            self.delete([path])
            super().put_if_absent(path, data)

    change(config_path, "store_id", "# store_id")
    monkeypatch.setattr(pipeline_checks, "open_store", lambda address, base: Careless())
    [(level, said)] = look("store", config_path)
    assert level is FAIL
    assert said.startswith("[STORE_UNFIT] The store failed at `refuse a second put`")


@pytest.mark.parametrize(
    ("ahead", "level", "way"),
    [(0.0, OK, "agree"), (120.0, WARN, "ahead of"), (-120.0, WARN, "behind"), (-1000.0, FAIL, "behind")],
)
def test_the_clock_of_the_store(
    config_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, level: FindingLevel, way: str
) -> None:
    read = identity.read_instant
    monkeypatch.setattr(identity, "read_instant", lambda store, path: (read(store, path) or 0) + ahead)
    [(found, said)] = look("clock", config_path)
    assert (found, way in said) == (level, True)


def test_the_clock_is_measured_with_a_scratch_object_that_is_deleted(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert identity.measure_skew(store) == 0.0
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert identity.measure_skew(DictStore()) is None


def test_landing_folders(config_path: Path, tmp_path: Path) -> None:
    accounts, tellers = tmp_path / "landing/accounts", tmp_path / "landing/tellers"
    (accounts / "a").mkdir()
    (accounts / "a" / "1.jsonl").write_text("{}")
    assert look("landing", config_path) == [(OK, "2 folders, 1 file checked.")]
    for i in range(4):
        (accounts / f"{i}.jsonl").symlink_to(config_path)
    os.mkfifo(accounts / "9.jsonl")
    tellers.rmdir()
    linked, missing = sorted(look("landing", config_path), key=lambda found: found[1])
    assert linked[0] is FAIL
    assert "a symbolic link" in linked[1]
    assert ", and 2 more; these are not ingested." in linked[1]
    assert missing == (WARN, f"tellers: {tellers} does not exist: nothing can land.")
    tellers.write_text("no folder")
    assert FAIL in levels([found for found in look("landing", config_path) if "tellers" in found[1]])


def test_a_landing_folder_that_is_too_large_is_looked_at_in_part(
    config_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_checks, "MOST_FILES", 2)
    for i in range(5):
        (tmp_path / f"landing/accounts/{i}.jsonl").write_text("{}")
    assert look("landing", config_path) == [(OK, "2 folders, 2 files checked (there are more).")]


def test_landing_in_s3_is_listed(config_path: Path, s3: S3Bucket) -> None:
    address = f"s3://{s3.name}/landing/tellers"
    config_path.write_text(config_path.read_text().replace("landing/tellers", address))
    assert (WARN, f"tellers: {address} does not exist: nothing can land.") in look("landing", config_path)
    s3.client.put_object(Bucket=s3.name, Key="landing/tellers/a.jsonl", Body=b"{}")
    assert look("landing", config_path) == [(OK, "2 folders, 1 file checked.")]
    s3.server.fail("GET", "list-type=2", status=403, code="AccessDenied", times=9)
    [denied] = [found for found in look("landing", config_path) if "tellers" in found[1]]
    assert denied[0] is FAIL
    assert "S3 refuses access" in denied[1]


def test_files_that_no_ingest_has_looked_at(config_path: Path, tmp_path: Path) -> None:
    assert levels(look("ingest", config_path)) == [OK]
    day = 86_400
    taken = load_config(config_path).path.parent / "landing" / "accounts" / "accounts+0+0000000000.jsonl"
    for number, age in ((0, 9 * day), (1, 3 * day), (2, 60)):
        file = taken.with_name(f"accounts+0+000000000{number}.jsonl")
        file.write_text("{}")
        os.utime(file, (time.time() - age,) * 2)
    # The first one was ingested under its name.
    assert look("ingest", config_path) == [(WARN, "accounts: 2 landed files not ingested, the oldest for 3 d.")]
    (taken.with_name("accounts+0+0000000001.jsonl")).unlink()
    assert levels(look("ingest", config_path)) == [OK]


def test_a_ledger_that_cannot_be_read_is_named(config_path: Path, tmp_path: Path) -> None:
    for version in (tmp_path / "store/logs/accounts/ledger").iterdir():
        version.write_text("{")
    [(level, said)] = look("ingest", config_path)
    assert (level, said.split("]")[0]) == (FAIL, "accounts: [UNREADABLE")


def test_suites(config_path: Path, tmp_path: Path) -> None:
    assert levels(look("suites", config_path)) == [OK]
    change(config_path, "  accounts:\n", "  accounts:\n    quality: {suite: suite.yaml}\n")
    [(level, said)] = look("suites", config_path)
    assert (level, said.split("]")[0]) == (FAIL, "accounts: [SUITE_UNREADABLE")
    (tmp_path / "suite.yaml").write_text("checks: [{type: no_such_check}]\n")
    assert levels(look("suites", config_path)) == [FAIL]


def test_what_grows_for_ever(config_path: Path) -> None:
    assert levels(look("retention", config_path)) == [OK]
    change(config_path, "snapshots: 5", "snapshots: all")
    change(config_path, "version: 1\n", "version: 1\nlocal: {mode: files, path: local}\n")
    assert levels(look("retention", config_path)) == [WARN, WARN]
    change(config_path, "path: local", "path: local, quota: 5GB")
    change(config_path, "snapshots: all", "snapshots: 2")
    assert levels(look("retention", config_path)) == [OK]


def test_what_deletion_vectors_would_save(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(config_path, "version: 1\n", "version: 1\nsnapshots: {kind: full}\n")
    pipeline = open_pipeline(config_path)
    put(pipeline, [{"id": number, "text": "x" * 100} for number in range(400)])
    publish(pipeline, "first")
    put(pipeline, [{"id": 7, "text": "new"}, {"id": 8, "text": "new"}])
    publish(pipeline, "second")
    assert look("snapshots", config_path) == [(OK, "No snapshot wrote much for few changes.")]
    monkeypatch.setattr(pipeline_checks, "_REWRITTEN_BYTES", 100)
    [(level, said)] = look("snapshots", config_path)
    assert (level, said.split(" wrote ")[0]) == (OK, "accounts: its newest snapshot")
    assert " for 2 changes of 4" in said
    change(config_path, "    buckets: 4\n", "    buckets: 4\n    deletion_vectors: true\n")
    assert look("snapshots", config_path) == [(OK, "No snapshot wrote much for few changes.")]


def test_logs_without_alarms(config_path: Path) -> None:
    assert levels(look("alarms", config_path)) == [OK]
    change(config_path, "alarms: {}\n", "")
    assert look("alarms", config_path) == [(WARN, "No alarms: accounts, tellers.")]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (AirflowSetup(""), [OK]),
        (AirflowSetup("3.3.2", 9, has_connection=True), [OK]),
        (AirflowSetup("3.3.2", 9), [OK, OK]),
        (AirflowSetup("3.3.2", 9, has_connection=False), [OK, WARN]),
        (AirflowSetup("3.3.2", 9, has_connection=False, scheduled=Scheduled.BY_SIZE), [OK, WARN]),
        (AirflowSetup("3.3.2", 8, {"bad.py": "SyntaxError: no"}, has_connection=True), [FAIL]),
        (AirflowSetup("3.3.2", error="no."), [FAIL]),
        (AirflowSetup("3.3.2", 9, has_connection=False, scheduled=Scheduled.CONNECT), [OK]),
        (AirflowSetup("3.3.2", 9, has_connection=False, scheduled=Scheduled.SUBMIT), [OK, FAIL]),
    ],
)
def test_airflow(found: AirflowSetup, wanted: list[FindingLevel]) -> None:
    assert [f.level for f in airflow_setup.check_airflow(found)] == wanted


@pytest.mark.parametrize(("version", "is_named"), [("3.3.2", True), ("3.2.2", False)])
def test_the_backfill_that_never_starts_is_named(version: str, is_named: bool) -> None:
    [finding] = airflow_setup.check_airflow(AirflowSetup(version, 9, has_connection=True))
    assert ("MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE" in finding.message) is is_named


def test_it_explains_where_the_steps_of_tasks_run(config_path: Path) -> None:
    found = AirflowSetup("3.3.2", 9, has_connection=True, has_connect=True)
    around = Surroundings(PROJECT, config_path, (), lambda: found, load_config(config_path))
    [finding] = airflow_setup.check_airflow(doctor.find_airflow(around))
    assert "on the Spark Connect server, whatever their size: Airflow has a connection" in finding.message
    change(config_path, "version: 1\n", "version: 1\nspark: {scheduled: by_size}\n")
    [finding] = airflow_setup.check_airflow(doctor.find_airflow(replace(around, loaded=load_config(config_path))))
    assert "else in the task: `spark.scheduled` is `by_size`" in finding.message


def test_each_mistake_of_a_configuration_is_a_line_and_the_machine_is_checked_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(CONFIG.replace("key: [id]", "key: [nothing]"))
    found = diagnose(Surroundings(PROJECT, path, (), no_airflow))
    mistakes = [f for f in found if f.check == "configuration"]
    assert [f.level for f in mistakes] == [FAIL, FAIL, WARN]
    assert mistakes[0].message.startswith("[KEY_COLUMN_UNKNOWN] line 7: logs.accounts.key[0]")
    assert mistakes[2].message.startswith("Not checked, as they need the configuration: memory, ")
    assert {"versions", "java", "spark", "airflow"} <= {f.check for f in found}
    assert "store" not in {f.check for f in found}
    nothing = diagnose(Surroundings(PROJECT, tmp_path / "none.yaml", (), no_airflow))
    assert (nothing[0].level, nothing[0].message[:18]) == (FAIL, "[CONFIG_NOT_FOUND]"), "somebody named it"


def test_without_a_configuration_the_machine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    around = Surroundings(PROJECT, Path("tidefold.yaml"), (), no_airflow)
    first, *rest = diagnose(around)
    assert (first.level, first.message.split(". ")[0]) == (WARN, "There is no tidefold.yaml in this folder")
    assert "tidefold init" in first.hint
    assert {"versions", "java", "spark", "airflow"} == {f.check for f in rest}
    monkeypatch.setattr(machine, "SPARK_SUBMIT", str(tmp_path / "spark-submit"))
    assert {"versions", "spark", "airflow"} == {f.check for f in diagnose(around)[1:]}, "no Spark: no Java"


def test_a_store_that_does_not_answer_is_found_out_once(
    config_path: Path, s3: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: five checks ended with their time limit."""
    change(config_path, "store: store\n", f"store: {s3.address}\n")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    monkeypatch.setattr(outage, "TEST_PATIENCE", 1.0)
    found = diagnose(Surroundings(PROJECT, config_path, (), no_airflow))
    told = [(f.level, f.message) for f in found if f.check == "store"]
    assert [level for level, _ in told] == [FAIL, WARN]
    assert "S3 does not answer at `127.0.0.1:9`" in told[0][1]
    assert told[1][1] == "Not checked, as they need the store: buckets, clock, ingest, snapshots."
    assert not {"buckets", "clock", "ingest", "snapshots"} & {f.check for f in found}


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_check_that_hangs_fails_in_time_and_holds_up_no_other(stuck: threading.Event, config_path: Path) -> None:
    around = Surroundings(PROJECT, config_path, (), no_airflow)
    hangs = DoctorCheck("store", lambda a: [DoctorFinding("store", OK, f"{stuck.wait()}")])
    works = DoctorCheck("java", lambda a: [DoctorFinding("java", OK, "17")])
    waiting = [start_check(check, around, 0.05) for check in (hangs, works)]
    assert [[(f.check, f.level) for f in collect()] for collect in waiting] == [[("store", FAIL)], [("java", OK)]]


def test_a_check_that_breaks_is_a_finding(config_path: Path) -> None:
    breaks = DoctorCheck("disk", lambda a: [DoctorFinding("disk", OK, f"{1 // 0}")])
    [finding] = start_check(breaks, Surroundings(PROJECT, config_path, ()), 5)()
    assert (finding.level, finding.message) == (
        FAIL,
        "[UNFORESEEN] ZeroDivisionError: integer division or modulo by zero",
    )


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", "doctor", *arguments], prog_name="tidefold")


def test_the_command_prints_lines_with_their_way_out(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_airflow", lambda project, config: AirflowSetup("3.3.2", 9, has_connection=True))
    shown = call("-c", str(config_path)).stdout
    assert "ok    store          " in shown
    assert shown.splitlines()[-1].endswith(" ok.")
    config_path.write_text("version: 2")
    broken = call("-c", str(config_path))
    assert broken.exit_code == 1
    assert "\n                     next: " in broken.stdout
    answer = json.loads(call("-c", str(config_path), "--format", "json").stdout)
    assert (answer["command"], answer["exit_code"]) == ("check doctor", 1)
    assert sorted(answer["findings"][0]) == ["check", "hint", "level", "message"]


def test_the_command_ends_although_the_store_hangs(config_path: Path) -> None:
    """A server that accepts and says nothing: the process is really gone afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = config_path.read_text().replace("store: store\n", "store: s3://bucket/folder\n")
        config_path.write_text("\n".join(line for line in text.splitlines() if "store_id" not in line))
        env = {
            **os.environ,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "AWS_REGION": "us-east-1",
            "PYTHONPATH": str(PROJECT / "include"),
        }
        code = (
            "from tidefold.operations.doctor import airflow_setup, doctor\n"
            "doctor.probe_airflow = lambda project, config: airflow_setup.AirflowSetup('')\n"
            "from tidefold.cli.app import app\n"
            f"app(['check', 'doctor', '--seconds', '2', '--format', 'json', '-c', {str(config_path)!r}])\n"
        )
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert next(f["message"] for f in found if f["check"] == "store") == "The check did not end within 2 s."
    assert [f["level"] for f in found if f["check"] == "landing"] == ["ok"], found


@pytest.mark.parametrize(
    ("rows", "buckets", "cores", "gigabytes", "best"),
    [
        (32_000_000, 16, 16, 100, 16),
        (32_000_000, 16, 16, 16, 32),  # 20 GB were measured in 16 buckets, 9.5 GB in 64.
        (32_000_000, 16, 16, 10, 64),
        (32_000_000, 8, 16, 100, 16),
        (300_000, 4, 16, 100, 4),
        (32_000_000, 16, 16, 1, 128),  # Not more than key groups.
    ],
)
def test_buckets_follow_cores_and_memory(rows: int, buckets: int, cores: int, gigabytes: int, best: int) -> None:
    shape = TableSpec(("c0",), tuple(Column(f"c{i}", "long") for i in range(10)), "arrival", 128, buckets)
    assert advise(rows, shape, cores, gigabytes * 10**9) == best


def test_the_doctor_advises_on_buckets(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(config_path, "version: 1\n", "version: 1\nspark: {master: 'local[8]'}\n")
    pipeline = open_pipeline(config_path)
    put(pipeline, [{"id": number, "text": "x"} for number in range(400)])
    publish(pipeline, "first")
    said = [(OK, "Each log has enough buckets for cores and memory, as far as known.")]
    assert look("buckets", config_path) == said
    monkeypatch.setattr("tidefold.operations.doctor.buckets._FEWEST_ROWS", 10)
    [(level, told)] = look("buckets", config_path)
    assert (level, told.split(" in 4 ")[0]) == (OK, "accounts: a load of its 400 rows takes about 1.4 GB")
    monkeypatch.setattr("tidefold.operations.doctor.doctor._find_task_memory", lambda around: 10**9)
    assert levels(look("buckets", config_path)) == [WARN]
    change(config_path, "local[8]", "spark://elsewhere:7077")
    assert look("buckets", config_path) == said
