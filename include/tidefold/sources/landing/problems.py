"""The problems of a landed file as a whole. `records/errors.py` has those of single records."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tidefold.errors import ConflictError, InvalidInputError, TidefoldError
from tidefold.sources.landing.folders import pattern_for
from tidefold.sources.landing.landing_place import ReplacedFileError
from tidefold.storage.safe_files import UnsafeFileError

_UTF16 = "is UTF-16: write it as UTF-8 (`iconv -f UTF-16 -t UTF-8 FILE`)"
_SHEET = "is a spreadsheet or a zip archive: export or unpack it as CSV in UTF-8"
# First bytes of files that nothing reads, with the way out.
_FOREIGN = {b"\xff\xfe": _UTF16, b"\xfe\xff": _UTF16, b"PK\x03\x04": _SHEET, b"\xd0\xcf\x11\xe0": _SHEET}
_SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
# Packed files that are not read, with the program that unpacks them.
_PACKED = {".bz2": "bunzip2", ".xz": "unxz", ".zip": "unzip", ".lz4": "lz4 -d", ".7z": "7z x"}


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file was not ingested.

    blocking: its partition stops until a person acts.
    passing: the problem may be gone in a later run.
    stops: the log's ingest is an error, even if other files were ingested.
    brings: the new columns of its record, with their types.
    size, changed: bytes and modification time of the file, if the listing has them.
    late_offset, partition: the first offset that comes too late, and its partition.
    """

    file: str
    code: str
    message: str
    hint: str
    blocking: bool = True
    passing: bool = False
    stops: bool = False
    brings: tuple[tuple[str, str], ...] = ()
    size: int = 0
    changed: float = 0.0
    late_offset: int | None = None
    partition: int | None = None

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    @property
    def error(self) -> TidefoldError:
        kind = ConflictError if self.passing else InvalidInputError
        return kind(self.code, self.message, hint=self.hint)


def report_foreign(name: str, why: str) -> FileProblem:
    """Reports a file that does not belong in the log's folder. It stops nothing, and every run reports it."""
    return FileProblem(name, "FOREIGN_FILE", why, "Move it out of the landing folder.", blocking=False)


def report_other_name(name: str, endings: Sequence[str]) -> FileProblem:
    """Reports a file whose name has none of the endings of the log's format."""
    own = PurePosixPath(name).name
    message = f"The name of `{name}` does not end in {' or '.join(endings)}."
    if packed := next((program for ending, program in _PACKED.items() if own.lower().endswith(ending)), None):
        hint = f"Land it unpacked (`{packed}`), or as gzip; then move this one out of the landing folder."
    elif own.lower().endswith(_SHEETS):
        hint = "Export each sheet as CSV in UTF-8, and land that; then move this one out of the landing folder."
    else:
        hint = (
            "Move it out of the landing folder. If it contains rows of this log, set "
            f"`files: [{json.dumps(pattern_for(own))}]` under `source` instead."
        )
    return FileProblem(name, "FOREIGN_FILE", message, hint, blocking=False)


def report_unplaced(name: str) -> FileProblem:
    """Reports a file whose name does not have the offset of its records, in a log that needs it."""
    form = "`topic+partition+offset`, with 10 to 18 digits of the offset"
    message = f"The name `{name}` does not have the form {form}, so the offsets are unknown."
    return FileProblem(name, "LANDED_NAME", message, "Land it under such a name.", blocking=False)


def report_file_time(name: str, *, dated: bool, is_unclear: bool = False) -> FileProblem:
    """Reports a file whose name lacks the time that the names of the log have (`dated`), or has one that they lack.

    is_unclear: digits follow its date, and do not say how they order files.
    """
    kind = "no time, or more than one" if dated else "a time"
    others = "each file of this log has one" if dated else "the first file of this log had none"
    if is_unclear:
        kind, others = "a date", "the digits after it are no time and no small number"
    message = f"The name of `{name}` has {kind}, but {others}, and `order: file` puts the files in order."
    own = PurePosixPath(name)
    stem = re.match("[a-z]*", own.name, re.IGNORECASE)
    begin, ending = stem[0] if stem and stem[0] else "file", "".join(re.findall(r"\.[a-z]+\b", own.name)[-2:])
    hint = f"Land it under a name such as `{begin}-2026-01-31{ending}` or `{begin}-2026-01-31T06-00{ending}`."
    if not dated:
        hint = (
            f"Land it under a name without a time, such as `{begin}-1{ending}`. Or feed the files to a new log, from "
        )
        hint += "the first dated file on."
    return FileProblem(name, "LANDED_TIME", message, hint)


def report_gone(name: str) -> FileProblem:
    message = f"`{name}` was removed during the ingest."
    # obstore lists such a name without its slash.
    hint = "Land it again. Nothing of it was ingested. If an object's name begins or ends with `/`, rename it."
    return FileProblem(name, "LANDED_GONE", message, hint)


def report_replaced(name: str) -> FileProblem:
    """Reports an object that was replaced between the listing and its last read."""
    message = f"`{name}` was replaced during the ingest. Nothing of it was ingested."
    hint = "Run ingest again: it reads the new object."
    return FileProblem(name, "LANDED_CHANGED", message, hint, passing=True)


def report_late_dump(name: str, log: str) -> FileProblem:
    """Rows from before changes that the log has, whose rows they would replace."""
    message = (
        f"`{name}` has rows from before changes of log `{log}` that were ingested: older rows would replace newer ones."
    )
    hint = (
        f"Nothing of it was ingested. If it landed by mistake, move it away. To load it, run `tidefold retain drop "
        f"{log}`, then ingest it and all landed files again."
    )
    return FileProblem(name, "DUMP_LATE", message, hint)


