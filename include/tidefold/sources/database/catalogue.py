"""What the catalogue of a database says of its tables: kind, columns, key."""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.errors import RefusedError
from tidefold.sources.database.connection import Reader, quote_name
from tidefold.sources.database.types import ENUM, DatabaseColumn

TABLE, PARTITIONED, VIEW, MATERIALIZED, FOREIGN = "r", "p", "v", "m", "f"
_KINDS = {PARTITIONED: "a partitioned table", VIEW: "a view", MATERIALIZED: "a materialized view", FOREIGN: "foreign"}
_OWN = "n.nspname !~ '^pg_' and n.nspname <> 'information_schema'"
# A domain is what it is based on, with its size; domains of domains too. An array is its element.
_COLUMNS = """
with recursive typed as (
  select a.attrelid as relation, a.attnum as number, a.attname as name,
         format_type(a.atttypid, a.atttypmod) as declared, a.atttypid as type, a.atttypmod as modifier
  from pg_attribute a where a.attrelid = any($1::oid[]) and a.attnum > 0 and not a.attisdropped
  union all
  select relation, number, name, declared, t.typbasetype,
         case when modifier >= 0 then modifier else t.typtypmod end
  from typed join pg_type t on t.oid = type where t.typtype = 'd')
select relation::bigint, name::text, declared, modifier, coalesce(e.typname, t.typname)::text as type,
       coalesce(e.typtype, t.typtype)::text as sort, e.oid is not null as is_array
from typed join pg_type t on t.oid = type left join pg_type e on e.oid = t.typelem and t.typcategory = 'A'
where t.typtype <> 'd' order by relation, number
"""
# The primary key, else the index that a replica identity names.
_TABLES = """
select c.oid::bigint as relation, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
       c.relreplident::text as identity, c.reltuples::bigint as rows,
       row_security_active(c.oid) as has_policies, c.relpersistence = 'p' as is_logged,
       exists (select from pg_inherits where inhparent = c.oid) as has_children,
       (select array_agg(a.attname::text order by k.place)
        from pg_index i, unnest(i.indkey) with ordinality k(at, place)
        join pg_attribute a on a.attnum = k.at where i.indrelid = c.oid and a.attrelid = c.oid
        and k.place <= i.indnkeyatts and i.indexrelid = (select indexrelid from pg_index where indrelid = c.oid
        and (indisprimary or indisreplident) and indisvalid order by indisprimary desc limit 1)) as key
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p', 'v', 'm', 'f') and {which}
order by n.nspname, c.relname
"""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table, or what has rows as one.

    kind: of `pg_class`. identity: of its replica: d its key, f the whole row, i an index, n nothing.
    rows: about, by the last ANALYZE; -1: never.
    has_policies: row level security hides rows of it from this user. is_logged: a stream can have its changes.
    has_children: partitions, or tables that inherit.
    """

    schema: str
    name: str
    kind: str
    identity: str
    rows: int
    has_policies: bool
    is_logged: bool
    has_children: bool
    key: tuple[str, ...]
    columns: tuple[DatabaseColumn, ...] = ()

    @property
    def quoted(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @property
    def rows_of(self) -> str:
        """What is selected from: the own rows of a table, without those of tables that inherit from it."""
        return f"only {self.quoted}" if self.kind == TABLE else self.quoted

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def described_kind(self) -> str:
        """What it is for people, if it is no plain table."""
        return _KINDS.get(self.kind, "")

    def find_column(self, name: str) -> DatabaseColumn | None:
        return next((column for column in self.columns if column.name == name), None)


def list_tables(reader: Reader) -> list[SourceTable]:
    """Returns the tables of a database that the user may read, without those of the system."""
    which = f"{_OWN} and c.relkind in ('r', 'p') and not c.relispartition and has_table_privilege(c.oid, 'select')"
    return _read_tables(reader, which)


def read_table(reader: Reader, name: str) -> SourceTable:
    """Returns a table by `schema.table`, or as the search path finds it. Raises RefusedError."""
    schema, _, table = name.rpartition(".")
    at = "n.nspname = $2" if schema else "pg_table_is_visible(c.oid) and $2 = ''"
    tables = _read_tables(reader, f"c.relname = $1 and {at}", table, schema)
    if not tables:
        raise RefusedError("DATABASE_NO_TABLE", f"The database has no table `{name}` that this user can see.")
    return tables[0]


def _read_tables(reader: Reader, which: str, *texts: str) -> list[SourceTable]:
    rows = {row.pop("relation"): row for row in reader.list(_TABLES.format(which=which), *texts)}
    columns: dict[int, list[DatabaseColumn]] = {relation: [] for relation in rows}
    for row in reader.list(_COLUMNS, "{" + ",".join(map(str, rows)) + "}") if rows else ():
        columns[row["relation"]].append(_read_column(row))
    return [
        SourceTable(**{**row, "key": tuple(row["key"] or ()), "columns": tuple(columns[relation])})
        for relation, row in rows.items()
    ]


def _read_column(row: dict[str, object]) -> DatabaseColumn:
    type_, modifier = str(row["type"]), int(str(row["modifier"]))
    size, scale = modifier, 0
    if type_ == "numeric" and modifier >= 0:
        # A scale is 11 bits with a sign.
        size, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    elif type_ in ("bpchar", "varchar") and modifier >= 0:
        size = modifier - 4
    if row["sort"] == "e":
        type_ = ENUM
    return DatabaseColumn(str(row["name"]), type_, bool(row["is_array"]), size, scale, str(row["declared"]))
