"""Finds which table versions of a set belong together: what readers of several tables open."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidefold.config import SetConfig
from tidefold.domain.commit_times import format_instant
from tidefold.domain.paths import LogPaths
from tidefold.domain.sets.set_state import Member, SetVersion
from tidefold.domain.wording import count_noun
from tidefold.errors import InvalidInputError, NotFoundError
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.set_ledger import set_ledger

# So many earlier versions are shown to people; programs get all.
SHOWN_VERSIONS = 5


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One table of a set, to be opened at its version.

    address: the table, as Spark, deltalake and Polars open it.
    storage_options: for deltalake and Polars; empty for a local disk.
    """

    log: str
    address: str
    version: int
    storage_options: dict[str, str]


def find_set(pipeline: Pipeline, name: str) -> SetConfig:
    """Returns a configured set. Raises NotFoundError."""
    found = pipeline.config.sets.get(name)
    if found is None:
        known = ", ".join(pipeline.config.sets) or "none"
        raise NotFoundError("SET_UNKNOWN", f"`{name}` is not a configured set.", hint=f"Sets: {known}.")
    return found


def find_version(pipeline: Pipeline, name: str) -> SetVersion:
    """Returns the version of a set that readers use. Raises NotFoundError if the set was never published."""
    version = set_ledger(pipeline, find_set(pipeline, name).name).read().published
    if version is None:
        raise NotFoundError(
            "SET_UNPUBLISHED", f"Set `{name}` has no published version yet.", hint="`tidefold run` makes one."
        )
    return version


def find_member(pipeline: Pipeline, name: str, log: str) -> Member:
    """Returns the snapshot of a log in the published version of a set. Raises InvalidInputError, NotFoundError."""
    if log not in find_set(pipeline, name).logs:
        raise InvalidInputError(
            "SET_MEMBER", f"`{log}` is not in set `{name}`.", hint=f"`tidefold sets {name}` lists its tables."
        )
    found = find_version(pipeline, name).member(log)
    if found is None:
        raise NotFoundError("SET_UNPUBLISHED", f"`{log}` has no rows in set `{name}` yet.", hint="`tidefold run`.")
    return found


@dataclass(frozen=True, slots=True)
class SetDescription:
    """What `tidefold sets` shows of one set: lines for people, values for programs."""

    lines: tuple[str, ...]
    data: dict[str, Any]


def describe_set(pipeline: Pipeline, chosen: SetConfig) -> SetDescription:
    """Describes the published version of a set, and which logs hold its newest point back."""
    state = set_ledger(pipeline, chosen.name).read()
    version, waits = state.published, dict(state.waits or {})
    point = f"position {state.point.position}" if state.point else "no point yet"
    if version is None:
        lines = [f"{chosen.name}: nothing is published; {point}"]
    else:
        restored = f", restored from version {version.restored}" if version.restored else ""
        where = f"version {version.number} at position {version.position}, since {version.instant}"
        lines = [f"{chosen.name}: {where}{restored}"]
        lines += [f"  {m.log}: snapshot {m.snapshot}, version {m.version} of the table" for m in version.members]
    lines += [
        f"  earlier: version {one.number} at position {one.position}, since {one.instant}"
        for one in state.earlier[: -SHOWN_VERSIONS - 1 : -1]
    ]
    if (more := len(state.earlier) - SHOWN_VERSIONS) > 0:
        lines.append(
            f"  and {count_noun(more, 'more earlier version')}: `tidefold sets {chosen.name} --format json` lists them"
        )
    lines += [
        f"  as of {format_instant(one.at)}: {', '.join(f'{m.log} snapshot {m.snapshot}' for m in one.members)}"
        for one in state.past
    ]
    lines += [f"  waits for {log}: {why}" for log, why in waits.items()]
    if state.decided:
        lines.append(f"  version {state.decided.number} is decided; the next command publishes the rest of it")
    data = {
        "set": chosen.name,
        "logs": list(chosen.logs),
        "point": state.point.position if state.point else None,
        "waits": waits,
        "published": asdict(version) if version else None,
        "earlier": [asdict(one) for one in state.earlier],
        "as_of": [{**asdict(one), "at": format_instant(one.at)} for one in state.past],
        "decided": state.decided.number if state.decided else None,
        "tables": {log: asdict(one) for log, one in find_tables(pipeline, chosen.name).items()} if version else {},
    }
    return SetDescription(tuple(lines), data)


def find_tables(pipeline: Pipeline, name: str) -> dict[str, TableVersion]:
    """Returns the tables of a set at the versions that belong together, by log.

    Open each at its version: `DeltaTable(one.address, version=one.version, storage_options=one.storage_options)`.
    """
    store = pipeline.store
    found = {}
    for one in find_version(pipeline, name).members:
        assert one.version is not None
        address = store.uri(LogPaths(one.log).table)
        found[one.log] = TableVersion(one.log, address, one.version, store.options())
    return found
