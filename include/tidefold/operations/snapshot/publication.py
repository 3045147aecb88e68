"""What a publication says about the table beside its rows: comments, properties and the change data feed."""

from __future__ import annotations

from functools import partial

from tidefold.delta.publish import Publication
from tidefold.delta.table_description import TableDescription
from tidefold.domain.log_state import Snapshot, Verdict
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.set_ledger import set_ledger


def describe_publication(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Publication:
    """Returns how a snapshot is published."""
    found = pipeline.config.logs.get(log)
    if found is None:
        # Its entry was removed after the snapshot was confirmed.
        return Publication()
    # A property is new with each snapshot, so only those who use a catalog pay for it.
    of_set = _describe_point(pipeline, log, snapshot)
    facts = {"snapshot": str(snapshot.id), "verdict": _describe_verdict(snapshot.verdict)}
    description = TableDescription(
        comment=found.comment,
        comments=found.comments,
        facts=facts if pipeline.config.catalog else {},
        change_feed=found.change_feed,
    )
    if not found.change_feed:
        return Publication(description, facts=of_set)
    # Only where there is a feed: it needs DuckDB.
    from tidefold.fold.change_feed import write_change_feed

    return Publication(description, partial(write_change_feed, pipeline.store), of_set)


def _describe_point(pipeline: Pipeline, log: str, snapshot: Snapshot) -> dict[str, str]:
    """Returns the point at which the log's set publishes the snapshot; nothing if the log is in no set."""
    chosen = pipeline.config.set_of(log)
    state = set_ledger(pipeline, chosen.name).read() if chosen else None
    version = state.decided or state.published if state else None
    member = version.member(log) if version else None
    if state is None or version is None or member is None or member.snapshot != snapshot.id:
        return {}
    return {
        "tidefold.set": state.name,
        "tidefold.set.version": str(version.number),
        "tidefold.set.position": str(version.position),
        "tidefold.set.transaction": version.transaction,
    }


def _describe_verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "none"
    if verdict.override_by:
        return f"overridden by {verdict.override_by}"
    return "passed" if verdict.passed else "failed"
