"""The session on a Spark Connect server: Spark runs there already, so this process starts no JVM and needs no Java.

The processes of a pipeline on this machine share a session, which the server ends after an hour without use. Spark
keeps a Python daemon for each session on each executor, also after the session: with a session for each command they
would pile up, and each command would wait for new ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidefold import __version__
from tidefold.compute.spark_versions import SETTINGS, SparkFeature, require_feature
from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, TidefoldError, UnavailableError
from tidefold.storage.safe_files import make_private_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    # As for jobs: times in UTC, and a file that is gone or damaged is an error, never fewer rows.
    **SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}
# Set last: a session that has it has all the others, and the code.
_READY = "spark.tidefold.ready"
# Tries after the first: a server that is not there is reported after about a second. An outage of the network is borne
# for about 35 s. A server of this machine that does not answer is gone, and its session with it.
_TRIES_TO_CONNECT, _TRIES, _TRIES_HERE = 3, 6, 4
_LONGEST_PAUSE = 15_000
_SHOWN = 300
_INTERRUPT_SECONDS = 10.0
# How the client tells that the server does not know the session: at once, after a part of an answer, or later.
_LOST = ("INVALID_HANDLE.", "RESPONSE_ALREADY_RECEIVED", "NO_ACTIVE_SESSION")
# What operations of a server say while it is being stopped.
_STOPPED = (
    "stopped SparkContext",
    "SparkContext was shut down",
    "No active or default Spark session found",
    "Application error processing RPC",
)
_RETRY = "Call again: what was not committed is done again."
# On all operations of this process, so that it cancels its own only.
_TAG = f"tidefold-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server, and what a session there needs.

    address: with everything that `sc://` allows, so it may contain a token and is never printed.
    shown: the address without parameters.
    folder: where the id of the session is stored.
    conf: settings of the session.
    code: the archive with the package that executors get; None: it is installed there.
    """

    address: str = field(repr=False)
    shown: str
    folder: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    code: Path | None = None

    @property
    def is_here(self) -> bool:
        """Whether the address is one of this machine."""
        return self.shown.removeprefix("sc://").partition(":")[0] in ("localhost", "127.0.0.1")

    @property
    def digest(self) -> str:
        """Names what the session was made for: other settings or other code need another session."""
        made = [self.shown, __version__, self.code and self.code.name, sorted({**_SETTINGS, **self.conf}.items())]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()[:16]


_open: list[tuple[SparkSession, ConnectServer]] = []


def find_connected() -> SparkSession | None:
    """The open session of this process, if there is one."""
    return _open[-1][0] if _open else None


def name_pool(step: str, logs: Sequence[str]) -> str:
    """The pool of the server's scheduler for a step of this pipeline: in mode FAIR all pools take turns at its cores.

    Spark keeps each pool, so there is one for the first log of a step, not for each run.
    """
    return " ".join((_open[-1][1].digest, step, *logs[:1]))


def open_connected(server: ConnectServer) -> SparkSession:
    """Opens the session of this process, or returns it. Raises TidefoldError."""
    if opened := find_connected():
        return opened
    with explain_errors(server):
        session = _find_session(server)
        _open.append((session, server))
        try:
            _prepare(session, server)
        except BaseException:
            close_connected()
            raise
    return session


def close_connected() -> None:
    """Closes the connection. The session stays, for the next command."""
    while _open:
        _open.pop()[0].stop()


def mark_operations(*tags: str) -> None:
    """Lets `interrupt_connected` find the operations that this thread begins, and gives them more tags."""
    if session := find_connected():
        for tag in (_TAG, *tags):
            session.addTag(tag)


def interrupt_connected() -> None:
    """Cancels the operations of this process on the server, and those of nobody else. Waits for a few seconds at most.

    In a thread of its own: a signal handler may interrupt the client anywhere.
    """
    if session := find_connected():
        _allow_tries(session, 0)

        def interrupt() -> None:
            with suppress(Exception):  # This process ends in any case.
                session.interruptTag(_TAG)

        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        thread.join(_INTERRUPT_SECONDS)


def _find_session(server: ConnectServer) -> SparkSession:
    """The session that the last command used; a new one if the server does not have it any more."""
    from pyspark.errors import PySparkException

    stored = server.folder / f"connect-{server.digest}.session"
    try:
        stored_id = str(uuid.UUID(stored.read_text()))
    except (OSError, ValueError):
        stored_id = ""
    if stored_id:
        session = _connect(server.address, stored_id)
        try:
            _require_version(session.version, server.shown)
            return session
        except PySparkException as error:
            session.stop()
            if not (error.getCondition() or "").startswith("INVALID_HANDLE."):
                raise
    fresh = str(uuid.uuid4())
    session = _connect(server.address, fresh)
    _require_version(session.version, server.shown)
    make_private_folder(server.folder)
    part = stored.with_suffix(f".{os.getpid()}.part")
    part.write_text(fresh)
    os.replace(part, stored)
    return session


def _prepare(session: SparkSession, server: ConnectServer) -> None:
    _allow_tries(session, _TRIES_HERE if server.is_here else _TRIES)
    if session.conf.get(_READY, None) == server.digest:
        return
    for name, value in {**_SETTINGS, **server.conf}.items():
        set_value(session, name, value)
    if server.code:
        session.addArtifacts(str(server.code), pyfile=True)
    session.conf.set(_READY, server.digest)


