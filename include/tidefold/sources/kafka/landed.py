"""What has landed of a topic: its files in the store, and the marks beside them, which say what the names do not.

A name of a file says where it begins. A mark is an empty name, too: `id+ID`, `compacted`, `first+PARTITION+OFFSET`, and
ranges `empty+PARTITION+BEGIN+END` (no record), `given-up+...` (a person goes on without them; it has who and why) and
`hole+...` (the log got them from other files).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LedgerPaths
from tidefold.domain.sets.progress import NEVER
from tidefold.errors import AlreadyExistsError, CorruptError, InvalidInputError
from tidefold.sources.kafka.accepted_gaps import GIVEN_UP
from tidefold.sources.landing.folders import LandedName
from tidefold.sources.landing.streams import BLOCK, unzip
from tidefold.storage import Store

_PASSED = ("empty", GIVEN_UP)


def list_landed_files(store: Store, paths: LedgerPaths) -> list[tuple[LandedName, int]]:
    """Returns the landed files of a topic by partition and offset, each with its length."""
    files = list[tuple[LandedName, int]]()
    for entry in store.list(paths.landed):
        with suppress(InvalidInputError):
            files.append((LandedName.parse(entry.path.rpartition("/")[2]), entry.bytes))
    return sorted(files, key=lambda one: (one[0].partition, one[0].start))


@dataclass(frozen=True, slots=True)
class LandedOffsets:
    """The offsets of a topic that have landed.

    topic_id: empty: nothing has landed.
    compacted: whether the broker may have deleted single records of it.
    first: where each partition began when it was read for the first time.
    marks: ranges of each partition: kind, begin, end.
    """

    store: Store
    paths: LedgerPaths
    topic_id: str = ""
    compacted: bool = False
    first: Mapping[int, int] = field(default_factory=dict)
    marks: Mapping[int, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    files: Mapping[int, list[LandedName]] = field(default_factory=lambda: defaultdict(list))
    _ends: dict[LandedName, int] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store, paths: LedgerPaths) -> LandedOffsets:
        """Lists the landing place of a log or of a set."""
        topic_id, compacted, first = "", False, dict[int, int]()
        landed = cls(store, paths)
        for file, _ in list_landed_files(store, paths):
            landed.files[file.partition].append(file)
        for entry in store.list(paths.offsets):
            match entry.path.rpartition("/")[2].removesuffix(".json").split("+"):
                case ["id", topic_id]:
                    pass
                case ["compacted"]:
                    compacted = True
                case ["first", partition, offset]:
                    first[int(partition)] = min(int(offset), first.get(int(partition), int(offset)))
                case [("empty" | "given-up" | "hole") as kind, partition, begin, end]:
                    landed.marks[int(partition)].append((kind, int(begin), int(end)))
                case _:
                    raise CorruptError("STORE_NEWER", f"`{entry.path}` is a mark that this tidefold does not know.")
        return cls(store, paths, topic_id, compacted, first, landed.marks, landed.files)

    @property
    def whole_from(self) -> int:
        """From which offset of the only partition on a missing one had no record; NEVER: none is known."""
        marks = self.marks[0]
        starts = [begin for kind, begin, _ in marks if kind == "empty"] + [file.start for file in self.files[0][:1]]
        is_known = not self.compacted and all(kind != GIVEN_UP for kind, _, _ in marks)
        return min(starts, default=NEVER) if is_known else NEVER

    def list_covered(self, partition: int, state: LogState) -> list[tuple[int, int]]:
        """Returns the ranges [begin, end) that landed, have no record, or were given up, in order."""
        files, marks = self.files[partition], self.marks[partition]
        holes = [(begin, end) for kind, begin, end in marks if kind == "hole"]
        covered = [(begin, end) for kind, begin, end in marks if kind in _PASSED]
        for file, after in pairwise(files):
            covered.append(
                (file.start, min([b for b, e in holes if file.start < b and e <= after.start] + [after.start]))
            )
        return sorted(covered + [(file.start, self._find_end(file, state)) for file in files[-1:]])

    def _find_end(self, file: LandedName, state: LogState) -> int:
        """Returns the offset behind the last record of a file: what the ledger says, else what its last line says."""
        taken = next((one for one in reversed(state.landed) if one.name == str(file) and one.complete), None)
        if taken:
            return taken.next_offset
        if file in self._ends:
            return self._ends[file]
        last = b""
        with self.store.open(f"{self.paths.landed}/{file}") as stream:
            for block in unzip(iter(lambda: stream.read(BLOCK), b"")):
                last += block
                last = last[last.rfind(b"\n", 0, -1) + 1 :]
        self._ends[file] = int(msgspec.json.decode(last)["offset"]) + 1
        return self._ends[file]

    def put_mark(self, *name: object, content: Mapping[str, object] | None = None) -> None:
        """Writes a mark, once."""
        path = f"{self.paths.offsets}/{'+'.join(map(str, name))}.json"
        with suppress(AlreadyExistsError):
            self.store.put_if_absent(path, msgspec.json.encode(content or {}))

    def put_empty(self, partition: int, begin: int, end: int) -> None:
        """Notes that a range has no record, in place of earlier notes."""
        self.put_mark("empty", partition, begin, end)
        former = [(b, e) for kind, b, e in self.marks[partition] if kind == "empty" and e <= begin]
        self.store.delete([f"{self.paths.offsets}/empty+{partition}+{b}+{e}.json" for b, e in former])
