"""Opens one landed file exactly as it was planned (I6), and says what is wrong when it is not that file any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from tidefold.sources.account import LateOffsetError
from tidefold.sources.landed import stamp_of
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import changed, damaged, gone, growing, late, truncated, unreadable, wrong_content
from tidefold.sources.reading import CutShortError, DamagedError, Fingerprint, ShrunkError
from tidefold.sources.source import ParsedFile, UnfitFileError


def parse_file(task: FileTask, parse: Callable[[BinaryIO], ParsedFile]) -> ParsedFile:
    """What `parse` makes of the file. Raises UnfitFileError when it cannot be taken as a whole."""
    file = task.file
    try:
        _check_stamp(task)
        with open(file.path, "rb") as stream:
            parsed = parse(stream)
        _check_stamp(task)
    except FileNotFoundError as error:
        raise UnfitFileError(gone(file.name)) from error
    except OSError as error:
        raise UnfitFileError(unreadable(file.name, str(error.strerror or error))) from error
    except ShrunkError as error:
        raise UnfitFileError(changed(file.name, "became shorter while it was taken")) from error
    except CutShortError as error:
        raise UnfitFileError(truncated(file.name)) from error
    except DamagedError as error:
        raise UnfitFileError(damaged(file.name, str(error))) from error
    except LateOffsetError as error:
        raise UnfitFileError(late(file.name, error.offset, task.next_offset)) from error
    return parsed


def _check_stamp(task: FileTask) -> None:
    planned, now = task.file.stamp, stamp_of(task.file.path)
    if not planned.holds(now):
        raise UnfitFileError(changed(task.file.name, "was replaced while it was taken"))
    if planned != now and not task.newest:
        # Its end was not looked at: it was planned as complete, and was not.
        raise UnfitFileError(growing(task.file.name))


def read_whole(stream: BinaryIO, task: FileTask, magic: bytes = b"") -> str:
    """The sha256 of a file that can only be taken as a whole, which begins with `magic`; the stream stands at its
    beginning then. Raises UnfitFileError.
    """
    content = Fingerprint(stream, task.until)
    check_prefix(content, task)
    for _ in content.blocks():
        pass
    stream.seek(0)
    if stream.read(len(magic)) != magic:
        raise UnfitFileError(wrong_content(task.file.name))
    stream.seek(0)
    return content.sha256


def check_prefix(content: Fingerprint, task: FileTask) -> int:
    """Reads what was taken before, which must be the same bytes; answers how many line ends it has."""
    if not task.begin:
        return 0
    checksum, lines = content.prefix(task.begin)
    if checksum != task.begin_checksum:
        raise UnfitFileError(changed(task.file.name, f"has other bytes than the {task.begin} that were taken of it"))
    return lines
