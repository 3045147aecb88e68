"""What a publication says about the table beside its rows: comments, properties and the change data feed."""

from __future__ import annotations

from functools import partial

from tidefold.delta.publish import Publication
from tidefold.delta.table_description import TableDescription
from tidefold.domain.log_state import Snapshot, Verdict
from tidefold.operations.pipeline import Pipeline


def describe_publication(pipeline: Pipeline, log: str, snapshot: Snapshot) -> Publication:
    """Returns how a snapshot is published."""
    found = pipeline.config.logs.get(log)
    if found is None:
        # Its entry was removed after the snapshot was confirmed.
        return Publication()
    # A property is new with each snapshot, so only those who use a catalog pay for it.
    facts = {"snapshot": str(snapshot.id), "verdict": _describe_verdict(snapshot.verdict)}
    description = TableDescription(
        comment=found.comment,
        comments=found.comments,
        facts=facts if pipeline.config.catalog else {},
        change_feed=found.change_feed,
    )
    if not found.change_feed:
        return Publication(description)
    # Only where there is a feed: it needs DuckDB.
    from tidefold.fold.change_feed import write_change_feed

    return Publication(description, partial(write_change_feed, pipeline.store))


def _describe_verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return "none"
    if verdict.override_by:
        return f"overridden by {verdict.override_by}"
    return "passed" if verdict.passed else "failed"
