"""Finds the landed files that an ingest could not ingest, or that had nothing new, for the ledger and the outcome."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidefold.domain.landing_problems import (
    LandingProblem,
    LandingProblems,
    list_problems,
    with_first_seen,
)
from tidefold.domain.log_state import LandedFileRecord
from tidefold.operations.ingest.log_ingest import LogIngest

_SHOWN = 600
_COUNTS = ("records", "changes", "tombstones", "ignored", "quarantined", "unproved", "forgotten", "repeated", "resent")


def find_problems(intake: LogIngest, folder: str | None, instant: str, advice: str) -> LandingProblems:
    """Returns all problems of the landing folder after this run.

    folder: its path or address; None: it has none.
    advice: the next step for refused records.
    """
    not_taken = (
        LandingProblem(p.file, p.code, p.message[:_SHOWN], p.hint[:_SHOWN], size=p.size, changed=p.changed)
        for p in intake.all_problems
    )
    found = {(p.file, p.code): p for p in (*not_taken, *_find_waiting(intake), *_find_useless(intake, advice))}
    listed = list_problems(found.values())
    stamped = replace(listed, listed=tuple(_add_stamp(p, intake, folder) for p in listed.listed))
    return with_first_seen(stamped, intake.begun.landing, instant)


def _find_waiting(intake: LogIngest) -> Iterator[LandingProblem]:
    sizes = {file.name: file.size for file in intake.files}
    for name in intake.plan.left:
        if sizes.get(name):
            message = f"`{name}` does not end with a complete record. The incomplete end is not ingested yet."
            hint = (
                "Wait while the file is being written. If its writer is done, end the last line with a line end, or "
                "land a complete copy under the same name."
            )
        else:
            message, hint = (
                f"`{name}` is empty.",
                "Wait while the file is being written. If its writer is done, remove the file.",
            )
        yield LandingProblem(name, "LANDED_WAITING", message, hint, fails=bool(sizes.get(name)))


def _find_useless(intake: LogIngest, advice: str) -> Iterator[LandingProblem]:
    """Yields files that were ingested, still exist, and had nothing new."""
    alone = {file.name: file.alone for file in intake.files}
    accounts: dict[str, list[LandedFileRecord]] = {}
    landed = (intake.begun if intake.error else intake.state).landed
    is_open = any(entry.quarantined for entry in landed)
    for entry in landed:
        if entry.name in alone and (entry.quarantined or entry.repeated or entry.resent or entry.unproved):
            accounts.setdefault(entry.name, []).append(entry)
    for name, entries in accounts.items():
        yield from _judge_file(name, intake.log, entries, advice, is_open=is_open, alone=alone[name])


def _judge_file(
    name: str, log: str, entries: Sequence[LandedFileRecord], advice: str, *, is_open: bool, alone: bool
) -> Iterator[LandingProblem]:
    count = {one: sum(getattr(entry, one) for entry in entries) for one in _COUNTS}
    unproved = count["unproved"] - count["forgotten"]
    if unproved:
        message = (
            f"`{name}` has {unproved:,} records at offsets that were ingested before. They were not ingested. "
            "The file with the earlier records is gone or was edited, so tidefold cannot compare them."
        )
        hint = (
            "If they are new records, land them under the next free offsets. Otherwise move the file out of the "
            "landing folder."
        )
        yield LandingProblem(name, "LANDED_UNPROVED", message, hint, fails=False)
    elif count["quarantined"] == count["records"]:
        number = count["records"]
        message = f"All {number:,} records of `{name}` were refused."
        message = f"The only record of `{name}` was refused." if number == 1 else message
        hint = (
            f"`tidefold quarantine show {log}` prints each with its reason. Land corrected records under another name, "
            f"then `tidefold quarantine settle {log} --file {name} --reason REASON`."
            if alone
            else f"`tidefold quarantine show {log}` prints each with its reason. {advice}"
        )
        yield LandingProblem(name, "LANDED_REFUSED", message, hint, fails=alone)
    elif count["forgotten"]:
        return  # Known from before an import or a rebuild.
    elif not count["changes"] + count["tombstones"] + count["ignored"] + count["quarantined"]:
        message = (
            f"`{name}` has no new record: {count['repeated']:,} have offsets that were ingested before, and the source "
            f"sent {count['resent']:,} again."
        )
        hint = (
            "If its records should be new, check whether its name repeats the offsets of an earlier file. Or remove it."
        )
        if count["resent"] and is_open:
            hint = (
                f"Copies of refused records at other offsets are not new, because the source sent them before. {advice}"
            )
        yield LandingProblem(name, "LANDED_NOTHING_NEW", message, hint, fails=False)


def _add_stamp(problem: LandingProblem, intake: LogIngest, folder: str | None) -> LandingProblem:
    """Adds size and modification time of the file to a problem, if the file can be read."""
    known = next((file.stamp for file in intake.files if file.name == problem.file), None)
    if known:
        return replace(problem, size=known.size, changed=known.changed)
    if problem.changed or folder is None or "://" in folder:
        return problem
    try:
        found = os.stat(f"{folder}/{problem.file}", follow_symlinks=False)
    except (OSError, ValueError):
        return problem
    return replace(problem, size=found.st_size, changed=found.st_mtime)
