"""Debezium records in Avro container files that a Kafka sink landed."""

from __future__ import annotations

from typing import BinaryIO

from tidefold.lifecycle.values import Shape
from tidefold.sources.avro_container import MAGIC, read_head, records, whole_blocks
from tidefold.sources.avro_schema import connect_words
from tidefold.sources.debezium_json import DebeziumJson
from tidefold.sources.debezium_records import Typed, parse_typed
from tidefold.sources.ending import Ending
from tidefold.sources.landed import LandedFile
from tidefold.sources.parse_file import check_prefix, parse_file
from tidefold.sources.plan import FileTask
from tidefold.sources.problems import damaged, gone, unreadable, wrong_content
from tidefold.sources.quarantine import QuarantineWriter
from tidefold.sources.reading import CutShortError, DamagedError, Fingerprint
from tidefold.sources.source import ParsedFile, UnfitFileError


class DebeziumAvro(DebeziumJson):
    """`format: debezium-avro`."""

    extensions = ("avro",)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """Whole blocks can be taken; the block in which a file ends is still being written."""
        try:
            with open(file.path, "rb") as stream:
                return _ending(stream, file)
        except FileNotFoundError:
            return Ending(0, problem=gone(file.name))
        except OSError as error:
            return Ending(0, problem=unreadable(file.name, str(error.strerror or error)))

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
    content = Fingerprint(stream, task.until)
    check_prefix(content, task)
    for _ in content.blocks():
        pass
    stream.seek(0)
    if stream.read(len(MAGIC)) != MAGIC:
        raise UnfitFileError(wrong_content(task.file.name))
    stream.seek(0)
    head = read_head(stream)
    typed = Typed(records(stream, head, task.until), connect_words(head.schema), content.sha256)
    return parse_typed(typed, task, shape, quarantine)
