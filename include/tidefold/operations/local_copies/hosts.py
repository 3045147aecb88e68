"""What the driver knows of the copies on the hosts of a cluster: it plans with them, adds up, and lists them (L5)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from tidefold.domain.log_state import DeletionState, LogState
from tidefold.domain.paths import host_path
from tidefold.domain.retention.local_copies import CopyName, segments_needed
from tidefold.domain.snapshot.claim import next_id
from tidefold.domain.wording import count_noun, in_units
from tidefold.errors import TidefoldError, wrap_unexpected
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome, Status, for_each_log
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.removal_details import Approved, LocalRetentionDetails, UnvisitedHost
from tidefold.operations.ground.snapshot_details import LocalCopyDetails
from tidefold.storage import Store, StoredObject
from tidefold.storage.local_copies import host_copies
from tidefold.storage.local_copies.host_copies import HostFolders, HostRecord

_log = logging.getLogger(__name__)


def with_hosts(pipeline: Pipeline) -> HostFolders | None:
    """Returns the folders of the hosts, with the names of those that have copies, and logs that they need no more."""
    return pipeline.hosts and _name_hosts(pipeline, pipeline.hosts, host_copies.read_hosts(pipeline.store))


def _name_hosts(pipeline: Pipeline, folders: HostFolders, records: Sequence[HostRecord]) -> HostFolders:
    held = {log for record in records for log in record.logs}
    dropped = tuple(sorted(log for log in held - pipeline.config.logs.keys() if not _exists(pipeline, log)))
    return replace(folders, names={one.host: one.names for one in records}, dropped=dropped)


def _exists(pipeline: Pipeline, log: str) -> bool:
    try:
        state = pipeline.ledger(log).find()
        return state is not None and state.deletion is not DeletionState.GONE
    except TidefoldError:
        return True  # Unreadable is not absent (I23).


def note_copied(store: Store, name: CopyName, copied: Sequence[host_copies.HostCopied]) -> LocalCopyDetails:
    """Adds what the tasks of an attempt copied to the records of their hosts. Returns the sum."""
    records = {record.host: record for record in host_copies.read_hosts(store)}
    for host in {one.host for one in copied if one.files} & records.keys():
        mine = [one for one in copied if one.host == host]
        before = records[host].logs.get(name.log, host_copies.HeldCopies())
        held = host_copies.HeldCopies(
            max(before.snapshot, name.snapshot),
            before.files + sum(one.files for one in mine),
            before.bytes + sum(one.bytes for one in mine),
        )
        host_copies.write_host(store, HostRecord(host, records[host].names, {**records[host].logs, name.log: held}))
    total = sum(one.bytes for one in copied)
    return LocalCopyDetails(bytes=total, warning=next((one.error for one in copied if one.error), None))


def retain_on_hosts(
    pipeline: Pipeline, folders: HostFolders, logs: Sequence[str], plan: bool, approved: Approved
) -> list[Outcome]:
    """Removes what the logs need no more on this machine, and names the other hosts that nobody visited.

    Those have copies of a log, and copied nothing since the newest attempt that copied. Copies of logs that exist no
    more are named with the first log. The next task that copies on a host removes what is not needed.
    """
    records = host_copies.read_hosts(pipeline.store)
    is_here = host_copies.identify_host() in {record.host for record in records}
    here = _name_hosts(pipeline, folders, records) if is_here else None

    def find(log: str, dropped: bool = False) -> list[UnvisitedHost]:
        newest = max((record.logs[log].snapshot for record in records if log in record.logs), default=0)
        return [
            UnvisitedHost(
                host=record.host, log=log, snapshot=held.snapshot, files=held.files, bytes=held.bytes, dropped=dropped
            )
            for record in records
            if (held := record.logs.get(log)) and held.files and (dropped or held.snapshot < newest)
        ]

    def act(log: str) -> Outcome:
        gone, warnings = _clean_here(pipeline, here, log, plan, approved) if here else ((), ())
        hosts = find(log)
        if log == logs[0]:
            others = {name for record in records for name in record.logs.keys() - pipeline.config.logs.keys()}
            hosts += [host for name in sorted(others) if not _exists(pipeline, name) for host in find(name, True)]
        return _report(log, gone, warnings, hosts, plan)

    return for_each_log(logs, act)


def _clean_here(
    pipeline: Pipeline, hosts: HostFolders, log: str, plan: bool, approved: Approved
) -> tuple[Sequence[StoredObject], Sequence[str]]:
    """Removes what the log needs no more on this machine: small steps of a cluster's pipeline run in this process.

    Returns the copies that are removed, or would be, and warnings.
    """
    try:
        state = pipeline.ledger(log).find()
        return _remove_retired(pipeline.store, state, hosts, plan, approved) if state else (), ()
    except Exception as error:  # The next call tries again (I15).
        failure = wrap_unexpected(error)
        _log.warning("%s: local copies on this machine are left: %s", log, failure)
        return (), (f"local copies on this machine are left: {failure.message}",)


def _remove_retired(
    store: Store, state: LogState, hosts: HostFolders, plan: bool, approved: Approved
) -> Sequence[StoredObject]:
    files = read_manifest(store, state.log, state.latest).files if state.latest else ()
    names = {file.sha256 for file in files} | {path.rpartition("/")[2] for path in segments_needed(state)}
    attempt = state.open_attempt.id if state.open_attempt else next_id(state)
    here, name = host_copies.HostCopies(replace(hosts, needed=tuple(names))), CopyName(state.log, attempt)
    entries = here.find_retired(name)
    retired = [entry for entry in entries if not host_copies.is_mark(entry) and entry.path in approved.of(state.log)]
    if retired and not plan:
        here.remove(store, name, [*retired, *filter(host_copies.is_mark, entries)])
    return retired


def _report(
    log: str, gone: Sequence[StoredObject], warnings: Sequence[str], hosts: Sequence[UnvisitedHost], plan: bool
) -> Outcome:
    size = sum(entry.bytes for entry in gone)
    details = LocalRetentionDetails(
        files=len(gone),
        bytes=size,
        paths=[e.path for e in gone],
        snapshots=[],
        freed=size,
        warnings=warnings,
        hosts=hosts,
    )
    verb = "would remove" if plan else "removed"
    texts = [f"{verb} {count_noun(len(gone), 'copy', 'copies')} on this machine, {in_units(size)}"] if gone else []
    texts += [*warnings, *map(_describe, hosts)]
    message = "; ".join(texts) or "no local copy is to be removed"
    done = Status.PLANNED if plan else Status.REMOVED
    return Outcome(log, done if gone else Status.NOTHING, message, details=details)


def _describe(host: UnvisitedHost) -> str:
    whose = f"of the dropped log `{host.log}`" if host.dropped else f"of snapshot {host.snapshot} and before"
    held = f"{count_noun(host.files, 'copy', 'copies')} {whose}, {in_units(host.bytes)}"
    then = f"its next task removes what is not needed; if the host is gone, delete the folder `{host_path(host.host)}`"
    return f"host `{host.host}` holds {held}: {then}"
