"""Combines several folders on this machine's disks into one store of local copies (L3).

A copy is in one root as a whole: in the root that its name determines or, if there were other roots at the time,
where it is found. An unavailable root hides no copy in another root.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO, TypeVar, cast

from tidefold.domain.retention.local_copies import CopyName, LocalFile, root_number
from tidefold.errors import NotFoundError, TidefoldError
from tidefold.storage.local_store import LocalStore
from tidefold.storage.store import StoredObject

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_FAILURES = (TidefoldError, OSError)


class LocalRoots:
    """A Store over the roots of one pipeline.

    Raises errors of the root that has a path, or should have it. Errors of other roots are warnings in the log.

    pipeline: the name of its folder in each root.
    """

    def __init__(self, roots: Sequence[LocalStore], pipeline: str = "") -> None:
        self.roots = tuple(roots)
        self._pipeline = pipeline or self.roots[0].root.name
        self._unreadable: dict[str, str] = {}

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Returns the roots that the newest complete listing left out, and why."""
        return dict(self._unreadable)

    def root_of(self, path: str) -> str:
        """Returns the absolute address of the root that has a path, or should have it."""
        return str(self._holder(path).root)

    def files(self) -> tuple[LocalFile, ...]:
        """Returns every file of every available root, including unfinished files of killed writers.

        Raises StorageError if no root is available.
        """
        return tuple(file for _, files in self._ask(_files, everything=True) for file in files)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        return self._first(path, lambda root: root.read(path, start, length))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with ExitStack() as opened:
            yield self._first(path, lambda root: opened.enter_context(root.open(path)))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._holder(path).put_if_absent(path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        with self._holder(path).create(path) as stream:
            yield stream

    @property
    def links(self) -> bool:
        return True

    def link(self, source: str, target: str, copy: bool = False) -> str:
        old, new = self._holder(source), self._holder(target)
        if old is new:
            return old.link(source, target, copy)
        with old.open(source) as begun, new.create(target) as stream:
            shutil.copyfileobj(begun, stream, 1 << 20)
        return "copy"

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        groups: dict[LocalStore, list[str]] = {}
        for path in paths:
            groups.setdefault(self._holder(path), []).append(path)
        with ExitStack() as opened:
            streams = [opened.enter_context(root.replace(group)) for root, group in groups.items()]
            yield streams[0] if len(streams) == 1 else cast(BinaryIO, _Tee(streams))

    def rename_folder(self, source: str, target: str) -> None:
        """Gives a folder its final name, in one step. Raises AlreadyExistsError if a folder there contains files."""
        self._holder(source).rename_folder(source, target)

    def identity(self, path: str) -> str:
        return self._holder(path).identity(path)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Lists as the port defines: all available roots, unless the folder belongs to one copy.

        Raises StorageError if no root is available.
        """
        if CopyName.around(folder):
            return self._holder(folder).list(folder, unfinished)
        objects: dict[str, StoredObject] = {}
        for root, entries in self._ask(lambda root: root.list(folder, unfinished), everything=not folder):
            for entry in entries:
                if entry.path not in objects or self._holder(entry.path) is root:
                    objects[entry.path] = entry
        return sorted(objects.values(), key=lambda entry: entry.path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            order = self._order(path)
            failed: Exception | None = None
            for root in order:
                try:
                    root.delete([path])
                except _FAILURES as error:
                    # A root that cannot even report whether the file exists has nothing usable.
                    if root is order[0] or _lies_in(root, path):
                        failed = failed or error
            if failed:
                raise failed

    def sync(self, path: str) -> None:
        self._holder(path).sync(path)

    @property
    def address(self) -> str:
        return self.uri("")

    def uri(self, path: str) -> str:
        return self._holder(path).uri(path)

    def options(self) -> dict[str, str]:
        return {}

    def _holder(self, path: str) -> LocalStore:
        return self._order(path)[0]

    def _order(self, path: str) -> tuple[LocalStore, ...]:
        """Returns all roots: first the one with the path's copy, else with the path, else the one for it."""
        if len(self.roots) == 1:
            return self.roots
        own = root_number(path, self._pipeline, len(self.roots))
        roots = (*self.roots[own:], *self.roots[:own])
        name = CopyName.around(path)
        signs = [name.manifest, path] if name else [path]
        first = next((root for sign in signs for root in roots if _lies_in(root, sign)), roots[0])
        return (first, *(root for root in roots if root is not first))

    def _first(self, path: str, act: Callable[[LocalStore], _Answer]) -> _Answer:
        """Returns the result of the first root that has one. Otherwise raises the error of the root that should."""
        own, *others = self._order(path)
        try:
            return act(own)
        except _FAILURES:
            for root in others:
                with suppress(*_FAILURES):
                    return act(root)
            raise

    def _ask(self, act: Callable[[LocalStore], _Answer], everything: bool) -> Sequence[tuple[LocalStore, _Answer]]:
        """Returns the results of the available roots. Reports each of the others once, until it is available again."""
        answers = []
        failed: dict[str, Exception] = {}
        for root in self.roots:
            try:
                answers.append((root, act(root)))
            except _FAILURES as error:
                failed[str(root.root)] = error
        before, now = self._unreadable, {address: str(error) for address, error in failed.items()}
        # A root that lists one of its folders need not list the others.
        self._unreadable = now if everything else {**before, **now}
        if not answers:
            raise next(iter(failed.values()))
        for address in failed.keys() - before.keys():
            _log.warning("local copies in `%s` are left out: %s", address, failed[address])
        return answers


class _Tee:
    """Writes the same bytes to several streams."""

    def __init__(self, streams: Sequence[BinaryIO]) -> None:
        self._streams = streams

    def write(self, data: bytes) -> int:
        for stream in self._streams:
            stream.write(data)
        return len(data)


def _lies_in(root: LocalStore, path: str) -> bool:
    return os.path.lexists(root.uri(path))


def _files(root: LocalStore) -> list[LocalFile]:
    files = []
    for entry in root.list("", unfinished=True):
        with suppress(NotFoundError):  # Removed since it was listed.
            files.append(LocalFile(str(root.root), entry.path, entry.bytes, root.identity(entry.path)))
    return files
