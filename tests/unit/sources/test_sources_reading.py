"""Blocks to lines: any cut into blocks, gzip of any number of members, lines that are too long (bad inputs 31, 40)."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.sources.landing import streams
from tidefold.sources.landing.streams import CutShortError, DamagedError, Fingerprint, ShrunkError, chunks, unzip


def blocks_of(data: bytes, sizes: list[int]) -> list[bytes]:
    blocks = []
    for size in sizes:
        blocks.append(data[:size])
        data = data[size:]
    return [block for block in (*blocks, data) if block]


@given(
    st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line)),
    st.lists(st.integers(0, 9)),
    st.booleans(),
)
def test_lines_do_not_depend_on_blocks(lines: list[bytes], sizes: list[int], ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    found = list(chunks(blocks_of(data, sizes)))
    assert [line for chunk in found for line in chunk.lines] == (
        data.split(b"\n")[:-1] if data.endswith(b"\n") else data.split(b"\n") if data else []
    )
    assert [c.unterminated for c in found] == [False] * (len(found) - 1) + [not data.endswith(b"\n")] if found else True


@given(st.lists(st.integers(1, 19), min_size=54, max_size=54))
def test_a_line_that_is_too_long_does_not_take_its_neighbours_along(sizes: list[int]) -> None:
    data = b"short\n" + b"x" * 40 + b"\nlast\n"
    found = list(chunks(blocks_of(data, sizes), max_line=20))
    lines = [(line, chunk.too_long) for chunk in found for line in chunk.lines]
    assert [line for line, too_long in lines if not too_long] == [b"short", b"last"]
    assert [too_long for _, too_long in lines] == [False, True, False]


def test_a_line_without_an_end_takes_no_more_memory_than_the_longest_line_allowed() -> None:
    tracemalloc.start()
    [chunk] = chunks((b"x" * streams.BLOCK for _ in range(64)), max_line=4 * streams.BLOCK)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chunk.too_long
    assert chunk.unterminated
    assert peak < 16 * streams.BLOCK


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.lists(st.integers(1, 30)), st.integers(0, 3))
def test_gzip_of_many_members_with_padding_reads_as_one(members: list[bytes], sizes: list[int], padding: int) -> None:
    zipped = b"".join(gzip.compress(member) + b"\0" * padding for member in members)
    assert b"".join(unzip(blocks_of(zipped, sizes))) == b"".join(members)


def test_every_cut_of_a_gzip_file_is_noticed() -> None:
    zipped = gzip.compress(b"some lines\n" * 20) + gzip.compress(b"more")
    whole = len(gzip.compress(b"some lines\n" * 20))
    for end in range(1, len(zipped)):
        if end != whole:
            with pytest.raises(CutShortError):
                list(unzip([zipped[:end]]))


@pytest.mark.parametrize("damage", ["content", "checksum", "garbage after", "zeros"])
def test_damaged_gzip_is_told_from_cut_gzip(damage: str) -> None:
    zipped = bytearray(gzip.compress(b"some lines\n" * 20))
    if damage == "content":
        zipped[15] ^= 0xFF
    elif damage == "checksum":
        zipped[-6] ^= 0xFF
    elif damage == "garbage after":
        zipped += b"garbage that is no gzip"
    else:
        zipped = bytearray(100)
    with pytest.raises(DamagedError):
        list(unzip([bytes(zipped)]))


def test_a_small_gzip_file_of_many_zeros_comes_in_small_blocks() -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(streams.BLOCK)) for _ in range(50)) + packer.flush()
    sizes = [len(block) for block in unzip([bomb])]
    assert sum(sizes) == 50 * streams.BLOCK
    assert max(sizes) <= streams.BLOCK


def test_a_file_that_shrank_is_noticed() -> None:
    with pytest.raises(ShrunkError):
        list(Fingerprint(io.BytesIO(b"12345"), until=6).blocks())
