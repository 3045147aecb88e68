"""Connections of sources, with secrets: as Airflow has them, or the environment in Airflow's form. Nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidefold.errors import InvalidInputError

# Returns a connection as JSON or as a URI; empty: there is none.
FindConnection = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class StoredConnection:
    """A connection by Airflow's names of its parts. `schema` is the database. No message has its password or extra."""

    conn_type: str = ""
    host: str = ""
    port: int | None = None
    login: str = ""
    password: str = field(default="", repr=False)
    schema: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


def make_package_error(code: str, what: str, package: str, extra: str) -> InvalidInputError:
    """Returns the error of a client that is not installed."""
    message = f"{what} needs the package `{package}`, which is not installed."
    return InvalidInputError(code, message, hint=f'Install it: `pip install "tidefold[{extra}]"`.')


def find_in_environment(name: str) -> str:
    """Returns what AIRFLOW_CONN_NAME has; empty: nothing."""
    return os.environ.get(f"AIRFLOW_CONN_{name.upper()}", "")


def read_connection(name: str, find: FindConnection = find_in_environment) -> StoredConnection:
    """Returns a connection. Raises InvalidInputError, which has nothing of it."""
    try:
        stored = find(name).strip()
        named = _parse_uri(stored) if "://" in stored and not stored.startswith("{") else json.loads(stored or "null")
        extra = named.get("extra") or {}
        parts = {part.name: named[part.name] for part in fields(StoredConnection) if named.get(part.name)}
        whole = {**parts, "extra": json.loads(extra) if isinstance(extra, str) else extra}
        if isinstance(whole["extra"], dict):
            return StoredConnection(**whole)
    except (ValueError, AttributeError):
        pass
    raise InvalidInputError(
        "CONNECTION_MISSING",
        f"There is no connection `{name}`, or it is no JSON object.",
        hint=f"Make it in Airflow, or set AIRFLOW_CONN_{name.upper()} in the environment, in Airflow's form.",
    ) from None


def _parse_uri(text: str) -> dict[str, Any]:
    parts = urlsplit(text)
    return {
        "conn_type": parts.scheme,
        "host": unquote(parts.hostname or ""),
        "port": parts.port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "schema": unquote(parts.path.lstrip("/")),
        "extra": dict(parse_qsl(parts.query)),
    }
