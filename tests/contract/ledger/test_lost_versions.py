"""A ledger that lost only versions without a snapshot: noticed where something could be lost. Promise I29."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.builders import new_log
from support.old_ledgers import (
    LOG,
    PATHS,
    Rows,
    begin,
    copied,
    fold,
    go_back,
    land,
    opened,
    publish,
    published,
    snapshots,
    take,
    versions,
)
from support.pipelines import contents
from tidefold.domain.ledger_evidence import Evidence, needs_high_water_mark, require_known
from tidefold.errors import CorruptError, StorageError, TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ingest.stop_resume import stop
from tidefold.operations.restore.export import drill
from tidefold.operations.restore.rebuild import rebuild
from tidefold.operations.retention import references
from tidefold.operations.retention.clean import clean
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.verify.verify import verify
from tidefold.storage.local_store import LocalStore


def truth(root: Path) -> Rows:
    """The rows after all landed files."""
    landed = 3 * len(list((root / "landing" / LOG).iterdir()))
    return {offset % 7: f"t{1000 + offset}" for offset in range(landed)}


def take_twice(root: Path) -> None:
    take(root)
    land(root, 12)
    take(root)


def squash_known(root: Path) -> None:
    compact_log(opened(root), LOG)
    truncate(opened(root), LOG)


@dataclass(frozen=True, slots=True)
class Kind:
    """Versions without a snapshot. `before`: what was done before they were written; `act` writes them."""

    act: Callable[[Path], object]
    before: Callable[[Path], object] = lambda root: None


# What only the ledger shows: without it something could be lost.
MARKED = {
    "ingest": Kind(take),
    "tag": Kind(lambda root: references.tag(opened(root), LOG, "year-end", 1)),
    "untag": Kind(
        lambda root: references.untag(opened(root), LOG, "old"),
        lambda root: references.tag(opened(root), LOG, "old", 1),
    ),
    "hold": Kind(lambda root: references.hold(opened(root), LOG, "audit", 1, "asked by the auditor")),
    "consumer": Kind(lambda root: references.register(opened(root), LOG, "mirror", 1)),
    "stop": Kind(lambda root: stop(opened(root), LOG, "", "ann", "the source moves")),
    "tail": Kind(lambda root: take_tail(opened(root), LOG, "tail"), take),
    "squash": Kind(squash_known, take_twice),
}
# What can be done again, or is shown by what it did.
UNMARKED = {
    "subsume": Kind(lambda root: subsume(opened(root), LOG)),
    "truncate": Kind(lambda root: truncate(opened(root), LOG)),
    "drill": Kind(lambda root: drill(opened(root), LOG)),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three snapshots are published, of which two are to be kept; something waits."""
    root = begin(tmp_path_factory.mktemp("base") / "root")
    take(root)
    fold(root, "run-2")
    publish(root, "run-2")
    land(root, 9)
    return root


def prepare(base: Path, target: Path, kind: Kind) -> tuple[Path, int]:
    """The store after these versions, and how many they are."""
    root = copied(base, target)
    kind.before(root)
    before = len(versions(root))
    kind.act(root)
    assert len(versions(root)) > before, "nothing was written"
    return root, len(versions(root)) - before


def code_of(act: Callable[[], Outcome]) -> str:
    try:
        return act().error_code or ""
    except TidefoldError as error:
        return error.code


def acts(root: Path) -> dict[str, Callable[[], Outcome]]:
    """Commands that change something after the ledger went back."""
    land(root, 30)
    return {
        "ingest": lambda: take(root),
        "tag": lambda: references.tag(opened(root), LOG, "other", 2),
        "hold": lambda: references.hold(opened(root), LOG, "other", 2, "why"),
        "consumer": lambda: references.register(opened(root), LOG, "other", 2),
        "subsume": lambda: subsume(opened(root), LOG),
        "truncate": lambda: truncate(opened(root), LOG),
    }


