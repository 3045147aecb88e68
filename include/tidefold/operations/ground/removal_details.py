"""The details of the outcomes of operations that delete files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidefold.domain.retention.log_bounds import Bound
from tidefold.operations.ground.outcome import Details, Outcome, omit_if_none

_CUT = "change sets up to "


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalDetails(Details):
    """The files that an operation removes, or would remove.

    `bytes`: how many are freed, so that hard links count once, and only if no name stays; None: not computed.
    """

    files: int
    paths: Sequence[str]
    bytes: int | None = omit_if_none()

    def list_removals(self) -> Iterable[str]:
        """Returns everything that is removed, each by a name of its own, as a person sees it."""
        return self.paths


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsumeDetails(RemovalDetails):
    """`snapshots`: ids of snapshots that are retired now, or whose files go. `tails`: how many of them are tail-only.

    `kept`: ids of the completed snapshots that stay.
    `waiting`: ids of retired ones whose files stay: readers of an older table version may still use them.
    `originals`: number of files of claimed imports among the paths.
    """

    snapshots: Sequence[int]
    tails: int
    kept: Sequence[int]
    waiting: Sequence[int]
    originals: int

    def list_removals(self) -> Iterable[str]:
        return (*map(name_snapshot, self.snapshots), *self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateDetails(RemovalDetails):
    """`bounds`: what keeps the log, the tightest bound first.

    `unreadable`: damaged segments, which stay.
    """

    truncated_to: int
    bounds: Sequence[Bound]
    unreadable: Sequence[str] | None = omit_if_none()

    def list_removals(self) -> Iterable[str]:
        return (f"{_CUT}{self.truncated_to}", *self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnvisitedHost:
    """`snapshot`: the newest one of which the host has a copy. `dropped`: the log exists no more."""

    host: str
    log: str
    snapshot: int
    files: int
    bytes: int
    dropped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetentionDetails(RemovalDetails):
    """`freed`: bytes freed on the disks; a file that another copy shares frees nothing.

    hosts: of a cluster, that have copies, and copied nothing since the newest attempt that copied.
    """

    snapshots: Sequence[int]
    freed: int
    warnings: Sequence[str]
    hosts: Sequence[UnvisitedHost]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningDetails(Details):
    """Why an operation could do nothing."""

    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanDetails(RemovalDetails):
    """`aborted`: ids of attempts that made no progress for a day."""

    aborted: Sequence[int]

    def list_removals(self) -> Iterable[str]:
        return (*map(name_snapshot, self.aborted), *self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStoreDetails(RemovalDetails):
    """`runs`: the unfinished ingest runs, each with its logs and files.

    `scratch`: entries of scratch folders of this machine, and folders of old plans in the store.
    """

    runs: Sequence[Mapping[str, Any]]
    scratch: Sequence[str] | None = omit_if_none()

    def list_removals(self) -> Iterable[str]:
        return (*(name_run(one["run"]) for one in self.runs), *self.paths, *(self.scratch or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDetails(RemovalDetails):
    """`originals`: number of files of claimed imports among the paths."""

    originals: int | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDetails(Details):
    """`sqn`: the last change set that the consumer has read."""

    sqn: int


def name_snapshot(snapshot: int) -> str:
    return f"snapshot {snapshot}"


def name_run(run: str) -> str:
    return f"unfinished run {run}"


def paths_of(outcome: Outcome) -> Sequence[str]:
    """The paths that the operation removed or would remove."""
    return outcome.details.paths if isinstance(outcome.details, RemovalDetails) else ()


def removals_of(outcome: Outcome) -> tuple[str, ...]:
    """Returns everything that the operation removed or would remove."""
    return tuple(outcome.details.list_removals()) if isinstance(outcome.details, RemovalDetails) else ()


@dataclass(frozen=True, slots=True)
class Approved:
    """What a person saw before approving a removal. Nothing else is removed.

    names: each with its log; None: nobody was asked. log: that of the names that are asked for.
    """

    names: frozenset[tuple[str, str]] | None = None
    log: str = ""

    def of(self, log: str) -> Approved:
        """Returns what was seen of one log: snapshots of two logs have the same names."""
        return replace(self, log=log)

    def __contains__(self, name: str) -> bool:
        return self.names is None or (self.log, name) in self.names

    @property
    def cut(self) -> int | None:
        """Up to which change set the log may be truncated; None: up to any."""
        if self.names is None:
            return None
        seen = (name.removeprefix(_CUT) for log, name in self.names if log == self.log and name.startswith(_CUT))
        return max(map(int, seen), default=0)


EVERYTHING = Approved()


def hosts_of(outcome: Outcome) -> Sequence[UnvisitedHost]:
    """Returns the hosts that the outcome names."""
    return outcome.details.hosts if isinstance(outcome.details, LocalRetentionDetails) else ()


def bounds_of(outcome: Outcome) -> Sequence[Bound]:
    """What keeps the log of a truncation."""
    return outcome.details.bounds if isinstance(outcome.details, TruncateDetails) else ()
