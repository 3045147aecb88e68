"""The records of plans in the store: what each edit of a log was found to change (decision 0085)."""

from __future__ import annotations

from contextlib import suppress

from tidefold.domain.paths import PLANS, PlanPaths
from tidefold.domain.plan import PlanRecord
from tidefold.errors import AlreadyExistsError, ConflictError
from tidefold.operations.ground.numbered_record import find_record, write_record
from tidefold.storage import Store


def find_plan(store: Store, paths: PlanPaths) -> PlanRecord | None:
    """Returns the newest record of an edit; None: it was never planned."""
    return find_record(store, paths.records, PlanRecord)


def find_plans(store: Store) -> list[tuple[PlanPaths, PlanRecord]]:
    """Returns all plans of a store with their newest records, those that are being made too."""
    edits = {PlanPaths(*entry.path.split("/")[1:3]) for entry in store.list(PLANS)}
    listed = sorted(edits, key=lambda one: (one.log, one.edit))
    return [(one, find_plan(store, one) or PlanRecord()) for one in listed]


def record_plan(store: Store, paths: PlanPaths, record: PlanRecord) -> None:
    """Writes the next record. Raises ConflictError if another process has recorded since that it plans this edit."""
    with suppress(AlreadyExistsError):
        if (find_plan(store, paths) or PlanRecord()).number == record.number - 1:
            return write_record(store, paths.records, record)
    raise make_busy_error(paths.log)


def make_busy_error(log: str) -> ConflictError:
    """Returns the error of a plan that another process took over."""
    return ConflictError("PLAN_BUSY", f"Another process plans the same edit of `{log}`.")
