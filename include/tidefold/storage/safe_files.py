"""Opens files below a folder without following links below it, and scratch folders.

The folder itself may be reached through links, because its owner configures it. Below it, each folder is opened
relative to its parent, no symbolic link is followed, and only regular files are opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DEEPEST = 32
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
PATTERN = "tidefold-*"
_OWNED = re.compile(r"tidefold-p(\d+)-.+")


def make_private_folder(folder: Path) -> None:
    """Makes a folder that only its owner can read, if it does not exist. Its parents are made by the umask."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, content: str | bytes) -> None:
    """Writes a new file, in the place of an older one, that only its owner can read. Another process sees all of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    part.touch(0o600)
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(part, path)


class UnsafeFileError(OSError):
    """The name belongs to something else than a regular file, or a link replaces a folder of its path.

    name: its path below the root.
    """

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(errno.ELOOP, f"it is {kind}, not a regular file", name)
        self.name = name
        self.kind = kind


def open_regular(root: str, name: str) -> BinaryIO:
    """Opens a regular file below a root for reading. Raises UnsafeFileError, OSError."""
    with _folder_of(root, name) as (folder, last):
        # Checked before the open, because opening a device may have an effect.
        _require_regular(os.stat(last, dir_fd=folder, follow_symlinks=False), name)
        # A pipe that replaces the file now must not block the process.
        handle = _open_last(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, folder, name)
    try:
        _require_regular(os.fstat(handle), name)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def stat_regular(root: str, name: str) -> os.stat_result:
    """Returns the status of a regular file below a root. Raises UnsafeFileError, OSError."""
    with _folder_of(root, name) as (folder, last):
        status = os.stat(last, dir_fd=folder, follow_symlinks=False)
    _require_regular(status, name)
    return status


def delete_below(root: str, name: str) -> None:
    """Deletes a file below a root, or a link itself. Raises UnsafeFileError behind a link, OSError."""
    with _folder_of(root, name) as (folder, last):
        os.unlink(last, dir_fd=folder)


def list_below(root: str, skip: Callable[[str], bool]) -> Iterator[str]:
    """Yields the paths, relative to a root, of everything below it except folders.

    A link is listed and not followed. Raises OSError, which names the folder that cannot be listed.

    skip: leaves out names, also of folders.
    """
    handle = os.open(root, _FOLDER)
    try:
        yield from _list_folder(handle, root, "", skip)
    finally:
        os.close(handle)


def _list_folder(handle: int, root: str, above: str, skip: Callable[[str], bool]) -> Iterator[str]:
    try:
        with os.scandir(handle) as listing:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing if not skip(entry.name)]
    except OSError as error:
        raise type(error)(error.errno, error.strerror, f"{root}/{above}".rstrip("/")) from error
    for name, is_folder in entries:
        path = f"{above}{name}"
        if not is_folder or path.count("/") >= _DEEPEST:
            yield path
            continue
        try:
            below = _open_last(name, _FOLDER | os.O_NOFOLLOW, handle, path)
        except UnsafeFileError:
            yield path  # It was a folder when it was listed.
            continue
        try:
            yield from _list_folder(below, root, f"{path}/", skip)
        finally:
            os.close(below)


@contextmanager
def _folder_of(root: str, name: str) -> Iterator[tuple[int, str]]:
    """Yields the open folder of a file, and the name of the file in it."""
    *folders, last = name.split("/")
    if {"", ".", ".."} & {*folders, last}:
        raise UnsafeFileError(name, "a path that may lead out of its folder")
    handle = os.open(root, _FOLDER)
    try:
        for count, folder in enumerate(folders, 1):
            below = _open_last(folder, _FOLDER | os.O_NOFOLLOW, handle, "/".join(folders[:count]))
            os.close(handle)
            handle = below
        yield handle, last
    finally:
        os.close(handle)


def _open_last(last: str, flags: int, folder: int, name: str) -> int:
    try:
        return os.open(last, flags, dir_fd=folder)
    except OSError as error:
        # The error of opening a link as a folder depends on the system.
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            kind = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                raise UnsafeFileError(name, _kind_of(kind)) from error
        raise type(error)(error.errno, error.strerror, name) from error


def _require_regular(status: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(name, _kind_of(status.st_mode))


def _kind_of(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no file of a known kind")


def open_scratch() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder that is deleted with its context. Its name contains the process that owns it."""
    return tempfile.TemporaryDirectory(prefix=f"tidefold-p{os.getpid()}-")


def is_owner_alive(name: str) -> bool:
    """Whether the process that owns a scratch folder still exists. A name without a process has no owner."""
    owned = _OWNED.fullmatch(name)
    if owned is None:
        return False
    try:
        os.kill(int(owned[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
