"""Stores each verdict once, next to the snapshot, and reads it again instead of judging twice."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from tidefold.domain.log_state import Verdict
from tidefold.domain.paths import LogPaths
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError
from tidefold.quality.report.html import render
from tidefold.quality.report.result import ValidationResult
from tidefold.storage import Store
from tidefold.typed_json import decode_json

FORMAT = 2
# Files of older versions lack some fields, which are then empty.
_READABLE = (1, FORMAT)


class VerdictFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """verdict.json."""

    format: int
    judgement: ValidationResult


def verdict_path(log: str, snapshot: int, suite: str) -> str:
    """Returns the path of the verdict of a suite (its sha256) over a snapshot."""
    return f"{LogPaths(log).quality(snapshot)}/verdict-{suite[:16]}.json"


def report_path(log: str, snapshot: int, suite: str) -> str:
    """Returns the path of the report page of that verdict."""
    return f"{LogPaths(log).quality(snapshot)}/report-{suite[:16]}.html"


def audit_paths(log: str, snapshot: int, suite: str, name: str) -> tuple[str, str]:
    """Returns the paths of an audit and its page. They are next to the verdict, which an audit never changes."""
    folder = f"{LogPaths(log).quality(snapshot)}/audit-{suite[:16]}-{name}"
    return f"{folder}.json", f"{folder}.html"


def find_stored_audit(
    store: Store, path: str, log: str, snapshot: int, manifest: str, suite: str
) -> ValidationResult | None:
    """Returns the stored audit, or None. Raises CorruptError if the file is about another one."""
    return _read_verdict(store, path, (log, snapshot, manifest, suite))


def store_audit(store: Store, judged: ValidationResult, path: str, page: str) -> ValidationResult:
    """Stores an audit and its page. If one is already stored, it stays."""
    with suppress(AlreadyExistsError):
        store.put_if_absent(path, msgspec.json.format(msgspec.json.encode(VerdictFile(FORMAT, judged)), indent=1))
    stands = _read_verdict(store, path, (judged.log, judged.snapshot, judged.manifest, judged.suite)) or judged
    with suppress(AlreadyExistsError):
        store.put_if_absent(page, render(stands).encode())
    return stands


def find_stored_judgement(store: Store, log: str, snapshot: int, manifest: str, suite: str) -> ValidationResult | None:
    """Returns the stored judgement of this suite over exactly these files, or None. Raises CorruptError."""
    return _read_verdict(store, verdict_path(log, snapshot, suite), (log, snapshot, manifest, suite))


def _read_verdict(store: Store, path: str, of: tuple[str, int, str, str]) -> ValidationResult | None:
    try:
        found = decode_json(store.read(path), VerdictFile)
    except NotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unusable(path, f"cannot be read: {error}") from error
    if found.format not in _READABLE:
        raise _unusable(path, f"has format {found.format}, this version reads up to {FORMAT}")
    judged = found.judgement
    if (judged.log, judged.snapshot, judged.manifest, judged.suite) != of:
        raise _unusable(path, "judges other files or another suite")
    return judged


def store_judgement(store: Store, judgement: ValidationResult) -> ValidationResult:
    """Stores a judgement. If another process stored one first for the same files and suite, that one counts."""
    path = verdict_path(judgement.log, judgement.snapshot, judgement.suite)
    try:
        store.put_if_absent(path, msgspec.json.format(msgspec.json.encode(VerdictFile(FORMAT, judgement)), indent=1))
    except AlreadyExistsError:
        first = find_stored_judgement(store, judgement.log, judgement.snapshot, judgement.manifest, judgement.suite)
        return first or judgement
    return judgement


def store_report(store: Store, judgement: ValidationResult) -> str:
    """Writes the page if it does not exist, and returns its path. The page depends only on the stored judgement."""
    path = report_path(judgement.log, judgement.snapshot, judgement.suite)
    # After a crash between page and ledger: that page was made from the same judgement.
    with suppress(AlreadyExistsError):
        store.put_if_absent(path, render(judgement).encode())
    return path


def verdict_of(judgement: ValidationResult) -> Verdict:
    """Returns the verdict that the ledger keeps. Its path is that of the page; verdict.json is next to it."""
    path = report_path(judgement.log, judgement.snapshot, judgement.suite)
    return Verdict(judgement.passed, judgement.suite, judgement.manifest, path, judgement.summary)


def _unusable(path: str, why: str) -> CorruptError:
    return CorruptError(
        "VERDICT_UNUSABLE", f"`{path}` {why}.", hint="Move the file away, then run `tidefold quality LOG`."
    )
