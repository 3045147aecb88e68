"""Write intents: writers announce their files before they write them.

A run announces its segments with the logs that will name them, or the folders in which its tasks choose names. The
engine may run a task twice, and only the names that it returns to the driver count. After the run has written
everything, it stores what it brings to each log, before it commits to the first. If the run dies, both records stay.
The next run commits the results to every log, or rejects the run for good if it stored no results. So tidefold can
distinguish a segment that no log needs from one that is about to be committed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from tidefold.domain.ingest.append import ExpectedPosition, IngestedFile
from tidefold.domain.ingest.quarantine_retry import SkippedRanges
from tidefold.domain.landing_problems import LandingProblems
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import INTENTS
from tidefold.domain.uploads import UploadTotals
from tidefold.errors import CorruptError, NotFoundError
from tidefold.storage import Store
from tidefold.stored_forms import decode, decode_form, encode_form

# The name has the sha256 of the content.
_ARRIVALS = re.compile(r".*/arrivals-([0-9a-f]{64})\.json")
# A writer that was killed leaves its half under a longer name.
_HALF = re.compile(r"\.[^/.]+\.part$")


@dataclass(frozen=True, slots=True)
class IntentLog:
    """A log that may name the files.

    fence: the fence of the log at the announcement. If it has risen since, the ledger refuses the files.
    """

    log: str
    shape: TableSpec
    fence: int


@dataclass(frozen=True, slots=True)
class Intent:
    """Files that are about to be written.

    instant: ISO 8601. It may delay the recovery of the run, and decides nothing.
    files: paths that are known before they are written.
    folders: folders of only this run, in which its tasks choose file names.
    """

    run: str
    number: int
    instant: str
    logs: tuple[IntentLog, ...]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taking:
    """What a run brings to one log. The ledger appends all of it, or nothing.

    landing: what the run did not ingest from the landing folder; None: unknown.
    uploads: what the uploads cost; None: unknown.
    left_out: the changes that restores and imports had left out of the rows on which the results rest; None: on none.
    folders: the landing folders that own the log.
    """

    log: str
    shape: TableSpec
    fence: int
    rests_on: tuple[ExpectedPosition, ...]
    arrivals: tuple[IngestedFile, ...]
    landing: LandingProblems | None = None
    uploads: UploadTotals | None = None
    left_out: SkippedRanges | None = None
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Announced:
    """All records of a run. `takings` is None until everything was written."""

    run: str
    intents: tuple[Intent, ...]
    takings: tuple[Taking, ...] | None

    @property
    def logs(self) -> dict[str, IntentLog]:
        return {one.log: one for intent in self.intents for one in intent.logs}

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(file for intent in self.intents for file in intent.files))

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(folder for intent in self.intents for folder in intent.folders))


class ExpectedFiles:
    """The stored files of runs that have announced them and have not ended."""

    def __init__(self, runs: Iterable[Announced]) -> None:
        listed = list(runs)
        self._files = {file for run in listed for file in run.files}
        self._folders = {folder for run in listed for folder in run.folders}

    def __contains__(self, path: str) -> bool:
        """Whether a file is one of them, or an unfinished part of one."""
        whole = _HALF.sub("", path)
        return whole in self._files or whole.rpartition("/")[0] in self._folders


def begin(store: Store, intent: Intent) -> None:
    """Announces files before they are written. A run may announce several times, each with its own number."""
    store.put_if_absent(f"{INTENTS}/{intent.run}/{intent.number:06d}.json", encode_form(intent))


def bring(store: Store, run: str, takings: Sequence[Taking]) -> None:
    """Stores what the run brings to each log, after everything is written and before the first commit."""
    data = msgspec.json.encode(tuple(takings))
    store.put_if_absent(f"{INTENTS}/{run}/arrivals-{hashlib.sha256(data).hexdigest()}.json", data)


def end(store: Store, run: str) -> None:
    """Deletes the records of a run that every log has accepted or refused; last the results, which recovery needs."""
    paths = [entry.path for entry in store.list(f"{INTENTS}/{run}", unfinished=True)]
    store.delete(sorted(paths, key=lambda path: _ARRIVALS.fullmatch(path) is not None))


def read_announced(store: Store) -> Iterator[Announced]:
    """Yields every run that has begun and not ended. It may skip one that ends meanwhile. Raises CorruptError."""
    paths = [entry.path for entry in store.list(INTENTS)]
    for run, group in groupby(paths, key=lambda path: path.split("/")[-2]):
        try:
            yield _read(store, run, list(group))
        except NotFoundError:
            continue


def _read(store: Store, run: str, paths: Sequence[str]) -> Announced:
    takings, intents = None, []
    for path in paths:
        data, brought = store.read(path), _ARRIVALS.fullmatch(path)
        if brought and brought[1] != hashlib.sha256(data).hexdigest():
            raise CorruptError("INTENT_CORRUPT", f"`{path}` was altered: its checksum differs.")
        if brought:
            takings = decode(path, data, tuple[Taking, ...], "INTENT_CORRUPT")
        else:
            intents.append(decode_form(path, data, Intent, "INTENT_CORRUPT"))
    return Announced(run, tuple(intents), takings)
