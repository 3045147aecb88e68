"""The records that a topic no longer had, and that a person gave up: one mark each beside the landed files."""

from __future__ import annotations

import msgspec

from tidefold.domain.paths import LedgerPaths
from tidefold.domain.wording import count_noun
from tidefold.storage import Store
from tidefold.typed_json import decode_json

GIVEN_UP = "given-up"


class AcceptedGap(msgspec.Struct, frozen=True):
    """Offsets [begin, end) of a partition that the topic no longer had, and who went on without them, why and when."""

    partition: int
    begin: int
    end: int
    by: str = ""
    why: str = ""
    at: str = ""

    def __str__(self) -> str:
        gone = f"up to {count_noun(self.end - self.begin, 'record')} of partition {self.partition}, from offset"
        return f"{gone} {self.begin} on, were given up by {self.by} at {self.at}: {self.why}"


def list_accepted_gaps(store: Store, paths: LedgerPaths) -> list[AcceptedGap]:
    """Returns the records that the log of a topic goes on without, in order."""
    gaps = list[AcceptedGap]()
    for entry in store.list(paths.offsets):
        kind, *place = entry.path.rpartition("/")[2].removesuffix(".json").split("+")
        if kind == GIVEN_UP:
            partition, begin, end = map(int, place)
            who = decode_json(store.read(entry.path), dict[str, str])
            gaps.append(AcceptedGap(partition, begin, end, **who))
    return sorted(gaps, key=lambda one: (one.partition, one.begin))
