"""A job whose driver runs on the cluster: its configuration, its request and its outcomes travel through the store.

The driver's machine has nothing of the starter's. The starter deletes the folder of a job when it ends. A driver whose
request is gone has no starter and ends itself.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tidefold.compute.broadcast_work import find_versions, require_versions
from tidefold.config import Config
from tidefold.config.models.spark import DEPLOY_MODE, runs_drivers
from tidefold.domain.paths import JobPaths
from tidefold.errors import InvalidInputError, NotFoundError, StorageError
from tidefold.operations.outcome import Outcome
from tidefold.operations.pipeline import Pipeline
from tidefold.spark.result_file import decode_outcomes, encode_outcomes
from tidefold.spark.steps import AnyStep
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_LEASH_SECONDS = 10.0
_YARN = re.compile(r"application_\d+_\d+")
_POD = re.compile(r"pod name: (\S+-driver)\b")
# What only spark-submit needs, and what may hold secrets.
_NOT_SENT = {"spark": {"conf"}, "catalog": {"settings"}}


class StoredRequest(msgspec.Struct):
    """What the starter sends: a part that each version can read, and parts that belong to one version.

    versions: those of the starter's packages.
    suites: the texts of the suite files, by their absolute paths.
    path: of the configuration, on the starter's machine.
    """

    versions: dict[str, str]
    logs: tuple[str, ...]
    suites: dict[str, str]
    path: str
    config: msgspec.Raw
    step: msgspec.Raw

    def read_step(self) -> AnyStep:
        """Raises RefusedError (VERSION_MISMATCH)."""
        require_versions(self.versions, "driver", "starter")
        step: AnyStep = decode_json(self.step, AnyStep)
        return step

    def read_config(self, scratch: Path) -> Config:
        """Returns the configuration. Its suites are written into a folder of this machine."""
        require_versions(self.versions, "driver", "starter")
        paths = {}
        for number, (path, text) in enumerate(self.suites.items()):
            paths[path] = scratch / f"{number}-{Path(path).name}"
            paths[path].write_text(text, encoding="utf-8")
        config = Config.model_validate_json(bytes(self.config), context=Path(self.path))
        logs = dict(config.logs)
        for name, log in logs.items():
            if log.suite:
                quality = log.quality.model_copy(update={"suite": str(paths[str(log.suite)])})
                logs[name] = log.model_copy(update={"quality": quality})
        return config.model_copy(update={"logs": logs})


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The place of a job: the address of a store, and a folder in it."""

    address: str
    paths: JobPaths

    @property
    def arguments(self) -> tuple[str, str]:
        """Returns what spark-submit passes to the driver."""
        return self.address, self.paths.folder


def send_job(pipeline: Pipeline, step: AnyStep, logs: Sequence[str]) -> StoredJob:
    """Writes the request into the store. Raises InvalidInputError (DEPLOY_MODE), StorageError."""
    _require_cluster(pipeline.config)
    paths = JobPaths.of(datetime.now(UTC), secrets.token_hex(8))
    config = pipeline.config
    suites = (log.suite for log in config.logs.values() if log.suite)
    request = StoredRequest(
        versions=find_versions(),
        logs=tuple(logs),
        suites={str(path): path.read_text(encoding="utf-8") for path in suites},
        path=str(config.path),
        config=msgspec.Raw(config.model_dump_json(exclude_unset=True, exclude=_NOT_SENT).encode()),
        step=msgspec.Raw(msgspec.json.encode(step)),
    )
    pipeline.store.put_if_absent(paths.request, msgspec.json.encode(request))
    return StoredJob(pipeline.store.address, paths)


def _require_cluster(config: Config) -> None:
    """Checks again what `validate` checks: Airflow's connection names a master and a mode of its own."""
    master, mode = config.spark.master, config.spark.conf.get(DEPLOY_MODE)
    if mode != "cluster" or not runs_drivers(master):
        raise InvalidInputError(
            "DEPLOY_MODE",
            f"The driver should run in deploy mode `{mode}` of `{master}`: only YARN and Kubernetes run a driver in "
            "Python, in deploy mode `cluster`.",
            hint="Remove `deploy-mode` from the connection: executors run on the cluster in client mode, too.",
        )
    if "://" not in config.store and not config.store.startswith("/"):
        raise InvalidInputError(
            "DEPLOY_MODE",
            f"The store is `{config.store}`, beside the configuration. The driver runs on another machine.",
            hint="Use s3://bucket/folder, or the absolute path of a disk that all machines see.",
        )


def read_request(store: Store, paths: JobPaths) -> StoredRequest:
    """Returns the request of a job. Raises InvalidInputError (REQUEST_INVALID) if there is none."""
    try:
        return decode_json(store.read(paths.request), StoredRequest)
    except (NotFoundError, msgspec.DecodeError) as error:
        raise InvalidInputError(
            "REQUEST_INVALID",
            f"The store at {store.address}, as this machine sees it, has no request `{paths.folder}`: its starter has "
            "ended, or this is another disk.",
            hint="Use a store that all machines see. Start jobs with `tidefold` or the operators.",
        ) from error


def send_outcomes(store: Store, paths: JobPaths, outcomes: Sequence[Outcome]) -> None:
    """Writes the outcomes beside the request."""
    store.put_if_absent(paths.outcomes, encode_outcomes(outcomes))


def receive_outcomes(store: Store, job: StoredJob) -> list[Outcome]:
    """Returns the outcomes; none if the driver ended before it wrote them."""
    try:
        return decode_outcomes(store.read(job.paths.outcomes))
    except NotFoundError:
        return []


def delete_job(store: Store, job: StoredJob) -> None:
    """Deletes the folder of a job. A driver that still works ends itself."""
    store.delete([job.paths.request, job.paths.outcomes])


def end_without_starter(
    store: Store, paths: JobPaths, ended: threading.Event, end: Callable[[int], object] = os._exit
) -> None:
    """Ends this process when its request is gone. Returns when the job has ended. The ledger takes this as a crash."""
    while not ended.wait(_LEASH_SECONDS):
        try:
            store.read(paths.request, 0, 1)
        except NotFoundError:
            end(1)
            return
        except StorageError:
            continue


def describe_application(printed: str) -> str:
    """Returns the names of the cluster for a job, and where its driver's log is, by what spark-submit printed."""
    if names := _YARN.findall(printed):
        return f" `yarn logs -applicationId {names[-1]}` prints what its driver wrote."
    if names := _POD.findall(printed):
        return f" `kubectl logs {names[-1]}` prints what its driver wrote."
    return ""
