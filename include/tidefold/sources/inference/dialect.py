"""Detects the format of a file, and how a CSV file is written: encoding, delimiter, quotes, header, nulls."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from tidefold.sources.files.base import Csv
from tidefold.sources.files.csv_marks import NULL, CsvMarks
from tidefold.sources.files.parquet import MAGIC, Parquet
from tidefold.sources.inference.proposal import ProposalQuestion
from tidefold.sources.json_lines.source import Json
from tidefold.sources.landing.folders import Place, pattern_for
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed
from tidefold.sources.landing.streams import CutShortError, DamagedError, unzip

_DELIMITERS = (",", ";", "\t", "|", "\x01")  # The last one is Hive's.
_DATA = re.compile(r"-?\d+([.,]\d+)?|\d{4}-\d\d-\d\d.*|\d\d[./]\d\d[./]\d{4}.*", re.ASCII)
_NULLS = ("\\N", "NULL", "null", "None", "NaN", "nan", "N/A", "n/a", "<NULL>")
_LINES, _FEW = 50, 2
# Stands for an empty text in quotes, which Python's reader does not tell from none.
_EMPTY = "\x1aempty\x1a"
_SUM = re.compile(r"((grand|sub|gesamt)[- ]?)?(totals?|summe|sums?|totale|somme|suma)\W*", re.IGNORECASE)
# Encodings of several bytes a character that keep ASCII, the likeliest first.
_EAST_ASIAN = ("cp932", "euc_kr", "big5", "gb18030")
_WORD = re.compile(rb"[A-Za-z\x80-\xff]+")
_HIGH = re.compile(rb"[\x80-\xff]")
_HIGH_PAIR = re.compile(rb"[\x80-\xff]{2}")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_KNOWN = (*Json.endings, *Csv.endings, *Parquet.endings, ".avro")
_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect that a sample of a file shows.

    names: the column names; generated if no line has them and the caller has not `given` them.
    escape: the character before a quote that belongs to a value.
    skip: how many lines stand before the header, or before the first row.
    encodings: those that the bytes fit; more than one: nobody can tell which.
    refused: how many rows have another number of values, or text behind a closing quote.
    sums: a column and its texts in rows at the end that are sums; empty: there are none.
    quoted: the columns that have an empty text in quotes.
    """

    encoding: str
    delimiter: str
    names: tuple[str, ...]
    header: bool
    rows: tuple[tuple[str | None, ...], ...]
    nulls: tuple[str, ...]
    given: bool = False
    escape: str = ""
    skip: int = 0
    encodings: tuple[str, ...] = ()
    refused: int = 0
    sums: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Returns the keys of `source` that differ from the defaults."""
        options: dict[str, Any] = {}
        if self.delimiter != ",":
            options["delimiter"] = self.delimiter
        if self.escape:
            options["escape"] = self.escape
        if not self.header:
            options["header"] = list(self.names)
        if self.skip:
            options["skip"] = self.skip
        if self.encoding != "utf-8":
            options["encoding"] = self.encoding
        if self.nulls:
            options["null"] = ["", *self.nulls]
        if self.sums:
            options["op"] = {"column": self.sums[0], "upsert": "any", "delete": [], "ignore": list(self.sums[1:])}
        return options

    @property
    def questions(self) -> tuple[ProposalQuestion, ...]:
        """Returns the questions that the bytes alone do not answer."""
        questions = []
        if not self.header and not self.given and not self.skip:
            names = ", ".join(self.names)
            text = f"the files seem to have no header line: what are the columns called ({names}), in their order?"
            questions.append(ProposalQuestion("header", text))
        if self.encoding != "utf-8":
            why = "the file is not UTF-8, and the content does not show which other encoding it has"
            sure = self.encoding not in _EAST_ASIAN
            questions.append(ProposalQuestion("encoding", "how is the text written?", self.encodings, sure, why))
        if words := [null for null in self.nulls if null != "\\N"]:
            why = "such a word may also be a value"
            questions.append(ProposalQuestion("null", "do these words mean no value?", (", ".join(words),), True, why))
        return tuple(questions)


def merge_dialects(dialects: Sequence[Dialect]) -> Dialect:
    """Returns the dialect of several files: what only one of them shows holds for all."""
    coded = next((one for one in dialects if one.encoding != "utf-8"), dialects[0])
    return replace(
        dialects[0],
        encoding=coded.encoding,
        encodings=coded.encodings,
        escape=next((one.escape for one in dialects if one.escape), ""),
        nulls=tuple(dict.fromkeys(null for one in dialects for null in one.nulls)),
        sums=tuple(dict.fromkeys(part for one in dialects for part in one.sums)),
        quoted=tuple(dict.fromkeys(name for one in dialects for name in one.quoted)),
    )


def dialect_of(data: bytes, whole: bool, titles: Sequence[str] = (), escape: str = "") -> Dialect | None:
    """Returns the dialect of the first bytes of a file; None if they contain no line.

    whole: these are all bytes of the file. Otherwise the last line is ignored, because it may be cut off.
    titles: the column names, if no line has them.
    escape: the one that another file shows.
    """
    encodings, text = _decode(data, whole)
    if not whole:
        text = text[: text.rfind("\n") + 1]
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    delimiter = _delimiter(lines[:_LINES])
    # Spark and Hive write `\\"` where others write `""`.
    shown = re.search(rf'\\"(?!{re.escape(delimiter)}|[\r\n]|$)', text)
    escape = escape or ("\\" if shown else "")
    # As a run reads it: the escape in a null is none.
    marks = CsvMarks.of(delimiter, '"', escape, _NULLS)
    empty = rf'(?<![^{re.escape(delimiter)}\n])""(?=[{re.escape(delimiter)}\r\n]|$)'
    marked = re.sub(empty, _EMPTY, marks.mark(text.encode()).decode())
    reader = csv.reader(io.StringIO(marked, newline=""), delimiter=delimiter, escapechar=escape or None)
    listed = [["\\N" if cell == NULL.decode() else cell for cell in row] for row in reader]
    emptied = {at for row in listed for at, cell in enumerate(row) if cell == _EMPTY}
    listed = [["" if cell == _EMPTY else cell for cell in row] for row in listed]
    before = _count_before_header(listed)
    cells = [row for row in listed[before:] if row]
    width = len(cells[0])
    named = len(titles) == width
    header = not named and _is_header(cells[0])
    repaired = () if header or named or before else _repair_header(cells)
    made = tuple(titles) if named else repaired or tuple(f"column_{i + 1}" for i in range(width))
    names = tuple(cells[0]) if header else made
    below = cells[1:] if header or repaired else cells
    body = [row for row in below if len(row) == width]
    sums: tuple[str, ...] = ()
    if body and _SUM.fullmatch((text := next(filter(None, body[-1]), "")).strip()):
        sums = names[body.pop().index(text)], text  # No row of the table: a run should not take it for one.
    nulls = tuple(null for null in _NULLS if any(null in row for row in body))
    rows = tuple(tuple(None if cell in ("", *nulls) else cell for cell in row) for row in body)
    skip = before or int(bool(repaired))
    refused = len(below) - len(body) - bool(sums)
    quoted = tuple(name for at, name in enumerate(names) if at in emptied)
    dialect = Dialect(
        encodings[0], delimiter, names, header, rows, nulls, named, escape, skip, encodings, refused, sums
    )
    return replace(dialect, quoted=quoted)


def has_blanks_behind(dialect: Dialect) -> bool:
    """Whether a blank stands behind each delimiter, so that it belongs to every value but the first."""
    rows = (dialect.names, *dialect.rows)
    return len(dialect.names) > 1 and all((value or " ").startswith(" ") for row in rows for value in row[1:])


def is_split_twice(dialect: Dialect) -> bool:
    """Whether nothing stands between each second pair of delimiters: two characters separate the values."""
    names = dialect.rows[0] if dialect.rows else ()  # With empty names among them, they looked like a row.
    is_named = len(names) > _FEW and not any(map(_DATA.fullmatch, filter(None, names)))
    return is_named and not any(any(row[1::2]) for row in dialect.rows)


def _count_before_header(rows: Sequence[Sequence[str]]) -> int:
    """Counts the lines above the header: a title or remarks, of fewer values than the rows of the table."""
    widths = Counter(len(row) for row in rows[:_LINES] if len(row) > 1)
    width, times = widths.most_common(1)[0] if widths else (0, 0)
    # A title may be filled up with empty values.
    filled = (len(row) == width and sum(map(bool, row)) >= min(width, _FEW) for row in rows)
    begin = next((i for i, is_filled in enumerate(filled) if is_filled), 0)
    short = [row for row in rows[:begin] if row]
    # A line end within quotes would make lines and rows differ.
    plain = not any("\n" in cell for row in rows[:begin] for cell in row)
    return begin if times >= _FEW and short and plain and _is_header(rows[begin]) else 0


def _repair_header(cells: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns a name for each column if the first line has the names, but some twice or empty; else nothing."""
    first = [cell.strip() for cell in cells[0]]
    names: list[str] = []
    texts = [cell for cell in first if cell]
    if len(cells) < _FEW or not texts or any(map(_DATA.fullmatch, texts)) or len(texts) < len(first) - 1:
        return ()
    if not any(cell and _DATA.fullmatch(cell) for row in cells[1:] for cell in row):
        return ()  # The first line looks like the others.
    for place, name in enumerate(first, 1):
        again = names.count(name) or not name
        names.append(f"{name or 'column'}_{place}" if again else name)
    return tuple(names)


