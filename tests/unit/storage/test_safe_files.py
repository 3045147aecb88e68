"""Files below a folder are opened without following a link, and only regular files are."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tidefold.errors import StorageError
from tidefold.storage.local_store import LocalStore
from tidefold.storage.safe_files import UnsafeFileError, list_below, make_private_folder, open_regular, stat_regular


def _nothing(name: str) -> bool:
    return False


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    return folder


def test_a_regular_file_is_opened_at_any_depth(root: Path) -> None:
    with open_regular(str(root), "a/b/file") as stream:
        assert stream.read() == b"inside"
    assert stat_regular(str(root), "a/b/file").st_size == 6


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/passwd", "a//b/file", "", "."])
def test_no_name_leads_out_of_the_folder(root: Path, name: str) -> None:
    with pytest.raises(UnsafeFileError):
        open_regular(str(root), name)


def test_what_is_no_regular_file_is_named_and_never_opened(root: Path) -> None:
    (root / "link").symlink_to("../secret")
    (root / "linked").symlink_to("a")
    os.mkfifo(root / "pipe")
    for name, kind in (("link", "a symbolic link"), ("linked/b/file", "a symbolic link"), ("pipe", "a named pipe")):
        for look in (open_regular, stat_regular):
            with pytest.raises(UnsafeFileError) as caught:
                look(str(root), name)
            assert caught.value.kind == kind
    with pytest.raises(UnsafeFileError, match="a folder"):
        open_regular(str(root), "a")
    with pytest.raises(FileNotFoundError):
        open_regular(str(root), "a/none")
    with pytest.raises(NotADirectoryError):
        open_regular(str(root), "a/b/file/x")


@pytest.mark.parametrize("becomes", ["link", "pipe"])
def test_open_decides_what_takes_the_place_of_a_file_after_the_look(
    root: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    """A pipe is opened, which does not wait for a writer, and refused."""
    real, path = os.stat, root / "a" / "b" / "file"

    def swaps(name: Any, **how: Any) -> os.stat_result:
        found = real(name, **how)
        if name == "file" and stat.S_ISREG(found.st_mode):
            path.unlink()
            path.symlink_to("/etc/passwd") if becomes == "link" else os.mkfifo(path)
        return found

    monkeypatch.setattr(os, "stat", swaps)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnsafeFileError):
        open_regular(str(root), "a/b/file")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_listing_names_links_and_follows_none(root: Path) -> None:
    (root / "a" / "loop").symlink_to("..")
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x").write_text("x")
    found = list_below(str(root), lambda name: name.startswith("."))
    assert sorted(found) == ["a/b/file", "a/loop"]


def test_folders_without_end_are_not_walked(root: Path) -> None:
    deep = root.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    [found] = [name for name in list_below(str(root), _nothing) if name.startswith("d")]
    with pytest.raises(UnsafeFileError, match="a folder"):
        stat_regular(str(root), found)


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_what_holds_rows_of_every_log_is_its_owner_s_alone(tmp_path: Path) -> None:
    """Tables and snapshots are for other users' readers too: their umask decides."""
    before = os.umask(0o022)
    try:
        store = LocalStore(tmp_path / "store")
        for path in ("logs/a/ledger/1.json", "changelog/day/run/x.seg", "tables/a/_data/x.parquet", "snapshots/a/1/x"):
            store.put_if_absent(path, b"x")
        with store.replace(["logs/a/other"]) as stream:
            stream.write(b"x")
        LocalStore(tmp_path / "copies" / "p", private=True).put_if_absent("a/1/manifest", b"x")
        make_private_folder(tmp_path / "var" / "log")
    finally:
        os.umask(before)
    found = {str(p.relative_to(tmp_path)): mode(p) for p in tmp_path.rglob("*")}
    private = ("store/logs", "store/changelog", "copies/p", "var/log")
    for path, has in found.items():
        is_folder = (tmp_path / path).is_dir()
        own = path.startswith(private)
        assert (
            has
            == {(True, True): "0o700", (True, False): "0o755", (False, True): "0o600", (False, False): "0o644"}[
                (is_folder, own)
            ]
        ), path


def test_a_private_store_follows_no_link(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "copies", private=True)
    store.put_if_absent("a/file", b"0123")
    (tmp_path / "copies" / "a" / "link").symlink_to("/etc/passwd")
    (tmp_path / "copies" / "linked").symlink_to("a")
    assert (store.read("a/file"), store.read("a/file", 1, 2)) == (b"0123", b"12")
    for path in ("a/link", "linked/file"):
        with pytest.raises(OSError, match="symbolic link"):
            store.read(path)


@pytest.mark.parametrize("private", [False, True])
def test_nothing_is_deleted_behind_a_link(tmp_path: Path, private: bool) -> None:
    """A person who may write tables puts a link in place of the folder of a log, and somebody drops the log."""
    (tmp_path / "home" / "sub").mkdir(parents=True)
    for name in ("mine", "sub/mine"):
        (tmp_path / "home" / name).touch()
    store = LocalStore(tmp_path / "store", private)
    store.put_if_absent("snapshots/tellers/file", b"x")
    (tmp_path / "store" / "snapshots" / "accounts").symlink_to(tmp_path / "home")
    for entry in store.list("snapshots/accounts"):
        with pytest.raises(StorageError, match="snapshots/accounts"):
            store.delete([entry.path])
    assert (tmp_path / "home" / "mine").exists()
    assert (tmp_path / "home" / "sub" / "mine").exists()
    store.delete(["snapshots/accounts", "snapshots/gone/file", "snapshots/tellers/file"])
    assert (tmp_path / "home").is_dir()
    assert not (tmp_path / "store" / "snapshots").exists()


def test_a_folder_of_the_store_may_lie_on_another_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "tables").symlink_to(tmp_path / "disk")
    store = LocalStore(tmp_path / "store")
    store.put_if_absent("tables/accounts/file", b"x")
    store.delete(["tables/accounts/file"])
    assert not list((tmp_path / "disk").iterdir())
