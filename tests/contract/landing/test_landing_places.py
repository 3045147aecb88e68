"""One behaviour suite for every place where files land: a folder of a disk, and a prefix in each object store.

The places differ in how they list, stamp and open files. All tests above them land files on a disk. Promises I23, I26.
"""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from support.landing_places import OBJECT_STORES, PLACES, DiskBucket, LandingBucket, delta_options, root_of_tables
from support.s3_server import S3Bucket
from support.sftp_server import SftpBucket
from tidefold.errors import NotFoundError, StorageError
from tidefold.sources.landing import cloud_folder
from tidefold.sources.landing.cloud_folder import split_names
from tidefold.sources.landing.folders import folder_at, name_at
from tidefold.sources.landing.landing_place import LandingPlace, ReplacedFileError, Stamp
from tidefold.storage import cloud_client
from tidefold.storage.range_reader import READ

PREFIX = "landing/items"


@pytest.fixture(params=PLACES)
def bucket(request: pytest.FixtureRequest) -> LandingBucket:
    found: LandingBucket = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place(bucket: LandingBucket) -> LandingPlace:
    return folder_at(f"{bucket.root}/{PREFIX}")


in_object_stores = pytest.mark.parametrize("bucket", OBJECT_STORES, indirect=True)


def put(bucket: LandingBucket, name: str, data: bytes = b"bytes") -> None:
    bucket.put(f"{PREFIX}/{name}", data)


def names(place: LandingPlace) -> list[str]:
    return [listed.name for listed in place.list_files()]


def stamps(place: LandingPlace) -> dict[str, Stamp]:
    return {listed.name: listed.stamp for listed in place.list_files()}


def test_a_place_has_one_address_with_and_without_a_slash(bucket: LandingBucket, place: LandingPlace) -> None:
    assert place.address == f"{bucket.root}/{PREFIX}" == folder_at(f"{bucket.root}/{PREFIX}/").address
    assert name_at(place.address) == "items"


def test_a_place_that_is_missing_is_no_empty_one_until_it_is_marked(bucket: LandingBucket, place: LandingPlace) -> None:
    bucket.put(f"{PREFIX}2/a.csv", b"A neighbour, whose name begins with the same letters.")
    with pytest.raises(NotFoundError) as missing:
        list(place.list_files())
    assert missing.value.code == "LANDING_MISSING"
    assert place.address in str(missing.value)
    if isinstance(bucket, DiskBucket):
        (bucket.folder / PREFIX).mkdir()
    else:
        mark = missing.value.hint.partition(f"create an empty object `{place.address}/")[2].partition("`")[0]
        put(bucket, mark, b"")
    assert names(place) == []


@in_object_stores
def test_a_bucket_that_is_missing_is_neither_an_empty_place_nor_a_missing_one(bucket: LandingBucket) -> None:
    with pytest.raises(StorageError) as missing:
        list(folder_at(f"{bucket.root.replace('test-', 'none-')}/{PREFIX}").list_files())
    assert missing.value.code == "STORE_BUCKET_MISSING"
    assert "correct its name" in missing.value.hint


@pytest.mark.parametrize("name", ["x//b.csv", "/b.csv"])
def test_a_name_with_an_empty_part_is_refused_by_name(s3: S3Bucket, name: str) -> None:
    s3.put(f"{PREFIX}/a.csv", b"1")
    s3.put(f"{PREFIX}/{name}", b"2")
    with pytest.raises(StorageError, match=f"{PREFIX}/{name}") as refused:
        names(folder_at(f"{s3.root}/{PREFIX}"))
    assert refused.value.code == "STORE_KEY"


def test_in_the_root_of_a_bucket_two_names_that_are_listed_alike_are_refused(s3: S3Bucket) -> None:
    """Fault: the second one was read under the name of the first."""
    for name in ("/b.csv", "a.csv", "b.csv"):
        s3.put(name, name.encode())
    with pytest.raises(StorageError, match=r"listed as `b\.csv`"):
        names(folder_at(s3.root))
    s3.delete("b.csv")
    assert names(folder_at(s3.root)) == ["b.csv", "a.csv"]
    with pytest.raises(FileNotFoundError):
        folder_at(s3.root).open("b.csv")