def set_value(session: SparkSession, name: str, value: str) -> None:
    """Sets a setting of the session. Raises InvalidInputError for one that only the start of the server can set."""
    from pyspark.errors import PySparkException

    try:
        session.conf.set(name, value)
    except PySparkException as error:
        if "CANNOT_MODIFY" not in (error.getCondition() or str(error)):
            raise
        if session.conf.get(name, None) == value:
            return
        raise InvalidInputError(
            "CONNECT_SETTING",
            f"A session of the Spark Connect server cannot change `{name}`.",
            hint=f"Start the server with `--conf {name}=...`, and remove the setting from `tidefold.yaml`.",
        ) from error


def _connect(address: str, session_id: str) -> SparkSession:
    require_feature(SparkFeature.CONNECT)
    # Before the import: functions and types of pyspark.sql look for it.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        message = f"Spark Connect needs a package that this environment does not have: {_first_line(error)}"
        hint = "Install them: `pip install 'tidefold[connect]'`."
        raise NotFoundError("CONNECT_PACKAGES", message, hint=hint) from error
    # The error that follows says so.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
    place, _, parameters = address.partition("/;")
    named = ";".join(filter(None, (f"{place.rstrip('/')}/", parameters.strip(";"), f"session_id={session_id}")))
    session: Any = SparkSession.builder.remote(named).create()
    session.release_session_on_close = False
    _allow_tries(session, _TRIES_TO_CONNECT)
    return session


def _allow_tries(session: Any, tries: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=tries, max_backoff=_LONGEST_PAUSE)])


def _require_version(version: str, shown: str) -> None:
    from pyspark.version import __version__ as here

    if version.split(".")[:2] != str(here).split(".")[:2]:
        message = f"The Spark Connect server {shown} is Spark {version}, and this process has the client of {here}."
        hint = "Install the same version on both sides."
        raise RefusedError("VERSION_MISMATCH", message, hint=hint)


@contextmanager
def explain_errors(server: ConnectServer | None = None) -> Iterator[None]:
    """Turns errors of the client into errors with a code and a next step. Other errors pass."""
    try:
        yield
    except TidefoldError:
        raise
    except Exception as error:
        if explained := explain(error, server):
            raise explained from error
        raise


def explain(error: Exception, server: ConnectServer | None = None) -> TidefoldError | None:
    """The error of an outage, or of an operation that the server could not do; None: it is another error."""
    server = server or _find_server()
    if server is None:
        return None
    if outage := find_outage(error, server):
        return outage
    from pyspark.errors.exceptions.connect import SparkConnectException

    if missing := re.search(r"No module named '(\w+)", str(error)):
        own = "Set `spark.ship_code: true`, or install it there." if missing[1] == "tidefold" else ""
        hint = own or "Install it there. The server's environment variable PYSPARK_PYTHON names that Python."
        message = f"The Python of the executors of {server.shown} does not have `{missing[1]}`."
        return RefusedError("CONNECT_WORKER_PACKAGE", message, hint=hint)
    if isinstance(error, SparkConnectException):
        message = f"An operation on the Spark Connect server {server.shown} failed: {_first_line(error)}"
        return UnavailableError("CONNECT_FAILED", message, hint=f"Read the server's log. {_RETRY}")
    return None


def find_outage(error: Exception, server: ConnectServer | None = None) -> TidefoldError | None:
    """The error of a server that is gone, refuses this process, or has lost its session; None: it is another error."""
    server = server or _find_server()
    if server is None:
        return None
    from pyspark.errors import PySparkException

    status = getattr(getattr(error, "_grpc_status_code", None), "name", "").lower()
    if status == "unavailable":
        message = f"The Spark Connect server {server.shown} does not answer: {_details(error)}."
        hint = f"Start it (on this machine: `tidefold spark start`), or correct its address. {_RETRY}"
        if "handshake" in message:
            hint = f"A client with a token wants TLS, except of `sc://localhost`: use a proxy with TLS. {_RETRY}"
        return UnavailableError("CONNECT_UNREACHABLE", message, hint=hint)
    if status in ("unauthenticated", "permission_denied"):
        message = f"The Spark Connect server {server.shown} refuses this process: {_details(error)}."
        hint = "Set SPARK_CONNECT_AUTHENTICATE_TOKEN to a valid token, or SPARK_REMOTE to the address with one."
        return InvalidInputError("CONNECT_DENIED", message, hint=hint)
    if any(text in str(error) for text in _STOPPED):
        hint = f"Start it again (on this machine: `tidefold spark start`). {_RETRY}"
        return UnavailableError(
            "CONNECT_UNREACHABLE", f"The Spark Connect server {server.shown} was stopped.", hint=hint
        )
    if isinstance(error, PySparkException) and (error.getCondition() or "").startswith(_LOST):
        message = f"The Spark Connect server {server.shown} has lost the session of this process: it was restarted, or "
        return UnavailableError("CONNECT_SESSION_LOST", f"{message}the session expired.", hint=_RETRY)
    return None


def _find_server() -> ConnectServer | None:
    return _open[-1][1] if _open else None


def _details(error: Exception) -> str:
    """What gRPC reports, without its traces."""
    match = re.search(r'details = "(.*?)"\n', str(error))
    return (match[1] if match else _first_line(error))[:_SHOWN].rstrip(".")


def _first_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_SHOWN]
