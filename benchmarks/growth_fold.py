"""What a fold with deletion vectors does to each base file: it proves the checksum, and finds the changed keys."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidefold.fold.merge.arrow_merge import rows_of

_BATCH = 262_144
ROUNDS = 3


def measure_search(files: list[Path], changed: Any, newest: Any) -> dict[str, float]:
    """Returns CPU seconds and bytes of each part, least of some rounds, and how many row groups and pages are hit.

    changed: the keys of changes that are spread evenly. newest: as many keys, the highest ones.
    """
    keys = pa.table({"id": np.sort(changed)})
    data = [path.read_bytes() for path in files]
    chunks = [_find_chunks(path) for path in files]
    parts: dict[str, Callable[[], object]] = {
        "sha256 of whole files": lambda: [hashlib.sha256(one).digest() for one in data],
        "sha256 of the key's column chunks": lambda: [
            hashlib.sha256(one[start : start + size]).digest()
            for one, spans in zip(data, chunks, strict=True)
            for start, size in spans
        ],
        "decode the key column": lambda: [pq.ParquetFile(path).read(["id"]) for path in files],
        "decode and find the keys": lambda: [_find(path, keys) for path in files],
    }
    measured: dict[str, float] = {name: round(min(map(_clock, [act] * ROUNDS)), 4) for name, act in parts.items()}
    measured |= {"bytes": sum(map(len, data)), "key bytes": sum(size for spans in chunks for _, size in spans)}
    measured["row groups"] = sum(map(len, chunks))
    for name, ids in (("evenly", changed), ("newest", newest)):
        groups = [
            pq.ParquetFile(path).read_row_group(n, ["id"]).column(0).to_numpy() for path in files for n in _of(path)
        ]
        measured[f"row groups hit, {name}"] = sum(bool(np.isin(group, ids).any()) for group in groups)
        for rows in (8_192, 1_024):
            pages = [page for group in groups for page in np.split(group, range(rows, len(group), rows))]
            measured[f"pages of {rows} rows"] = len(pages)
            measured[f"pages of {rows} rows hit, {name}"] = sum(bool(np.isin(page, ids).any()) for page in pages)
    return measured


def _of(path: Path) -> range:
    return range(pq.ParquetFile(path).num_row_groups)


def _find_chunks(path: Path) -> list[tuple[int, int]]:
    """Returns where the column chunks of the key are, and their sizes."""
    metadata = pq.ParquetFile(path).metadata
    at = metadata.schema.names.index("id")
    chunks = [metadata.row_group(n).column(at) for n in range(metadata.num_row_groups)]
    return [(one.dictionary_page_offset or one.data_page_offset, one.total_compressed_size) for one in chunks]


def _find(path: Path, keys: pa.Table) -> int:
    batches = pq.ParquetFile(path).iter_batches(batch_size=_BATCH, columns=["id"])
    return sum(len(rows_of(batch, keys)) for batch in batches)


def _clock(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began
