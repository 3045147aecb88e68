"""Names and listing of landed files; which topic is the log's own (bad inputs 60, 61)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidefold.domain.source_progress import NameReading
from tidefold.errors import InvalidInputError, NotFoundError, StorageError
from tidefold.sources.landing.completeness import csv_ending
from tidefold.sources.landing.folders import LandedName
from tidefold.sources.landing.landing_place import DiskFolder, Stamp
from tidefold.sources.landing.listing import list_any, list_landed, of_topic, open_landed


@given(
    topic=st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True),
    partition=st.integers(0, 9999),
    start=st.integers(0, 10**17),
    extension=st.sampled_from(["jsonl", "json", "jsonl.gz", "json.gz"]),
)
def test_a_name_parses_back_to_what_it_was_built_from(topic: str, partition: int, start: int, extension: str) -> None:
    name = LandedName(topic, partition, start, extension)
    assert LandedName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("a.b.c+0+0000000010.jsonl", LandedName("a.b.c", 0, 10)),
        ("a-b-c-12-0000000010.json", LandedName("a-b-c", 12, 10, "json")),
        ("a.b-1-7.json.gz", LandedName("a.b", 1, 7, "json.gz")),
        ("a+3+0000000000.jsonl.gz", LandedName("a", 3, 0, "jsonl.gz")),
    ],
)
def test_both_forms_of_kafka_sinks_are_read(name: str, parsed: LandedName) -> None:
    assert LandedName.parse(name, reading=NameReading.KAFKA_DASH) == parsed


@pytest.mark.parametrize(
    "name",
    [
        "customers-2026-11-01.jsonl",
        "a-b-c-12-0000000010.json",
        "a.b-1-7.json.gz",
        "README.txt",
        "a+0+10.jsonl",
        "a+0+0000000000.parquet",
        "a+x+0000000000.jsonl",
        "+0+0000000000.jsonl",
        "a+0.json",
    ],
)
def test_any_other_name_is_no_landed_file(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        LandedName.parse(name)
    assert caught.value.code == "FOREIGN_FILE"


def test_listing_is_deep_ordered_skips_temporary_files_and_reports_foreign_ones(tmp_path: Path) -> None:
    for name in (
        "t+0+0000000009.jsonl",
        "t+0+0000000010.jsonl",
        "partition=1/t+1+0000000000.json.gz",
        ".t+0+0000000000.jsonl.crc",
        "_SUCCESS",
        "_temporary/t+0+0000000000.jsonl",
        ".hidden/t+0+0000000000.jsonl",
        "t+0+0000000011.jsonl.tmp",
        "t+0+0000000011.jsonl.part",
        "notes.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    files, problems = list_landed(tmp_path)
    assert [(f.partition, f.start, f.name) for f in files] == [
        (0, 9, "t+0+0000000009.jsonl"),
        (0, 10, "t+0+0000000010.jsonl"),
        (1, 0, "partition=1/t+1+0000000000.json.gz"),
    ]
    assert [(p.file, p.code, p.blocking) for p in problems] == [("notes.txt", "FOREIGN_FILE", False)]


def test_a_missing_folder_is_an_error_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        list_landed(tmp_path / "typo")
    assert caught.value.code == "LANDING_MISSING"


def test_a_path_that_is_no_folder_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFoundError):
        list_landed(tmp_path / "file")


def path_of(given: Any) -> str:
    """The path that a call is given, or that of the open folder."""
    return os.readlink(f"/proc/self/fd/{given}") if isinstance(given, int) else os.fspath(given)


def failing(real: Callable[..., Any], end: str, number: int) -> Callable[..., Any]:
    """The same call, which fails for one path."""

    def call(path: Any = ".", **options: Any) -> Any:
        if path_of(path).endswith(end):
            raise OSError(number, os.strerror(number), path_of(path))
        return real(path, **options)

    return call


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOENT])
@pytest.mark.parametrize(("call", "end"), [("scandir", "h10"), ("stat", "0000000000.jsonl")])
def test_what_cannot_be_looked_at_is_an_error_and_never_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, end: str, number: int
) -> None:
    (tmp_path / "h10").mkdir()
    (tmp_path / "h10" / "t+0+0000000000.jsonl").write_text("x")
    (tmp_path / "t+0+0000000001.jsonl").write_text("x")
    monkeypatch.setattr(os, call, failing(getattr(os, call), end, number))
    with pytest.raises(StorageError) as caught:
        list_landed(tmp_path)
    assert (caught.value.code, caught.value.transient) == ("LANDING_UNREADABLE", True)
    assert end in caught.value.message


def test_a_folder_that_cannot_be_listed_is_no_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", failing(os.scandir, tmp_path.name, errno.EACCES))
    with pytest.raises(StorageError):
        list_landed(tmp_path)


def test_hidden_folders_are_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_temporary").mkdir()
    monkeypatch.setattr(os, "scandir", failing(os.scandir, "_temporary", errno.EACCES))
    assert list_landed(tmp_path) == ((), ())


def test_files_are_looked_at_only_after_all_names_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that ends one file and begins the next while the folders are listed: the first is seen complete."""
    for hour in ("h10", "h11"):
        (tmp_path / hour).mkdir()
    first = tmp_path / "h10" / "t+0+0000000000.jsonl"
    first.write_text("one")
    real = os.scandir

    def scandir(folder: int) -> Iterator[os.DirEntry[str]]:
        if path_of(folder).endswith("h11"):
            first.write_text("one two")
            (tmp_path / "h11" / "t+0+0000000002.jsonl").write_text("three")
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [(f.start, f.size) for f in list_landed(tmp_path)[0]] == [(0, 7), (2, 5)]


