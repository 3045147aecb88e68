"""Decides once whether a new snapshot can use the files of a bucket as they are. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidefold.domain.key_groups import KeyGroups
from tidefold.domain.log_state import Expire
from tidefold.domain.snapshot.manifest import DataFile


class RewriteAction(StrEnum):
    """What a task does with the files of a bucket without changes."""

    KEEP = "keep"
    LINK = "link"
    REWRITE = "rewrite"


@dataclass(frozen=True, slots=True)
class RewriteDecision:
    """Whether the files of a bucket stay.

    action: a task leaves the files, links them after it has proved their bytes, or writes their rows to new files.
    reason: why the rows are written again, for people.
    """

    action: RewriteAction = RewriteAction.KEEP
    reason: str = ""


def decide_rewrite(
    files: Sequence[DataFile],
    bucket: KeyGroups,
    *,
    unchanged: RewriteAction,
    expire: Expire | None = None,
    schema_differs: bool = False,
    rescaled: bool = False,
    keeps_deletions: bool = False,
    owners_differ: bool = False,
) -> RewriteDecision:
    """Decides for the files of one bucket.

    unchanged: what to do with files that can stay.
    expire: the rows that the new snapshot drops for their age.
    schema_differs: the new schema shows other values than the files have.
    rescaled: the number of buckets changes.
    keeps_deletions: the new snapshot may mark rows of a file as deleted.
    owners_differ: the files may have rows of owners that the new ones leave out.
    """
    if rescaled:
        return _rewrite("the number of buckets changes")
    if schema_differs:
        return _rewrite("the schema changes values")
    if owners_differ:
        return _rewrite("only the rows of one owner are wanted")
    if any(not file.is_within(bucket) for file in files):
        return _rewrite("a file has rows of other buckets")
    if expire and any(_has_expired(file, expire) for file in files):
        return _rewrite("rows are too old")
    if not keeps_deletions and any(file.deletions for file in files):
        return _rewrite("rows are marked as deleted")
    return RewriteDecision(unchanged)


def _rewrite(reason: str) -> RewriteDecision:
    return RewriteDecision(RewriteAction.REWRITE, reason)


def _has_expired(file: DataFile, expire: Expire) -> bool:
    """Whether the statistics of a file show a row that is too old."""
    lowest = json.loads(file.stats).get("minValues", {}).get(expire.column)
    return lowest is not None and str(lowest) < expire.before
