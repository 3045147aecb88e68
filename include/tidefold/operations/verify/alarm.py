"""Explains damage that is left: one alarm for each file, with the effect and the command that repairs it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidefold.domain.paths import LogPaths
from tidefold.domain.verify.expected_files import Damage, FileRole, StorageTier
from tidefold.errors import CorruptError

_MEANS = {
    FileRole.DATA: "the rows of this file are lost for readers of snapshot {ids}, until it is mended",
    FileRole.MANIFEST: "the files of snapshot {ids} are not known without it, so the snapshot cannot be restored",
    FileRole.DELTA_LOG: "a reader of snapshot {ids} as a table of its own does not get its rows",
    FileRole.TABLE: "readers of the published table do not get the rows of snapshot {ids}",
    FileRole.SEGMENT: "a fold or a replay of these changes cannot read them",
}
_LOCAL = "restores read the store instead of this local copy"
_SPARE = "no reader notices it yet, because another copy is good"


@dataclass(frozen=True, slots=True)
class Alarm:
    """Damage that a person must repair.

    file: its path (`local:` is in front of the paths of local copies).
    harm: what is wrong with it.
    means: what does not work because of it.
    command: the next step.
    """

    file: str
    harm: str
    means: str
    command: str

    def __str__(self) -> str:
        return f"{self.harm}: {self.file}. It means: {self.means}. Next: {self.command}"


def find_alarms(damage: Iterable[Damage]) -> list[Alarm]:
    """Returns one alarm for each damage that is left."""
    return [
        Alarm(str(one.places[0]), f"{one.part} {one.harm}", _explain(one), one.hint)
        for one in damage
        if not one.repaired
    ]


def _explain(damage: Damage) -> str:
    if all(place.where is StorageTier.LOCAL for place in damage.places):
        return _LOCAL
    means = _MEANS[damage.part].format(ids=", ".join(map(str, damage.snapshots)) or "?")
    # Some name of a file that is damaged is what readers open; only a segment or manifest has readers that fall back.
    return f"{means}; {_SPARE}" if damage.good and damage.part in (FileRole.SEGMENT, FileRole.MANIFEST) else means


def alarm_of_ledger(log: str, error: CorruptError) -> Alarm:
    """Returns the alarm for a ledger version or page that cannot be read."""
    return Alarm(
        LogPaths(log).ledger,
        f"ledger damaged, {error.code}",
        f"{error.message} No command can work on `{log}`, and readers still see the published table",
        f"put the file back from a backup; without one, move `{LogPaths(log).ledger}` away, then "
        f"`tidefold rebuild {log}` makes the ledger again",
    )
