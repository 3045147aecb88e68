"""Debezium records in Avro container files that a Kafka sink landed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from tidefold.domain.log_state import TableSpec
from tidefold.sources.api import ParsedFile
from tidefold.sources.debezium.avro_file import MAGIC, count_whole_bytes, read_header, read_records
from tidefold.sources.debezium.avro_schema import connect_words
from tidefold.sources.debezium.json_source import DebeziumJson
from tidefold.sources.debezium.typed_records import Typed, encode_texts, parse_typed, with_schemas
from tidefold.sources.ingest.accounting import FilePosition
from tidefold.sources.ingest.parse_file import parse_file, read_whole
from tidefold.sources.ingest.plan import FileTask
from tidefold.sources.ingest.taken_records import TakenFile
from tidefold.sources.landing.completeness import Ending, inspect_file
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import report_damaged, report_wrong_content
from tidefold.sources.landing.streams import CutShortError, DamagedError
from tidefold.sources.quarantine.writer import QuarantineWriter


class DebeziumAvro(DebeziumJson):
    """`format: debezium-avro`."""

    extensions = ("avro",)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """Whole blocks can be taken; the block in which a file ends is still being written."""
        return inspect_file(file, lambda stream: _ending(stream, file))

    def parse(self, task: FileTask, shape: TableSpec, quarantine: QuarantineWriter) -> ParsedFile:
        return parse_file(task, lambda stream: _parse(stream, task, self.place_of(task), shape, quarantine))

    def texts(self, stream: BinaryIO, file: TakenFile) -> Iterator[bytes]:
        header = read_header(stream)
        records = read_records(stream, header, file.length)
        return encode_texts(Typed(records, connect_words(header.schema), file.checksum))

    def sample(self, stream: BinaryIO, size: int) -> Iterator[Mapping[str, Any]]:
        """The records of a file, each with its schema beside its value."""
        header = read_header(stream)
        return with_schemas(Typed(read_records(stream, header, size), connect_words(header.schema), ""))


def _ending(stream: BinaryIO, file: LandedFile) -> Ending:
    if not MAGIC.startswith(stream.read(len(MAGIC))):
        return Ending(0, problem=report_wrong_content(file.name))
    stream.seek(0)
    try:
        complete = count_whole_bytes(stream, file.size)
    except CutShortError:
        return Ending(0, torn=True)
    except DamagedError as error:
        return Ending(0, problem=report_damaged(file.name, str(error)))
    return Ending(complete, torn=complete < file.size)


def _parse(
    stream: BinaryIO, task: FileTask, place: FilePosition, shape: TableSpec, quarantine: QuarantineWriter
) -> ParsedFile:
    checksum = read_whole(stream, task, MAGIC)
    header = read_header(stream)
    typed = Typed(read_records(stream, header, task.until), connect_words(header.schema), checksum)
    return parse_typed(typed, task, place, shape, quarantine)
