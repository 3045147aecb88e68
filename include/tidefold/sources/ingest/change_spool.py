"""Keeps the changes of one landed file: few of them in memory, many in a temporary file on this machine."""

from __future__ import annotations

import mmap
import tempfile
from typing import IO

import pyarrow as pa

# Bytes of changes of one landed file that stay in memory.
SPOOL_MEMORY = 256 << 20


class ChangeSpool:
    """Collects record batches of one schema. A landed file of any size needs no more memory than SPOOL_MEMORY."""

    def __init__(self) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > SPOOL_MEMORY:
            self._write_waiting()

    def to_table(self) -> pa.Table | None:
        """Returns all changes. None: there are none. Nothing can be added after it."""
        if self._file is None or self._writer is None:
            return pa.Table.from_batches(self._waiting) if self._waiting else None
        self._write_waiting()
        self._writer.close()
        self._file.flush()
        # The mapping keeps the bytes on disk, although the file has no name.
        content = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(content))).read_all()

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by to_table)
            self._writer = pa.ipc.new_file(self._file, self._waiting[0].schema)
        for batch in self._waiting:
            self._writer.write_batch(batch)
        self._waiting, self._bytes = [], 0