def is_table(data: bytes, whole: bool) -> bool:
    """Whether bytes look like a table: text with at least two lines of the same number of values, more than one."""
    if b"\0" in data and not data.startswith(_UTF16):
        return False
    _, text = _decode(data, whole)
    lines = [line for line in text.splitlines() if line.strip()][:_LINES]
    if len(lines) < _FEW:
        return False
    widths = {len(row) for row in csv.reader(lines, delimiter=_delimiter(lines))}
    return len(widths) == 1 and widths != {1}


def _decode(data: bytes, whole: bool) -> tuple[tuple[str, ...], str]:
    """Returns the encodings that the bytes fit, the likeliest first, and their text in that one."""
    if data.startswith(_UTF16):
        return ("utf-16",), data.decode("utf-16", "ignore")
    cut = data if whole else data[: data.rfind(b"\n") + 1]
    # Of European text nearly every such byte stands alone. One word may come often.
    words = b" ".join({*_WORD.findall(cut)})
    east = 2 * sum(len(pair) for pair in _HIGH_PAIR.findall(words)) > len(_HIGH.findall(words))
    tried = ("utf-8-sig", *(_EAST_ASIAN if east else ()), "cp1252", "latin-1")
    texts = {name.removesuffix("-sig"): text for name in tried if (text := _try(cut, name)) is not None}
    first = next(iter(texts))
    return ((first,) if first == "utf-8" else tuple(texts)), texts[first]


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _delimiter(lines: Sequence[str]) -> str:
    """Returns the delimiter that splits most lines into the same number of values, and into more than one."""

    def score(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter))
        width, count = widths.most_common(1)[0]
        return (count if width > 1 else 0, width)

    return max(_DELIMITERS, key=score)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether the cells are a header: no numbers, no times, no duplicates. A single line is always a header."""
    first = [cell.strip() for cell in cells]
    return not any(cell and _DATA.fullmatch(cell) for cell in first) and len(set(first)) == len(first) and all(first)


csv.field_size_limit(_BYTES)  # A value may be as long as what is read of its file, as where a quote stays open.


@dataclass(frozen=True, slots=True)
class UnnamedFiles:
    """Files without a known ending, by what is in them: JSON objects on their lines, CSV rows, or Parquet."""

    objects: list[LandedFile] = field(default_factory=list)
    rows: list[LandedFile] = field(default_factory=list)
    parquet: list[LandedFile] = field(default_factory=list)


def find_unnamed(directory: Place, tables: Sequence[PurePosixPath]) -> UnnamedFiles:
    """Returns the files without a known ending whose content shows what they are."""
    unnamed = UnnamedFiles()
    for file in list_any(directory, [""])[0]:
        below = any(PurePosixPath(file.name).is_relative_to(table) for table in tables)
        if below or file.name.lower().endswith(_KNOWN):
            continue
        data, whole = read_beginning(file)
        if _begins_with_object(data):
            unnamed.objects.append(file)
        elif data.startswith(MAGIC):
            unnamed.parquet.append(file)
        elif is_table(data, whole):
            unnamed.rows.append(file)
    return unnamed


def patterns_of(files: Iterable[LandedFile], endings: Sequence[str]) -> dict[str, list[str]]:
    """Returns the option that selects files without one of the endings, if there are any."""
    strange = (file.name for file in files if not file.name.lower().endswith(tuple(endings)))
    patterns = list(dict.fromkeys(pattern_for(name) for name in strange))
    return {"files": patterns} if patterns else {}


def read_beginning(file: LandedFile, most: int = _BYTES) -> tuple[bytes, bool]:
    """Returns the first bytes of a file, and whether they are the whole file."""
    with open_landed(file) as stream:
        data = stream.read(most)
        whole = not stream.read(1)
    if not file.packed:
        return data, whole
    text = b""
    try:
        for block in unzip([data]):
            text += block
            if len(text) > most:
                return text[:most], False
    except (CutShortError, DamagedError):
        return text, False
    return text, whole


def _begins_with_object(data: bytes) -> bool:
    """Whether an object comes first, also where more follow on its line, as Firehose writes them."""
    try:
        return isinstance(json.JSONDecoder().raw_decode(data.decode(errors="ignore").lstrip())[0], dict)
    except (ValueError, RecursionError):
        return False


def is_object(data: bytes) -> bool:
    """Whether the first line is a JSON object."""
    line = data.lstrip().partition(b"\n")[0]
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
