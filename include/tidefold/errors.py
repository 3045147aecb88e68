"""Errors, grouped by what the person or program that gets one should do next.

Every error has a stable code, one sentence that describes the problem, and a hint with the next step. A step that
depends on nothing but the code stands in `docs/error-codes.toml` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tidefold.installation import error_table
from tidefold.interruption import raise_if_interrupted

WireError = tuple[str, str, str, str]


class TidefoldError(Exception):
    """Root of every error that tidefold raises on purpose.

    `exit_code`: the exit code of the command line and of Spark jobs.
    `transient`: the same call may succeed later without any change.
    """

    exit_code = 1
    transient = False

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self._hint = hint

    @property
    def hint(self) -> str:
        """The next step: its own, else that of its code."""
        return find_next_step(self.code) if self._hint is None else self._hint

    def __str__(self) -> str:
        tail = f" Next: {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{tail}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers); the default would lose the keyword argument.
        return (_rebuild, (type(self), self.code, self.message, self._hint))


def find_next_step(code: str) -> str:
    """Returns the next step that depends on nothing but the code; empty: there is none."""
    return _next_steps().get(code, "")


@cache
def _next_steps() -> Mapping[str, str]:
    """The next step of each code. None on a machine that has the code of the package only."""
    import tomllib  # Every process imports this module, and few see an error.

    try:
        families = tomllib.loads(error_table().read_text(encoding="utf-8"))
    except OSError:
        return {}
    return {code: step for codes in families.values() for code, (_, step) in codes.items()}


def _rebuild(kind: type[TidefoldError], code: str, message: str, hint: str | None) -> TidefoldError:
    return kind(code, message, hint=hint)


def to_wire(error: TidefoldError) -> WireError:
    """An error as plain texts, to be sent as JSON."""
    return type(error).__name__, error.code, error.message, error.hint


def from_wire(parts: WireError) -> TidefoldError:
    """The error that `to_wire` encoded."""
    kinds = [TidefoldError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    name, code, message, hint = parts
    return {kind.__name__: kind for kind in kinds}[name](code, message, hint=hint or None)


def wrap_unexpected(error: Exception) -> TidefoldError:
    """Wraps an unexpected error as a tidefold error of one log, so that it does not stop other logs."""
    if isinstance(error, TidefoldError):
        return error
    raise_if_interrupted(error)
    return TidefoldError(
        "UNFORESEEN",
        f"{type(error).__name__}: {error}",
        hint="The job's output has the traceback. If it repeats, please report it.",
    )


class InvalidInputError(TidefoldError, ValueError):
    """What was given (configuration, arguments, a landed file) is wrong; change it and call again."""

    exit_code = 2


class RefusedError(TidefoldError):
    """Well formed, but the state of the log forbids it; the hint names the command that changes that."""

    exit_code = 3


class SupersededError(RefusedError):
    """A newer attempt holds the log; this one must stop and leave everything as it is."""


class GateFailedError(RefusedError):
    """The quality gate said no; the snapshot stays unpublished."""


class NotFoundError(TidefoldError, LookupError):
    """The named thing does not exist (and its place could be read, so it is truly absent)."""

    exit_code = 4


class CorruptError(TidefoldError):
    """Something stored cannot be read back as what it must be; nothing was deleted or changed."""

    exit_code = 5


class OutdatedLedgerError(CorruptError):
    """The store shows more of a log than its ledger knows: the ledger is an older copy, or it was lost."""


class MissingFileError(CorruptError):
    """A file that the ledger names does not exist: it was lost, or the ledger is a backup."""


class StorageError(TidefoldError, OSError):
    """A store did not do what it was asked; trying again may help."""

    exit_code = 6
    transient = True


class StoreRefusedError(StorageError):
    """A store refuses, and goes on to: its address, the credentials, their rights or its kind are to be changed."""

    exit_code = 2
    transient = False


class StoreUnusableError(StorageError):
    """No request to the store can succeed: it does not answer, is not there, or does not know the credentials."""


class StoreWrongError(StoreUnusableError, StoreRefusedError):
    """No request to the store can succeed until its address or the credentials are changed."""


class UnavailableError(TidefoldError):
    """A service that does the work cannot be reached, or has lost it; trying again may help."""

    exit_code = 6
    transient = True


class AlreadyExistsError(StorageError):
    """A conditional put found its name taken."""

    transient = False


class UnknownOutcomeError(StorageError):
    """The answer to a write was lost: it may or may not have happened. Nothing may be deleted because of it."""


class ConflictError(TidefoldError):
    """Another writer was first, and re-reading did not settle it within the allowed tries."""

    exit_code = 7
    transient = True