@pytest.mark.parametrize("name", MARKED)
def test_every_command_that_changes_something_refuses(base: Path, tmp_path: Path, name: str) -> None:
    root, count = prepare(base, tmp_path / "root", MARKED[name])
    for lost in range(1, count + 1):
        other = copied(root, tmp_path / "other")
        go_back(other, lost)
        commands = acts(other)
        before = contents(other / "store")
        codes = {command: code_of(act) for command, act in commands.items()}
        # Of a squash and its truncation the last versions may be lost without harm.
        noticed = lost == count or set(codes.values()) == {"LEDGER_BEHIND"}
        assert noticed or name == "squash", (lost, codes)
        if lost == count:
            assert set(codes.values()) - {""} == {"LEDGER_BEHIND"}, codes
            assert contents(other / "store") == before
            clean(opened(other), [LOG])
            assert contents(other / "store") == before


@pytest.mark.parametrize("name", MARKED)
def test_putting_the_newer_ledger_back_loses_nothing(base: Path, tmp_path: Path, name: str) -> None:
    root, count = prepare(base, tmp_path / "root", MARKED[name])
    state = opened(root).ledger(LOG).read()
    shutil.copytree(root / "store" / PATHS.folder, tmp_path / "backup")
    go_back(root, count)
    assert code_of(lambda: references.tag(opened(root), LOG, "other", 2)) == "LEDGER_BEHIND"
    clean(opened(root), [LOG])
    shutil.copytree(tmp_path / "backup", root / "store" / PATHS.folder, dirs_exist_ok=True)
    assert opened(root).ledger(LOG).read() == state
    assert verify(opened(root), LOG).status == "whole"
    assert code_of(lambda: references.tag(opened(root), LOG, "other", 2)) == ""


@pytest.mark.rotates(6)
@pytest.mark.parametrize("name", MARKED)
def test_after_a_rebuild_the_log_goes_on(base: Path, tmp_path: Path, name: str) -> None:
    root, count = prepare(base, tmp_path / "root", MARKED[name])
    before, kept = published(root), snapshots(root, opened(root).ledger(LOG).read())
    go_back(root, count)
    assert code_of(lambda: rebuild(opened(root), LOG)) == ""
    assert rebuild(opened(root), LOG, plan=False).status == "rebuilt"
    assert rebuild(opened(root), LOG).status == "nothing"
    assert published(root) == before
    assert snapshots(root, opened(root).ledger(LOG).read()) == kept
    # Also the segments that were squashed and deleted since: the landed files are taken again.
    assert take(root).error_code is None
    fold(root, "after")
    publish(root, "after")
    assert published(root) == truth(root)
    clean(opened(root), [LOG])
    assert verify(opened(root), LOG).status == "whole"


@pytest.mark.parametrize("name", UNMARKED)
def test_what_is_not_noticed_is_done_again(base: Path, tmp_path: Path, name: str) -> None:
    root, count = prepare(base, tmp_path / "root", UNMARKED[name])
    kept = snapshots(root, opened(root).ledger(LOG).read())
    for lost in range(1, count + 1):
        other = copied(root, tmp_path / "other")
        go_back(other, lost)
        take(other)
        fold(other, "after")
        publish(other, "after")
        for act in (subsume, truncate):
            assert act(opened(other), LOG).error_code is None
        clean(opened(other), [LOG])
        assert published(other) == truth(other)
        newest = max(kept)
        assert snapshots(other, opened(root).ledger(LOG).read()).get(newest, kept[newest]) == kept[newest]
        assert verify(opened(other), LOG).status == "whole"


def test_the_error_names_both_versions_and_the_way_out(base: Path, tmp_path: Path) -> None:
    root, _ = prepare(base, tmp_path / "root", MARKED["hold"])
    newest = opened(root).ledger(LOG).read().version
    go_back(root, 1)
    with pytest.raises(CorruptError) as behind:
        references.tag(opened(root), LOG, "other", 2)
    assert behind.value.message == (
        f"Log `accounts`: its ledger has reached version {newest}, but the newest version in the store is "
        f"{newest - 1}. The ledger is older than that; nothing was changed."
    )
    assert "`tidefold move rebuild accounts`" in behind.value.hint


