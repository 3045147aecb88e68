"""Finds rows in files whose names do not show their format, such as `0000_part_00` or `1793520000.log.gz`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tidefold.sources.files.csv import Csv
from tidefold.sources.files.parquet import MAGIC, Parquet
from tidefold.sources.inference.dialect import is_table
from tidefold.sources.json_lines.source import Json
from tidefold.sources.landing.folders import Place
from tidefold.sources.landing.listing import LandedFile, list_any, open_landed
from tidefold.sources.landing.names import pattern_for

_KNOWN = (*Json.endings, *Csv.endings, *Parquet.endings, ".avro")
_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class UnnamedFiles:
    """Files without a known ending, by what is in them: JSON objects on their lines, CSV rows, or Parquet."""

    objects: list[LandedFile] = field(default_factory=list)
    rows: list[LandedFile] = field(default_factory=list)
    parquet: list[LandedFile] = field(default_factory=list)


def find_unnamed(directory: Place, tables: Sequence[PurePosixPath]) -> UnnamedFiles:
    """Returns the files without a known ending whose content shows what they are."""
    found = UnnamedFiles()
    for file in list_any(directory, [""])[0]:
        below = any(PurePosixPath(file.name).is_relative_to(table) for table in tables)
        if below or file.name.lower().endswith(_KNOWN):
            continue
        data, whole = read_beginning(file)
        if _is_object(data):
            found.objects.append(file)
        elif data.startswith(MAGIC):
            found.parquet.append(file)
        elif is_table(data, whole):
            found.rows.append(file)
    return found


def patterns_of(files: Iterable[LandedFile], endings: Sequence[str]) -> dict[str, list[str]]:
    """Returns the option that selects files without one of the endings, if there are any."""
    strange = (file.name for file in files if not file.name.lower().endswith(tuple(endings)))
    found = list(dict.fromkeys(pattern_for(name) for name in strange))
    return {"files": found} if found else {}


def read_beginning(file: LandedFile) -> tuple[bytes, bool]:
    """Returns the first bytes of a file, and whether they are the whole file."""
    with open_landed(file) as stream:
        data = stream.read(_BYTES)
        whole = not stream.read(1)
    if not file.gzip:
        return data, whole
    machine = zlib.decompressobj(wbits=31)
    try:
        text = machine.decompress(data, _BYTES)
    except zlib.error:
        return b"", True
    return text, machine.eof and not machine.unconsumed_tail


def _is_object(data: bytes) -> bool:
    line = data.lstrip().partition(b"\n")[0]
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
