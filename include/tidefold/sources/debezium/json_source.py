"""Debezium records as JSON lines, in files that a Kafka sink landed.

What sources have in common whose files a Kafka sink names, with one record on each line.
"""

from __future__ import annotations

from pathlib import Path

from tidefold.domain.log_state import LogState, Shape
from tidefold.sources.api import Feed, Listing, ParsedFile, Reader
from tidefold.sources.debezium.envelope import RecordReader
from tidefold.sources.ingest.accounting import Place
from tidefold.sources.ingest.parse_file import parse_file, parse_lines
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.landing.completeness import Ending, ending_of
from tidefold.sources.landing.listing import LINES, LandedFile, list_landed, of_topic
from tidefold.sources.quarantine.writer import QuarantineWriter


class KafkaLines:
    """Progress is offset intervals; the newest file of a partition may still be written."""

    extensions: tuple[str, ...] = LINES

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def listing(self, state: LogState) -> Listing:
        folder = Path(self.feed.path)
        files, foreign = list_landed(folder, self.extensions)
        own, strange = of_topic(files, folder, [p.topic for p in state.positions])
        return Listing(own, (*foreign, *strange))

    def ending(self, file: LandedFile, taken: int) -> Ending:
        return ending_of(file, taken)

    def parse(self, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
        reader = self.line_reader(shape, place_of(task))
        return parse_file(task, lambda stream: parse_lines(stream, task, shape, reader, quarantine))

    def line_reader(self, shape: Shape, place: Place) -> Reader:
        """What takes the lines of one file; usually what also takes refused ones once more."""
        reader = self.reader(shape, place)
        assert reader is not None
        return reader

    def reader(self, shape: Shape, place: Place) -> Reader | None:
        """See Source."""
        raise NotImplementedError


def place_of(task: FileTask) -> Place:
    """Where the task's file stands in its log."""
    file = task.file
    first = (file.topic, file.partition, file.start, task.next_offset, task.taken, task.high, task.records)
    return Place(*first, task.count, task.again, task.time, task.horizon)


class DebeziumJson(KafkaLines):
    """`format: debezium-json`."""

    def reader(self, shape: Shape, place: Place) -> Reader:
        return RecordReader(shape, place)
