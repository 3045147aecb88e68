"""Reads and writes deletion vectors, as the Delta protocol defines them ("Deletion Vectors").

Manifests and local copies have them as text. A published table has each in a file whose name comes from its content:
Spark's VACUUM knows no others (decision 0082).
"""

from __future__ import annotations

import base64
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tidefold.domain.paths import find_vector_id
from tidefold.domain.snapshot.manifest import DataFile, Deletions

Places = npt.NDArray[np.uint64]
# What an action of a Delta commit says of a vector.
Descriptor = Mapping[str, object]

_MAGIC = struct.Struct("<I")
_MAGIC_NUMBER = 1_681_511_377
# A file of vectors begins with its version. Before and after each vector are its length and its checksum.
_VERSION, _WORD = b"\x01", struct.Struct(">I")
# VACUUM leaves folders alone that begin with an underscore.
_FOLDER = "_data"
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


def descriptor(deleted: Deletions, is_file: bool) -> Descriptor:
    """Returns the descriptor of a vector. is_file: it is in a file of the table."""
    size = {"sizeInBytes": deleted.bytes, "cardinality": deleted.rows}
    if not is_file:
        return {"storageType": "i", "pathOrInlineDv": deleted.vector, **size}
    name = base64.b85encode(find_vector_id(deleted.vector).bytes).translate(_TO_DELTAS).decode()
    return {"storageType": "u", "pathOrInlineDv": f"{_FOLDER}{name}", "offset": len(_VERSION), **size}


def vector_file(deleted: Deletions) -> bytes:
    """Returns the content of the file that has a vector."""
    data = decode_text(deleted.vector)[: deleted.bytes]
    return b"".join((_VERSION, _WORD.pack(len(data)), data, _WORD.pack(zlib.crc32(data))))