def test_files_of_all_folders_are_listed_by_name_and_those_of_neighbours_are_not(
    bucket: LandingBucket, place: LandingPlace
) -> None:
    there = ["B.csv", "a+0+0000000009.jsonl", "a+0+0000000010.jsonl", "a/b/c.csv", "b/a.csv", "b.csv", "z"]
    for name in there:
        put(bucket, name)
    bucket.put("landing/items2/a.csv", b"")
    bucket.put("landing/other/a.csv", b"")
    assert names(place) == sorted(there)


def test_hidden_and_temporary_files_are_not_listed(bucket: LandingBucket, place: LandingPlace) -> None:
    hidden = (
        "_SUCCESS", ".hidden.csv", "_temporary/0/a.csv", "a/.b/c.csv", "a.csv.tmp", "a.csv.part", ".a.csv.crc",
        "_delta_log/00000000000000000000.json",
    )  # fmt: skip
    for name in (*hidden, "a_b.csv", "a.tmp.csv"):
        put(bucket, name)
    assert names(place) == ["a.tmp.csv", "a_b.csv"]


ODD = (
    "a b.csv", "ä+%20.csv", "a?b=c.csv", "a?versionId=1.csv", "a#b.csv", "quote'.csv", "$(id).csv", "~.csv", "*.csv",
    "sub folder/2026-11-01/a.csv",
)  # fmt: skip


def test_odd_names_are_listed_and_opened_as_they_are(bucket: LandingBucket, place: LandingPlace) -> None:
    for name in ODD:
        put(bucket, name, name.encode())
    found = stamps(place)
    assert list(found) == sorted(ODD)
    assert {name: place.open(name, stamp).read().decode() for name, stamp in found.items()} == {n: n for n in ODD}


def test_an_empty_file_is_a_file(bucket: LandingBucket, place: LandingPlace) -> None:
    put(bucket, "empty.csv", b"")
    [listed] = place.list_files()
    assert (listed.name, listed.stamp.size, place.open("empty.csv", listed.stamp).read()) == ("empty.csv", 0, b"")


