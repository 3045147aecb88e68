"""What only a filesystem of fsspec can do to landed files: cut connections, times in seconds, unknown hosts. I6, I23.

What all places share runs over SFTP too: see `place`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import fsspec
import pytest

from support.sftp_server import SftpBucket, SftpServer
from tidefold.compute.runners import in_process
from tidefold.errors import InvalidInputError, RefusedError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.ingest import ingest
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.fsspec_folder import FsspecFolder
from tidefold.sources.landing.landing_place import Stamp
from tidefold.wiring import open_pipeline

HEAD = "id,text,seq\n"


@pytest.fixture
def items(tmp_path: Path, sftp: SftpBucket) -> Pipeline:
    path = tmp_path / "tidefold.yaml"
    source = f"{{format: csv, path: '{sftp.root}/landing'}}"
    columns = "{id: int, text: string, seq: long}"
    log = f"items: {{key: [id], order: [seq], source: {source}, columns: {columns}}}"
    path.write_text(f"version: 1\nstore: store\nlogs:\n  {log}\n")
    return open_pipeline(path)


def take(pipeline: Pipeline) -> Outcome:
    [outcome] = ingest(pipeline, ["items"], in_process)
    return outcome


def rows(first: int, last: int) -> str:
    return "".join(f"{i},t{i},{i}\n" for i in range(first, last))


def put(sftp: SftpBucket, text: str, name: str = "a.csv") -> None:
    sftp.put(f"landing/{name}", text.encode())


@pytest.mark.parametrize(
    ("opening", "told"), [(1, ["LANDING_UNREADABLE"]), (2, [None, "LANDED_UNREADABLE"])], ids=["plan", "parse"]
)
def test_a_connection_that_is_cut_in_a_file_takes_nothing_of_it(
    items: Pipeline,
    sftp: SftpBucket,
    sftp_server: SftpServer,
    monkeypatch: pytest.MonkeyPatch,
    opening: int,
    told: list[str | None],
) -> None:
    put(sftp, HEAD + rows(0, 3), "2026-11-01.csv")
    put(sftp, HEAD + "".join(f"{i},{'x' * 1000},{i}\n" for i in range(3, 12_000)), "2026-11-02.csv")
    openings: list[str] = []

    def open_and_cut(self: FsspecFolder, name: str, stamp: Stamp | None = None) -> BinaryIO:
        stream = opened(self, name, stamp)
        if name == "2026-11-02.csv":
            openings.append(name)
            if len(openings) == opening:
                stream.read(10)
                sftp_server.cut()
        return stream

    opened = FsspecFolder.open
    monkeypatch.setattr(FsspecFolder, "open", open_and_cut)
    stopped = take(items)
    sftp_server.start()
    assert [stopped.error_code, *stopped.facts.get("not_taken", {})] == told
    taken = items.ledger("items").read().landed if items.ledger("items").exists() else ()
    assert [one.records for one in taken] == [3] * (opening - 1)
    assert take(items).error_code is None
    assert [one.records for one in items.ledger("items").read().landed] == [3, 11_997]


@pytest.mark.parametrize("text", [rows(5, 7), rows(5, 8), rows(5, 6)], ids=["same length", "longer", "shorter"])
def test_a_file_that_was_replaced_is_reported_and_not_taken(items: Pipeline, sftp: SftpBucket, text: str) -> None:
    put(sftp, HEAD + rows(0, 2))
    assert take(items).facts["changes"] == 2
    put(sftp, HEAD + text)
    assert take(items).error_code == "LANDED_CHANGED"
    assert items.ledger("items").read().landed[0].records == 2


def test_a_file_that_grows_is_taken_on(items: Pipeline, sftp: SftpBucket) -> None:
    put(sftp, HEAD + rows(0, 2))
    assert take(items).facts["changes"] == 2
    put(sftp, HEAD + rows(0, 5))
    assert take(items).facts["changes"] == 3


def test_a_file_that_grows_while_it_is_read_waits(
    items: Pipeline, sftp: SftpBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer file in its place would look the same."""
    put(sftp, HEAD + rows(0, 2))
    listed = FsspecFolder.list_files

    def list_then_land(self: FsspecFolder, known: tuple[str, ...] = ()) -> object:
        found = list(listed(self, known))
        put(sftp, HEAD + rows(7, 12))
        return iter(found)

    with monkeypatch.context() as patch:
        patch.setattr(FsspecFolder, "list_files", list_then_land)
        waits = take(items)
    assert waits.error_code == "LANDED_GROWING"
    assert take(items).facts["changes"] == 5


def test_a_host_whose_key_nobody_knows_is_refused(
    items: Pipeline, sftp: SftpBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(sftp, HEAD + rows(0, 2))
    monkeypatch.setenv("HOME", str(tmp_path))
    refused = take(items)
    assert refused.error_code == "LANDING_UNREADABLE"
    assert "known_hosts" in refused.message


def test_a_filesystem_that_says_no_time_of_its_files_is_refused_by_name() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/landing/a.csv", b"id\n1\n")
    with pytest.raises(RefusedError, match="time of change") as refused:
        list(folder_at("memory://landing").list_files())
    assert refused.value.code == "LANDING_STAMP"


def test_a_client_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    with pytest.raises(InvalidInputError, match="paramiko") as missing:
        list(folder_at("sftp://nowhere.example/landing").list_files())
    assert (missing.value.code, "tidefold[sftp]" in missing.value.hint) == ("STORE_EXTRA", True)
