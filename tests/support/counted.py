"""Counts the calls and rows of work, which do not depend on the machine, and compares them with a stored baseline."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.storage import StoredObject
from tidefold.storage.local_store import LocalStore

BASELINE = Path(__file__).parents[1] / "data" / "counts.json"
# Sizes depend on how well the installed libraries compress and on the length of names and numbers; no other count may.
TOLERANCES = {"bytes read": 0.05, "bytes written": 0.05}
ACCEPT = "make bench-counts"
_ACCEPTING = "TIDEFOLD_ACCEPT_COUNTS"
Counts = Mapping[str, int]


class CountedStore(LocalStore):
    """A store on disk that adds each call and its bytes to `counts`."""

    def __init__(self, root: Path, counts: Counter[str]) -> None:
        super().__init__(root)
        self._counts = counts

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self._counts["get" if length is None and not start else "range"] += 1
        data = super().read(path, start, length)
        self._counts["bytes read"] += len(data)
        return data

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self._counts["files opened"] += 1
        with super().open(path) as stream:
            yield cast(BinaryIO, _Reads(stream, self._counts))

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with super().create(path) as stream:
            yield stream
        self._counts["put"] += 1
        self._counts["ledger commits"] += "/ledger/" in path
        self._counts["bytes written"] += os.path.getsize(self._full(path))

    def link(self, source: str, target: str, copy: bool = False) -> str:
        self._counts["link"] += 1
        return super().link(source, target, copy)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        self._counts["list"] += 1
        return super().list(folder, unfinished)

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        self._counts["delete"] += len(gone)
        super().delete(gone)


class _Reads(io.RawIOBase):
    """A stream whose reads are counted. A read that does not start at the end of the last one counts as a new range."""

    def __init__(self, stream: BinaryIO, counts: Counter[str]) -> None:
        super().__init__()
        self._stream, self._counts, self._ended = stream, counts, -1

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any) -> int:
        begin = self._stream.tell()
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        if data:
            self._counts["range"] += begin != self._ended
            self._counts["bytes read"] += len(data)
            self._ended = begin + len(data)
        return len(data)


@contextmanager
def counting(open_store: Callable[[Path, Counter[str]], LocalStore] = CountedStore) -> Iterator[Counter[str]]:
    """Counts the calls to every disk store that is opened within this context, the decoded rows, and started jobs.

    It counts what would wait for the disk, and does not wait.
    """
    counts: Counter[str] = Counter()
    with ExitStack() as patched:
        patched.enter_context(mock.patch("os.fsync", partial(_synced, counts)))
        patched.enter_context(mock.patch.object(subprocess.Popen, "__init__", _started(counts)))
        patched.enter_context(mock.patch("tidefold.storage.LocalStore", lambda root: open_store(root, counts)))
        for kind, name in _DECODERS:
            patched.enter_context(_decoding(kind, name, counts))
        patched.enter_context(mock.patch("pyarrow.ipc.RecordBatchStreamReader", _Stream))
        yield counts


def _synced(counts: Counter[str], handle: int) -> None:
    counts["fsync"] += 1


def _started(counts: Counter[str]) -> Callable[..., None]:
    real = subprocess.Popen.__init__

    def start(self: subprocess.Popen[bytes], *args: Any, **given: Any) -> None:
        counts["processes started"] += 1
        real(self, *args, **given)

    return start


class _Stream(pa.ipc.RecordBatchStreamReader):  # type: ignore[misc]
    """Arrow's reader as a Python class, whose methods can be replaced."""

    def read_all(self) -> pa.Table:
        return super().read_all()


_DECODERS = (
    (pq.ParquetFile, "iter_batches"),
    (pq.ParquetFile, "read"),
    (pq.ParquetFile, "read_row_group"),
    (_Stream, "read_all"),
)


def _decoding(kind: type, name: str, counts: Counter[str]) -> AbstractContextManager[object]:
    real = getattr(kind, name)

    def decoded(self: object, *args: Any, **given: Any) -> object:
        found = real(self, *args, **given)
        if isinstance(found, pa.Table):
            counts["rows decoded"] += found.num_rows
            return found
        return _tallied(found, counts)

    return mock.patch.object(kind, name, decoded)


def _tallied(batches: Iterator[pa.RecordBatch], counts: Counter[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts["rows decoded"] += batch.num_rows
        yield batch


def check(workload: str, counts: Counts) -> None:
    """Compares with the baseline, or stores the counts as the baseline if requested. Raises AssertionError with
    the changes.
    """
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    found = {name: count for name, count in sorted(counts.items()) if count}
    if os.environ.get(_ACCEPTING) == "1":
        stored[workload] = found
        BASELINE.write_text(json.dumps(dict(sorted(stored.items())), indent=2) + "\n")
        return
    moved = differences(stored.get(workload, {}), found)
    assert not moved, f"{workload}: {'; '.join(moved)}. If that is meant: `{ACCEPT}`, and have the diff reviewed."


def differences(stored: Counts, found: Counts) -> list[str]:
    """Returns each count that changed more than allowed, with both values."""
    return [
        f"{name} moved from {stored.get(name, 0):,} to {found.get(name, 0):,}{_allowed(name)}"
        for name in sorted({*stored, *found})
        if abs(found.get(name, 0) - stored.get(name, 0)) > TOLERANCES.get(name, 0) * stored.get(name, 0)
    ]


def _allowed(name: str) -> str:
    return f" (allowed: {TOLERANCES[name]:.0%} either way)" if name in TOLERANCES else ""


def counted(act: Callable[[], object]) -> Counter[str]:
    """Returns the counts of one act. The act opens its own pipeline, because a store that is already open is not
    counted.
    """
    with counting() as counts:
        act()
    return counts