# The name of an object in Azure must not end with a slash.
@pytest.mark.parametrize("bucket", ["s3", "gcs"], indirect=True)
def test_an_empty_object_that_stands_for_a_folder_is_no_file(bucket: LandingBucket, place: LandingPlace) -> None:
    for name in ("", "folder/", "a.csv"):
        put(bucket, name, b"")
    assert names(place) == ["a.csv"]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two names, and ranges of one known name."""
    monkeypatch.setattr(cloud_client, "PAGE", 2)
    monkeypatch.setattr(cloud_folder, "split_names", lambda known: split_names(known, 1))


@pytest.mark.usefixtures("small_pages")
def test_a_listing_of_many_pages_is_whole_and_in_order(bucket: LandingBucket, place: LandingPlace) -> None:
    there = [f"{number}.csv" for number in range(5)]
    for name in there:
        put(bucket, name)
    assert names(place) == there


@pytest.mark.parametrize("known", [range(5), range(0, 5, 2), [*range(5), 7, 8]], ids=["all", "some", "and gone ones"])
@pytest.mark.usefixtures("small_pages")
def test_a_listing_that_is_cut_at_known_names_has_every_file_once(
    bucket: LandingBucket, place: LandingPlace, known: list[int]
) -> None:
    there = [f"{number}.csv" for number in range(7)]
    for name in there:
        put(bucket, name)
    assert [one.name for one in place.list_files([f"{number}.csv" for number in known])] == there


def test_a_stamp_has_size_and_time_and_what_tells_files_apart(bucket: LandingBucket, place: LandingPlace) -> None:
    put(bucket, "a.csv", b"0123456789")
    [stamp] = stamps(place).values()
    assert stamp.size == 10
    assert abs(stamp.changed - time.time()) < 600
    assert bool(stamp.etag) == place.pins
    assert bool(stamp.inode) == (type(bucket) is DiskBucket)


def test_a_file_that_nobody_touches_keeps_its_stamp(bucket: LandingBucket, place: LandingPlace) -> None:
    put(bucket, "a.csv")
    before = stamps(place)
    put(bucket, "b.csv")
    assert stamps(place).items() > before.items()
    assert before["a.csv"].holds(stamps(place)["a.csv"])


@pytest.mark.parametrize("data", [b"BYTES", b"byte", b"bytes and more"], ids=["same length", "shorter", "longer"])
def test_a_file_of_the_same_name_that_replaced_another_has_a_stamp_that_does_not_hold(
    bucket: LandingBucket, place: LandingPlace, data: bytes
) -> None:
    put(bucket, "a.csv")
    before = stamps(place)["a.csv"]
    put(bucket, "a.csv", data)
    now = stamps(place)["a.csv"]
    # Without inodes and ETags a longer file may have grown: the reader waits until it stays as it is.
    assert now != before if isinstance(bucket, SftpBucket) else not before.holds(now)


@pytest.mark.parametrize("with_stamp", [True, False])
def test_a_file_is_read_whole_and_in_parts(bucket: LandingBucket, place: LandingPlace, with_stamp: bool) -> None:
    put(bucket, "a/b.csv", b"0123456789")
    with place.open("a/b.csv", stamps(place)["a/b.csv"] if with_stamp else None) as stream:
        assert (stream.read(3), stream.tell(), stream.read(), stream.read()) == (b"012", 3, b"3456789", b"")
        assert (stream.seek(-2, os.SEEK_END), stream.read()) == (8, b"89")
        assert (stream.seek(4), stream.read(2), stream.seek(1, os.SEEK_CUR), stream.read()) == (4, b"45", 7, b"789")
        stream.seek(0)
        assert bytes(memoryview(stream.read())) == b"0123456789"


def test_a_file_larger_than_one_request_is_read_whole(bucket: LandingBucket, place: LandingPlace) -> None:
    data = os.urandom(READ + 4321)
    put(bucket, "big", data)
    with place.open("big", stamps(place)["big"]) as stream:
        assert stream.read() == data
        stream.seek(READ - 5)
        assert stream.read(10) == data[READ - 5 :][:10]


def test_a_file_that_is_not_there_is_absent(bucket: LandingBucket, place: LandingPlace) -> None:
    put(bucket, "a.csv")
    with pytest.raises(FileNotFoundError):
        place.open("b.csv").read()


def test_a_file_that_vanishes_after_the_listing_is_absent(bucket: LandingBucket, place: LandingPlace) -> None:
    put(bucket, "a.csv")
    put(bucket, "b.csv")
    stamp = stamps(place)["a.csv"]
    bucket.delete(f"{PREFIX}/a.csv")
    with pytest.raises(FileNotFoundError):
        place.open("a.csv", stamp).read()


@pytest.mark.parametrize("data", [b"BYTES", b"byte", b"bytes and more"], ids=["same length", "shorter", "longer"])
def test_an_object_that_is_replaced_after_the_listing_is_not_read_and_a_file_shows_it(
    bucket: LandingBucket, place: LandingPlace, data: bytes
) -> None:
    """A place that pins refuses other bytes. On a disk the reader compares stamps: those of the new file differ."""
    put(bucket, "a.csv")
    stamp = stamps(place)["a.csv"]
    put(bucket, "a.csv", data)
    if not place.pins:
        listed = data[: stamp.size] if isinstance(bucket, SftpBucket) else data
        assert place.open("a.csv", stamp).read() == listed
        return
    with pytest.raises(ReplacedFileError):
        place.open("a.csv", stamp).read()


def test_a_file_that_is_replaced_while_it_is_read_gives_no_mixture(bucket: LandingBucket, place: LandingPlace) -> None:
    old, new = (bytes([letter]) * (READ + 100) for letter in b"on")
    put(bucket, "a", old)
    with place.open("a", stamps(place)["a"]) as stream:
        begin = stream.read(10)
        put(bucket, "a", new)
        if place.pins:
            with pytest.raises(ReplacedFileError):
                stream.read()
        else:
            assert begin + stream.read() == old


def test_tables_of_delta_are_found_at_any_depth_and_read(bucket: LandingBucket, place: LandingPlace) -> None:
    for name in ("people", "shop/eu/orders"):
        address = f"{root_of_tables(bucket)}/{PREFIX}/{name}"
        write_deltalake(address, pa.table({"id": [1, 2, 3]}), storage_options=delta_options(address))
        assert DeltaTable(address, storage_options=delta_options(address)).count() == 3
        assert folder_at(f"{place.address}/{name}").find_tables() == {".": "Delta"}
    for name in ("rows/a.csv", "ice/metadata/v1.metadata.json", "hudi/.hoodie/hoodie.properties", "metadata/a.json"):
        put(bucket, name)
    kinds = {"hudi": "Hudi", "ice": "Iceberg", "people": "Delta", "shop/eu/orders": "Delta"}
    assert place.find_tables() == kinds
