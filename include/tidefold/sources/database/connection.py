"""The door to a database: the only user of its driver. It reads, in transactions that cannot write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from tidefold.errors import InvalidInputError, RefusedError, StorageError, TidefoldError
from tidefold.sources.connections import (
    FindConnection,
    StoredConnection,
    find_in_environment,
    make_package_error,
    read_connection,
)

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_TYPES = ("postgres", "postgresql")
# What Airflow's hook takes, and libpq does not know.
_OF_AIRFLOW = ("cursor", "iam", "redshift", "sqlalchemy_scheme", "sqlalchemy_query", "enable_log_db_messages")
_SECONDS = 10
# The text of no value depends on settings of the role or the server.
_SETTINGS = {"timezone": "UTC", "datestyle": "ISO, YMD", "intervalstyle": "postgres", "client_encoding": "UTF8"}
_NO_RIGHT, _NO_TABLE, _CANCELED = ("42501",), ("42P01", "3F000"), ("57014",)


@dataclass(frozen=True, slots=True)
class Database:
    """A database of PostgreSQL by its address, which has secrets: no message has it.

    name: of the connection. told: host, port and database, for people.
    """

    name: str
    address: str = field(repr=False)
    told: str

    @classmethod
    def find(cls, name: str, find: FindConnection = find_in_environment) -> Database:
        """Returns the database of a connection. Raises InvalidInputError."""
        stored = read_connection(name, find)
        if stored.conn_type not in _TYPES:
            raise InvalidInputError(
                "CONNECTION_TYPE",
                f"Connection `{name}` is of type `{stored.conn_type}`, and only PostgreSQL can be asked.",
                hint="Name a connection of type postgres.",
            )
        told = f"{stored.host or 'localhost'}:{stored.port or 5432}/{stored.schema or stored.login}"
        return cls(name, make_address(stored), told)

    @contextmanager
    def begin(self, snapshot: str = "") -> Iterator[Reader]:
        """Opens a REPEATABLE READ READ ONLY transaction: all that it reads is of one moment.

        snapshot: one that another transaction exports, whose moment it is.

        Raises InvalidInputError if the driver is not installed, StorageError.
        """
        try:
            from adbc_driver_manager import Error
            from adbc_driver_postgresql import dbapi
        except ModuleNotFoundError as error:
            raise make_package_error("POSTGRES_EXTRA", "A database", "adbc-driver-postgresql", "postgres") from error
        try:
            with dbapi.connect(self.address) as connection, connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                if snapshot:
                    cursor.execute(f"SET TRANSACTION SNAPSHOT {quote_text(snapshot)}")
                for setting, value in _SETTINGS.items():
                    cursor.execute(f"SET LOCAL {setting} = {quote_text(value)}")
                try:
                    yield Reader(cursor)
                finally:
                    connection.rollback()
        except Error as error:
            raise self._convert(error.sqlstate or "", str(error)) from None

    def ask(self, question: Callable[[Reader], T]) -> T:
        """Returns the answer of one transaction. Raises as `begin`."""
        with self.begin() as reader:
            return question(reader)

    def _convert(self, state: str, words: str) -> TidefoldError:
        line = " ".join(words.replace(self.address, "***").partition(": ")[2].split())[:300].rstrip(".")
        place = f"The database of `{self.name}` ({self.told})"
        if state in _NO_RIGHT:
            return RefusedError("DATABASE_DENIED", f"{place} refuses: {line}.")
        if state in _NO_TABLE:
            return RefusedError("DATABASE_NO_TABLE", f"{place} has no such table: {line}.")
        if state in _CANCELED:
            return RefusedError("DATABASE_TIMEOUT", f"{place} canceled a statement: {line}.")
        return StorageError("DATABASE_UNREADABLE", f"{place} cannot be read: {line}.")


@dataclass(frozen=True, slots=True)
class Reader:
    """One transaction. A text of a statement is passed beside it, as `$1`, `$2`."""

    _cursor: Any

    def read(self, statement: str, *texts: str) -> pa.Table:
        """Returns all rows."""
        self._cursor.execute(statement, texts or None)
        return self._cursor.fetch_arrow_table()

    def list(self, statement: str, *texts: str) -> list[dict[str, Any]]:
        """Returns the rows by the names of their columns."""
        rows: list[dict[str, Any]] = self.read(statement, *texts).to_pylist()
        return rows

    @contextmanager
    def stream(self, statement: str) -> Iterator[pa.RecordBatchReader]:
        """Opens the rows as batches, which are read while they come."""
        self._cursor.execute(statement)
        with self._cursor.fetch_record_batch() as batches:
            yield batches


def make_address(connection: StoredConnection) -> str:
    """Returns the URI of libpq for a connection, whose extra has more parameters of libpq, such as `sslmode`."""
    user = quote(connection.login, safe="")
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    more = {"connect_timeout": _SECONDS, "application_name": "tidefold", **_list_parameters(connection.extra)}
    # A folder of a socket is a host, too.
    place = f"{quote(connection.host or 'localhost', safe='.:[]')}:{connection.port or 5432}"
    at = f"{user}{secret}@" if user else ""
    return f"postgresql://{at}{place}/{quote(connection.schema, safe='')}?{urlencode(more, quote_via=quote)}"


def _list_parameters(extra: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: value for name, value in extra.items() if isinstance(value, str | int)}
    return {name: str(value) for name, value in plain.items() if name not in _OF_AIRFLOW}


def quote_name(name: str) -> str:
    """Returns an identifier of PostgreSQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Returns a text of PostgreSQL, whatever `standard_conforming_strings` says."""
    plain = text.replace("'", "''")
    return f"'{plain}'" if "\\" not in plain else "E'" + plain.replace("\\", "\\\\") + "'"
