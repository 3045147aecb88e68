"""How Debezium's connectors are set up for a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torture.grouped import NAME as GROUPED
from torture.twins import NAMES as TWINS

if TYPE_CHECKING:
    from torture.seed import Seed


def list_properties(seed: Seed, space: str) -> dict[str, object]:
    """The properties of the connector that captures a seed's database."""
    names = "|".join([table.name for table in seed.tables] + ["signals", "marker", GROUPED, *TWINS])
    schemas = str(seed.modes["schemas"] == "on").lower()
    common: dict[str, object] = {
        "name": f"p{seed.number}",
        "topic.prefix": f"p{seed.number}",
        "database.hostname": "127.0.0.1",
        "database.port": seed.server.port,
        "database.user": seed.server.user,
        "database.password": "x" if seed.server.connector == "postgresql" else "",
        "table.include.list": f"{space}[.]({names})",
        "snapshot.mode": "no_data" if seed.plan.unseen else "initial",
        "signal.data.collection": f"{space}.signals",
        "skipped.operations": "none",
        "incremental.snapshot.chunk.size": 9,
        "decimal.handling.mode": seed.modes["decimal"],
        "binary.handling.mode": seed.modes["binary"],
        "offset.flush.interval.ms": 1000,
        "poll.interval.ms": 100,
        **{f"{one}.converter.schemas.enable": schemas for one in ("key", "value")},
        "header.converter.schemas.enable": "false",
    }
    if seed.form == "set":
        common["provide.transaction.metadata"] = "true"
    if seed.form == "unwrapped":
        place = "lsn" if seed.server.connector == "postgresql" else "pos"
        unwrap = {"delete.tombstone.handling.mode": "rewrite", "add.fields": f"op,{place},source.ts_ms"}
        unwrap["type"] = "io.debezium.transforms.ExtractNewRecordState"
        common |= {"transforms": "unwrap", **{f"transforms.unwrap.{name}": one for name, one in unwrap.items()}}
    if seed.plan.overlap == "restarted":
        # The stored offset may be one within a transaction.
        common |= {"offset.flush.interval.ms": 0, "max.batch.size": 3}
    if seed.server.connector == "postgresql":
        connector = "io.debezium.connector.postgresql.PostgresConnector"
        own = {"plugin.name": "pgoutput", "slot.name": seed.slot, "publication.name": "torture"}
        # Else the connector reads `pg_publication_tables` on the connection that then decodes: PostgreSQL 18.4
        # keeps today's tables in mind there, and decodes changes of before an ALTER with them, or crashes.
        own |= {"publication.autocreate.mode": "disabled", "database.dbname": seed.database}
        own |= {"interval.handling.mode": "string", "slot.retry.delay.ms": "500", "slot.max.retries": "40"}
    else:
        connector = "io.debezium.connector.mariadb.MariaDbConnector"
        history = "io.debezium.storage.file.history.FileSchemaHistory"
        own = {"database.server.id": str(1000 + seed.number), "database.include.list": seed.database}
        own |= {"schema.history.internal": history, "database.ssl.mode": "disable"}
        own |= {"schema.history.internal.file.filename": str(seed.folder / "schema.dat")}
        own |= {"bigint.unsigned.handling.mode": "precise", "include.schema.changes": "false"}
    return {"connector.class": connector, **common, **own}
