"""What can be wrong with a landed file as a whole. (What can be wrong with one record: `refusal`.)"""

from __future__ import annotations

from dataclasses import dataclass

from tidefold.errors import ConflictError, InvalidInputError, TidefoldError
from tidefold.storage.safe_files import UnsafeFileError


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file was not taken. A `blocking` one holds up its partition until somebody acts; `passing`: until a later
    run finds it settled. One that `stops` makes the log's ingest an error, also when other files were taken; `brings`:
    the columns that its record brought, with their types.
    """

    file: str
    code: str
    message: str
    hint: str
    blocking: bool = True
    passing: bool = False
    stops: bool = False
    brings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    @property
    def error(self) -> TidefoldError:
        kind = ConflictError if self.passing else InvalidInputError
        return kind(self.code, self.message, hint=self.hint)


def report_foreign(name: str, why: str) -> FileProblem:
    """A file that does not belong into the log's folder. It holds nothing up, and is named on every run."""
    return FileProblem(name, "FOREIGN_FILE", why, "Move it out of the landing folder.", blocking=False)


def report_unplaced(name: str) -> FileProblem:
    """A file whose name does not say where its records stand, in a log that must know it."""
    message = f"`{name}` has no name of the form `topic+partition+offset`: it does not say where its records stand."
    return FileProblem(name, "LANDED_NAME", message, "Land it under such a name.", blocking=False)


def report_gone(name: str) -> FileProblem:
    return FileProblem(
        name, "LANDED_GONE", f"`{name}` was removed during the ingest.", "Land it again; nothing of it was ingested."
    )


def report_unreadable(name: str, why: str) -> FileProblem:
    return FileProblem(
        name, "LANDED_UNREADABLE", f"`{name}` cannot be read: {why}.", "Check its permissions and its disk."
    )


def report_unsafe(name: str, kind: str) -> FileProblem:
    """Something that is no regular file: whoever may land could make tidefold read any file of this machine."""
    code = "LANDED_LINK" if "link" in kind else "LANDED_SPECIAL"
    message = f"`{name}` is refused: it is, or lies behind, {kind}. Only regular files are read."
    hint = "Land a copy of the file under this name, or remove it. What follows in its partition waits for it."
    return FileProblem(name, code, message, hint)


def report_unopened(name: str, error: OSError) -> FileProblem:
    """Why a file that was listed cannot be opened."""
    if isinstance(error, FileNotFoundError):
        return report_gone(name)
    if isinstance(error, UnsafeFileError):
        return report_unsafe(name, error.kind)
    return report_unreadable(name, str(error.strerror or error))


def report_wrong_content(name: str) -> FileProblem:
    message = f"`{name}` has another content than its extension says."
    return FileProblem(
        name, "LANDED_FORMAT", message, "gzip files end in `.gz`, plain ones do not; land it under the right name."
    )


def report_damaged(name: str, why: str) -> FileProblem:
    return FileProblem(
        name, "LANDED_DAMAGED", f"`{name}` is damaged: {why}.", "Land an intact copy under the same name."
    )


def report_truncated(name: str) -> FileProblem:
    message = f"`{name}` is cut off, and newer files of its partition are there."
    return FileProblem(
        name, "LANDED_TRUNCATED", message, "Land a complete copy under the same name; newer files wait for it."
    )


def report_empty(name: str) -> FileProblem:
    message = f"`{name}` is empty, and newer files of its partition are there."
    return FileProblem(name, "LANDED_EMPTY", message, "Land it again or remove it; newer files wait for it.")


def report_changed(name: str, why: str) -> FileProblem:
    return FileProblem(
        name, "LANDED_CHANGED", f"`{name}` {why}.", "Put back the former file; nothing of this one was ingested."
    )


def report_growing(name: str) -> FileProblem:
    message = f"`{name}` is still being written, and newer files of its partition are there."
    hint = "Run ingest again once it is complete; nothing more of it was ingested, and newer files wait for it."
    return FileProblem(name, "LANDED_GROWING", message, hint, passing=True)


def report_late(name: str, offset: int, next_offset: int) -> FileProblem:
    message = (
        f"`{name}` brings offset {offset}, which was never taken, but everything from {next_offset} on comes next: it "
        "landed after newer files. Its records are not in the log, and cannot be put behind newer ones."
    )
    hint = (
        "To have them: when all that ever landed still lies there, begin the log anew with `tidefold drop LOG` (it "
        "deletes table and snapshots too) and `tidefold ingest LOG`. To go on without them: keep the file elsewhere."
    )
    return FileProblem(name, "LANDED_LATE", message, hint)


def report_unfit_schema(name: str, why: str, *, stops: bool = False) -> FileProblem:
    """A file whose columns are others than those of the log. `stops`: see Problem."""
    hint = (
        "Nothing of it was taken. Add the column to `columns` of the log (with `default: null` if other files lack it) "
        "or to `ignored`; or land the file with the columns that the log has, each of its type."
    )
    return FileProblem(name, "LANDED_SCHEMA", f"`{name}` {why}.", hint, stops=stops)


def report_schema_stop(
    name: str, line: int, reason: str, detail: str, brings: tuple[tuple[str, str], ...] = ()
) -> FileProblem:
    """A record of another schema than the configured one; everything before it was taken."""
    message = f"Line {line} of `{name}`: {detail.rstrip('.')}. What comes before it is taken, the rest waits"
    hint = "Correct `columns` or `ignored` of the log as said, then run ingest again: it continues with this record."
    return FileProblem(name, reason, f"{message}.", hint, stops=True, brings=brings)
