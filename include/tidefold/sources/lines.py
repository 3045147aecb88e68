"""The base of a source of one's own whose files have one record on each line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, BinaryIO

import msgspec

from tidefold.changelog.schema import DELETE as DELETE
from tidefold.changelog.schema import UPSERT as UPSERT
from tidefold.domain.log_state import TableSpec
from tidefold.domain.table.table_spec import COLUMNS, Engine
from tidefold.sources.api import RecordReader
from tidefold.sources.debezium.json_source import KafkaLines
from tidefold.sources.json_lines.source import JsonOp, JsonOptions, JsonReader, Record
from tidefold.sources.landing.completeness import Ending, inspect_file
from tidefold.sources.landing.listing import LandedFile
from tidefold.sources.landing.problems import report_damaged
from tidefold.sources.records.accounting import ReaderPosition
from tidefold.sources.records.errors import RefusedRecordError

# What a line says: the operation, the values by column, and the time of the change in milliseconds since 1970, if it
# has one. None: nothing, such as a header.
LineChange = tuple[int, Mapping[str, Any]] | tuple[int, Mapping[str, Any], int] | None
_OPTIONS = JsonOptions(record="value", op=JsonOp("op", (str(UPSERT),), (str(DELETE),), ("",), row="row"))


class LineSource(KafkaLines):
    """Files of lines, from a Kafka sink or, where columns order the log or it only appends, with any names.

    endings: of files with any name, such as `(".rec",)`.
    """

    def read(self, line: bytes) -> LineChange:
        """Returns what a line says. Raises any error to have the line quarantined."""
        raise NotImplementedError

    def is_complete(self, stream: BinaryIO) -> bool:
        """Whether a file that ends with a whole line is complete. Raises ValueError if it never will be."""
        return True

    def takes_any_name(self, shape: TableSpec) -> bool:
        """See KafkaLines."""
        return bool(self.endings) and (shape.order == COLUMNS or shape.merge.engine is Engine.APPEND)

    def ending(self, file: LandedFile, taken: int) -> Ending:
        """See Source. A file that says when it is complete is taken as a whole."""
        usual = super().ending(file, taken)
        if usual.problem or type(self).is_complete is LineSource.is_complete:
            return usual
        return Ending(0, torn=True) if usual.torn else inspect_file(file, partial(self._look, file))

    def _look(self, file: LandedFile, stream: BinaryIO) -> Ending:
        try:
            return Ending(file.size) if self.is_complete(stream) else Ending(0, torn=True)
        except ValueError as error:
            return Ending(0, problem=report_damaged(file.name, str(error)))

    def reader(self, shape: TableSpec) -> RecordReader:
        """See Source. A line is read as a JSON record is."""
        return JsonReader(shape, _OPTIONS, self._record).take

    def _record(self, at: ReaderPosition, line: bytes) -> Record:
        at.offset = None if at.place.alone else at.counted_offset
        try:
            op, row, *time = self.read(line) or ("", None)
            value = msgspec.Raw(msgspec.json.encode({"op": op, "row": row}))
        except RefusedRecordError:
            raise
        except Exception as error:  # Of a line that its author did not foresee.
            raise RefusedRecordError("NOT_A_RECORD", f"{type(error).__name__}: {error}"[:400] + ".") from error
        return Record(at.place.topic, at.place.partition, at.counted_offset, value, timestamp=next(iter(time), None))
