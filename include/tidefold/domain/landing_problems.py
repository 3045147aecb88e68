"""Landed files that a log did not ingest, or that brought nothing new; shown until a person acts. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tidefold.domain.source_progress import LandedFileRecord

# How many problems are listed by name. All of them are counted.
LISTED = 20
REFUSED, WAITING = "LANDED_REFUSED", "LANDED_WAITING"
# Told until the first snapshot is completed: nothing shows later whether the table was empty when its stream began.
UNLOADED = "SOURCE_SNAPSHOT_MISSING"
# What differs between files with one problem: numbers, and the pattern of a name.
_OF_ONE_FILE = re.compile(r"\b[0-9][0-9,]*\b|`(files|leave_out): \[[^`]*`")
# No writer at work explains these: no later run mends them. An edit before each run looks new each time, and a file
# that is gone is seen once.
AT_ONCE = ("LANDED_CHANGED", "LANDED_GONE", "LANDED_LATE")


@dataclass(frozen=True, slots=True)
class LandingProblem:
    """A landed file that needs a person's attention.

    file: its name in the landing folder.
    code, message, hint: what is wrong, and the next step.
    since: the instant (ISO 8601) at which an ingest first found the problem. Information: no clock decides.
    size, changed: bytes and modification time of the file then.
    fails: whether a run fails if the file stays as it is.
    """

    file: str
    code: str
    message: str
    hint: str
    since: str = ""
    size: int = 0
    changed: float = 0.0
    fails: bool = True

    @property
    def identity(self) -> tuple[str, str, int, float]:
        """Returns what stays the same until a person handles the file or its writer adds to it."""
        return self.file, self.code, self.size, self.changed

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


@dataclass(frozen=True, slots=True)
class TopicReach:
    """What a landing saw of a partition of a topic, and what it left there. Nothing asks the broker later.

    end: the offset behind its newest record. left: how many offsets did not land.
    read: the offset behind the newest record that landed; 0: none did. time: when that was written (ISO 8601).
    seen: when a landing first saw this (ISO 8601).
    """

    partition: int
    end: int
    left: int
    read: int = 0
    time: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True)
class LandingProblems:
    """All problems of a landing folder, as the last ingest found them.

    counts: how many files there are of each code.
    listed: the first of them, those that make a run fail, and at once, before the others.
    topic: how far the topic was read that lands there; empty: files land by other means.
    """

    counts: tuple[tuple[str, int], ...] = ()
    listed: tuple[LandingProblem, ...] = ()
    topic: tuple[TopicReach, ...] = ()

    @property
    def total(self) -> int:
        """How many files have a problem."""
        return sum(number for _, number in self.counts)

    def others(self, log: str) -> str:
        """Returns how many more files have a problem, to follow the message of the first one; empty: none."""
        return f" ({self.total - 1:,} more, see `tidefold status {log}`)" if self.total > 1 else ""


NO_PROBLEMS = LandingProblems()


class ProblemOfFile(Protocol):
    """A problem with the name of its file, and the next step."""

    @property
    def file(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hint(self) -> str: ...


Problem = TypeVar("Problem", bound=ProblemOfFile)


def group_by_reason(problems: Iterable[Problem]) -> list[list[Problem]]:
    """Groups problems whose messages and hints differ only by names of files and by numbers."""
    groups: dict[str, list[Problem]] = {}
    for one in problems:
        text = f"{one.message} {one.hint}".replace(one.file, "").replace(one.file.rpartition("/")[2], "")
        groups.setdefault(_OF_ONE_FILE.sub("", text), []).append(one)
    return list(groups.values())


def list_problems(problems: Iterable[LandingProblem]) -> LandingProblems:
    """Counts the problems and lists the first of them by name."""
    ordered = sorted(problems, key=lambda p: (p.code not in AT_ONCE, not p.fails, p.code, p.file))
    counts = Counter(p.code for p in ordered)
    return LandingProblems(tuple(sorted(counts.items())), tuple(ordered[:LISTED]))


def drop_settled(
    problems: LandingProblems, landed: Iterable[LandedFileRecord], *, has_snapshot: bool
) -> LandingProblems:
    """Returns the problems without those that a retry, a person, or the first snapshot settled since the ingest."""
    problems = drop_unloaded(problems) if has_snapshot else problems
    left = {entry.name: not entry.brought for entry in landed if entry.quarantined}
    listed = tuple(p for p in problems.listed if p.code != REFUSED or left.get(p.file))
    counts = (
        (code, min(number, sum(left.values())) if code == REFUSED else number) for code, number in problems.counts
    )
    return replace(problems, counts=tuple(one for one in counts if one[1]), listed=listed)


def drop_unloaded(problems: LandingProblems) -> LandingProblems:
    """Returns the problems without that of a stream that begins without a snapshot."""
    return replace(
        problems,
        counts=tuple(one for one in problems.counts if one[0] != UNLOADED),
        listed=tuple(one for one in problems.listed if one.code != UNLOADED),
    )


def with_first_seen(now: LandingProblems, before: LandingProblems, instant: str) -> LandingProblems:
    """Returns the problems, each with the instant at which it was first found, and so what was seen of a topic."""
    since = {(p.file, p.code): p.since for p in before.listed}
    listed = tuple(replace(p, since=since.get((p.file, p.code), instant)) for p in now.listed)
    seen = {replace(one, seen=""): one for one in before.topic}
    topic = tuple(seen.get(replace(one, seen=""), one) for one in now.topic or before.topic)
    return replace(now, listed=listed, topic=topic)


def find_refused(now: LandingProblems, partly: Collection[str]) -> LandingProblem | None:
    """Returns the first file that was refused as a whole, not one that was taken partly or waits for its writer."""
    return next((p for p in now.listed if p.fails and p.code != WAITING and p.file not in partly), None)


def find_failing(
    now: LandingProblems, before: LandingProblems, policy: str | None, at_once: Collection[str]
) -> LandingProblem | None:
    """Returns the problem that makes a run fail; None: no problem does.

    policy: `warn`: none. `fail`: any, except a file whose writer may still be at work. None: a problem that an earlier
        run found on the same, unchanged file, or one of the files `at_once`.
    """
    if policy == "warn":
        return None
    identities = {p.identity for p in before.listed}

    def is_due(one: LandingProblem) -> bool:
        return one.identity in identities or one.file in at_once or (policy == "fail" and one.code != WAITING)

    return next((p for p in now.listed if p.fails and is_due(p)), None)
