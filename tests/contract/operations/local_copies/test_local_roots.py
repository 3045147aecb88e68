"""Local copies in several roots, with a quota, and made of what is here already.

Requirements L1 to L8, C7, C8; promises I15, I16, I18.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.faults import Fault
from support.local_copies import (
    PAIR,
    FailingDisk,
    check_whole,
    copied_files,
    copies_of,
    cycle,
    grown,
    land,
    make,
    offered,
    roots,
    segments_here,
    stage,
    take,
)
from support.pipelines import contents, judge_all, rows_of, snapshot_rows, table_rows
from tidefold.cli.app import app
from tidefold.delta.publish import build_table
from tidefold.delta.published_table import COMMIT, delta_state
from tidefold.domain.log_state import SnapshotKind
from tidefold.domain.paths import INTENTS, data_path
from tidefold.domain.retention.local_copies import CopyName
from tidefold.domain.snapshot.manifest import Manifest
from tidefold.errors import AlreadyExistsError, NotFoundError, StorageError
from tidefold.ledger import read_manifest, write_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.inspect.status import status
from tidefold.operations.local_copies.inventory import local_use
from tidefold.operations.local_copies.manage import clear_leftovers, retain_local
from tidefold.operations.retention.clean import drop
from tidefold.operations.snapshot.abort import abort
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.storage import StoredObject
from tidefold.storage.local_copies import copies
from tidefold.storage.local_copies.copies import Copied, copy_snapshot, discard
from tidefold.storage.local_copies.roots import LocalRoots
from tidefold.storage.local_store import LocalStore
from tidefold.wiring import open_pipeline


def configured(root: Path, local: str) -> Pipeline:
    """The pipeline of that folder, its local copies configured so."""
    path = make(root).config.path
    old = next(line for line in path.read_text().splitlines() if line.startswith("local:"))
    path.write_text(path.read_text().replace(old, f"local: {{mode: files, {local}}}"))
    return open_pipeline(path)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return configured(tmp_path, "paths: [a, b]")


def where(pipeline: Pipeline, log: str = "items") -> dict[str, str]:
    """The folder (of the configuration) in which each copy of a log lies."""
    found = {}
    for root in roots(pipeline).roots:
        names = {CopyName.of(entry.path) for entry in root.list("", unfinished=True)}
        found.update({str(name): root.root.parent.name for name in names if name and name.log == log})
    return dict(sorted(found.items()))


def local_facts(outcome: Any) -> dict[str, Any]:
    assert outcome.error is None
    return dict(outcome.facts["local"])


def once_more(pipeline: Pipeline, start: int, log: str = "items") -> dict[str, Any]:
    """One change to one of two buckets, folded; what is said of the copy."""
    land(pipeline, start, 1, [log])
    take(pipeline, [log])
    staged = stage(pipeline, f"run-{start}", log)
    judge_all(pipeline, log)
    confirm(pipeline, log)
    return local_facts(staged)


def links(pipeline: Pipeline, snapshot: int) -> dict[str, int]:
    """How many names each data file of a copy has."""
    folder = Path(roots(pipeline).uri(f"items/{snapshot:010d}"))
    return {path.name: path.stat().st_nlink for path in (folder / "_data").iterdir()}


# Several roots.


def warned(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was said of local copies as a warning; that the store got its id is said elsewhere."""
    found = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record for record in found if record.name != "tidefold.wiring"]


def test_copies_of_snapshots_take_turns_and_segments_stay_together(pipeline: Pipeline) -> None:
    """L3."""
    grown(pipeline, 4)
    assert where(pipeline) == {f"items/{i:010d}": "ab"[i % 2] for i in (1, 2, 3, 4)}
    assert where(pipeline, "orders") == {f"orders/{i:010d}": "ab"[i % 2] for i in (1, 2, 3, 4)}
    assert len({roots(pipeline).root_of(path) for path in segments_here(pipeline)}) == 1
    assert len(segments_here(pipeline)) == 4
    assert (offered(pipeline), offered(pipeline, "orders")) == ((1, 2, 3, 4), (1, 2, 3, 4))
    check_whole(pipeline)
    assert verify(pipeline, "items").status == "whole"
    retain_local(pipeline, PAIR)
    assert (offered(pipeline), segments_here(pipeline)) == ((4,), [])


