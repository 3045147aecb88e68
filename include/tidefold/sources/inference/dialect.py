"""Detects how a CSV file is written: encoding, delimiter, quotes, header, and the texts that mean null."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidefold.sources.inference.proposal import ProposalQuestion

_DELIMITERS = (",", ";", "\t", "|")
_DATA = re.compile(r"-?\d+([.,]\d+)?|\d{4}-\d\d-\d\d.*|\d\d[./]\d\d[./]\d{4}.*", re.ASCII)
_NULLS = ("\\N", "NULL", "null", "None", "NaN", "nan", "N/A", "n/a", "<NULL>")
_LINES, _FEW = 50, 2


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect that a sample of a file shows.

    names: the column names; generated if no line has them and the caller has not `given` them.
    escape: the character before a quote that belongs to a value.
    """

    encoding: str
    delimiter: str
    names: tuple[str, ...]
    header: bool
    rows: tuple[tuple[str | None, ...], ...]
    nulls: tuple[str, ...]
    given: bool = False
    escape: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Returns the keys of `source` that differ from the defaults."""
        found: dict[str, Any] = {}
        if self.delimiter != ",":
            found["delimiter"] = self.delimiter
        if self.escape:
            found["escape"] = self.escape
        if not self.header:
            found["header"] = list(self.names)
        if self.encoding != "utf-8":
            found["encoding"] = self.encoding
        if self.nulls:
            found["null"] = ["", *self.nulls]
        return found

    @property
    def questions(self) -> tuple[ProposalQuestion, ...]:
        """Returns the questions that the bytes alone do not answer."""
        found = []
        if not self.header and not self.given:
            names = ", ".join(self.names)
            text = f"the files seem to have no header line: what are the columns called ({names}), in their order?"
            found.append(ProposalQuestion("header", text))
        if self.encoding != "utf-8":
            why = "the file is not UTF-8, and the content does not show which other encoding it has"
            found.append(
                ProposalQuestion("encoding", "how is the text written?", (self.encoding, "latin-1"), True, why)
            )
        return tuple(found)


def dialect_of(data: bytes, whole: bool, given: Sequence[str] = ()) -> Dialect | None:
    """Returns the dialect of the first bytes of a file; None if they contain no line.

    whole: these are all bytes of the file. Otherwise the last line is ignored, because it may be cut off.
    given: the column names, if no line has them.
    """
    encoding, text = _decode(data, whole)
    if not whole:
        text = text[: text.rfind("\n") + 1]
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    delimiter = _delimiter(lines[:_LINES])
    # Spark and Hive write `\\"` where others write `""`.
    escape = "\\" if re.search(rf'\\"(?!{re.escape(delimiter)}|[\r\n]|$)', text) else ""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, escapechar=escape or None)
    cells = [row for row in reader if row]
    width = len(cells[0])
    named = len(given) == width
    header = not named and _is_header(cells)
    made = tuple(given) if named else tuple(f"column_{i + 1}" for i in range(width))
    names = tuple(cells[0]) if header else made
    body = [row for row in (cells[1:] if header else cells) if len(row) == width]
    nulls = tuple(null for null in _NULLS if any(null in row for row in body))
    rows = tuple(tuple(None if cell in ("", *nulls) else cell for cell in row) for row in body)
    return Dialect(encoding, delimiter, names, header, rows, nulls, named, escape)


def is_table(data: bytes, whole: bool) -> bool:
    """Whether bytes look like a table: text with at least two lines of the same number of values, more than one."""
    if b"\0" in data:
        return False
    _, text = _decode(data, whole)
    lines = [line for line in text.splitlines() if line.strip()][:_LINES]
    if len(lines) < _FEW:
        return False
    widths = {len(row) for row in csv.reader(lines, delimiter=_delimiter(lines))}
    return len(widths) == 1 and widths != {1}


def _decode(data: bytes, whole: bool) -> tuple[str, str]:
    cut = data if whole else data[: data.rfind(b"\n") + 1]
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = cut.decode(encoding)
        except UnicodeDecodeError:
            continue
        return encoding.removesuffix("-sig"), text
    return "latin-1", cut.decode("latin-1")


def _delimiter(lines: Sequence[str]) -> str:
    """Returns the delimiter that splits most lines into the same number of values, and into more than one."""

    def score(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter))
        width, count = widths.most_common(1)[0]
        return (count if width > 1 else 0, width)

    return max(_DELIMITERS, key=score)


def _is_header(cells: Sequence[Sequence[str]]) -> bool:
    """Whether the cells are a header: no numbers, no times, no duplicates. A single line is always a header."""
    first = [cell.strip() for cell in cells[0]]
    return not any(cell and _DATA.fullmatch(cell) for cell in first) and len(set(first)) == len(first) and all(first)
