"""The duplicating stream: only the primary counts. Requirements C6, L2; promises I11, I15."""

from __future__ import annotations

import pytest

from support.writing import BreakingStore
from tidefold.errors import AlreadyExistsError, StorageError, UnknownOutcomeError
from tidefold.storage.mirrored_stream import DuplicatingStream, create_duplicating


def write(primary: BreakingStore, local: BreakingStore | None) -> DuplicatingStream:
    with create_duplicating(primary, local, "a/b.seg") as stream:
        stream.write(b"first")
        stream.write(b"second")
        stream.flush()
        assert stream.tell() == 11
    return stream


@pytest.fixture
def primary() -> BreakingStore:
    return BreakingStore()


@pytest.fixture
def local() -> BreakingStore:
    return BreakingStore()


def test_both_files_hold_the_same_bytes(primary: BreakingStore, local: BreakingStore) -> None:
    """C6."""
    stream = write(primary, local)
    assert primary.read("a/b.seg") == local.read("a/b.seg") == b"firstsecond"
    assert (stream.local_path, stream.local_error) == ("a/b.seg", None)


def test_without_a_local_store_there_is_no_copy_and_no_error(primary: BreakingStore) -> None:
    stream = write(primary, None)
    assert (stream.local_path, stream.local_error) == (None, None)


@pytest.mark.parametrize("at", ["open", "write", "tell", "close"])
@pytest.mark.parametrize("error", [StorageError("STORAGE", "full"), OSError(28, "No space"), ValueError("odd")])
def test_a_local_error_is_kept_and_the_upload_goes_on(
    primary: BreakingStore, local: BreakingStore, at: str, error: Exception
) -> None:
    """C6, L2, I15: opening, writing, a wrong position, closing."""
    local.breaks(at, error)
    stream = write(primary, local)
    assert primary.read("a/b.seg") == b"firstsecond"
    assert stream.local_path is None
    assert stream.local_error is error or at == "tell"
    assert local.list("") == []


def test_a_local_error_comes_once(primary: BreakingStore, local: BreakingStore) -> None:
    """C6: the local stream is not touched again after its first error."""
    local.breaks("write", times=1)
    stream = write(primary, local)
    assert stream.local_path is None
    assert local.list("") == []


@pytest.mark.parametrize("at", ["open", "write", "tell", "close"])
def test_a_primary_error_fails_the_write_and_leaves_a_file_in_neither(
    primary: BreakingStore, local: BreakingStore, at: str
) -> None:
    """C6, I15."""
    primary.breaks(at)
    with pytest.raises(StorageError) as failed:
        write(primary, local)
    # The local file was ended because of it, and did not only fall to the garbage collector.
    assert local.ended_by == ([] if at == "open" else [failed.value])
    assert primary.list("") == []
    assert local.list("") == []


def test_an_error_of_the_caller_leaves_a_file_in_neither(primary: BreakingStore, local: BreakingStore) -> None:
    def fail() -> None:
        with create_duplicating(primary, local, "a") as stream:
            stream.write(b"half")
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert (primary.list(""), local.list("")) == ([], [])


def test_an_unknown_outcome_of_the_primary_leaves_no_local_copy(primary: BreakingStore, local: BreakingStore) -> None:
    """I11: nothing is deleted in the primary; a copy without a certain primary is illegal (L1)."""
    primary.breaks("close", UnknownOutcomeError("UNKNOWN_OUTCOME", "The answer was lost."))
    with pytest.raises(UnknownOutcomeError):
        write(primary, local)
    assert local.list("") == []


def test_a_taken_name_keeps_its_bytes_in_both_stores(primary: BreakingStore, local: BreakingStore) -> None:
    """I2: neither error removes somebody else's file."""
    local.put_if_absent("a/b.seg", b"other")
    stream = write(primary, local)
    assert isinstance(stream.local_error, AlreadyExistsError)
    assert local.read("a/b.seg") == b"other"
    with pytest.raises(AlreadyExistsError):
        write(primary, local)
    assert primary.read("a/b.seg") == b"firstsecond"
