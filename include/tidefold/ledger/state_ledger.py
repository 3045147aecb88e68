"""The versions of one state, stored beside its data: a log's or a set's. A version is never overwritten.

To commit is to write version n+1 only if it is absent. No lock, clock or database decides anything.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec

from tidefold import errors
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import STORED_FORMAT, LedgerPaths
from tidefold.domain.sets.set_state import SetState
from tidefold.ledger.serialization import Items, LedgerHead, PageNames, Pages, decode_head, digest_of
from tidefold.storage import Store
from tidefold.stored_forms import decode

TRIES = 50
# Versions that pruning leaves: a writer that sleeps through fewer commits still finds its version.
KEPT_VERSIONS = 1_000
# A longer state is read again, so that thousands of them fit into memory.
_CACHED_ITEMS = 2_000
_messages = logging.getLogger(__name__)
S = TypeVar("S", LogState, SetState)
E = TypeVar("E")
# By ledger: the version that was compared with the store, and what was found there.
ComparedFields = dict[str, tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class ReadVersion:
    """A ledger version that this process has read. Its number never gets another content."""

    state: Any
    digest: str
    pages: PageNames


# By ledger: the newest version that was read.
Versions = dict[str, ReadVersion]


class StateLedger(ABC, Generic[S, E]):
    """Reads and commits one state. E: what the store shows besides its ledger.

    name: the name in its versions and in messages, different for each ledger of a store.
    kind: the type of the state.
    pages: pages of this store that other ledgers have read (`Pages`).
    before_write: called before each version.
    compared: what other ledgers have compared with the store.
    versions: versions that other ledgers have read; None: each call reads again.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        paths: LedgerPaths,
        kind: type[S],
        pages: dict[str, Items] | None = None,
        before_write: Callable[[], None] = lambda: None,
        compared: ComparedFields | None = None,
        versions: Versions | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._paths = paths
        self._kind: type[S] = kind
        self._before_write = before_write
        self._pages = Pages(store, paths, kind, {} if pages is None else pages)
        self._compared: ComparedFields = {} if compared is None else compared
        self._digests: dict[int, str] = {}
        self._read = versions

    # What differs between the ledger of a log and that of a set.

    @abstractmethod
    def _make_empty(self) -> S:
        """Returns the state of a ledger without versions."""

    @abstractmethod
    def _check(self, state: S) -> S:
        """Returns the state. Raises CorruptError if it breaks a rule of every stored state."""

    @abstractmethod
    def _find_evidence(self, state: S) -> E:
        """Returns what the store shows besides the ledger."""

    @abstractmethod
    def _require_known(self, state: S, evidence: E) -> None:
        """Raises OutdatedLedgerError if the store shows what the state does not know."""

    @abstractmethod
    def _mark(self, before: S, done: S, evidence: E) -> E:
        """Records beside the tables that the ledger has reached a version, if only the ledger shows it."""

    @abstractmethod
    def _forget_marks(self, above: int) -> None:
        """Deletes the marks of lost versions, after the ledger was rebuilt without them."""

    # Comparing it with the store.

    def find_current(self) -> S | None:
        """Returns the newest state; None: there is none. Raises OutdatedLedgerError if the store shows more than it.

        A few requests more, once in a process. Other damage of the store is no matter.
        """
        newest = self._newest()
        try:
            self.require_current(newest or self._make_empty())
        except errors.OutdatedLedgerError:
            raise
        except errors.TidefoldError as error:
            _messages.warning("%s: the ledger could not be compared with the tables: %s", self._name, error)
        return newest

    def require_current(self, state: S) -> E:
        """Compares the ledger with the tables and the snapshots, once in a process (I29).

        Everything that changes or deletes anything of a log or a set calls this first. Raises CorruptError if the store
        shows what the ledger does not know: LEDGER_BEHIND, LEDGER_LOST.
        """
        version, evidence = self._compared.get(self._name, (0, None))
        if version and version <= state.version:
            current: E = evidence
            return current
        evidence = self._find_evidence(state)
        try:
            self._require_known(state, evidence)
        except errors.CorruptError:
            # Others may have committed since the state was read, and the ledger has their commits first.
            self._require_known(self._newest() or state, evidence)
        self._compared[self._name] = (state.version, evidence)
        return evidence

    def is_current(self) -> bool:
        """Whether the ledger knows everything that the store shows. A lost or damaged one does not."""
        try:
            self.require_current(self._newest() or self._make_empty())
        except errors.CorruptError:
            return False
        return True

    # Reading.

    def _newest(self) -> S | None:
        version = self._latest_version()
        while version:
            try:
                return self.read_version(version)
            except (errors.NotFoundError, errors.CorruptError):
                # This version may be pruned if the process slept through too many commits.
                newer = self._latest_version()
                if newer == version:
                    raise
                version = newer
        self._pages.forget()
        return None

    def read_version(self, version: int) -> S:
        """Returns the state as of one ledger version."""
        cached = self._read.get(self._name) if self._read else None
        if cached and cached.state.version == version:
            self._digests[version] = cached.digest
            self._pages.remember(version, cached.pages)
            of_cache: S = cached.state
            return of_cache
        path = self._paths.ledger_version(version)
        data = self._store.read(path)
        head = decode_head(path, data)
        if (head.log, head.version) != (self._name, version):
            raise errors.CorruptError(
                "LEDGER_MISPLACED", f"`{path}` contains version {head.version} of the ledger of `{head.log}`."
            )
        self._digests[version] = digest_of(data)
        names = PageNames(head.pages, head.skipped)
        state = self._check(self._pages.join(names, decode(path, bytes(head.state), self._kind)))
        if self._read is not None and self._pages.count(state) <= _CACHED_ITEMS:
            self._read[self._name] = ReadVersion(state, self._digests[version], names)
        return state

    def _latest_version(self) -> int:
        return max(self._versions(), default=0)

    def _versions(self) -> list[int]:
        names = [entry.path.rsplit("/", 1)[1] for entry in self._store.list(self._paths.ledger)]
        try:
            return sorted(int(name.removesuffix(".json")) for name in names)
        except ValueError as error:
            raise errors.CorruptError(
                "LEDGER_FOREIGN_FILE", f"`{self._paths.ledger}` contains a file that is not a ledger version: {error}."
            ) from error

    # Writing.

    def try_commit(self, before: S, after: S) -> S | None:
        """Writes the state after `before`, which was read last; None if another writer was faster.

        An unchanged state is not written.
        """
        if after == before:
            return before
        evidence = self.require_current(before)
        try:
            done = self._put(replace(after, version=before.version + 1))
        except errors.AlreadyExistsError:
            return None
        marked = self._mark(before, done, evidence)
        if marked is not evidence:
            self._compared[self._name] = (before.version, marked)
        return done

    def _replace(self, make: Callable[[S], S], empty: S) -> S:
        """Applies `make` to the newest state that is left, or to an empty one. Writes without a comparison."""
        base = self._newest() or empty
        made = replace(make(base), version=base.version + 1)
        self._compared.pop(self._name, None)
        done = self._put(made)
        self._forget_marks(above=done.version)
        return done

    def _busy(self) -> errors.ConflictError:
        return errors.ConflictError("LEDGER_BUSY", f"Other writers of `{self._name}` committed first, {TRIES} times.")

    def _put(self, state: S) -> S:
        self._check(state)
        writer = uuid.uuid4().hex
        path = self._paths.ledger_version(state.version)
        self._before_write()
        if not self._pages.is_next(state.version):
            raise errors.AlreadyExistsError(
                "LEDGER_LOST_RACE", f"`{path}` does not follow the version that was read last."
            )
        pages, recent = self._pages.split(state)
        data = self._encode(state, pages, recent, writer)
        digest = digest_of(data)
        try:
            self._store.put_if_absent(path, data)
        except errors.UnknownOutcomeError:
            self._resolve_put(path, writer)
        self._require_counted(state.version, digest)
        self._digests[state.version] = digest
        self._pages.remember(state.version, pages)
        return state

    def _encode(self, state: S, pages: PageNames, recent: S, writer: str) -> bytes:
        body = msgspec.json.encode(recent)
        head = LedgerHead(
            STORED_FORMAT,
            self._name,
            state.version,
            writer,
            digest_of(body),
            pages.names,
            msgspec.Raw(body),
            self._digests.get(state.version - 1, ""),
            state.generation,
            pages.skipped,
        )
        return msgspec.json.encode(head)

    def _resolve_put(self, path: str, writer: str) -> None:
        """Reads back who wrote the version after a lost answer. If that fails, the outcome stays unknown."""
        try:
            head = decode_head(path, self._store.read(path))
        except errors.NotFoundError:
            raise errors.AlreadyExistsError("LEDGER_LOST_ANSWER", f"`{path}` was not written.") from None
        if head.writer != writer:
            raise errors.AlreadyExistsError("LEDGER_LOST_RACE", f"`{path}` was written by another process.")

    def _require_counted(self, version: int, digest: str) -> None:
        """Raises AlreadyExistsError unless the version counts: the version that it was made from must still exist.

        A writer that slept while that version was pruned finds its number free, and is too late nevertheless.
        """
        before = version - 1
        is_first = version == 1 and self._latest_version() == 1
        if is_first or (before and self._find_digest(before) == self._digests.get(before)):
            return
        try:
            path = self._paths.ledger_version(version + 1)
            if decode_head(path, self._store.read(path)).previous == digest:
                return  # It counted, and so many versions followed that it is pruned now.
            late = True
        except errors.NotFoundError:
            late = self._find_digest(version) == digest
        if late:
            raise errors.AlreadyExistsError(
                "LEDGER_PRUNED", f"Version {version} of the ledger of `{self._name}` was already pruned."
            )
        raise errors.UnknownOutcomeError(
            "LEDGER_UNKNOWN",
            f"tidefold cannot tell whether version {version} of `{self._name}` counted: it was pruned meanwhile.",
        )

    def _find_digest(self, version: int) -> str | None:
        try:
            return digest_of(self._store.read(self._paths.ledger_version(version)))
        except errors.NotFoundError:
            return None

    # Pruning.

    def prune(self, keep: int = KEPT_VERSIONS) -> int:
        """Deletes the oldest versions except the newest `keep`, in ascending order, with the pages that only they name.

        Returns the number of deleted versions. Lists only grow or shrink for good, so pages that the oldest retained
        version does not name are not named by a later one.
        """
        versions = self._versions()
        old, kept = versions[:-keep], versions[-keep:]
        if not old:
            return 0
        first = self._head(kept[0])
        needed = _pages_of(first[0]) if first else frozenset()
        unneeded = dict.fromkeys(page for head in self._before(first) for page in _pages_of(head) if page not in needed)
        life = first[0].generation if first else 0
        self._store.delete([self._paths.page(page, life) for page in unneeded])
        for version in old:
            self._store.delete([self._paths.ledger_version(version)])
        return len(old)

    def _before(self, newest: tuple[LedgerHead, str] | None) -> Iterator[LedgerHead]:
        """Yields the existing versions that counted before one, newest first.

        It skips stray versions: their writer may be about to name their pages again.
        """
        while newest:
            head, newest = newest[0], self._head(newest[0].version - 1)
            if newest is None or newest[1] != head.previous or newest[0].generation != head.generation:
                return
            yield newest[0]

    def _head(self, version: int) -> tuple[LedgerHead, str] | None:
        """Returns one version and the sha256 of its file; None if it was pruned (the pruner deletes its pages too)."""
        path = self._paths.ledger_version(version)
        try:
            data = self._store.read(path)
        except errors.NotFoundError:
            return None
        return decode_head(path, data), digest_of(data)


def _pages_of(head: LedgerHead) -> frozenset[str]:
    return frozenset(page for pages in head.pages.values() for page in pages)
