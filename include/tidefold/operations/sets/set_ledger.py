"""Reads and commits the states of a set: version n+1 is written only if it is absent, so one writer decides."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec

from tidefold.domain.paths import SetPaths
from tidefold.domain.sets.set_state import SetState
from tidefold.errors import AlreadyExistsError, ConflictError, CorruptError, NotFoundError, UnknownOutcomeError
from tidefold.operations.pipeline import Pipeline
from tidefold.storage import Store
from tidefold.typed_json import decode_json

_TRIES = 50
# A writer may pause for fewer versions than these; otherwise its write does not count.
_KEPT = 200


@dataclass(frozen=True, slots=True)
class SetLedger:
    """The ledger of one set. before_write: called before it is changed."""

    store: Store
    name: str
    before_write: Callable[[], None]
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)

    def read(self) -> SetState:
        """Returns the newest state; an empty one if there is none. Raises CorruptError, StorageError."""
        for _ in range(_TRIES):
            numbers = self._list_versions()
            if not numbers:
                return SetState(self.name)
            try:
                return self._read_version(numbers[-1])
            except NotFoundError:
                continue  # It was pruned since it was listed.
        raise self._build_busy_error()

    def commit(self, transition: Callable[[SetState], SetState]) -> SetState:
        """Applies a transition to the newest state and returns the result. A lost race applies it again.

        An unchanged state is not written. Raises what the transition raises, ConflictError, StorageError.
        """
        for _ in range(_TRIES):
            before = self.read()
            after = self.try_commit(before, transition(before))
            if after is not None:
                return after
        raise self._build_busy_error()

    def try_commit(self, before: SetState, after: SetState) -> SetState | None:
        """Writes the state after `before`; None if another writer was faster."""
        if after == before:
            return before
        self.before_write()
        written = replace(after, version=before.version + 1, writer=self.writer)
        path = SetPaths(self.name).version(written.version)
        try:
            self.store.put_if_absent(path, msgspec.json.encode(written))
        except AlreadyExistsError:
            return None
        except UnknownOutcomeError:
            if not self._is_mine(written):
                raise
        numbers = self._list_versions()
        if before.version and before.version not in numbers:
            return None  # The version before was pruned, so other writers were far ahead.
        self.store.delete([SetPaths(self.name).version(n) for n in numbers if n <= written.version - _KEPT])
        return written

    def _is_mine(self, written: SetState) -> bool:
        try:
            return self._read_version(written.version) == written
        except NotFoundError:
            return False

    def _read_version(self, number: int) -> SetState:
        path = SetPaths(self.name).version(number)
        data = self.store.read(path)
        try:
            return decode_json(data, SetState)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptError(
                "SET_LEDGER_DAMAGED",
                f"`{path}` cannot be read: {error}.",
                hint="Restore the file from a backup of the store. The tables of the set are not affected.",
            ) from error

    def _list_versions(self) -> list[int]:
        names = (
            entry.path.rpartition("/")[2].removesuffix(".json") for entry in self.store.list(SetPaths(self.name).ledger)
        )
        return sorted(int(name) for name in names if name.isdecimal())

    def _build_busy_error(self) -> ConflictError:
        return ConflictError("SET_BUSY", f"Other processes changed set `{self.name}` {_TRIES} times.")


def set_ledger(pipeline: Pipeline, name: str) -> SetLedger:
    """Returns the ledger of a configured set."""
    return SetLedger(pipeline.store, name, pipeline.before_write)
