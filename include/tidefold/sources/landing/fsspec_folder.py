"""A folder of any filesystem of fsspec, such as `sftp://host/folder`, as a landing place. It is only read.

User and keys come from fsspec's settings, such as the variables FSSPEC_SFTP_USERNAME and FSSPEC_SFTP_KEY_FILENAME.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from fsspec.config import conf
from fsspec.core import url_to_fs

from tidefold.errors import InvalidInputError, NotFoundError, RefusedError, StorageError, TidefoldError
from tidefold.sources.landing.landing_place import ListedFile, Stamp, find_tables_in, is_hidden, is_visible
from tidefold.storage.range_reader import READ, RangeReader
from tidefold.storage.safe_files import UnsafeFileError

T = TypeVar("T")
# What listings of filesystems call the time of change.
_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated")


class FsspecFolder:
    """A folder of a filesystem of fsspec. Size and time of change distinguish its files."""

    pins = False

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    @property
    def address(self) -> str:
        return self._address

    def list_files(self, known: Collection[str] = ()) -> Iterator[ListedFile]:
        listed = {name: details for name, details in self._list(is_hidden) if is_visible(name)}
        yield from (self._describe(name, listed[name]) for name in sorted(listed))

    def open(self, name: str, stamp: Stamp | None = None) -> BinaryIO:
        size = (stamp or self.find_stamp(name)).size
        stream = self._ask(name, lambda files, root: files.open(f"{root}/{name}", "rb"))

        def load(start: int, length: int) -> bytes:
            with _os_errors(name):
                # SFTP asks for the pieces of a range all at once, which is three times as fast.
                if hasattr(stream, "readv"):
                    return b"".join(stream.readv([(start, length)]))
                stream.seek(start)
                return cast(bytes, stream.read(length))

        return cast(BinaryIO, io.BufferedReader(_OpenedFile(load, size, stream), READ))

    def find_stamp(self, name: str, stream: BinaryIO | None = None) -> Stamp:
        return self._describe(name, self._ask(name, lambda files, root: files.info(f"{root}/{name}"))).stamp

    def find_tables(self) -> dict[str, str]:
        return find_tables_in(name for name, _ in self._list(lambda name: False))

    def _list(self, skip: Callable[[str], bool]) -> list[tuple[str, dict[str, Any]]]:
        try:
            return self._ask(self.address, lambda files, root: list(_walk(files, root, "", skip)))
        except FileNotFoundError as error:
            hint = "Check `source.path`. If nothing has landed yet, create the folder."
            raise NotFoundError("LANDING_MISSING", f"There is no folder `{self.address}`.", hint=hint) from error
        except OSError as error:
            hint = "Nothing was ingested, because it may contain earlier files. Run ingest again when it can be listed."
            message = f"`{self.address}` cannot be listed: {error.strerror}."
            raise StorageError("LANDING_UNREADABLE", message, hint=hint) from error

    def _ask(self, name: str, question: Callable[[Any, str], T]) -> T:
        """Asks the filesystem. A connection that was cut since its last use is made again, once. Raises OSError."""
        with _os_errors(name):
            files, root = _connect(self.address, os.getpid())
            files.invalidate_cache()
            try:
                return question(files, root)
            except (FileNotFoundError, InvalidInputError):
                raise
            except Exception:
                _connect.cache_clear()
                return question(*_connect(self.address, os.getpid()))

    def _describe(self, name: str, details: dict[str, Any]) -> ListedFile:
        if details["type"] != "file":
            kind = "a symbolic link" if details["type"] == "link" else f"a {details['type']}"
            return ListedFile(name, Stamp(0, 0, 0.0), UnsafeFileError(name, kind))
        changed = next((details[key] for key in _TIMES if details.get(key) is not None), None)
        if isinstance(changed, str):
            changed = datetime.fromisoformat(changed)
        if isinstance(changed, datetime):
            changed = (changed if changed.tzinfo else changed.replace(tzinfo=UTC)).timestamp()
        if changed is None or details.get("size") is None:
            lacks = "time of change" if changed is None else "size"
            message = f"The filesystem of `{self.address}` says no {lacks} of a file, so a replaced one would not show."
            raise RefusedError("LANDING_STAMP", message, hint="Copy the files to a disk or an object store.")
        return ListedFile(name, Stamp(0, details["size"], changed))


class _OpenedFile(RangeReader):
    """A file of a filesystem, of the length that was listed."""

    def __init__(self, load: Callable[[int, int], bytes], size: int, stream: Any) -> None:
        super().__init__(load, size)
        self._stream = stream

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


@lru_cache(maxsize=8)
def _connect(address: str, process: int) -> tuple[Any, str]:  # noqa: ARG001
    """Returns the filesystem and the folder in it. `process`: a connection is of no use after a fork."""
    scheme = address.partition("://")[0]
    is_ssh = scheme in ("sftp", "ssh")
    try:
        rule = {"host_key_policy": _make_host_rule()} if is_ssh else {}
        files, root = url_to_fs(address, **(rule | conf.get(scheme, {}) | {"skip_instance_cache": True}))
    except ImportError as error:
        step = '`pip install "tidefold[sftp]"`' if is_ssh else "Install the package that it names"
        message = f"Folders at `{scheme}:` need a package that is not installed: {error}."
        raise InvalidInputError("STORE_EXTRA", message, hint=f"{step}, also where Spark's tasks run.") from error
    return files, root.rstrip("/")


def _make_host_rule() -> Any:
    """Returns the rule of `ssh`: the key of a host is in `~/.ssh/known_hosts`."""
    import paramiko

    class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            listed = Path("~/.ssh/known_hosts").expanduser()
            if not listed.exists() or not paramiko.HostKeys(str(listed)).check(hostname, key):
                raise paramiko.SSHException(f"the key of {hostname} is not in {listed}")

    return KnownHosts()


def _walk(files: Any, root: str, below: str, skip: Callable[[str], bool]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the files of all folders that are not skipped: names below the root, and what the listing says of them."""
    for details in files.ls(f"{root}/{below}".rstrip("/") or "/", detail=True):
        last = details["name"].rstrip("/").rpartition("/")[2]
        if details["type"] == "directory":
            if not skip(last):
                yield from _walk(files, root, f"{below}{last}/", skip)
        else:
            yield f"{below}{last}", details


@contextmanager
def _os_errors(name: str) -> Iterator[None]:
    """Turns what a filesystem raises into the error that a disk would raise."""
    try:
        yield
    except TidefoldError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise
        text = " ".join(str(error).split()) or "the connection was cut"
        raise OSError(errno.EIO, f"{type(error).__name__}: {text}", name) from error
