"""Debezium records in Avro container files that a Kafka sink landed."""

from __future__ import annotations

from typing import BinaryIO

from tidefold.lifecycle.values import Shape
from tidefold.sources.avro_container import MAGIC, read_head, records, whole_blocks
from tidefold.sources.avro_schema import connect_words
from tidefold.sources.debezium_json import DebeziumJson
from tidefold.sources.debezium_records import Typed, parse_typed
from tidefold.sources.ending import Ending, looked_at
from tidefold.sources.landed import LandedFile
from tidefold.sources.parse_file import parse_file, read_whole
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import damaged, wrong_content
from tidefold.sources.quarantine import QuarantineWriter
from tidefold.sources.reading import CutShortError, DamagedError
from tidefold.sources.source import ParsedFile


class DebeziumAvro(DebeziumJson):
    """`format: debezium-avro`."""

    extensions = ("avro",)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """Whole blocks can be taken; the block in which a file ends is still being written."""
        return looked_at(file, lambda stream: _ending(stream, file))

    def parse(self, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: _parse(stream, task, shape, quarantine))


def _ending(stream: BinaryIO, file: LandedFile) -> Ending:
    if not MAGIC.startswith(stream.read(len(MAGIC))):
        return Ending(0, problem=wrong_content(file.name))
    stream.seek(0)
    try:
        complete = whole_blocks(stream, file.size)
    except CutShortError:
        return Ending(0, torn=True)
    except DamagedError as error:
        return Ending(0, problem=damaged(file.name, str(error)))
    return Ending(complete, torn=complete < file.size)


def _parse(stream: BinaryIO, task: FileTask, shape: Shape, quarantine: QuarantineWriter) -> ParsedFile:
    checksum = read_whole(stream, task, MAGIC)
    head = read_head(stream)
    typed = Typed(records(stream, head, task.until), connect_words(head.schema), checksum)
    return parse_typed(typed, task, shape, quarantine)
