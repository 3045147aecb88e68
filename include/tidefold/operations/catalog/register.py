"""Registers published tables in a catalog, so that people find them by name.

The catalog gets the name and the place of a table. Columns, comments and properties are in the table itself, so a table
is registered once. A failure never concerns the publication, which is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tidefold.config.models.sections import CatalogEntry
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError
from tidefold.operations.numbered_record import find_newest, read_record, write_record
from tidefold.operations.outcome import Details, Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline


class TableCatalog(Protocol):
    """A catalog of tables."""

    def register(self, database: str, table: str, location: str) -> bool:
        """Registers the Delta table at a location; returns false if it was registered before.

        Raises RefusedError if the name belongs to a table at another location, StorageError if the catalog fails.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationDetails(Details):
    """The name of a table in the catalog, and the address of its files."""

    table: str
    location: str


class Registration(msgspec.Struct, frozen=True):
    """The record of a registration. `digest`: of the catalog's configuration and the address of the table."""

    number: int
    digest: str = ""


def is_registered(pipeline: Pipeline, log: str) -> bool:
    """Whether the table was registered under the present configuration."""
    folder = LogPaths(log).registrations
    number = find_newest(pipeline.store, folder)
    record = read_record(pipeline.store, folder, number, Registration) if number else None
    return record is not None and record.digest == _compute_digest(pipeline, log)


def find_unregistered(pipeline: Pipeline, logs: Iterable[str]) -> list[str]:
    """Returns the logs whose published table is not registered yet; none if no catalog is configured."""
    if pipeline.config.catalog is None:
        return []
    return [log for log in logs if is_published(pipeline, log) and not is_registered(pipeline, log)]


def is_published(pipeline: Pipeline, log: str) -> bool:
    """Whether the log has a published table."""
    state = pipeline.ledger(pipeline.log(log).id).find()
    return state is not None and any(snapshot.published for snapshot in state.snapshots)


def register(pipeline: Pipeline, logs: Iterable[str], catalog: TableCatalog) -> list[Outcome]:
    """Registers the published tables. An error of one log does not stop the others."""
    entry = pipeline.config.catalog
    return for_each_log(logs, lambda log: _register(pipeline, log, entry, catalog) if entry else _describe_none(log))


def _register(pipeline: Pipeline, log: str, entry: CatalogEntry, catalog: TableCatalog) -> Outcome:
    location = pipeline.store.uri(LogPaths(log).table)
    new = catalog.register(entry.database, log, location)
    folder = LogPaths(log).registrations
    record = Registration(find_newest(pipeline.store, folder) + 1, _compute_digest(pipeline, log))
    # Another process registered it at the same time.
    with suppress(AlreadyExistsError):
        write_record(pipeline.store, folder, record)
    details = RegistrationDetails(table=entry.table(log), location=location)
    message = f"`{entry.table(log)}` is the table at {location}"
    return Outcome(log, Status.REGISTERED if new else Status.ALREADY, message, details=details)


def _describe_none(log: str) -> Outcome:
    return Outcome(log, Status.NOTHING, "the configuration names no catalog")


def describe_idle(pipeline: Pipeline, log: str, again: bool) -> Outcome | None:
    """Returns the outcome of a log that needs no registration; None: it needs one."""
    entry = pipeline.config.catalog
    if entry is None:
        return _describe_none(log)
    if not is_published(pipeline, log):
        return Outcome(log, Status.NOTHING, "no snapshot is published yet")
    if not again and is_registered(pipeline, log):
        return Outcome(log, Status.ALREADY, f"`{entry.table(log)}` was registered before")
    return None


def list_warnings(outcomes: Iterable[Outcome]) -> list[str]:
    """Returns a warning for each table that is published and not registered, with the next step."""
    return [
        f"{one.log} is published, but not registered in the catalog: {one.message} "
        f"{one.error.hint} Then: `tidefold register {one.log}`."
        for one in outcomes
        if one.error
    ]


def _compute_digest(pipeline: Pipeline, log: str) -> str:
    entry = pipeline.config.catalog
    content = [entry.model_dump() if entry else None, pipeline.store.uri(LogPaths(log).table)]
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
