"""Writes a load of one log into the store: Parquet files of rows that fit its columns, and the mark, last."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.changelog.schema import arrow_type
from tidefold.domain.ingest.append import require_open
from tidefold.domain.log_state import Column, LogState, Position
from tidefold.domain.paths import LogPaths
from tidefold.domain.source_progress import LOADED
from tidefold.errors import AlreadyExistsError, ConflictError, InvalidInputError, RefusedError
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.account import is_late_load
from tidefold.operations.ingest.owner import accept_folder
from tidefold.sources.debezium.loaded_rows import (
    FOLDER,
    AboutRows,
    LoadMark,
    add_about,
    name_begun,
    name_file,
    name_mark,
    read_marks,
)
from tidefold.sources.landing.folders import name_at
from tidefold.stored_forms import encode_form


@dataclass
class Load:
    """One load of one log, while it is written.

    columns: those of the log that the source has. order, time, since: as in AboutRows.
    files: the rows of each file that is written, by its number.
    """

    pipeline: Pipeline
    log: str
    state: LogState
    folder: str = field(default_factory=lambda: uuid.uuid4().hex)
    columns: tuple[Column, ...] = ()
    order: tuple[int, ...] = ()
    time: int = 0
    since: int = 0
    files: dict[int, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, pipeline: Pipeline, log: str) -> Load:
        """Raises TidefoldError if the log cannot be loaded."""
        config = pipeline.log(log)
        if not config.can_load:
            raise InvalidInputError("LOAD_FORMAT", f"`{log}` has no stream of Debezium, before which rows are loaded.")
        if pipeline.config.set_of(log):
            raise RefusedError("LOAD_SET", f"`{log}` is in a set, whose tables begin with a snapshot of the connector.")
        state = pipeline.ledger(log).peek(config.shape)
        require_open(state)
        accept_folder(pipeline, state, (), is_needed=True)
        return cls(pipeline, log, state)

    @property
    def root(self) -> str:
        return LogPaths(self.log).landed

    @property
    def topic(self) -> str:
        """The topic of the log: as its files had it, else as its configuration says."""
        config = self.pipeline.log(self.log)
        former = next((one.topic for one in self.state.positions), "")
        return former or (config.topic.topic if config.topic else name_at(config.address))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(one.name, arrow_type(one.type)) for one in self.columns])

    def write(self, number: int, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes a file, and returns its rows. The batches have the columns of the log, each of its type."""
        # What landed before may be ingested again, also by a log that is empty now.
        clears, rows = number == 0 and any(self.order), 0
        schema = add_about(self.schema, AboutRows(self.order, self.time, clears, self.since))
        # Of lists of a dictionary few rows at a time are read.
        plain = [one.name for one in schema if not pa.types.is_nested(one.type)]
        options = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True, "use_dictionary": plain}
        with (
            self.pipeline.store.create(f"{self.root}/{name_file(self.folder, number)}") as stream,
            pq.ParquetWriter(stream, schema, **options) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        self.files[number] = rows
        return rows

    def note(self, mark: LoadMark) -> None:
        """Notes a slot that is going to be made, until the load is complete or the slot is dropped."""
        noted = msgspec.structs.replace(mark, folder=self.folder)
        self.pipeline.store.put_if_absent(f"{self.root}/{name_begun(self.folder)}", encode_form(noted))

    def forget(self, slot: str, folder: str = "") -> None:
        """Deletes what loads left that only began to use this slot; with a folder, only what that load did."""
        for one in read_marks(self.pipeline.log(self.log).loaded, begun=True):
            if one.slot == slot and one.folder.startswith(folder):
                replace(self, folder=one.folder).discard()
                self.pipeline.store.delete([f"{self.root}/{name_begun(one.folder)}"])

    def discard(self) -> None:
        """Deletes the files, unless the load is complete."""
        if all(one.folder != self.folder for one in read_marks(self.pipeline.log(self.log).loaded)):
            paths = [one.path for one in self.pipeline.store.list(f"{self.root}/{FOLDER}/{self.folder}")]
            self.pipeline.store.delete(paths)

    def finish(self, mark: LoadMark) -> None:
        """Writes the mark: from now on the load exists, and the next ingest takes it.

        Raises RefusedError if its rows come too late, ConflictError.
        """
        if is_late_load(self.pipeline.ledger(self.log).peek(self.pipeline.log(self.log).shape), self.order):
            message = f"Log `{self.log}` has changes that are newer than these rows, and would be replaced by them."
            raise RefusedError("DUMP_LATE", message)
        self.pipeline.ledger(self.log).begin(self.pipeline.log(self.log).shape)
        self.pipeline.ledger(self.log).commit(self._expect)
        earlier = read_marks(self.pipeline.log(self.log).loaded)
        ends = [one.end for one in earlier]
        ends += [one.next_offset for one in self.state.positions if one.partition == LOADED]
        files = tuple(self.files[number] for number in sorted(self.files))
        mark = msgspec.structs.replace(mark, folder=self.folder, files=files, start=max(ends, default=0))
        try:
            self.pipeline.store.put_if_absent(f"{self.root}/{name_mark(len(earlier) + 1)}", encode_form(mark))
        except AlreadyExistsError:
            raise ConflictError("LOAD_OVERTAKEN", f"Another load of `{self.log}` was faster.") from None
        self.pipeline.store.delete([f"{self.root}/{name_begun(self.folder)}"])

    def _expect(self, state: LogState) -> LogState:
        """A log that has begun looks for loads only if it knows of one."""
        if any(one.partition == LOADED for one in state.positions):
            return state
        positions = [*state.positions, Position(self.topic, LOADED, 0)]
        return replace(state, positions=tuple(sorted(positions, key=lambda one: (one.topic, one.partition))))
