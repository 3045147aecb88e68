"""What writers are about to write, said before they write it.

A run announces its segments, with the logs that will name them, or the folders in which its tasks choose names: the
engine may run a task twice, and only the names that it returns to the driver count. When everything is written and
before the first log is told, the run says what it brings each of them. A run that dies leaves both behind: whoever
comes next rolls every log forward, or gives up for good what was never said. So a segment that no log needs is told
from one that is on its way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from tidefold.domain.ingest.append import ExpectedPosition, IngestedFile
from tidefold.domain.landing_problems import LandingProblems
from tidefold.domain.log_state import TableSpec
from tidefold.domain.paths import INTENTS
from tidefold.errors import CorruptError, NotFoundError
from tidefold.ledger.stored_form import decode_stored, encode
from tidefold.storage import Store

_ARRIVALS = "arrivals.json"
# A writer that was killed leaves its half under a longer name.
_HALF = re.compile(r"\.[^/.]+\.part$")


@dataclass(frozen=True, slots=True)
class IntentLog:
    """A log that may come to name the files. `fence`: the log's when this was said; after that rose it is refused."""

    log: str
    shape: TableSpec
    fence: int


@dataclass(frozen=True, slots=True)
class Intent:
    """Files that are about to be written.

    instant: ISO 8601; it may delay what is done with the run, and decides nothing.
    files: paths that are known before they are written.
    folders: folders of this run alone, in which its tasks write files under names of their own.
    """

    run: str
    number: int
    instant: str
    logs: tuple[IntentLog, ...]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taking:
    """What a run brings one log: all of it is appended, or nothing.

    `landing`: what the run did not take of the landing folder; None: that is not told.
    """

    log: str
    shape: TableSpec
    fence: int
    rests_on: tuple[ExpectedPosition, ...]
    arrivals: tuple[IngestedFile, ...]
    landing: LandingProblems | None = None


@dataclass(frozen=True, slots=True)
class Announced:
    """All that a run said. `takings` is None until everything was written."""

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
    """Which stored files belong to runs that have announced them and have not ended."""

    def __init__(self, runs: Iterable[Announced]) -> None:
        found = list(runs)
        self._files = {file for run in found for file in run.files}
        self._folders = {folder for run in found for folder in run.folders}

    def __contains__(self, path: str) -> bool:
        """Whether a file is one of them, or the half of one."""
        whole = _HALF.sub("", path)
        return whole in self._files or whole.rpartition("/")[0] in self._folders


def begin(store: Store, intent: Intent) -> None:
    """Announces files before they are written. A run may announce several times, each with its own number."""
    store.put_if_absent(f"{INTENTS}/{intent.run}/{intent.number:06d}.json", msgspec.json.encode(intent))


def bring(store: Store, run: str, takings: Sequence[Taking]) -> None:
    """Says, after everything is written and before any log is told, what each log will be told."""
    store.put_if_absent(f"{INTENTS}/{run}/{_ARRIVALS}", encode(tuple(takings)))


def end(store: Store, run: str) -> None:
    """Forgets a run after every log was told or refused. What it brought goes last: it is what rolls logs forward."""
    paths = [entry.path for entry in store.list(f"{INTENTS}/{run}", unfinished=True)]
    store.delete(sorted(paths, key=lambda path: path.endswith(f"/{_ARRIVALS}")))


def read_announced(store: Store) -> Iterator[Announced]:
    """Every run that has begun and not ended. One that ends meanwhile may be left out. Raises CorruptError."""
    paths = [entry.path for entry in store.list(INTENTS)]
    for run, group in groupby(paths, key=lambda path: path.split("/")[-2]):
        try:
            yield _read(store, run, list(group))
        except NotFoundError:
            continue


def _read(store: Store, run: str, paths: Sequence[str]) -> Announced:
    takings, intents = None, []
    for path in paths:
        data = store.read(path)
        try:
            if path.endswith(f"/{_ARRIVALS}"):
                takings = decode_stored(data, tuple[Taking, ...])
            else:
                intents.append(msgspec.json.decode(data, type=Intent))
        except msgspec.DecodeError as error:
            raise CorruptError(
                "INTENT_CORRUPT", f"`{path}` cannot be read: {error}.", hint="Restore the file."
            ) from error
    return Announced(run, tuple(intents), takings)
