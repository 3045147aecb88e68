"""Reads one landed file of each log as a run would, to find a configuration that does not fit it. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidefold.config import Config
from tidefold.config.models.log import LogConfig
from tidefold.domain.log_state import LogState
from tidefold.domain.wording import count_noun
from tidefold.errors import TidefoldError
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.sources.api import UnfitFileError, source_of
from tidefold.sources.landing.plan import FileTask
from tidefold.sources.landing.problems import FileProblem
from tidefold.sources.quarantine.writer import QuarantineWriter
from tidefold.sources.records.errors import RefusedRecordError

# A larger file, or the files of more logs, would take too long.
_MOST_BYTES, _MOST_LOGS = 1 << 20, 100


@dataclass(frozen=True, slots=True)
class LandedMisfit:
    """What a run would not ingest of the landed files of a log. `whole`: it would ingest nothing of a file."""

    log: str
    message: str
    hint: str = ""
    whole: bool = True

    def __str__(self) -> str:
        return f"{self.log}: {self.message} {self.hint}".rstrip()


class _FirstRefusal(QuarantineWriter):
    """Keeps the first refused record alone."""

    line: int = 0
    refused: RefusedRecordError | None = None

    def add(self, file: str, line: int, offset: int | None, refused: RefusedRecordError, record: bytes) -> None:
        if self.refused is None:
            self.line, self.refused = line, refused


def find_misfits(config: Config, *, local: bool = False) -> list[LandedMisfit]:
    """Reads the newest small file of each log. `local`: only folders of this machine."""
    logs = [log for log in config.logs.values() if log.landing and not (local and "://" in log.landing)]
    return [misfit for misfit in map(_try_newest, logs[:_MOST_LOGS]) if misfit]


def _try_newest(log: LogConfig) -> LandedMisfit | None:
    feed = log.feed
    assert feed is not None
    try:
        source = source_of(feed)
        listing = source.listing(LogState(log.id, log.shape))
        # The check `landing` reports links.
        unread = [problem for problem in listing.problems if problem.code != "LANDED_LINK"]
        if unread and not listing.files:
            return _of_problem(log.id, unread[0])
        small = [file for file in listing.files if 0 < file.size <= _MOST_BYTES]
        if not small:
            return None
        file = max(small, key=lambda one: one.stamp.changed)
        ending = source.ending(file, 0)
        if ending.problem:
            return _of_problem(log.id, ending.problem)
        with _FirstRefusal() as refusals:
            account = source.parse(FileTask(file, ending.complete), log.shape, refusals).account
    except UnfitFileError as unfit:
        return _of_problem(log.id, unfit.problem)
    except TidefoldError:
        return None  # The check `landing` reports what cannot be read.
    if not (refused := sum(account.refused.values())):
        return None
    message = f"a run would refuse {refused:,} of {count_noun(account.records, 'record')} of `{file.name}`."
    if first := refusals.refused:
        message += f" The first is number {refusals.line}: [{first.reason}] {first.detail}"
    return LandedMisfit(log.id, message, "Correct the log's configuration, or the file.", whole=False)


def _of_problem(log: str, problem: FileProblem) -> LandedMisfit:
    return LandedMisfit(log, f"[{problem.code}] {problem.message}", problem.hint)


def judge_records(misfits: Iterable[LandedMisfit]) -> Iterator[DoctorFinding]:
    """Checks that the configuration fits what has landed."""
    misfit = None
    for misfit in misfits:
        level = FindingLevel.FAIL if misfit.whole else FindingLevel.WARN
        yield DoctorFinding("records", level, f"{misfit.log}: {misfit.message}", misfit.hint)
    if misfit is None:
        yield DoctorFinding("records", FindingLevel.OK, "The newest landed file of each log fits its configuration.")
