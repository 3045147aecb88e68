"""Reads samples of landed JSON: where its records are in a document, and the objects of some files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from tidefold.sources.inference.dialect import is_object, read_beginning
from tidefold.sources.inference.layout import choose_sample
from tidefold.sources.inference.strange_rows import is_list_of_objects
from tidefold.sources.landing import streams
from tidefold.sources.landing.listing import LandedFile, open_landed
from tidefold.sources.records.extended_json import to_plain

_RECORDS = 2000
# Fields in which programs put a row, next to the field with its operation.
_LISTS = ("data", "items", "results", "records", "rows", "values", "value", "elements", "entries", "list")
# What an API says beside its records.
_PAGING = re.compile(
    r"_|(page|next|prev|count|total|cursor|has_?more|offset|limit|size|links?|meta|status|success)", re.I
)
_DOCUMENT = 64 << 20
_TEXTS = (
    "its records are texts that hold JSON: a JsonConverter wrote texts as JSON once more. For such a source, as "
    "MongoDB's connector, set `value.converter=org.apache.kafka.connect.storage.StringConverter`. Land them again"
)


def find_record_path(files: Sequence[LandedFile]) -> str | None:
    """Returns the path of the records, if the files are JSON documents; None: they have lines."""
    paths = {_find_path(data) for file in choose_sample(files) if (data := read_beginning(file, _DOCUMENT)[0].strip())}
    return paths.pop() if len(paths) == 1 else None


def _find_path(data: bytes) -> str | None:
    if data.startswith((b"[", b'"')):
        return "." if data.startswith(b"[") else None
    first, _, more = data.partition(b"\n")
    is_line = is_object(first)
    try:
        documents = [first] if is_line else list(islice(streams.split_document(data, "."), 2))
    except (streams.CutShortError, streams.DamagedError):
        return None
    is_alone = len(documents) == 1 and not (is_line and more)
    document = json.loads(documents[0]) if is_alone and is_object(documents[0]) else {}
    lists = list(_list_paths(document, "")) or _find_only_list(document)
    if len(lists) == 1:
        return lists[0]
    return "." if documents and not is_line else None


def _list_paths(value: Any, path: str) -> Iterator[str]:
    """Yields the paths of lists of objects whose names say that they are records."""
    for name, part in value.items():
        if isinstance(part, dict) and path.count(".") < 2:
            yield from _list_paths(part, f"{path}.{name}")
        elif name in _LISTS and is_list_of_objects(part):
            yield f"{path}.{name}"


def _find_only_list(document: dict[str, Any]) -> list[str]:
    """Returns the path of the one list of objects of a document that has nothing else but how it was read."""
    own = {name: value for name, value in document.items() if not _PAGING.match(name)}
    return [f".{name}" for name, value in own.items() if len(own) == 1 and is_list_of_objects(value)]


def sample_files(
    files: Sequence[LandedFile], read: Callable[[LandedFile, int], Iterable[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Returns records of the first, the middle and the last file: deletes and new columns tend to come late."""
    members = choose_sample(files)
    return [record for file in members for record in read(file, _RECORDS // len(members))]


def read_objects(file: LandedFile, count: int) -> Iterator[dict[str, Any]]:
    """Yields the first objects on the lines of a file. Numbers with a decimal point keep their text form."""
    return islice(objects_of(file, Decimal), count)


def objects_of(file: LandedFile, parse_float: Callable[[str], Any] = float) -> Iterator[dict[str, Any]]:
    """Yields the lines of a file that are JSON objects."""
    for line in raw_lines(file):
        try:
            value = json.loads(to_plain(line), parse_float=parse_float)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def explain_texts(files: Sequence[LandedFile]) -> str:
    """Returns what to do with records that are JSON within a text of JSON; empty: they are not."""
    lines = [line for file in choose_sample(files)[:1] for line in islice(raw_lines(file), 1)]
    is_text = any(isinstance(_value_of(line), str) and is_object(_value_of(line).encode()) for line in lines)
    return _TEXTS if is_text else ""


def _value_of(line: bytes) -> Any:
    """Returns the value of a record that a sink wrote alone, or with its place in Kafka."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value.get("value") if isinstance(value, dict) and "offset" in value else value


def raw_lines(file: LandedFile) -> Iterator[bytes]:
    """Yields the lines of a file as far as they can be read."""
    with open_landed(file) as stream:
        try:
            for chunk in streams.file_chunks(
                streams.Fingerprint(stream, file.size).blocks(), packed=file.packed, record_path=file.record_path
            ):
                yield from chunk.lines
        except (streams.CutShortError, streams.DamagedError, streams.ShrunkError):
            return  # A sample does not need the whole file. Ingest reports what is wrong with it.
