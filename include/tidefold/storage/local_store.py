"""A store on a local disk. Atomic and durable steps are system calls: fsspec does not sync moves."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from fsspec.implementations.local import LocalFileSystem

from tidefold.errors import AlreadyExistsError, NotFoundError, StorageError, UnknownOutcomeError
from tidefold.storage.safe_files import delete_below, open_regular
from tidefold.storage.store import StoredObject, make_outside_error, make_taken_error

T = TypeVar("T")
_UNFINISHED, _CHUNK = ".part", 1 << 20
# While another thread deletes in a loop, most tries fail. One takes about 50 microseconds.
_TRIES = 10_000


# Folders with rows of every log, which only the user who runs tidefold reads. Readers of tables and snapshots may be
# other users, so the umask decides there.
_PRIVATE = ("logs", "sets", "changelog", "plans")


class LocalStore:
    """Files below `root`. A file appears under its name only when it is complete and on disk.

    private: only the owner reads anything in it, and no symbolic link in it is followed.
    """

    def __init__(self, root: Path, private: bool = False) -> None:
        self.root = root.resolve()
        self._root = str(self.root)
        self._private = private
        self._fs = LocalFileSystem()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        end = None if length is None else start + length
        if self._private:
            with self.open(path) as stream:
                stream.seek(start)
                return stream.read(-1 if length is None else length)
        with _translate_errors(path):
            return cast(bytes, self._fs.cat_file(self._full(path), start=start, end=end))

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        with _translate_errors(path):
            full = self._full(path)
            below = os.path.relpath(full, self._root)
            stream = open_regular(self._root, below) if self._private else open(full, "rb")  # noqa: SIM115 (closed below)
        with stream:
            yield stream

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self.create(path) as stream:
            stream.write(data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        final = self._full(path)
        part = f"{final}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with _translate_errors(path), self._begin(part) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            with _translate_errors(path):
                # A hard link fails where a rename would replace: the conditional put of local disks.
                _publish(part, final)
        finally:
            with suppress(OSError):  # What went wrong before is the error that matters.
                _unlink(part)
        try:
            _sync(os.path.dirname(final))
        except OSError as error:
            # The name is visible but may not survive a power cut, so the outcome is unknown.
            raise UnknownOutcomeError(
                "NOT_SYNCED", f"`{path}` was written, but its folder could not be synced."
            ) from error

    def _begin(self, part: str) -> BinaryIO:
        mode = 0o600 if self._is_private(part) else 0o666
        with _possible():
            return self._in_folder(
                part, lambda: open(part, "xb", opener=lambda path, flags: os.open(path, flags, mode))
            )

    def _is_private(self, full: str) -> bool:
        """Whether only the owner may read a file or a folder. What is above the root is not private."""
        if not f"{full}{os.sep}".startswith(f"{self._root.rstrip(os.sep)}{os.sep}"):
            return False
        return self._private or os.path.relpath(full, self._root).split(os.sep)[0] in _PRIVATE

    def _in_folder(self, path: str, act: Callable[[], T]) -> T:
        """Makes the folder of a path and acts in it at once, because a delete may remove the empty folder again."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                return self._act(path, act)
        return self._act(path, act)

    def _act(self, path: str, act: Callable[[], T]) -> T:
        made = self._make_folder(os.path.dirname(path))
        done = act()
        for folder in made:
            # Otherwise a crash could lose the folder with its content.
            _sync(os.path.dirname(folder))
        return done

    @property
    def links(self) -> bool:
        return True

    def link(self, source: str, target: str, copy: bool = False) -> str:
        final = self._full(target)
        with _translate_errors(source):
            if copy:
                return self._copy_or_keep(source, target)
            os.stat(self._full(source))
            try:
                self._in_folder(final, lambda: os.link(self._full(source), final))
            except FileExistsError:
                return self._keep(source, target)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
                    raise
                return self._copy_or_keep(source, target)
            _sync(os.path.dirname(final))
        return "link"

    def _copy_or_keep(self, source: str, target: str) -> str:
        try:
            return self._copy(source, target)
        except AlreadyExistsError:
            return self._keep(source, target)

    def _keep(self, source: str, target: str) -> str:
        one, other = self._full(source), self._full(target)
        if not os.path.samefile(one, other) and not filecmp.cmp(one, other, shallow=False):
            hint = "`tidefold check verify --repair` finds out which one is damaged."
            raise AlreadyExistsError(
                "NAME_TAKEN", f"`{target}` exists, and its content differs from `{source}`.", hint=hint
            )
        # The process that made it may have been killed before it synced.
        _sync(os.path.dirname(other))
        return "kept"

    def _copy(self, source: str, target: str) -> str:
        with self.open(source) as old, self.create(target) as new:
            shutil.copyfileobj(old, new, _CHUNK)
        return "copy"

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        finals = [self._full(path) for path in paths]
        # In the folder of the last name: what a killed process leaves is then next to a name that still needs repair.
        part = f"{finals[-1]}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with _translate_errors(paths[-1]), self._begin(part) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            for path, final in zip(paths[:-1], finals[:-1], strict=True):
                with _translate_errors(path):
                    self._rename_link(part, final)
            with _translate_errors(paths[-1]):
                os.replace(part, finals[-1])
        finally:
            with suppress(OSError):
                _unlink(part)
        for path, final in zip(paths, finals, strict=True):
            with _translate_errors(path):
                _sync(os.path.dirname(final))

    def _rename_link(self, part: str, final: str) -> None:
        """Gives a finished file one more name, in place of the file that has that name now."""
        beside = f"{final}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            try:
                self._in_folder(beside, lambda: os.link(part, beside))
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
                    raise
                shutil.copy(part, beside)
                _sync(beside)
            os.replace(beside, final)
        finally:
            with suppress(OSError):
                _unlink(beside)

    def identity(self, path: str) -> str:
        with _translate_errors(path):
            stat = os.stat(self._full(path))
        return f"{stat.st_dev}:{stat.st_ino}"

    def count_names(self, path: str) -> int:
        with _translate_errors(path):
            return os.stat(self._full(path)).st_nlink

    def rename_folder(self, source: str, target: str) -> None:
        """Gives a folder its final name, in one step. Raises AlreadyExistsError if a folder there contains files."""
        old, new = self._full(source), self._full(target)
        with _translate_errors(target):
            try:
                os.rename(old, new)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                raise make_taken_error(target) from error
            _sync(os.path.dirname(new))

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        # Not fsspec's find: it leaves out folders that cannot be read, as if they were empty (I23).
        with _translate_errors(folder):
            begin = len(str(self.root).rstrip(os.sep)) + 1
            files = sorted(_walk(self._full(folder), not self._private))
        kept = files if unfinished else [one for one in files if not one[0].endswith(_UNFINISHED)]
        return [StoredObject(name[begin:], size) for name, size in kept]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            full = self._full(path)
            root, below = self._root, os.path.relpath(full, self._root)
            if not self._private and os.sep in below:
                # `tables` may lie on another disk. But a person who writes tables must not choose what is deleted.
                top, _, below = below.partition(os.sep)
                root = os.path.join(root, top)
            with _translate_errors(path), suppress(FileNotFoundError):
                delete_below(root, below)
            self._prune(os.path.dirname(full))

    def _prune(self, folder: str) -> None:
        """Removes folders that became empty. A folder that is being filled again is not empty, or is made again."""
        with suppress(OSError):
            while folder != str(self.root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)

    def sync(self, path: str) -> None:
        full = self._full(path)
        with _translate_errors(path):
            _sync(full)
            _sync(os.path.dirname(full))

    @property
    def address(self) -> str:
        return self._root

    def uri(self, path: str) -> str:
        return self._full(path)

    def options(self) -> dict[str, str]:
        return {}

    def _full(self, path: str) -> str:
        """Returns the absolute path. Raises InvalidInputError if it is outside the root (I26)."""
        full = os.path.normpath(os.path.join(self._root, path))
        if os.path.isabs(path) or not f"{full}{os.sep}".startswith(f"{self._root.rstrip(os.sep)}{os.sep}"):
            raise make_outside_error(path)
        return full

    def _make_folder(self, folder: str) -> tuple[str, ...]:
        """Makes a folder. Returns the folders that did not exist, the outermost first."""
        missing: tuple[str, ...] = ()
        while not os.path.isdir(folder):
            missing = (folder, *missing)
            folder = os.path.dirname(folder)
        for new in missing:
            os.makedirs(new, 0o700 if self._is_private(new) else 0o777, exist_ok=True)
        return missing


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Converts errors of the system into those of the Store port."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError("NOT_FOUND", f"`{path}` does not exist.") from error
    except FileExistsError as error:
        raise make_taken_error(path) from error
    except StorageError:
        raise
    except OSError as error:
        folder = os.path.dirname(str(error.filename)) if error.filename else "the folder"
        hint = f"Check the disk and the permissions of {folder}, then call again."
        raise StorageError("STORAGE", f"`{path}`: {error.strerror or error}.", hint=hint) from error


