"""Proposes a log for each table of a database, from its catalogue, and the settings of the connector for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidefold.domain.table.types import parse_type
from tidefold.sources.database.catalogue import PARTITIONED, SourceTable
from tidefold.sources.database.types import propose_type
from tidefold.sources.inference.proposal import ProposalQuestion, ProposedColumn, ProposedLog, log_ids

_WHOLE, _NOTHING = "f", "n"


def propose_tables(tables: Sequence[SourceTable], prefix: str) -> list[ProposedLog]:
    """Returns a log for each table. Its records land in a folder with the name of its topic."""
    ids = log_ids([table.full_name for table in tables])
    return [_propose(table, log, f"{prefix}.{table.full_name}") for table, log in zip(tables, ids, strict=True)]


def _propose(table: SourceTable, log: str, topic: str) -> ProposedLog:
    columns, unknown = list[ProposedColumn](), list[str]()
    for column in table.columns:
        proposed = propose_type(column)
        if proposed is None:
            unknown.append(f"{column.name} ({column.declared})")
        else:
            columns.append(ProposedColumn(column.name, proposed[0], column.declared, proposed[1]))
    types = {column.name: column.type or "" for column in columns}
    wrong = [name for name in table.key if name not in types or not parse_type(types[name]).can_be_key]
    asked = (ProposalQuestion("key", f"no log can have the key column {', '.join(wrong)}; which is another?"),)
    return ProposedLog(
        id=log,
        topic=topic,
        path=topic,
        key=table.key,
        columns=tuple(columns),
        connector="postgresql",
        order="" if not table.key else "postgresql",
        records=max(table.rows, 0),
        usable=True,
        notes=(),
        sampled=f"Table {table.full_name}{f', about {table.rows:,} rows' if table.rows > 0 else ''}.",
        warnings=tuple(_list_warnings(table, unknown)),
        questions=asked if wrong else (),
        ignored=tuple(name.partition(" (")[0] for name in unknown),
        appends=not table.key,
    )


def _list_warnings(table: SourceTable, unknown: Sequence[str]) -> Iterator[str]:
    if unknown:
        yield f"No type of a log is known to have all values of {', '.join(unknown)}: the table leaves them out."
    if not table.key:
        yield "The table has no key, so each record is one more row; updates and deletes are refused."
    elif table.identity == _NOTHING:
        yield "Its replica identity is NOTHING, so no update comes: ALTER TABLE ... REPLICA IDENTITY DEFAULT."
    if table.has_children and table.kind != PARTITIONED:
        yield "Other tables inherit from it: the connector's snapshot has their rows, too."
    if table.has_policies:
        yield "Row level security hides rows of it from this user; the connector's must see all."


def list_settings(tables: Sequence[SourceTable], prefix: str) -> list[str]:
    """Returns the statement and the settings of the connector that the proposed logs need."""
    named = ", ".join(table.quoted for table in tables)
    by_root = " WITH (publish_via_partition_root = true)" if any(one.kind == PARTITIONED for one in tables) else ""
    names = ",".join(f"{table.schema}.{table.name}".replace("$", "\\$") for table in tables)
    return [
        f"CREATE PUBLICATION tidefold FOR TABLE {named}{by_root};",
        "connector.class=io.debezium.connector.postgresql.PostgresConnector",
        f"topic.prefix={prefix}",
        f"table.include.list={names}",
        "plugin.name=pgoutput",
        "publication.name=tidefold",
        "publication.autocreate.mode=disabled",
        # Precise numbers without a schema do not say their scale, and have no NaN.
        "decimal.handling.mode=string",
        # Else the slot of a quiet table keeps the log of the whole server.
        "heartbeat.interval.ms=10000",
    ]
