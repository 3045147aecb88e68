"""Puts the parts together: the one place that knows which store a configuration names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidefold.config import Config, load_config
from tidefold.config.models.file import CompactionConfig, LocalConfig
from tidefold.config.models.spark import is_one_process
from tidefold.domain.paths import PlanPaths
from tidefold.operations.ground.pipeline import Pipeline, PlanOf, now
from tidefold.storage import open_store
from tidefold.storage.identity import IdentityGuard
from tidefold.storage.local_copies.copies import open_roots
from tidefold.storage.local_copies.host_copies import HostFolders

if TYPE_CHECKING:
    from tidefold.changelog.writer import Changelog, WriterSettings

__all__ = ["Pipeline", "connect", "now", "open_beside", "open_changelog", "open_pipeline", "open_plan"]

_log = logging.getLogger(__name__)


def open_pipeline(config_path: Path, announce: Callable[[str], None] = _log.warning) -> Pipeline:
    """Reads the configuration and opens its store.

    announce: gets a sentence when this process gives the store its id.
    Raises InvalidInputError; RefusedError when `store_id` names another store.
    """
    return connect(load_config(config_path), announce)


def connect(config: Config, announce: Callable[[str], None] = _log.warning) -> Pipeline:
    """Opens the store of a configuration, as `open_pipeline` does."""
    base = config.path.parent
    store = open_store(config.store, base)
    guard = IdentityGuard(store, config.store_id, announce)
    folders = [base / folder for folder in config.local.folders]
    on_hosts = bool(folders) and not config.local.shared and not is_one_process(config.spark.master)
    roots = open_roots(folders, store.address) if folders and not on_hosts else None
    hosts = HostFolders(store.address, tuple(map(str, folders)), config.local.quota) if on_hosts else None
    return Pipeline(config, store, roots, hosts, before_read=guard.before_read, before_write=guard.before_write)


def open_plan(pipeline: Pipeline, log: str, version: int | None = None) -> Pipeline:
    """Opens the shadow store of the plan of a log's configuration, which lies in the pipeline's store.

    version: of the ledger of the log whose landed files are read again; None: the newest.
    Raises NotFoundError if the log has nothing yet.
    """
    # It loads pyarrow, and few commands make a plan.
    from tidefold.operations.ground.read import require_state

    state = require_state(pipeline, log) if version is None else pipeline.ledger(log).read_version(version)
    paths = PlanPaths(log, pipeline.log(log).edit)
    beside = open_beside(pipeline.config, log, f"{pipeline.store.address}/{paths.shadow}")
    return replace(beside, plan_of=PlanOf(pipeline, paths, state))


def open_beside(config: Config, log: str, store: str, landing: Path | None = None) -> Pipeline:
    """Opens a store of its own at an address, for one log with this configuration: without sets and local copies.

    landing: the log's files, in place of its own landing folder.
    """
    entry = config.logs[log]
    if landing and entry.source:
        place = {entry.source.place_key: str(landing.absolute())} | ({"kafka": None} if entry.topic else {})
        source = entry.source.model_copy(update=place)
        entry = entry.model_copy(update={"source": source})
        entry.place(log, config.path.parent, config.store)
    own: dict[str, Any] = {"store": store, "store_id": None, "sets": {}, "local": LocalConfig()}
    # Its change sets are numbered after they are ingested, and a compaction forgets the number of the file.
    own |= {"logs": {**config.logs, log: entry}, "alarms": None, "compaction": CompactionConfig(change_sets=0)}
    return connect(config.model_copy(update=own), lambda text: None)


def open_changelog(pipeline: Pipeline, settings: WriterSettings | None = None) -> Changelog:
    """Opens a writer of the logs of a pipeline. Without settings, it uploads as `uploads` of the configuration says.

    Its local copies lie in the pipeline's local roots: folds and restores read them, local retention deletes them.
    """
    # Every command loads this module, and few write changes of their own.
    from tidefold.changelog.writer import Changelog
    from tidefold.operations.ingest.write_changes import configure_writer

    pipeline.before_write()
    settings = settings or configure_writer(pipeline)
    return Changelog(pipeline.store, settings, local=pipeline.local, keeps_copies=pipeline.local is not None)
