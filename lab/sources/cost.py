"""What an attestation of some million rows costs: wall and CPU seconds of both sides, and memory of ours."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import pyarrow as pa

from support.pipelines import publish, put_table
from tidefold.changelog.schema import UPSERT, change_schema
from tidefold.config import load_config
from tidefold.operations.attest.attest import attest
from tidefold.operations.attest.proof import AttestDetails, AttestRequest
from tidefold.sources.database.catalogue import read_table
from tidefold.sources.database.connection import Database, quote_name
from tidefold.sources.database.types import find_form, to_column
from tidefold.wiring import connect
from torture.servers import Postgres

_AT_ONCE = 250_000
_COLUMNS = {
    "id": ("bigint primary key", "long", "n"),
    "name": ("text", "string", "'name ' || n"),
    "amount": ("numeric(12,2)", "{type: 'decimal(12,2)', encoding: string}", "n / 100.0"),
    "rate": ("float8", "double", "n / 3.0"),
    "ok": ("boolean", "boolean", "n % 2 = 0"),
    "day": ("date", "date", "date '2020-01-01' + (n % 1000)::int"),
    "at": (
        "timestamptz",
        "{type: timestamp, encoding: iso}",
        "timestamptz '2020-01-01 00:00:00Z' + n * interval '1 second'",
    ),
    "data": ("bytea", "binary", "decode(md5(n::text), 'hex')"),
    "doc": ("jsonb", "string", "jsonb_build_object('a', n)"),
    "uid": ("uuid", "string", "md5(n::text)::uuid"),
}


def measure_attest(server: Postgres, folder: Path, rows: int) -> str:
    """Prints what the first attestation costs, then one with a hundredth of a percent of the keys changed."""
    name = "cost"
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name / "landing").mkdir(parents=True)
    own = server.session("")
    own.execute(f"drop database if exists {name} with (force)", f"create database {name}")
    session = server.session(name)
    session.execute(f"create table big ({', '.join(f'{one} {ddl}' for one, (ddl, *_) in _COLUMNS.items())})")
    values = ", ".join(value for *_, value in _COLUMNS.values())
    session.execute(f"insert into big select {values} from generate_series(1, {rows}) n", "vacuum analyze big")
    os.environ["AIRFLOW_CONN_SOURCE"] = f"postgres://{server.user}@127.0.0.1:{server.port}/{name}"
    columns = ", ".join(f"{one}: {type_}" for one, (_, type_, _) in _COLUMNS.items())
    lines = ["version: 1", "store: store", "spark: {above: 80GB}", "logs:", "  big:"]
    lines += ["    source: {format: debezium-json, connector: postgresql, path: landing}", "    key: [id]"]
    (folder / name / "tidefold.yaml").write_text("\n".join([*lines, f"    columns: {{{columns}}}", ""]))
    pipeline = connect(load_config(folder / name / "tidefold.yaml"))
    shape = pipeline.log("big").shape
    with Database.find("source").begin() as reader:
        table = read_table(reader, "public.big")
        forms = {one.name: find_form(table.find_column(one.name), one.type) for one in shape.columns}  # type: ignore[arg-type]
        named = ", ".join(
            f"{form.of(quote_name(one)).select} as {quote_name(one)}" for one, form in forms.items() if form
        )
        for first in range(1, rows + 1, _AT_ONCE):
            read = reader.read(f"select {named} from big where id between {first} and {first + _AT_ONCE - 1}")
            system = {"_op": UPSERT, "_kg": 0, "_o0": 0, "_o1": 0, "_partition": 0, "_ts": 0, "_absent": None}
            taken = {one.name: to_column(read[one.name], one.type) for one in shape.columns}
            offsets = {"_offset": pa.array(range(first, first + len(read)))}
            made = {key: pa.array([value] * len(read)) for key, value in system.items()} | offsets | taken
            schema = change_schema(shape)
            put_table(pipeline, pa.table([made[one.name].cast(one.type) for one in schema], schema=schema), "big", 1)
    publish(pipeline, "r1", "big")
    for changed in (0, rows // 10_000):
        if changed:
            session.execute(f"update big set name = 'other' where id % {rows // changed} = 0")
        before, theirs, begun = _count_cpu(), _count_server(server), time.monotonic()
        outcome = attest(pipeline, "big", AttestRequest("source", "public.big", lag=0.0, patience=0.0))
        assert isinstance(outcome.details, AttestDetails), outcome
        used = f"{time.monotonic() - begun:.1f} s wall, {_count_cpu() - before:.1f} CPU s here, "
        time.sleep(1)  # The backends end.
        used += f"{_count_server(server) - theirs:.1f} CPU s at the server, "
        used += f"{outcome.details.seconds:.1f} s in its transactions"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        sent = f"{outcome.details.rows_sent:,} pairs sent, peak {peak} MB, load {os.getloadavg()[0]:.1f}"
        print(f"{rows:,} rows, {changed:,} changed: {outcome.details.source.sentence}: {used}, {sent}", flush=True)
    return ""


def _count_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _count_server(server: Postgres) -> float:
    """CPU seconds of the backends that have ended."""
    parts = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[13]) + int(parts[14])) / os.sysconf("SC_CLK_TCK")
