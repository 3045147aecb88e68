"""Finds landed files that were written anew with the same length, after they were taken.

The time of change only says which files to look at; their bytes decide. A file that was merely touched is read again on
every run, which costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import cast

from tidefold.domain.log_state import LogState
from tidefold.sources.landing.listing import LandedFile, open_landed
from tidefold.sources.landing.problems import FileProblem, report_changed, report_unopened


def rewritten(files: Sequence[LandedFile], state: LogState) -> tuple[FileProblem, ...]:
    """One problem for each file that does not hold any more what was taken from it."""
    taken = {account.name: account for account in state.landed}
    problems = []
    for file in files:
        account = taken.get(file.name)
        if account is None or account.length != file.size or account.changed == file.stamp.changed:
            continue
        problem = _look(file, account.checksum)
        problems += [problem] if problem else []
    return tuple(problems)


def _look(file: LandedFile, checksum: str) -> FileProblem | None:
    try:
        with open_landed(file) as stream:
            same = hashlib.file_digest(cast(io.BufferedReader, stream), "sha256").hexdigest() == checksum
    except OSError as error:
        return report_unopened(file.name, error)
    return None if same else report_changed(file.name, "holds other bytes than were taken from it")
