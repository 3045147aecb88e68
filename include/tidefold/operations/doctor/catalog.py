"""Checks the catalog: whether its server can be reached, and which published tables it does not have yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidefold.config import Config
from tidefold.errors import TidefoldError
from tidefold.operations.catalog.register import find_unregistered
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.operations.doctor.machine import try_connect
from tidefold.operations.outcome import ErrorInfo
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import open_store

_LISTED = 3
_ADDRESS = re.compile(r"\w+://(?:[^/@\s]*@)?([\w.-]+:\d+)")


@dataclass(frozen=True, slots=True)
class CatalogProbe:
    """The state of the catalog.

    database: empty: no catalog is configured.
    unreachable: the addresses in its settings that do not answer, each with the reason.
    unregistered: logs whose published table it does not have yet.
    error: why the store could not be read.
    """

    database: str = ""
    unreachable: Mapping[str, str] | None = None
    unregistered: tuple[str, ...] = ()
    error: ErrorInfo | None = None


def probe_catalog(config: Config) -> CatalogProbe:
    """Connects to the servers that the settings name, and reads which tables were registered. Starts no Spark."""
    if config.catalog is None:
        return CatalogProbe()
    places = [place for text in config.catalog.settings.values() for place in _ADDRESS.findall(text)]
    unreachable = {place: why for place in dict.fromkeys(places) if (why := try_connect(place))}
    database = f"{config.catalog.name}.{config.catalog.database}"
    try:
        pipeline = Pipeline(config, open_store(config.store, config.path.parent))
        return CatalogProbe(database, unreachable, tuple(find_unregistered(pipeline, config.logs)))
    except TidefoldError as error:
        return CatalogProbe(database, unreachable, error=ErrorInfo.of(error))


def judge_catalog(found: CatalogProbe) -> Iterator[DoctorFinding]:
    """Checks that the catalog answers and has every published table."""
    if not found.database:
        yield DoctorFinding("catalog", FindingLevel.OK, "No catalog is configured: readers open tables by address.")
        return
    for place, why in (found.unreachable or {}).items():
        hint = "Start the catalog, or correct `catalog.settings`. Publications go on without it."
        yield DoctorFinding("catalog", FindingLevel.FAIL, f"{place} cannot be reached: {why}.", hint)
    if found.error:
        hint = "Mend the store first: see the line `store`."
        yield DoctorFinding("catalog", FindingLevel.WARN, f"[{found.error.code}] {found.error.message}", hint)
    elif found.unregistered:
        more = ", ..." if len(found.unregistered) > _LISTED else ""
        message = f"{found.database} does not have: {', '.join(found.unregistered[:_LISTED])}{more}."
        yield DoctorFinding("catalog", FindingLevel.WARN, message, "`tidefold register` registers them.")
    elif not found.unreachable:
        yield DoctorFinding("catalog", FindingLevel.OK, f"{found.database} has every published table.")