def test_roots_may_come_go_and_change_places_between_runs(tmp_path: Path) -> None:
    """L3: what lies in a root that is still configured is found, offered, checked, removed, wherever it should lie."""
    changes = ["path: a", "paths: [a, b]", "paths: [c, a, b]", "paths: [b, c, a]", "path: c"]
    for number, local in enumerate(changes, 1):
        pipeline = configured(tmp_path, local)
        land(pipeline, number * 10, 3)
        cycle(pipeline, f"run-{number}")
        check_whole(pipeline)
        if number < 5:
            assert offered(pipeline) == tuple(range(1, number + 1))
            assert verify(pipeline, "items").status == "whole"
    assert where(pipeline) == {f"items/000000000{i}": "c" for i in (3, 4, 5)}
    pipeline = configured(tmp_path, "paths: [b, a, c]")
    assert where(pipeline) == {f"items/000000000{i}": folder for i, folder in enumerate("aaccc", 1)}
    # Some of them do not lie where they would be put now.
    [outcome] = retain_local(pipeline, ["items"])
    assert (outcome.facts["snapshots"], outcome.facts["warnings"]) == ([1, 2, 3, 4], [])
    assert where(pipeline) == {"items/0000000005": "c"}
    assert [p for p in (tmp_path / "a").rglob("*") if "items" in p.parts] == []
    check_whole(pipeline)


def test_two_pipelines_share_roots_and_nothing_in_them(tmp_path: Path) -> None:
    """L3: each counts, keeps and removes its own."""
    first = configured(tmp_path / "one", f"paths: [{tmp_path}/x, {tmp_path}/y]")
    second = configured(tmp_path / "two", f"paths: [{tmp_path}/y, {tmp_path}/x], quota: 1GB")
    grown(first, 3)
    grown(second, 2)
    before = {root: contents(root.root) for root in roots(first).roots}
    assert all(before.values())
    used = local_use(first)
    retain_local(second, PAIR)
    land(second, 90)
    take(second)
    stage(second, "run-last")
    clear_leftovers(second, "items", second.ledger("items").read())
    drop(second, "orders", plan=False)
    assert {root: contents(root.root) for root in roots(first).roots} == before
    assert local_use(first) == used
    assert copies_of(second) == ["items/0000000002", "items/0000000003"]


def in_the_way(tmp_path: Path, name: str) -> None:
    """A file where a root was."""
    shutil.rmtree(tmp_path / name, ignore_errors=True)
    (tmp_path / name).write_text("in the way")


