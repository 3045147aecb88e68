"""Counts the records of landed files without the product, and compares them with what the ledger says of each file."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tidefold.operations.ground.pipeline import Pipeline

_COUNTS = ("changes", "tombstones", "ignored", "quarantined", "unproved", "repeated", "resent")


def count_records(path: Path, options: dict[str, object]) -> int:
    """The records of one file. options: keys of the log's source."""
    name = path.name.casefold()
    if path.read_bytes()[:4] == b"PAR1":
        return int(pq.ParquetFile(path).metadata.num_rows)
    data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    if path := options.get("record_path"):
        return len(_list_records(data.decode("utf-8-sig").strip(), str(path)))
    if "delimiter" not in options:
        return sum(bool(line.strip()) for line in data.decode("utf-8-sig").split("\n"))
    text = data.decode(str(options["encoding"])).removeprefix("\ufeff")
    quote = str(options["quote"])
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=str(options["delimiter"]),
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        escapechar=str(options["escape"]) or None,
    )
    counted = sum(bool(row) for row in list(rows)[int(str(options["skip"])) :])
    return counted - (options["header"] is True)


def _list_records(text: str, path: str) -> list[Any]:
    scanner, documents = json.JSONDecoder(), []
    while text:
        document, end = scanner.raw_decode(text)
        documents.append(document)
        text = text[end:].lstrip()
    for name in ["", *path.split(".")[1:]]:
        parts = [one[name] if name else one for one in documents]
        documents = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return documents


def require_each_record_in_one_count(pipeline: Pipeline) -> int:
    """Asserts that each record of each landed file is in exactly one count, or that its file is named as not taken.

    Returns how many records there are.
    """
    [log] = pipeline.config.logs
    feed, state = pipeline.log(log).feed, pipeline.ledger(log).read()
    assert feed
    folder = Path(feed.path)
    named = {problem.file for problem in state.landing.listed}
    total = 0
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not path.is_file() or any(part.startswith((".", "_")) for part in relative.parts):
            continue
        entries = [entry for entry in state.landed if entry.name == str(relative)]
        if not entries:
            assert str(relative) in named, f"{relative} is neither taken nor named"
            continue
        records = count_records(path, dict(feed.options))
        counted = sum(getattr(entry, count) for entry in entries for count in _COUNTS)
        assert (sum(entry.records for entry in entries), counted) == (records, records), relative
        total += records
    return total
