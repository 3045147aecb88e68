"""The details of the outcomes of operations that delete files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidefold.domain.retention.log_bounds import Bound
from tidefold.operations.outcome import Details, Outcome, omit_if_none


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalDetails(Details):
    """The files that an operation removes, or would remove.

    `bytes`: their size; None: not computed.
    """

    files: int
    paths: Sequence[str]
    bytes: int | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsumeDetails(RemovalDetails):
    """`snapshots`: ids of the retired snapshots. `tails`: how many of them are tail-only.

    `kept`: ids of the completed snapshots that stay.
    `originals`: number of files of claimed imports among the paths.
    """

    snapshots: Sequence[int]
    tails: int
    kept: Sequence[int]
    originals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateDetails(RemovalDetails):
    """`bounds`: what keeps the log, the tightest bound first.

    `unreadable`: damaged segments, which stay.
    """

    truncated_to: int
    bounds: Sequence[Bound]
    unreadable: Sequence[str] | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRetentionDetails(RemovalDetails):
    """`freed`: bytes freed on the disks; a file that another copy shares frees nothing."""

    snapshots: Sequence[int]
    freed: int
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningDetails(Details):
    """Why an operation could do nothing."""

    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanDetails(RemovalDetails):
    """`aborted`: ids of attempts that made no progress for a day."""

    aborted: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStoreDetails(RemovalDetails):
    """`runs`: the unfinished ingest runs, each with its logs and files.

    `scratch`: entries of scratch folders of this machine, and of the store's folder for jobs.
    """

    runs: Sequence[Mapping[str, Any]]
    scratch: Sequence[str] | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDetails(RemovalDetails):
    """`originals`: number of files of claimed imports among the paths."""

    originals: int | None = omit_if_none()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDetails(Details):
    """`sqn`: the last change set that the consumer has read."""

    sqn: int


def paths_of(outcome: Outcome) -> Sequence[str]:
    """The paths that the operation removed or would remove."""
    return outcome.details.paths if isinstance(outcome.details, RemovalDetails) else ()


def bounds_of(outcome: Outcome) -> Sequence[Bound]:
    """What keeps the log of a truncation."""
    return outcome.details.bounds if isinstance(outcome.details, TruncateDetails) else ()