def test_a_root_that_is_no_folder_any_more_hides_no_copy_in_the_other(
    pipeline: Pipeline, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I15: one warning in the log, one in what each command says; the others go on."""
    grown(pipeline, 3)
    in_the_way(tmp_path, "b")
    broken = str(roots(pipeline).roots[1].root)
    caplog.set_level(logging.WARNING)
    assert offered(pipeline) == (2,)
    assert offered(pipeline, "orders") == (2,)
    assert [r.message for r in warned(caplog) if broken in r.message] != []
    assert len(warned(caplog)) == 1
    use = local_use(pipeline)
    assert use
    assert [(root.path == broken, root.error is not None, root.bytes > 0) for root in use.roots] == [
        (False, False, True),
        (True, True, False),
    ]
    assert [s.local for s in status(pipeline, PAIR)] == [(2,), (2,)]
    verified = verify(pipeline, "items", VerifyRequest(repair=True))
    assert (verified.status, len(verified.facts["warnings"])) == ("whole", 1)
    assert broken in verified.message
    [retained] = retain_local(pipeline, ["items"])
    assert broken in retained.message
    assert retained.facts["snapshots"] == [2]
    assert len(warned(caplog)) == 1


def test_snapshots_go_on_and_their_copies_where_there_is_a_disk(pipeline: Pipeline, tmp_path: Path) -> None:
    """I15: the one whose root is broken has no copy; the next one has."""
    grown(pipeline, 2)
    in_the_way(tmp_path, "b")
    assert once_more(pipeline, 60)["warning"].startswith("STORAGE")
    assert once_more(pipeline, 70)["warning"] is None
    assert abort(pipeline, "items", "nothing is open").status == "nothing"
    assert offered(pipeline) == (2, 4)
    assert drop(pipeline, "orders", plan=False).status == "dropped"
    assert copies_of(pipeline, "orders") == []
    # The disk is back, with what it held: nothing of it counts that should not.
    (tmp_path / "b").unlink()
    assert offered(pipeline) == (2, 4)
    assert once_more(pipeline, 80)["warning"] is None
    assert (offered(pipeline), where(pipeline)["items/0000000005"]) == ((2, 4, 5), "b")
    check_whole(pipeline)


def test_a_root_that_vanishes_is_made_again_and_took_only_its_copies(pipeline: Pipeline, tmp_path: Path) -> None:
    """L7."""
    grown(pipeline, 3)
    shutil.rmtree(tmp_path / "b")
    assert offered(pipeline) == (2,)
    assert retain_local(pipeline, PAIR)[0].facts["warnings"] == []
    grown_on = [once_more(pipeline, 60), once_more(pipeline, 70)]
    assert [one["warning"] for one in grown_on] == [None, None]
    assert offered(pipeline) == (4, 5)


class Unreadable(LocalStore):
    """A root whose disk answers no listing."""

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        raise OSError(errno.EIO, "Input/output error")


def test_a_disk_that_lists_nothing_is_left_out_until_it_answers(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    """I23: not listed is not empty; only when no root answers is it an error."""
    grown(pipeline, 3)
    one, other = roots(pipeline).roots
    half = LocalRoots([one, Unreadable(other.root)])
    assert {CopyName.of(entry.path) for entry in half.list("")} >= {CopyName("items", 2)}
    assert half.list("") == half.list("") == one.list("")
    assert list(half.unreadable) == [str(other.root)]
    assert len(warned(caplog)) == 1
    with pytest.raises(OSError, match="Input/output"):
        LocalRoots([Unreadable(one.root), Unreadable(other.root)]).list("")
    # A copy that is known to lie there is not said to be empty.
    with pytest.raises(OSError, match="Input/output"):
        half.list("items/0000000001")


def test_no_root_answers(pipeline: Pipeline, tmp_path: Path) -> None:
    """I15: warnings everywhere, and no step fails."""
    grown(pipeline, 1)
    for name in "ab":
        in_the_way(tmp_path, name)
    land(pipeline, 50)
    assert all(o.error_code is None for o in cycle(pipeline, "run-after"))
    assert retain_local(pipeline, ["items"])[0].facts["warnings"]
    assert [s.local for s in status(pipeline, PAIR)] == [(), ()]
    use = local_use(pipeline)
    assert use
    assert [root.error is not None for root in use.roots] == [True, True]
    verified = verify(pipeline, "items")
    assert (verified.status, len(verified.facts["warnings"])) == ("whole", 1)


def test_several_roots_are_one_store(tmp_path: Path) -> None:
    """The port, over two roots: one name has one meaning, whichever root it lies in."""
    one, other = LocalStore(tmp_path / "a" / "p"), LocalStore(tmp_path / "b" / "p")
    both = LocalRoots([one, other])
    both.put_if_absent("items/0000000001/_data/x", b"x")
    both.put_if_absent("items/0000000002/_data/y", b"y")
    assert (other.read("items/0000000001/_data/x"), one.read("items/0000000002/_data/y")) == (b"x", b"y")
    assert both.link("items/0000000001/_data/x", "items/0000000003/_data/x") == "link"
    assert both.link("items/0000000001/_data/x", "items/0000000002/_data/x") == "copy"
    assert both.identity("items/0000000001/_data/x") == both.identity("items/0000000003/_data/x")
    assert both.identity("items/0000000001/_data/x") != both.identity("items/0000000002/_data/x")
    with both.replace(["items/0000000001/_data/x", "items/0000000002/_data/x"]) as stream:
        stream.write(b"new")
    assert [both.read(f"items/000000000{i}/_data/x") for i in (1, 2, 3)] == [b"new", b"new", b"x"]
    with pytest.raises(AlreadyExistsError):
        both.put_if_absent("items/0000000002/_data/y", b"z")
    with pytest.raises(NotFoundError):
        both.read("items/0000000004/_data/x")
    # In a root where it does not belong: read, taken, removed all the same.
    one.put_if_absent("items/0000000005/manifest", b"m")
    assert both.root_of("items/0000000005/_data/x") == str(one.root)
    with pytest.raises(AlreadyExistsError):
        both.put_if_absent("items/0000000005/manifest", b"n")
    both.rename_folder("items/0000000005", "items/0000000007")
    assert one.read("items/0000000007/manifest") == both.read("items/0000000007/manifest") == b"m"
    # And twice, of which a whole copy hides a half.
    other.put_if_absent("items/0000000007/_data/x", b"half")
    assert both.root_of("items/0000000007") == str(one.root)
    assert [entry.path for entry in both.list("items/0000000007")] == ["items/0000000007/manifest"]
    both.delete([entry.path for entry in both.list("")])
    assert [*one.list(""), *other.list("")] == []


# A quota.


def bytes_here(pipeline: Pipeline) -> int:
    use = local_use(pipeline)
    assert use
    return use.bytes


def disk_usage(pipeline: Pipeline) -> int:
    """Said anew: every inode once."""
    files = [p.stat() for root in roots(pipeline).roots for p in root.root.rglob("*") if p.is_file()]
    return sum({s.st_ino: s.st_size for s in files}.values())


def with_quota(pipeline: Pipeline, size: int) -> Pipeline:
    local = pipeline.config.local.model_copy(update={"quota": size})
    return replace(pipeline, config=pipeline.config.model_copy(update={"local": local}))


@pytest.fixture(params=["path: a", "paths: [a, b]"], ids=["one root", "two roots"])
def quoted(request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    return configured(tmp_path, request.param)


def test_a_copy_makes_room_by_what_retention_would_remove(quoted: Pipeline) -> None:
    """I18: old copies go first; that of the newest completed snapshot stays while the new one is judged."""
    grown(quoted, 3)
    limited = with_quota(quoted, disk_usage(quoted))
    land(limited, 60, 5)
    take(limited)
    staged = stage(limited, "run-4")
    assert local_facts(staged)["warning"] is None
    assert {"items/0000000003", "items/0000000004"} <= set(copies_of(limited))
    assert "items/0000000001" not in copies_of(limited)
    assert copies_of(limited, "orders")[-1] == "orders/0000000003"
    judge_all(limited, "items")
    confirm(limited, "items")
    assert offered(limited)[-2:] == (3, 4)
    assert offered(limited, "orders")[-1] == 3
    check_whole(limited)


def test_no_copy_is_made_when_there_is_no_room(quoted: Pipeline) -> None:
    """I15, I18: the warning names quota, used and needed bytes; nothing was removed in vain, no step fails."""
    grown(quoted, 2)
    retain_local(quoted, PAIR)
    before, used = copied_files(quoted), disk_usage(quoted)
    limited = with_quota(quoted, used + 100)
    land(limited, 60, 5, ["items"])
    [taken] = take(limited, ["items"])
    assert taken.facts["no_local_copy"] == []
    used = disk_usage(quoted)
    staged = stage(limited, "run-3")
    facts = local_facts(staged)
    needed = staged.facts["bytes_full"] - facts["linked"]
    assert facts["bytes"] == 0
    assert facts["warning"].startswith("LOCAL_QUOTA")
    assert all(f"{number:,}" in facts["warning"] for number in (limited.config.local.quota, used, needed))
    assert set(before) <= set(copied_files(limited))
    judge_all(limited, "items")
    assert confirm(limited, "items").status == "published"
    assert offered(limited) == (2,)
    assert len(table_rows(limited, "items")) == 15


def test_segments_have_no_copy_when_the_quota_is_used_up(quoted: Pipeline) -> None:
    """C8: the outcome says why."""
    grown(quoted, 1)
    limited = with_quota(quoted, disk_usage(quoted))
    before = segments_here(quoted)
    land(limited, 60)
    taken = take(limited)
    assert [f["no_local_copy"][0][:11] for f in (o.facts for o in taken)] == ["LOCAL_QUOTA"] * 2
    assert "quota" in taken[0].message
    assert segments_here(limited) == before
    roomy = with_quota(quoted, 10**9)
    land(roomy, 70)
    assert [o.facts["no_local_copy"] for o in take(roomy)] == [[], []]
    assert len(segments_here(roomy)) == len(before) + 1


def test_a_copy_that_shares_its_files_needs_no_room_for_them(tmp_path: Path) -> None:
    """One root: a table that hardly changes fits into little more than its size."""
    pipeline = configured(tmp_path, "path: a")
    land(pipeline, 0, 2000, ["items"])
    cycle(pipeline, "run-1", ["items"])
    shutil.rmtree(roots(pipeline).roots[0].root / "changelog")
    whole = disk_usage(pipeline)
    assert bytes_here(pipeline) == whole
    limited = with_quota(pipeline, int(whole * 1.8))
    made = [once_more(limited, start) for start in range(3000, 3006)]
    assert [one["warning"] for one in made] == [None] * 6
    assert all(one["linked"] > whole * 0.25 for one in made)
    assert disk_usage(limited) < limited.config.local.quota + 20_000  # Manifests and Delta logs are not foreseen.
    check_whole(limited)


def test_what_cannot_be_removed_leaves_the_snapshot_without_a_copy(tmp_path: Path) -> None:
    """I15."""

    class Sticky(LocalStore):
        def delete(self, paths: Any) -> None:
            listed = list(paths)
            if any(path.startswith("items/0000000001/") for path in listed):
                raise StorageError("STORAGE", "read only")
            super().delete(listed)

    pipeline = grown(configured(tmp_path, "path: a"), 2, ["items"])
    limited = with_quota(pipeline, disk_usage(pipeline))
    stuck = replace(limited, local=LocalRoots([Sticky(roots(pipeline).roots[0].root)]))
    land(stuck, 60, 5, ["items"])
    take(stuck, ["items"])
    assert local_facts(stage(stuck, "run-3"))["warning"] == "STORAGE: read only"
    assert offered(pipeline) == (1, 2)


def test_what_cannot_be_read_while_room_is_made_fails_no_snapshot(tmp_path: Path) -> None:
    """I15: not even where the store holds something that is damaged, for it is none of the snapshot's files."""
    pipeline = configured(tmp_path, "path: a, quota: 1GB")
    land(pipeline, 0, 5, ["items"])
    take(pipeline, ["items"])
    pipeline.store.put_if_absent(f"{INTENTS}/{'0' * 32}/00000.json", b"{")
    assert local_facts(stage(pipeline, "run-1"))["warning"]
    assert copies_of(pipeline) == []


# What is left over.


def test_leftovers_go_when_a_materialization_begins(pipeline: Pipeline) -> None:
    """L4: of this log and this pipeline; never of what is open or may count."""
    grown(pipeline, 3)
    land(pipeline, 60)
    take(pipeline)
    stage(pipeline, "run-4")
    abort_without_prune(pipeline, 4)
    stage(pipeline, "run-5")
    local = roots(pipeline)
    for snapshot in (1, 4, 5, 6):
        for log in PAIR:
            local.put_if_absent(f"{log}/{snapshot:010d}.ongoing/_data/x.parquet", b"half")
    before = copies_of(pipeline, "orders")
    state = pipeline.ledger("items").read()
    assert {s.id: str(s.state) for s in state.snapshots}[4] == "ABORTED"
    clear_leftovers(pipeline, "items", state)
    assert copies_of(pipeline) == [
        *(f"items/{i:010d}" for i in (1, 2, 3, 5)),
        "items/0000000005.ongoing",
        # The state does not know it yet: perhaps it is newer.
        "items/0000000006.ongoing",
    ]
    assert copies_of(pipeline, "orders") == before
    clear_leftovers(Pipeline(pipeline.config, pipeline.store), "items", state)


def abort_without_prune(pipeline: Pipeline, snapshot: int) -> None:
    abort(Pipeline(pipeline.config, pipeline.store), "items", "made to", snapshot)


def test_leftovers_that_cannot_be_removed_are_a_warning(
    pipeline: Pipeline, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """I15."""
    grown(pipeline, 1)
    for name in "ab":
        in_the_way(tmp_path, name)
    clear_leftovers(pipeline, "items", pipeline.ledger("items").read())
    assert "left-over local copies" in caplog.text


# Made of what is here.


def test_files_that_are_here_are_linked_within_a_root_and_copied_from_another(pipeline: Pipeline) -> None:
    """One change, one of two files new: the other one costs nothing, or a local read; never a link into the store."""
    grown(pipeline, 1, ["items"])
    first = once_more(pipeline, 60)
    assert (first["linked"], first["from_local"] > 0, first["from_primary"] > 0) == (0, True, True)
    second = once_more(pipeline, 70)
    third = once_more(pipeline, 80)
    for said in (first, second, third):
        assert said["linked"] + said["from_local"] + said["from_primary"] == said["bytes"] > said["from_primary"]
    check_whole(pipeline)
    ours = {p.stat().st_ino for root in roots(pipeline).roots for p in root.root.rglob("*") if p.is_file()}
    store = {p.stat().st_ino for p in Path(pipeline.store.uri("")).rglob("*") if p.is_file()}
    assert not ours & store


def test_links_are_counted_by_inode(tmp_path: Path) -> None:
    """One root: each file lies there once, under as many names as there are copies that have it."""
    pipeline = configured(tmp_path, "path: a")
    grown(pipeline, 1, ["items"])
    said = [once_more(pipeline, start) for start in (60, 70, 80)]
    names: dict[str, int] = {}
    for snapshot in (1, 2, 3, 4):
        for name in links(pipeline, snapshot):
            names[name] = names.get(name, 0) + 1
    assert all(links(pipeline, s)[n] == names[n] for s in (1, 2, 3, 4) for n in links(pipeline, s))
    assert max(names.values()) > 1
    assert [one["from_local"] for one in said] == [0, 0, 0]
    state = pipeline.ledger("items").read()
    for one, snapshot in zip(said, state.snapshots[1:], strict=True):
        manifest = read_manifest(pipeline.store, "items", snapshot)
        assert one["linked"] == sum(f.bytes for f in manifest.files if f.carried)
        assert one["from_primary"] == manifest.bytes_written
    use, before = bytes_here(pipeline), disk_usage(pipeline)
    assert use == before
    # A copy that goes frees only what no other copy has.
    [retained] = retain_local(pipeline, ["items"])
    assert before - disk_usage(pipeline) == retained.facts["freed"] < retained.facts["bytes"]
    assert offered(pipeline) == (4,)
    check_whole(pipeline)


@pytest.mark.parametrize("harm", ["altered", "cut", "gone", "manifest"])
@pytest.mark.parametrize("local", ["path: a", "paths: [a, b]"])
def test_a_damaged_local_file_is_read_from_the_store(tmp_path: Path, local: str, harm: str) -> None:
    """I16: bad bytes do not live on in the next copy, by a link or otherwise."""
    pipeline = configured(tmp_path, local)
    grown(pipeline, 1, ["items"])
    for path in [p for p in copied_files(pipeline) if p.startswith("items/0000000001/_data")]:
        full = Path(roots(pipeline).uri(path))
        data = full.read_bytes()
        full.unlink()
        if harm == "altered":
            full.write_bytes(data[:-1] + b"?")
        elif harm != "gone":
            full.write_bytes(data[: -1 if harm == "cut" else None])
    if harm == "manifest":
        Path(roots(pipeline).uri("items/0000000001/manifest")).write_bytes(b"{")
    said = once_more(pipeline, 60)
    assert said["warning"] is None
    assert (said["linked"], said["from_local"], said["from_primary"]) == (0, 0, said["bytes"])
    assert rows_of(roots(pipeline).uri("items/0000000002")) == snapshot_rows(pipeline, 2, "items")
    newest = read_manifest(pipeline.store, "items", pipeline.ledger("items").read().snapshots[-1])
    for file in newest.files:
        data = roots(pipeline).read(data_path("items/0000000002", file.name))
        assert hashlib.sha256(data).hexdigest() == file.sha256


class Linkless(LocalStore):
    """A disk that knows no hard links between its files."""

    def link(self, source: str, target: str, copy: bool = False) -> str:
        return self._copy(source, target)


@pytest.mark.parametrize("altered", [False, True])
def test_a_disk_without_links_gets_bytes_that_are_checked(tmp_path: Path, altered: bool) -> None:
    pipeline = configured(tmp_path, "path: a")
    pipeline = replace(pipeline, local=LocalRoots([Linkless(roots(pipeline).roots[0].root)]))
    grown(pipeline, 1, ["items"])
    for path in [p for p in copied_files(pipeline) if altered and p.startswith("items/0000000001/_data")]:
        full = Path(roots(pipeline).uri(path))
        full.write_bytes(full.read_bytes()[:-1] + b"?")
    said = once_more(pipeline, 60)
    assert (said["linked"], said["from_local"] > 0) == (0, not altered)
    assert set(links(pipeline, 2).values()) == {1}
    assert rows_of(roots(pipeline).uri("items/0000000002")) == snapshot_rows(pipeline, 2, "items")


def test_a_source_that_goes_while_it_is_taken_is_read_from_the_store(tmp_path: Path) -> None:
    """Retention of another process."""

    class Going(LocalStore):
        def link(self, source: str, target: str, copy: bool = False) -> str:
            self.delete([source])
            return super().link(source, target, copy)

    pipeline = configured(tmp_path, "path: a")
    grown(pipeline, 1, ["items"])
    going = replace(pipeline, local=LocalRoots([Going(roots(pipeline).roots[0].root)]))
    said = once_more(going, 60)
    assert (said["warning"], said["from_primary"]) == (None, said["bytes"])
    assert offered(pipeline) == (2,)
    check_whole(pipeline)


@pytest.mark.rotates(2)
@pytest.mark.parametrize("fault", [Fault.ERROR_BEFORE, Fault.ERROR_AFTER], ids=lambda f: f.name.lower())
def test_any_call_may_fail_while_a_copy_is_made_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """I15, I16: a link that fails is a file read from the store; what is offered is whole."""
    monkeypatch.setattr(copies, "_COPIERS", 1)
    template = configured(tmp_path / "template", "path: a")
    grown(template, 1, ["items"])
    land(template, 60, 1, ["items"])
    take(template, ["items"])
    linked, at, calls = set(), 0, 1
    while at < calls:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "template", tmp_path / "copy")
        pipeline = configured(tmp_path / "copy", "path: a")
        root = roots(pipeline).roots[0].root
        next(root.parent.iterdir()).rename(root)
        counted = FailingDisk(root, at=at, fault=fault)
        staged = stage(replace(pipeline, local=LocalRoots([counted])), "run-2")
        judge_all(pipeline, "items")
        confirm(pipeline, "items")
        said = local_facts(staged)
        linked.add(said["linked"] > 0)
        assert said["linked"] + said["from_local"] + said["from_primary"] == said["bytes"]
        assert offered(pipeline) == ((1,) if said["warning"] else (1, 2))
        check_whole(pipeline)
        calls, at = max(calls, counted.calls), at + 1
    assert linked == {True, False}
    assert calls > 12


def test_an_incremental_snapshot_has_a_copy_that_is_a_table_of_its_own(pipeline: Pipeline) -> None:
    """N2: its files lie in the folder of the table, where no Delta log tells of it."""
    grown(pipeline, 1, ["items"])
    snapshot = pipeline.ledger("items").read().snapshots[0]
    manifest: Manifest = replace(
        read_manifest(pipeline.store, "items", snapshot), snapshot=2, base=1, kind=SnapshotKind.INCREMENTAL
    )
    digest = write_manifest(pipeline.store, manifest)
    _, commit = build_table(manifest)
    said = copy_snapshot(pipeline.store, roots(pipeline), manifest, digest, commit)
    assert said == Copied(manifest.bytes_full, from_local=manifest.bytes_full)
    folder = "items/0000000002"
    assert sorted(p for p in copied_files(pipeline) if p.startswith(f"{folder}/")) == sorted(
        [f"{folder}/manifest", f"{folder}/{COMMIT}", *(data_path(folder, f.name) for f in manifest.files)]
    )
    assert delta_state(roots(pipeline), folder) == build_table(manifest)[0]
    assert rows_of(roots(pipeline).uri(folder)) == snapshot_rows(pipeline, 1, "items")
    # And from the store alone.
    discard(roots(pipeline), [CopyName("items", 1), CopyName("items", 2)])
    said = copy_snapshot(pipeline.store, roots(pipeline), manifest, digest, commit)
    assert said == Copied(manifest.bytes_full, from_primary=manifest.bytes_full)
    assert rows_of(roots(pipeline).uri(folder)) == snapshot_rows(pipeline, 1, "items")


# Copies of which files are gone, and what people see.


def call(pipeline: Pipeline, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "-c", str(pipeline.config.path)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_copy_of_which_files_are_gone_is_told_of_and_kept_like_a_whole_one(pipeline: Pipeline) -> None:
    """L7: not offered, not removed while its snapshot is the newest, and never in the way."""
    grown(pipeline, 2, ["items"])
    for snapshot in (1, 2):
        path = next(p for p in copied_files(pipeline) if p.startswith(f"items/{snapshot:010d}/_data"))
        os.unlink(roots(pipeline).uri(path))
    [said] = status(pipeline, ["items"])
    assert (said.local, said.local_partial) == ((), (1, 2))
    assert "of the local copy of snapshot 1, 2 files are gone" in call(pipeline, "status", "items")
    [retained] = retain_local(pipeline, ["items"])
    assert (retained.facts["snapshots"], retained.facts["warnings"]) == ([1], [])
    assert copies_of(pipeline) == ["items/0000000002"]
    assert verify(pipeline, "items", VerifyRequest(repair=True)).error_code is None
    assert offered(pipeline) == (2,)
    once_more(pipeline, 60)
    assert offered(pipeline) == (2, 3)


def test_status_and_history_tell_bytes_quota_and_roots(tmp_path: Path) -> None:
    """L10."""
    pipeline = configured(tmp_path, "paths: [a, b], quota: 20GB")
    grown(pipeline, 2)
    data = json.loads(call(pipeline, "status", "--format", "json"))
    usage = data["local"]
    assert usage["quota"] == 20 * 10**9
    assert usage["bytes"] == disk_usage(pipeline) == sum(root["bytes"] for root in usage["roots"])
    assert usage["bytes"] == sum(usage["logs"].values()) + usage["segments"]
    assert [log["local_bytes"] for log in data["logs"]] == [usage["logs"][log] for log in PAIR]
    assert [root["path"] for root in usage["roots"]] == [str(root.root) for root in roots(pipeline).roots]
    assert json.loads(call(pipeline, "snapshot", "history", "items", "--format", "json"))["local"] == usage
    assert "of 20.0 GB on this machine, in 2 folders." in call(pipeline, "status")
    in_the_way(tmp_path, "b")
    assert "cannot be looked at" in call(pipeline, "status", "items")
    assert "cannot be looked at" in call(pipeline, "snapshot", "history", "items")
    disabled = configured(tmp_path, "path: a")
    disabled.config.path.write_text(disabled.config.path.read_text().replace("mode: files", "mode: disabled"))
    assert json.loads(call(disabled, "status", "--format", "json"))["local"] is None
