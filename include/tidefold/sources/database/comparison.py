"""The SQL by which rows of a table and rows of a log are compared: a key as text, its group, and a hash of the row."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidefold.domain.log_state import Column, Expire
from tidefold.errors import RefusedError
from tidefold.sources.database.catalogue import SourceTable
from tidefold.sources.database.connection import Reader, quote_name, quote_text
from tidefold.sources.database.types import ColumnForm, find_form, join_texts

if TYPE_CHECKING:
    import pyarrow as pa

# Hexadecimal digits of an md5 that become a number: 60 bits.
_DIGITS = 15


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Which columns of a table and of a log are compared, and how.

    key: names of the columns of the key. columns: of the log, in its order; the key is among them.
    forms: by the name of each column.
    groups: in how many groups keys are counted.
    expired: SQL of the rows of the table that are too old for the log; empty: none are.
    """

    table: SourceTable
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    forms: Mapping[str, ColumnForm]
    groups: int
    expired: str = ""

    @classmethod
    def plan(
        cls, table: SourceTable, key: tuple[str, ...], columns: Sequence[Column], groups: int, expire: Expire | None
    ) -> RowComparison:
        """Raises RefusedError, which names columns that the table lacks, or whose types have no common text."""
        forms, wrong = dict[str, ColumnForm](), list[str]()
        for column in columns:
            source = table.find_column(column.name)
            form = find_form(source, column.type) if source else None
            if form is None:
                wrong.append(f"{column.name} ({source.declared if source else 'not there'}, {column.type} in the log)")
            else:
                forms[column.name] = form
        if wrong:
            raise RefusedError(
                "ATTEST_COLUMNS",
                f"Columns of `{table.full_name}` cannot be compared: {', '.join(wrong)}.",
                hint="Leave them out with `--leave-out COLUMN`: the proof names them.",
            )
        too_old = f"{quote_name(expire.column)} < {quote_text(expire.before)}" if expire else ""
        return cls(table, key, tuple(columns), forms, groups, too_old)

    # --- the table of the database
    def read_sums(self, reader: Reader) -> dict[int, tuple[int, str]]:
        """Returns number of rows and checksum of each group."""
        rows = reader.list(f"select g, count(*) as n, sum(h)::text as s from ({self._select()}) x group by g")
        return {row["g"]: (row["n"], row["s"]) for row in rows}

    def read_groups(self, reader: Reader, groups: Collection[int]) -> pa.Table:
        """Returns key and hash of the rows of some groups."""
        # An array beside the statement would be parsed for each row.
        wanted = "select json_array_elements_text($1::json)::int"
        return reader.read(f"select k, h from ({self._select()}) x where g in ({wanted})", json.dumps(sorted(groups)))

    def read_keys(self, reader: Reader, keys: Iterable[str]) -> pa.Table:
        """Returns key and hash of the rows of some keys."""
        return reader.read(f"select k, h from ({self._select(self._of_keys())}) x", json.dumps(sorted(keys)))

    def read_texts(self, reader: Reader, keys: Iterable[str]) -> dict[str, dict[str, str | None]]:
        """Returns the text of each value of some keys."""
        named = ", ".join(f"{self._text(one.name)} as c{i}" for i, one in enumerate(self.columns))
        statement = f"select {self._key()} as k, {named} from {self._from(self._of_keys())}"
        rows = reader.list(statement, json.dumps(sorted(keys)))
        return {key: self.name_texts(texts) for key, *texts in (row.values() for row in rows)}

    def count_apart(self, reader: Reader) -> dict[str, int]:
        """Counts what the log cannot have: values that a connector loses, and rows that are too old."""
        lost = [one.name for one in self.columns if self.is_numeric(one) and one.type.startswith("decimal")]
        counts = {f"NaN of `{name}` as null": f"count(*) filter (where {quote_name(name)} = 'NaN')" for name in lost}
        counts |= {"expired": f"count(*) filter (where {self.expired})"} if self.expired else {}
        if not counts:
            return {}
        named = ", ".join(f"{count} as c{i}" for i, count in enumerate(counts.values()))
        [row] = reader.list(f"select {named} from {self.table.rows_of}")
        return {name: row[f"c{i}"] for i, name in enumerate(counts) if row[f"c{i}"]}

    def is_numeric(self, column: Column) -> bool:
        """Whether the source has numbers of PostgreSQL's `numeric` there, or lists of them."""
        source = self.table.find_column(column.name)
        return source is not None and source.type == "numeric"

    def _select(self, joined: str = "") -> str:
        hashed = _hash_number(f"md5(convert_to({self._join(self.columns)}, 'UTF8'))", "('x0' || {})::bit(64)::bigint")
        group = _hash_number(f"md5(convert_to({self._key()}, 'UTF8'))", "('x0' || {})::bit(64)::bigint")
        return (
            f"select {self._key()} as k, ({group} % {self.groups})::int as g, {hashed} as h from {self._from(joined)}"
        )

    def _from(self, joined: str) -> str:
        fresh = f" where not coalesce({self.expired}, false)" if self.expired else ""
        return f"{self.table.rows_of} {joined}{fresh}"

    def _of_keys(self) -> str:
        return f"join json_array_elements_text($1::json) as asked(_tidefold_key) on _tidefold_key = {self._key()}"

    def _key(self) -> str:
        return self._join([one for one in self.columns if one.name in self.key])

    def _join(self, columns: Iterable[Column]) -> str:
        return join_texts((self._text(one.name), one.type) for one in columns)

    def _text(self, name: str) -> str:
        return self.forms[name].of(quote_name(name)).text

    # --- the rows of the log, in DuckDB, whose columns are c0, c1, ...
    def select_local(self, rows: str) -> str:
        """Returns the DuckDB query of key, group and hash of each of these rows."""
        hashed, group = (
            _hash_number(f"md5({text})", "('0x' || {})::bigint") for text in (self._local(self.columns), self.local_key)
        )
        return f"select {self.local_key} as k, ({group} % {self.groups})::int as g, {hashed} as h from {rows}"

    @property
    def local_key(self) -> str:
        """The DuckDB text of a key."""
        return self._local([one for one in self.columns if one.name in self.key])

    def select_local_texts(self, rows: str) -> str:
        """Returns the DuckDB query of the text of each value of these rows."""
        texts = (f"{self._local_text(i)} as c{i}" for i in range(len(self.columns)))
        return f"select {self.local_key} as k, {', '.join(texts)} from {rows}"

    def name_texts(self, texts: Sequence[str | None]) -> dict[str, str | None]:
        """Returns texts of a row by the name of their columns."""
        return dict(zip([one.name for one in self.columns], texts, strict=True))

    def _local(self, columns: Iterable[Column]) -> str:
        numbers = {one.name: i for i, one in enumerate(self.columns)}
        return join_texts((self._local_text(numbers[one.name]), one.type) for one in columns)

    def _local_text(self, number: int) -> str:
        return self.forms[self.columns[number].name].of(f"c{number}").local


def _hash_number(hashed: str, form: str) -> str:
    return form.format(f"substr({hashed}, 1, {_DIGITS})")
