"""What the driver knows of the copies on the hosts of a cluster: it plans with them, adds up, and lists them (L5)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tidefold.domain.log_state import DeletionState, LogState
from tidefold.domain.retention.local_copies import CopyName, segments_needed
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import TidefoldError, wrap_unexpected
from tidefold.ledger import read_manifest
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.retention.details import LocalRetentionDetails, UnvisitedHost
from tidefold.operations.snapshot.details import LocalCopyDetails
from tidefold.storage import Store
from tidefold.storage.local_copies.host_copies import (
    HeldCopies,
    HostCopied,
    HostCopies,
    HostFolders,
    HostRecord,
    identify_host,
    read_hosts,
    write_host,
)

_log = logging.getLogger(__name__)


def with_hosts(pipeline: Pipeline) -> HostFolders | None:
    """Returns the folders of the hosts, with the names of those that have copies, and logs that they need no more."""
    if pipeline.hosts is None:
        return None
    records = read_hosts(pipeline.store)
    held = {log for record in records for log in record.logs}
    dropped = tuple(sorted(log for log in held - pipeline.config.logs.keys() if not _exists(pipeline, log)))
    return replace(pipeline.hosts, names={one.host: one.names for one in records}, dropped=dropped)


def _exists(pipeline: Pipeline, log: str) -> bool:
    try:
        state = pipeline.ledger(log).find()
        return state is not None and state.deletion is not DeletionState.GONE
    except TidefoldError:
        return True  # Unreadable is not absent (I23).


def note_copied(store: Store, name: CopyName, copied: Sequence[HostCopied]) -> LocalCopyDetails:
    """Adds what the tasks of an attempt copied to the records of their hosts. Returns the sum."""
    records = {record.host: record for record in read_hosts(store)}
    for host in {one.host for one in copied if one.files} & records.keys():
        mine = [one for one in copied if one.host == host]
        before = records[host].logs.get(name.log, HeldCopies())
        held = HeldCopies(
            max(before.snapshot, name.snapshot),
            before.files + sum(one.files for one in mine),
            before.bytes + sum(one.bytes for one in mine),
        )
        write_host(store, HostRecord(host, records[host].names, {**records[host].logs, name.log: held}))
    total = sum(one.bytes for one in copied)
    return LocalCopyDetails(bytes=total, warning=next((one.error for one in copied if one.error), None))


def list_hosts(pipeline: Pipeline, logs: Sequence[str], plan: bool) -> list[Outcome]:
    """Names the hosts with copies of a log on which no task of its newest snapshot ran, and what they hold.

    Copies of logs that exist no more are named with the first log. The next task on a host removes what is not needed;
    on this machine, this call does.

    plan: the outcome counts as work if there is a host, so that Airflow does not skip the task that shows it.
    """
    records = read_hosts(pipeline.store)

    def find(log: str, newest: int, dropped: bool = False) -> list[UnvisitedHost]:
        return [
            UnvisitedHost(
                host=record.host, log=log, snapshot=held.snapshot, files=held.files, bytes=held.bytes, dropped=dropped
            )
            for record in records
            if (held := record.logs.get(log)) and held.files and (dropped or held.snapshot < newest)
        ]

    def act(log: str) -> Outcome:
        state = pipeline.ledger(log).find()
        if state and not plan and identify_host() in {record.host for record in records}:
            try:
                _clean_here(pipeline, state)
            except Exception as error:  # The next call tries again (I15).
                _log.warning("%s: local copies on this machine are left: %s", log, wrap_unexpected(error))
        hosts = find(log, state.latest.id if state and state.latest else 0)
        if log == logs[0]:
            gone = {name for record in records for name in record.logs.keys() - pipeline.config.logs.keys()}
            hosts += [host for name in sorted(gone) if not _exists(pipeline, name) for host in find(name, 0, True)]
        message = "; ".join(map(_describe, hosts)) or "every host with copies had a task of the newest snapshot"
        details = LocalRetentionDetails(files=0, bytes=0, paths=[], snapshots=[], freed=0, warnings=[], hosts=hosts)
        return Outcome(log, Status.PLANNED if hosts and plan else Status.NOTHING, message, details=details)

    return for_each_log(logs, act)


def _clean_here(pipeline: Pipeline, state: LogState) -> None:
    """Removes what the log needs no more on this machine: small steps of a cluster's pipeline run in this process."""
    files = read_manifest(pipeline.store, state.log, state.latest).files if state.latest else ()
    names = {file.sha256 for file in files} | {path.rpartition("/")[2] for path in segments_needed(state)}
    attempt = state.open_attempt.id if state.open_attempt else state.last_snapshot + 1
    if hosts := with_hosts(pipeline):
        HostCopies(replace(hosts, needed=tuple(names))).clean(pipeline.store, CopyName(state.log, attempt))


def _describe(host: UnvisitedHost) -> str:
    whose = f"of the dropped log `{host.log}`" if host.dropped else f"of snapshot {host.snapshot} and before"
    return f"host `{host.host}` holds {count_noun(host.files, 'copy', 'copies')} {whose}, {in_units(host.bytes)}"
