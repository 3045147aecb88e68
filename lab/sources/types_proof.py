"""Type by type: the text of a value in SQL, in Arrow, and of the published row that came through Debezium."""

from __future__ import annotations

from pathlib import Path

from sources.rig import SourceRig
from support.edge_values import list_statements
from tidefold.operations.attest.proof import AttestDetails
from tidefold.sources.database.catalogue import read_table
from tidefold.sources.database.connection import Database, quote_name
from tidefold.sources.database.types import find_form, propose_type
from torture.capture import Java
from torture.servers import Postgres

_ROWS = 2_000


def prove_types(server: Postgres, java: Java, folder: Path, mode: str) -> str:
    """Half of the rows come by the snapshot, half by the stream. Returns what differs; empty: nothing."""
    rig = SourceRig(server, java, folder / f"types_{mode}", "typed", "", **{"decimal.handling.mode": mode})
    rig.session.execute(*list_statements(_ROWS, with_extensions="15" in str(server.programs)))
    with Database.find("source").begin() as reader:
        table = read_table(reader, "public.edge")
    columns, kept = ["id: long"], ["id"]
    for column in table.columns[1:]:
        proposed = propose_type(column)
        # Without a schema, the precise mode does not say the scale of a text.
        if proposed is None or (mode == "precise" and column.name == "nw"):
            continue
        type_, encoding = proposed
        encoding = f"base64({column.scale})" if mode == "precise" and encoding == "string" else encoding
        columns.append(f'{column.name}: {{type: "{type_}"{f", encoding: {encoding}" if encoding else ""}}}')
        kept.append(column.name)
        form = find_form(column, type_)
        assert form is not None
        if form.unfit:  # What the log must refuse is not what this compares.
            quoted = quote_name(column.name)
            rig.session.execute(f"update edge set {quoted} = null where {form.of(quoted).unfit}")
    rig.columns = f"{{{', '.join(columns)}}}"
    chosen = f"select {', '.join(map(quote_name, kept))} from edge"
    rig.session.execute(
        f"create table typed as {chosen} where id < {_ROWS // 2}",
        *(f"alter table typed alter {one.name} type {one.declared}" for one in table.columns if one.name in kept),
        "alter table typed add primary key (id)",
    )
    rig.start()
    rig.await_caught_up()
    rig.session.execute(f"insert into typed {chosen} where id >= {_ROWS // 2}")
    rig.await_caught_up()
    outcome = rig.attest(lag=0.0, patience=2.0)
    rig.end()
    details = outcome.details
    assert isinstance(details, AttestDetails), outcome
    # Precise numbers have no NaN, and neither mode has it in a list.
    wrong = sorted({(*fault.columns, fault.kind) for fault in details.faults if fault.excuse != "NaN as null"})
    lost = sum(details.source.apart.values())
    told = f"{details.source.sentence}; apart {dict(details.source.apart)}; runs that failed: {rig.failed[-1:]}"
    return "" if not wrong and details.source.equal + lost == _ROWS else f"{told} {wrong}"
