"""Reads and writes deletion vectors, as the Delta protocol defines them ("Deletion Vectors").

Those of tidefold are inline: there is no file to share, to delete or to lose. Decision 0021 lists the readers.
"""

from __future__ import annotations

import base64
import struct
from array import array
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidefold.domain.snapshot.manifest import DataFile, Deletions

Places = npt.NDArray[np.uint64]

_MAGIC = struct.Struct("<I")
_MAGIC_NUMBER = 1_681_511_377
# Both write four bytes as five characters, each in its own alphabet. Delta uses that of Z85.
_PYTHONS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_DELTAS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_DELTAS, _TO_PYTHONS = bytes.maketrans(_PYTHONS, _DELTAS), bytes.maketrans(_DELTAS, _PYTHONS)


def deletions(places: Places) -> Deletions | None:
    """Encodes the rows at these places, counted from 0, each once; None: no row."""
    if not len(places):
        return None
    data = _MAGIC.pack(_MAGIC_NUMBER) + BitMap64(array("Q", places.tobytes())).serialize()
    text = base64.b85encode(data, pad=True).translate(_TO_DELTAS).decode()
    return Deletions(len(places), text, len(data))


def places(deleted: Deletions | None) -> Places:
    """Returns the places of the deleted rows, in ascending order."""
    if deleted is None:
        return np.empty(0, np.uint64)
    return decode_vector(decode_text(deleted.vector)[: deleted.bytes])


def decode_text(text: str) -> bytes:
    """Returns the bytes of a text of Z85. Raises ValueError."""
    return base64.b85decode(text.encode().translate(_TO_PYTHONS))


def decode_vector(data: bytes) -> Places:
    """Returns the places of the rows that a vector deletes, in ascending order. Raises ValueError."""
    if data[: _MAGIC.size] != _MAGIC.pack(_MAGIC_NUMBER):
        raise ValueError("it is not a deletion vector of Delta")
    return np.asarray(BitMap64.deserialize(data[_MAGIC.size :]).to_array(), np.uint64)


def without_deleted(batches: Iterable[pa.RecordBatch], file: DataFile) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that are not deleted. `batches` are all of its rows, in their order."""
    gone, start = places(file.deletions), 0
    for batch in batches:
        first, last = np.searchsorted(gone, np.array([start, start + batch.num_rows], np.uint64))
        if first < last:
            kept = np.ones(batch.num_rows, bool)
            kept[gone[first:last] - np.uint64(start)] = False
            yield batch.filter(pa.array(kept))
        else:
            yield batch
        start += batch.num_rows


def descriptor(deleted: Deletions) -> dict[str, object]:
    """Returns the descriptor of the vector for an action of a Delta commit."""
    return {
        "storageType": "i",
        "pathOrInlineDv": deleted.vector,
        "sizeInBytes": deleted.bytes,
        "cardinality": deleted.rows,
    }