@contextmanager
def _possible() -> Iterator[None]:
    """Converts the error of a folder that cannot be made, which does not mean that a file is absent."""
    try:
        yield
    except FileNotFoundError as error:
        raise OSError(errno.EIO, f"the folder {error.filename} cannot be made", error.filename) from error


def _walk(folder: str, follow: bool) -> Iterator[tuple[str, int]]:
    """Yields files and their sizes, at any depth. It skips what was deleted meanwhile, and raises all other errors."""
    try:
        listed = list(os.scandir(folder))
    except FileNotFoundError:
        return
    # Each run lists the ledger's folder a dozen times, with up to 1,000 files: no context manager for each.
    for entry in listed:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, follow)
            continue
        try:
            size = entry.stat(follow_symlinks=follow).st_size
        except FileNotFoundError:
            continue
        yield entry.path, size


def _publish(part: str, final: str) -> None:
    try:
        os.link(part, final)
    except FileNotFoundError:
        # The name was taken, so a clean-up took this process for dead.
        if os.path.exists(final):
            raise FileExistsError(errno.EEXIST, "File exists", final) from None
        raise OSError(errno.ESTALE, "the unfinished file was removed while it was written", part) from None


def _unlink(full: str) -> None:
    try:
        os.unlink(full)
    except FileNotFoundError:
        return


def _sync(full: str) -> None:
    handle = os.open(full, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