def test_a_whole_folder_of_logs_that_went_back_is_noticed(base: Path, tmp_path: Path) -> None:
    """What a person does first with a damaged ledger: `logs` of the last backup is put back."""
    root = copied(base, tmp_path / "root")
    shutil.copytree(root / "store" / "logs", tmp_path / "backup")
    references.hold(opened(root), LOG, "audit", 1, "asked by the auditor")
    shutil.rmtree(root / "store" / "logs")
    shutil.copytree(tmp_path / "backup", root / "store" / "logs")
    assert code_of(lambda: subsume(opened(root), LOG)) == "LEDGER_BEHIND"
    assert opened(root).store.list(PATHS.snapshot(1))


def test_old_marks_go_and_an_idle_log_writes_none(base: Path, tmp_path: Path) -> None:
    root = copied(base, tmp_path / "root")
    for number in range(40):
        references.register(opened(root), LOG, "mirror", number % 2 + 1)
    marks = opened(root).store.list(PATHS.high_water_marks)
    assert 1 <= len(marks) <= 17
    newest = opened(root).ledger(LOG).read().version
    assert marks[-1].path == PATHS.high_water_mark(newest)
    references.register(opened(root), LOG, "mirror", 2)
    assert opened(root).store.list(PATHS.high_water_marks) == marks


def test_before_the_first_publication_nothing_shows_it(tmp_path: Path) -> None:
    """The landed files are taken again: nothing else is known of such a log."""
    root = tmp_path
    begin(root / "other")
    shutil.rmtree(root / "other" / "store")
    take(root / "other")
    go_back(root / "other", 1)
    assert take(root / "other").status == "taken"
    fold(root / "other", "first")
    publish(root / "other", "first")
    assert published(root / "other") == truth(root / "other")


def test_a_mark_that_cannot_be_written_fails_no_command(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, put = copied(base, tmp_path / "root"), LocalStore.put_if_absent

    def refuse(store: LocalStore, path: str, data: bytes) -> None:
        if path.startswith(PATHS.high_water_marks):
            raise StorageError("STORAGE", "no space")
        put(store, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", refuse)
    assert references.tag(opened(root), LOG, "kept", 1).status == "tagged"
    assert [t.name for t in opened(root).ledger(LOG).read().tags] == ["kept"]


def test_readers_of_the_table_do_not_see_the_marks(base: Path, tmp_path: Path) -> None:
    root = copied(base, tmp_path / "root")
    before = published(root)
    references.tag(opened(root), LOG, "kept", 1)
    table = DeltaTable(opened(root).store.uri(PATHS.table))
    assert table.to_pyarrow_table().num_rows == len(before)
    assert table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False) == []
    table.cleanup_metadata()
    assert opened(root).store.list(PATHS.high_water_marks)
    assert published(root) == before


def test_a_newer_version_of_another_process_is_no_sign(base: Path, tmp_path: Path) -> None:
    """The state was read before another process changed the log: its mark is newer, and so is the ledger."""
    root = copied(base, tmp_path / "root")
    ledger = opened(root).ledger(LOG)
    old = ledger.read()
    references.tag(opened(root), LOG, "kept", 1)
    assert ledger.require_current(old).high_water_marks[-1] > old.version


def test_what_needs_a_mark() -> None:
    state = new_log()
    assert not needs_high_water_mark(state, replace(state, epoch=9))
    with pytest.raises(CorruptError, match="has reached version 7"):
        require_known(replace(state, version=6), Evidence(high_water_marks=(3, 7)))
    require_known(replace(state, version=7), Evidence(high_water_marks=(3, 7)))