def report_unreadable(name: str, why: str) -> FileProblem:
    message = f"`{name}` cannot be read: {why}."
    return FileProblem(name, "LANDED_UNREADABLE", message, "Check its permissions and its disk or bucket.")


def report_unsafe(name: str, kind: str) -> FileProblem:
    """Reports a file that is not regular. A link could make tidefold read any file of this machine."""
    code = "LANDED_LINK" if "link" in kind else "LANDED_SPECIAL"
    message = f"`{name}` was not read: it is {kind}, or its path contains one. tidefold reads only regular files."
    hint = "Land a copy of the file under this name, or remove it. Later files of its partition wait for it."
    return FileProblem(name, code, message, hint)


def report_unopened(name: str, error: OSError) -> FileProblem:
    """Reports why a listed file cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return report_gone(name)
    if isinstance(error, UnsafeFileError):
        return report_unsafe(name, error.kind)
    if isinstance(error, ReplacedFileError):
        return report_replaced(name)
    return report_unreadable(name, str(error.strerror or error))


def explain_foreign(begin: bytes) -> str:
    """Returns what the first bytes of a file show that nothing reads, and the way out; empty: nothing."""
    return next((why for magic, why in _FOREIGN.items() if begin.startswith(magic)), "")


def report_wrong_content(name: str, begin: bytes = b"") -> FileProblem:
    message = f"The content of `{name}` does not match its extension."
    hint = "Land it under the right name: compressed files end in `.gz` or `.zst`, plain files do not."
    if foreign := explain_foreign(begin):
        message, hint = f"`{name}` {foreign}.", "Land the result under another name, then move this one away."
    return FileProblem(name, "LANDED_FORMAT", message, hint)


def report_damaged(name: str, why: str) -> FileProblem:
    message = f"`{name}` is damaged: {why}."
    return FileProblem(name, "LANDED_DAMAGED", message, "Land an intact copy under the same name.")


def report_too_large(name: str, why: str) -> FileProblem:
    hint = "Write it again with smaller row groups. Keep values of more than 64 MiB elsewhere."
    return FileProblem(name, "LANDED_TOO_LARGE", f"`{name}` needs more memory than a task may use: {why}.", hint)


def report_truncated(name: str) -> FileProblem:
    message = f"`{name}` is cut off, and newer files of its partition exist."
    hint = "Land a complete copy under the same name. Newer files wait for it."
    return FileProblem(name, "LANDED_TRUNCATED", message, hint)


def report_empty(name: str) -> FileProblem:
    message = f"`{name}` is empty, and newer files of its partition exist."
    return FileProblem(name, "LANDED_EMPTY", message, "Land it again or remove it. Newer files wait for it.")


def report_changed(name: str, why: str) -> FileProblem:
    hint = (
        "Restore the earlier file, or remove this one, and land the new content under another name. The new content "
        "was not ingested. If "
        "its writer replaces the file each time, land a copy with the date in its name each time, and set "
        "`extract: full` if it always has all rows."
    )
    return FileProblem(name, "LANDED_CHANGED", f"`{name}` {why}.", hint)


def report_growing(name: str) -> FileProblem:
    message = f"`{name}` is still being written, and newer files of its partition exist."
    hint = "Run ingest again when the file is complete. Newer files wait for it."
    return FileProblem(name, "LANDED_GROWING", message, hint, passing=True)


def report_late(name: str, partition: int, offset: int, next_offset: int) -> FileProblem:
    message = (
        f"`{name}` has offset {offset}, which was never ingested, but the log expects {next_offset} and later. The "
        "file landed after newer files, so its records can no longer be appended in order."
    )
    hint = (
        "To ingest them, if all landed files still exist: start the log again with `tidefold retain drop LOG` (it "
        "deletes table and snapshots too) and `tidefold step ingest LOG`. To continue without them: move the file away."
    )
    return FileProblem(name, "LANDED_LATE", message, hint, late_offset=offset, partition=partition)


def report_unfit_schema(name: str, why: str, *, stops: bool = False) -> FileProblem:
    """Reports a file whose columns differ from those of the log. `stops`: see FileProblem."""
    hint = (
        "Nothing of it was ingested. Land the file with the columns that the log has, each of its type; or change "
        "`columns` of the log."
    )
    return FileProblem(name, "LANDED_SCHEMA", f"`{name}` {why}.", hint, stops=stops)


def report_schema_stop(
    name: str, line: int, reason: str, detail: str, brings: tuple[tuple[str, str], ...] = ()
) -> FileProblem:
    """Reports a record with another schema than the configured one. Everything before it was ingested."""
    message = (
        f"Line {line} of `{name}`: {detail.rstrip('.')}. The records before it were ingested, the later ones wait."
    )
    hint = "Correct the configuration of the log, then run ingest again. It continues with this record."
    if reason == "STATE_CHANGED":
        hint = (
            "Set `state`, `kind`, `columns` and `ttl` of the log as the metadata says, then run ingest again. It "
            "continues with this record. A state of another kind needs a log of its own."
        )
    if reason == "POLL_UNNAMED":
        hint = (
            "Let the writer name the element that it polls. To ingest the rest without this operation, set "
            "`on_bad_record: quarantine`; the element then stays in the table."
        )
    if reason == "DECIMAL_SCALE":
        hint = (
            "Promise the scale in `columns`, then run ingest again. It continues with this record. If the scale "
            "changed at the source, let Debezium make a new snapshot, land it in a new folder, and start the log again."
        )
    return FileProblem(name, reason, message, hint, stops=True, brings=brings)