def test_a_link_is_refused_by_name_and_what_comes_after_it_waits(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "t+1+0000000000.jsonl").write_text("one")
    landing = tmp_path / "landing"
    (landing / "hour").mkdir(parents=True)
    for name in ("t+0+0000000000", "t+0+0000000009", "t+1+0000000000", "hour/t+2+0000000000"):
        (landing / f"{name}.jsonl").write_text("x")
    (landing / "t+0+0000000005.jsonl").symlink_to("/etc/passwd")
    (landing / "hour" / "t+2+0000000001.jsonl").symlink_to("t+2+0000000000.jsonl")
    (landing / "notes").symlink_to("/etc/passwd")
    (landing / "folder").symlink_to(tmp_path / "elsewhere")
    (landing / "broken+0+0000000000.jsonl").symlink_to(tmp_path / "nowhere")
    files, problems = list_landed(landing)
    assert [f.name for f in files] == ["t+0+0000000000.jsonl", "t+1+0000000000.jsonl", "hour/t+2+0000000000.jsonl"]
    assert [(p.file, p.code, p.blocking) for p in problems] == [
        ("broken+0+0000000000.jsonl", "LANDED_LINK", True),
        ("folder", "LANDED_LINK", False),
        ("hour/t+2+0000000001.jsonl", "LANDED_LINK", True),
        ("notes", "LANDED_LINK", False),
        ("t+0+0000000005.jsonl", "LANDED_LINK", True),
    ]
    found, others = list_any(landing, (".jsonl",))
    assert len(found) == 4
    assert {p.code for p in others} == {"LANDED_LINK"}
    assert len(others) == 5


def test_the_landing_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "t+0+0000000000.jsonl").write_text("x")
    (tmp_path / "landing").symlink_to("disk")
    [file], problems = list_landed(tmp_path / "landing")
    with open_landed(file) as stream:
        assert (stream.read(), problems) == (b"x", ())


def test_what_is_no_regular_file_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t+0+0000000000.jsonl")
    with socket.socket(socket.AF_UNIX) as listening:
        folder = os.getcwd()
        os.chdir(tmp_path)  # A path of a socket is short.
        try:
            listening.bind("t+1+0000000000.jsonl")
        finally:
            os.chdir(folder)
        files, problems = list_landed(tmp_path)
    assert files == ()
    assert [p.code for p in problems] == ["LANDED_SPECIAL", "LANDED_SPECIAL"]
    assert "a named pipe" in problems[0].message
    assert "a socket" in problems[1].message


def _topics(tmp_path: Path, *topics: str) -> Path:
    folder = tmp_path / "orders"
    folder.mkdir()
    for topic in topics:
        (folder / f"{topic}+0+0000000000.jsonl").write_text("x")
    return folder


@pytest.mark.parametrize(
    ("topics", "known", "own"),
    [
        (("orders", "items"), [], "orders"),  # The folder is called after it.
        (("items",), [], "items"),  # The only one.
        (("orders", "items"), ["items"], "items"),  # It was taken before.
    ],
)
def test_the_own_topic_is_found_and_files_of_others_are_foreign(
    tmp_path: Path, topics: tuple[str, ...], known: list[str], own: str
) -> None:
    folder = _topics(tmp_path, *topics)
    files, problems = of_topic(list_landed(folder)[0], folder, known)
    assert {f.topic for f in files} == {own}
    assert [p.code for p in problems] == ["FOREIGN_FILE"] * (len(topics) - 1)


def test_several_topics_and_no_hint_which_is_meant_holds_everything_up(tmp_path: Path) -> None:
    folder = _topics(tmp_path, "a", "b")
    files, [problem] = of_topic(list_landed(folder)[0], folder, [])
    assert (files, problem.code, problem.blocking) == ((), "TOPIC_UNCLEAR", True)


def test_a_stamp_holds_while_the_file_is_the_same_or_grew(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("one")
    before = DiskFolder(str(tmp_path)).find_stamp(path.name)
    assert before.holds(before)
    with path.open("a") as stream:
        stream.write(" two")
    assert before.holds(DiskFolder(str(tmp_path)).find_stamp(path.name))
    assert not before.holds(Stamp(before.inode, before.size, before.changed + 1))
    (tmp_path / "new").write_text("one two three")
    (tmp_path / "new").replace(path)
    assert not before.holds(DiskFolder(str(tmp_path)).find_stamp(path.name))


def _complete_by_definition(data: bytes) -> int:
    """Up to the last line end that an even number of quotes precedes."""
    ends = [place + 1 for place, byte in enumerate(data) if byte == 10 and data.count(b'"', 0, place) % 2 == 0]
    return max(ends, default=0)


@given(st.text('"\na', max_size=40))
def test_a_csv_file_is_complete_up_to_its_last_line_end_outside_quotes(text: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.csv").write_text(text)
        [file], _ = list_any(folder, (".csv",))
        assert csv_ending(file).complete == _complete_by_definition(text.encode())


def test_an_open_quote_before_many_lines_is_found_in_one_pass(tmp_path: Path) -> None:
    """To count the quotes before each line end took time that grew with the square of the lines."""
    (tmp_path / "a.csv").write_bytes(b'id\n"' + b"a\n" * (4 << 20))
    [file], _ = list_any(tmp_path, (".csv",))
    assert csv_ending(file).complete == 3
