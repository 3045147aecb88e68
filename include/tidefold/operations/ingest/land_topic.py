"""Lands the records of a topic in the store, in bounded ranges of offsets, before an ingest takes them as files.

The landing place of a log knows itself how far it has read: by the names of its files, and by marks beside them. A
range is named by its first offset and written only if no other run wrote it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa

from tidefold.config.models.kafka import KafkaEntry
from tidefold.domain.landing_problems import TopicReach
from tidefold.domain.log_state import LogState, Position
from tidefold.domain.paths import LedgerPaths, LogPaths, SetPaths
from tidefold.domain.wording import shorten_reason
from tidefold.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    StorageError,
    TidefoldError,
    wrap_unexpected,
)
from tidefold.operations.ground.pipeline import Pipeline, now
from tidefold.operations.ingest.owner import accept_folder
from tidefold.sources.debezium.loaded_rows import read_marks
from tidefold.sources.kafka.accepted_gaps import GIVEN_UP
from tidefold.sources.kafka.client import KafkaRecord, Reach, Topic, read_settings
from tidefold.sources.kafka.landed import LandedOffsets
from tidefold.sources.kafka.lines import make_renderer
from tidefold.sources.landing.folders import LandedName
from tidefold.sources.landing.problems import FileProblem

_log = logging.getLogger(__name__)
_EXTENSION = "jsonl.zst"
# A file ends after so many offsets or bytes, whichever comes first: a task reads it whole.
_OFFSETS, _BYTES = 100_000, 64 << 20
_BEYOND = 1 << 63


@dataclass(frozen=True, slots=True)
class Landed:
    """What a run landed of the topics of a log: its own, and the transaction topic of its set.

    problems: what stops partitions of them. left: how many offsets wait there. remarks: what else a person must know.
    topic: how far its own topic was read.
    """

    problems: tuple[FileProblem, ...] = ()
    left: int = 0
    remarks: tuple[str, ...] = ()
    topic: tuple[TopicReach, ...] = ()

    def __add__(self, other: Landed) -> Landed:
        sums = self.problems + other.problems, self.left + other.left, self.remarks + other.remarks
        return Landed(*sums, self.topic + other.topic)


NOTHING = Landed()


def land_topics(pipeline: Pipeline, logs: Sequence[str]) -> dict[str, Landed | TidefoldError]:
    """Lands what is new in the topics of these logs and of their sets. An error of one does not stop the others."""
    landed: dict[str, Landed | TidefoldError] = {}
    for paths, topic, needing in list_topics(pipeline, logs) if pipeline.again is None else ():
        one = _land(pipeline, paths, topic)
        for log in needing:
            before = landed.get(log, NOTHING)
            if isinstance(before, Landed):
                landed[log] = before + one if isinstance(one, Landed) else one
    return landed


def _land(pipeline: Pipeline, paths: LedgerPaths, config: KafkaEntry) -> Landed | TidefoldError:
    try:
        landing = TopicLanding(pipeline, paths, config)
        try:
            return landing.land()
        except NotFoundError:
            # The connector makes it when it has the first change after a load.
            loaded = isinstance(paths, LogPaths) and read_marks(pipeline.log(paths.log).loaded)
            if landing.landed.topic_id or not loaded:
                raise
            return NOTHING
        except StorageError as error:
            if error.code != "KAFKA_UNREADABLE" or not landing.can_go_on():
                raise
            return Landed((_stop(config.topic, error),))
    except Exception as error:
        return wrap_unexpected(error)


def list_topics(pipeline: Pipeline, logs: Sequence[str]) -> Iterator[tuple[LedgerPaths, KafkaEntry, Sequence[str]]]:
    """Yields where a topic lands, the topic, and which of these logs need it."""
    # Of a set the transactions come first: a table that is read after them has all their records.
    for one in pipeline.config.sets.values():
        if one.kafka and (needing := [log for log in one.logs if log in logs]):
            yield SetPaths(one.name), one.kafka, needing
    for log in logs:
        if topic := pipeline.config.logs[log].topic if log in pipeline.config.logs else None:
            yield LogPaths(log), topic, [log]


def has_more(pipeline: Pipeline, log: str) -> bool:
    """Whether the topics of a log have records that have not landed, or cannot be read. Writes nothing."""
    try:
        return any(TopicLanding(pipeline, at, topic).count_left() for at, topic, _ in list_topics(pipeline, [log]))
    except TidefoldError:
        return True


def accept_gaps(pipeline: Pipeline, logs: Sequence[str], by: str, why: str) -> None:
    """Gives up the records that the topics of these logs no longer have. Raises TidefoldError if none lacks any."""
    gaps, failure = list[tuple[LandedOffsets, tuple[int, int, int]]](), None
    for log in logs:
        topic = pipeline.log(log).topic
        try:
            landing = TopicLanding(pipeline, LogPaths(log), topic) if topic else None
            gaps += [(landing.landed, gap) for gap in landing.find_gaps(landing.describe())] if landing else []
        except TidefoldError as error:
            failure = failure or error
    if not why.strip():
        raise InvalidInputError("KAFKA_NO_GAP", "A gap needs a reason, which stays beside the landed files.")
    if not gaps:
        names = ", ".join(f"`{log}`" for log in logs)
        raise failure or InvalidInputError("KAFKA_NO_GAP", f"No record of {names} was deleted before it was read.")
    for landed, gap in gaps:
        who = {"by": shorten_reason(by), "why": shorten_reason(why), "at": now()}
        landed.put_mark(GIVEN_UP, *gap, content=who)


class TopicLanding:
    """The landing place of a log, or of the transaction topic of a set, and the topic."""

    def __init__(self, pipeline: Pipeline, paths: LedgerPaths, config: KafkaEntry) -> None:
        self.pipeline, self.paths, self.config = pipeline, paths, config
        settings = read_settings(config.connection, pipeline.connections)
        self.topic = Topic(config.servers, config.topic, settings, of_set=isinstance(paths, SetPaths))
        self.registry = config.open_registry(pipeline.config.path.parent, settings)
        self.state = _read_state(pipeline, paths, config)
        self.landed = LandedOffsets.read(pipeline.store, paths)
        self.positions = {one.partition: one.next_offset for one in self.state.positions}
        # How many offsets had no record; and of each partition how far it was read, and its newest record.
        self.gone, self.reached = 0, dict[int, int]()
        self.newest = {one.partition: (one.read, one.time) for one in self.state.landing.topic}

    def land(self) -> Landed:
        """Raises TidefoldError."""
        if self.state.stopped:
            return NOTHING
        if isinstance(self.paths, LogPaths):
            accept_folder(self.pipeline, self.state, (), is_needed=True)
        reaches = self.describe()
        self.pipeline.before_write()
        if not self.landed.topic_id:
            self.landed.put_mark("id", self.topic_id, content={"topic": self.config.topic})
        cleanup = self.topic.find_cleanup()
        if cleanup != "delete" and not self.landed.compacted:
            self.landed.put_mark("compacted")
        problems, left = list[FileProblem](), 0
        self.reached = {one.partition: self._find_range(one)[0] for one in reaches}
        waiting = sum(self.reached[one.partition] < one.end for one in reaches)
        share = max(1, self.config.max_records // max(1, waiting))
        for reach in reaches:
            self._fill_holes(reach)
            begin, end = self._find_range(reach)
            try:
                self._land_partition(reach, begin, min(end, begin + share))
                left += reach.end - self.reached[reach.partition]
            except TidefoldError as error:
                problems.append(_stop(f"{self.config.topic} partition {reach.partition}", error))
                if isinstance(error, StorageError):
                    break  # Each partition would wait as long for the broker.
        remark = (
            f"compaction left {self.gone:,} offsets of `{self.config.topic}` without a record: the newest of a key stay"
        )
        remarks = (remark,) if self.gone and "compact" in cleanup else ()
        return Landed(tuple(problems), left, remarks, tuple(self._list_reaches(reaches)))

    def _list_reaches(self, reaches: Sequence[Reach]) -> Iterator[TopicReach]:
        for one in reaches if isinstance(self.paths, LogPaths) else ():
            read, time = self.newest.get(one.partition, (0, ""))
            if one.end:
                yield TopicReach(one.partition, one.end, one.end - self.reached[one.partition], read, time, now())

    def _fill_holes(self, reach: Reach) -> None:
        """Lands all that the log needs before what has landed. Raises TidefoldError: else an ingest would pass it."""
        begin, end = self._find_range(reach)
        while begin < end < reach.end:
            self._land_partition(reach, begin, end)
            self.landed = LandedOffsets.read(self.pipeline.store, self.paths)
            begin, end = self._find_range(reach)

    def can_go_on(self) -> bool:
        """Whether something has landed, and nothing is missing before it: then it can be ingested without the topic."""
        marked = [Reach(partition, first, _BEYOND) for partition, first in self.landed.first.items()]
        return bool(marked) and all(self._find_range(one)[1] == _BEYOND for one in marked)

    def count_left(self) -> int:
        """Returns how many offsets have not landed."""
        return sum(max(0, one.end - self._find_range(one)[0]) for one in self.describe())

    def find_gaps(self, reaches: Sequence[Reach]) -> list[tuple[int, int, int]]:
        """Returns partition, begin and end of what the topic no longer has and the log needs."""
        ranges = [(one, self._find_range(one)[0]) for one in reaches]
        return [(one.partition, begin, one.first) for one, begin in ranges if begin < one.first]

    def check(self) -> list[Reach]:
        """Returns what the topic holds. Raises TidefoldError for all that would stop an ingest."""
        reaches = self.describe()
        if self.registry:
            self.registry.check()
        for gap in self.find_gaps(reaches):
            raise self.topic.make_gap_error(*gap)
        return reaches

    def describe(self) -> list[Reach]:
        """Returns what the partitions hold. Raises RefusedError if the topic is another one than before."""
        topic_id, reaches = self.topic.describe()
        self.topic_id = topic_id
        former = next((one.topic for one in self.state.positions if one.topic != self.config.topic), "")
        lost = self.landed.first.keys() - {one.partition for one in reaches}
        behind = next((one for one in reaches if self._find_range(one)[0] > one.end), None)
        why = (
            f"it has the id {topic_id}, and had {self.landed.topic_id}"
            if self.landed.topic_id not in ("", topic_id)
            else ""
        )
        why = why or (f"the log has read `{former}`" if former else "")
        why = why or (f"partition {min(lost)} is gone" if lost else "")
        why = why or (f"partition {behind.partition} ends before the offsets that were read" if behind else "")
        if why:
            message = f"Topic `{self.config.topic}` was replaced: {why}. Its offsets mean other records."
            raise RefusedError("KAFKA_TOPIC_REPLACED", message, hint=self.topic.again)
        return reaches

    def _find_range(self, reach: Reach) -> tuple[int, int]:
        """Returns the next offsets [begin, end) to read of a partition."""
        covered = self.landed.list_covered(reach.partition, self.state)
        begin = self.positions.get(reach.partition, self.landed.first.get(reach.partition, reach.first))
        for start, end in covered:
            begin = end if start <= begin < end else begin
        return begin, min((start for start, _ in covered if start > begin), default=reach.end)

    def _land_partition(self, reach: Reach, begin: int, end: int) -> None:
        """Lands the records at [begin, end)."""
        self._mark_begin(reach.partition, begin)
        self.reached[reach.partition] = begin
        if begin < reach.first:
            raise self.topic.make_gap_error(reach.partition, begin, reach.first)
        if begin >= end:
            return
        records, self.gone = self.topic.read(reach.partition, begin, end), self.gone + end - begin
        while (first := next(records, None)) is not None:
            data, last, count, failure = self._pack(reach.partition, chain([first], records), begin)
            name = LandedName(self.config.topic, reach.partition, begin, _EXTENSION)
            try:
                self.pipeline.store.put_if_absent(f"{self.paths.landed}/{name}", data)
            except AlreadyExistsError:
                return  # Another run lands these.
            begin = self.reached[reach.partition] = last.offset() + 1
            self.gone -= count
            self.newest[reach.partition] = begin, _read_time(last)
            _log.info("%s/%s landed, up to offset %d of %d", self.paths.landed, name, begin, reach.end)
            if failure:
                raise failure
        if begin < end:
            self.landed.put_empty(reach.partition, begin, end)
        self.reached[reach.partition] = end

    def _mark_begin(self, partition: int, begin: int) -> None:
        """Notes what the log got from other files: without its ledger, it needs these offsets again."""
        ends = [end for _, end in self.landed.list_covered(partition, self.state)]
        if partition not in self.landed.first:
            taken = (one.first_offset for one in self.state.landed if one.partition == partition and one.next_offset)
            self.landed.put_mark("first", partition, min([begin, *taken]))
        elif ends and max(ends) < begin:
            self.landed.put_mark("hole", partition, max(ends), begin)

    def _pack(
        self, partition: int, records: Iterator[KafkaRecord], begin: int
    ) -> tuple[bytes, KafkaRecord, int, TidefoldError | None]:
        """Returns one file of the next records, the last one, how many it has, and why it ends before another one.

        Raises TidefoldError if the first one has no line, because its schema cannot be had.
        """
        render, size, count = make_renderer(self.config.topic, partition, self.registry), 0, 0
        failure: TidefoldError | None = None
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            for record in records:
                try:
                    line, last = render(record), record
                except TidefoldError as error:
                    if not count:
                        raise
                    failure = error
                    break
                stream.write(line)
                size, count = size + len(line), count + 1
                if size >= _BYTES or record.offset() - begin >= _OFFSETS - 1:
                    break
        return sink.getvalue().to_pybytes(), last, count, failure


def _read_time(record: KafkaRecord) -> str:
    """Returns when a record was written (ISO 8601); empty: nobody said it."""
    kind, millis = record.timestamp()
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds") if kind and millis > 0 else ""


def _read_state(pipeline: Pipeline, paths: LedgerPaths, config: KafkaEntry) -> LogState:
    """Returns the state of a log; for a set, that of a log that has read the transactions up to its point."""
    if isinstance(paths, LogPaths):
        return pipeline.ledger(paths.log).peek(pipeline.log(paths.log).shape)
    assert isinstance(paths, SetPaths)
    point = pipeline.set_ledger(paths.name).read().point
    read = (Position(config.topic, 0, point.read_to + 1),) if point and point.read_to >= 0 else ()
    return LogState(paths.name, pipeline.log(pipeline.config.sets[paths.name].logs[0]).shape, positions=read)


def _stop(place: str, error: TidefoldError) -> FileProblem:
    """A problem that ends a run with an error, whatever the policy for files; what has landed is ingested."""
    passing = isinstance(error, StorageError)
    return FileProblem(place, error.code, error.message, error.hint or "", passing=passing, stops=True)
