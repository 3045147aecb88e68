"""Checks what a master and a deploy mode of Spark make impossible, and options that have no effect there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidefold.config.models.spark import DEPLOY_MODE, is_connect, is_one_process, runs_drivers
from tidefold.yaml_files.document import ConfigProblem, YamlDocument, YamlPath, format_place

# What the start of a Spark Connect server decides.
_OF_THE_SERVER = ("driver_memory", "python", "jars")


def check_spark(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Checks the local copies, the deploy mode, the options of a Spark Connect server, and where tasks run."""
    yield from _find_contradictions(document)
    yield from _folders_of_hosts(document)
    yield from _find_driver_elsewhere(document)
    yield from _options_of_server(document)


def _name_master(master: str) -> str:
    return "sc://..." if is_connect(master) else master  # It may contain a token.


def _options_of_server(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses options that have no effect on a Spark Connect server, which runs already."""
    spark = document.data.get("spark")
    if not isinstance(spark, dict) or not isinstance(spark.get("master"), str) or not is_connect(spark["master"]):
        return
    for name in _OF_THE_SERVER:
        if name in spark:
            hint = "Remove it. The server is started with its memory, its jars and PYSPARK_PYTHON."
            message = "has no effect on a Spark Connect server."
            yield ConfigProblem("CONNECT_OPTION", document.line(("spark", name)), f"spark.{name}", message, hint)


def _find_contradictions(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses a `scheduled` or an `unreachable` that another setting makes impossible."""
    spark = document.data.get("spark")
    if not isinstance(spark, dict):
        return
    scheduled, conf = spark.get("scheduled"), spark.get("conf")
    on_server = isinstance(spark.get("master"), str) and is_connect(spark["master"])
    on_cluster = isinstance(conf, dict) and conf.get(DEPLOY_MODE) == "cluster"
    if scheduled == "submit" and on_server:
        message = "cannot be `submit` with `spark.master: sc://...`: spark-submit starts no job on a server."
        yield _contradict(document, "scheduled", message, "Set `connect`, or name the cluster in `spark.master`.")
    if scheduled == "connect" and on_cluster:
        message = f"cannot be `connect` with `{DEPLOY_MODE}: cluster`: the driver is in the Spark Connect server."
        yield _contradict(document, "scheduled", message, "Set `submit`, or remove the deploy mode.")
    if spark.get("unreachable") == "in_process" and scheduled in ("submit", "by_size") and not on_server:
        message = f"has no effect with `spark.scheduled: {scheduled}`: no step waits for a Spark Connect server."
        yield _contradict(document, "unreachable", message, "Remove it, or set `spark.scheduled: connect`.")


def _contradict(document: YamlDocument, key: str, message: str, hint: str) -> ConfigProblem:
    return ConfigProblem("SPARK_SCHEDULED", document.line(("spark", key)), f"spark.{key}", message, hint)


def _folders_of_hosts(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses folders beside the file on a cluster: each host has its copies in a folder with the same path."""
    local, spark = document.data.get("local"), document.data.get("spark")
    master = spark.get("master") if isinstance(spark, dict) else None
    if not isinstance(local, dict) or not isinstance(master, str) or is_one_process(master):
        return
    if local.get("mode") != "files" or local.get("shared") is True:
        return
    key = "path" if "path" in local else "paths"
    for folder in [local.get("path"), *(local.get("paths") or ())]:
        if isinstance(folder, str) and not folder.startswith("/"):
            message = f"is `{folder}`, beside this file. With `spark.master: {_name_master(master)}` each host has one."
            hint = "Use an absolute path, in which every host may write."
            yield ConfigProblem("LOCAL_ON_CLUSTER", document.line(("local", key)), f"local.{key}", message, hint)


def _find_driver_elsewhere(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Refuses cluster deploy mode where no driver can run, and folders beside the file, which that driver never sees.

    Whether all machines see an absolute path is known only there.
    """
    spark = document.data.get("spark")
    conf = spark.get("conf") if isinstance(spark, dict) else None
    if not isinstance(conf, dict) or conf.get(DEPLOY_MODE) != "cluster":
        return
    master = spark.get("master", "local[*]")
    if isinstance(master, str) and not runs_drivers(master):
        place: YamlPath = ("spark", "conf", DEPLOY_MODE)
        named = _name_master(master)
        message = f"cannot be `cluster` with `spark.master: {named}`: only YARN and Kubernetes run a driver in Python."
        hint = "Remove it: executors run on the cluster in client mode, too."
        yield ConfigProblem("DEPLOY_MODE", document.line(place), format_place(place), message, hint)
    for place, address in _find_addresses(document):
        if "://" not in address and not address.startswith("/"):
            message = f"is `{address}`, beside this file. The driver runs on another machine (cluster deploy mode)."
            hint = "Use s3://bucket/folder, or the absolute path of a disk that all machines see."
            yield ConfigProblem("DEPLOY_MODE", document.line(place), format_place(place), message, hint)


def _find_addresses(document: YamlDocument) -> Iterator[tuple[YamlPath, str]]:
    """Yields the store, and where the sources of logs and sets are."""
    given: list[tuple[YamlPath, Any]] = [(("store",), document.data.get("store"))]
    logs, sets = document.data.get("logs"), document.data.get("sets")
    for log, entry in logs.items() if isinstance(logs, dict) else ():
        source = entry.get("source") if isinstance(entry, dict) else None
        if isinstance(source, dict):
            given += [(("logs", log, "source", key), source.get(key)) for key in ("path", "table", "schemas")]
    for name, entry in sets.items() if isinstance(sets, dict) else ():
        if isinstance(entry, dict):
            given.append((("sets", name, "transactions"), entry.get("transactions")))
    yield from ((place, address) for place, address in given if isinstance(address, str))
