"""The ledger on every store: versions, races, lost answers, pages, damage. Promises I2, I3, I4, I11, I20, I23."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from support.builders import SHAPE, appended
from support.dict_store import DictStore
from support.processes import FORK, alone
from tidefold.domain.paths import STORED_FORMAT
from tidefold.errors import AlreadyExistsError, CorruptError, NotFoundError, StorageError, UnknownOutcomeError
from tidefold.ledger import Ledger
from tidefold.ledger.serialization import decode_head
from tidefold.storage import Store, open_store
from tidefold.storage.local_store import LocalStore


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store("store", tmp_path)
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3").address, tmp_path)
    return DictStore()


@pytest.fixture
def ledger(store: Store) -> Ledger:
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    return ledger


def test_a_log_that_was_not_begun_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError):
        Ledger(store, "accounts").read()


def test_beginning_twice_is_beginning_once(ledger: Ledger) -> None:
    assert ledger.begin(SHAPE).version == 1


def test_what_another_process_begins_and_appends_meanwhile_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: a second beginning, with nothing in it, came after the first change of the other process."""
    ledger, other, read = Ledger(store, "accounts"), Ledger(store, "accounts"), Ledger._newest

    def read_late(self: Ledger) -> object:
        found = read(self)
        if self is ledger and found is None:
            other.begin(SHAPE)
            other.commit(lambda state: appended(state))
        return found

    monkeypatch.setattr(Ledger, "_newest", read_late)
    assert ledger.begin(SHAPE).last_sqn == 1
    assert ledger.read().version == 2


def test_a_move_that_changes_nothing_writes_nothing(store: Store, ledger: Ledger) -> None:
    before = store.list("")
    ledger.commit(lambda state: state)
    assert store.list("") == before


def test_what_is_committed_is_read_by_others(store: Store, ledger: Ledger) -> None:
    written = ledger.commit(appended)
    assert Ledger(store, "accounts").read() == written
    assert written.version == 2


def test_a_ledger_whose_first_write_failed_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    ledger = Ledger(store, "accounts")
    real, answers = LocalStore.put_if_absent, iter([UnknownOutcomeError("ANSWER_LOST", "no answer")])

    def put(self: LocalStore, path: str, data: bytes) -> None:
        if error := next(answers, None):
            raise error  # Nothing was written.
        real(self, path, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", put)
    assert ledger.begin(SHAPE).version == 1


def test_a_ledger_that_was_read_and_is_gone_begins_again(tmp_path: Path) -> None:
    ledger = Ledger(LocalStore(tmp_path), "accounts")
    ledger.begin(SHAPE)
    assert ledger.commit(appended).version == 2
    shutil.rmtree(tmp_path / "logs")
    assert ledger.begin(SHAPE).version == 1


def test_long_logs_spill_into_pages_and_the_head_stays_small(store: Store, ledger: Ledger) -> None:
    for _ in range(5):
        written = ledger.commit(lambda state: _many(state, 100))
    assert Ledger(store, "accounts").read() == written
    assert len(written.landed) == 500
    head = max(store.list("logs/accounts/ledger"), key=lambda e: e.path)
    assert head.bytes < 64 * 1024
    # Full neighbours become one page, so few names stay in the head.
    assert count_pages(store) == 2 * 4  # Of 256, 128, 64 and 32 numbers.


def test_each_head_of_a_log_of_small_files_stays_small(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    for _ in range(70):
        ledger.commit(appended)
    assert max(entry.bytes for entry in store.list("logs/accounts/ledger")) < 64 * 1024
    assert Ledger(store, "accounts").read().last_sqn == 70


def count_pages(store: Store) -> int:
    """How many pages the newest version names."""
    head = max(store.list("logs/accounts/ledger"), key=lambda e: e.path)
    return sum(len(names) for names in decode_head(head.path, store.read(head.path)).pages.values())


def _many(state, count):
    for _ in range(count):
        state = appended(state)
    return state


def test_a_lost_race_reads_again_and_moves_again(store: Store, ledger: Ledger) -> None:
    rival = Ledger(store, "accounts")
    calls: list[int] = []

    def move(state):
        if not calls:
            rival.commit(appended)
        calls.append(state.version)
        return appended(state)

    assert ledger.commit(move).last_sqn == 2
    assert calls == [1, 2]


class LostAnswer(LocalStore):
    """Applies a put, or not, and then loses the answer: once."""

    def __init__(self, root: Path, applied: bool, rival: bytes | None = None) -> None:
        super().__init__(root)
        self.applied, self.armed = applied, False

    def put_if_absent(self, path: str, data: bytes) -> None:
        if not (self.armed and "/ledger/" in path):
            return super().put_if_absent(path, data)
        self.armed = False
        if self.applied:
            super().put_if_absent(path, data)
        raise UnknownOutcomeError("UNKNOWN_OUTCOME", "The answer was lost.")


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_is_settled_by_reading_back(tmp_path: Path, applied: bool) -> None:
    store = LostAnswer(tmp_path, applied)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    store.armed = True
    ledger.commit(appended)
    state = ledger.read()
    assert (state.version, state.last_sqn) == (2, 1)


FORM = f'{{"format":{STORED_FORMAT}'.encode()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: b"", "UNREADABLE"),
        (lambda data: data[:-20], "UNREADABLE"),
        (lambda data: data.replace(b'"epoch":0', b'"epoch":9'), "CHECKSUM"),
        (lambda data: data.replace(FORM, b'{"format":99'), "STORE_NEWER"),
        (lambda data: data.replace(FORM, b'{"format":5'), "UNREADABLE"),
        (lambda data: data.replace(b'"version":2', b'"version":3', 1), "LEDGER_MISPLACED"),
        (lambda data: data.replace(FORM, b'{"extra":1,' + FORM[1:]), "STORE_NEWER"),
        (lambda data: b"\xff\xfe", "UNREADABLE"),
    ],
    ids=["empty", "cut", "altered", "newer", "older", "misplaced", "extra-field", "not-utf8"],
)
def test_damage_is_a_typed_error_and_never_absence(tmp_path: Path, damage, code: str) -> None:
    store = LocalStore(tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    ledger.commit(appended)
    head = tmp_path / "logs/accounts/ledger/0000000002.json"
    head.write_bytes(damage(head.read_bytes()))
    kept = sorted(e.path for e in store.list(""))
    for call in (ledger.read, lambda: ledger.commit(appended), lambda: ledger.begin(SHAPE)):
        with pytest.raises(CorruptError) as corrupt:
            call()
        assert corrupt.value.code == code
        assert ("new store" in corrupt.value.hint) == (b'"format":5' in head.read_bytes())
    assert sorted(e.path for e in store.list("")) == kept


def test_an_unreadable_folder_is_an_error_and_not_an_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(LocalStore(tmp_path), "accounts")
    ledger.begin(SHAPE)
    real = os.scandir

    def scandir(path: str) -> object:
        if "ledger" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StorageError):
        ledger.exists()


def test_a_foreign_file_in_the_ledger_is_named(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    ledger = Ledger(store, "accounts")
    ledger.begin(SHAPE)
    store.put_if_absent("logs/accounts/ledger/notes.txt", b"")
    with pytest.raises(CorruptError) as corrupt:
        ledger.read()
    assert corrupt.value.code == "LEDGER_FOREIGN_FILE"


def test_a_version_is_never_overwritten(store: Store, ledger: Ledger) -> None:
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("logs/accounts/ledger/0000000001.json", msgspec.json.encode({}))


def _commit_many(root: str, count: int) -> None:
    ledger = Ledger(LocalStore(Path(root)), "accounts")
    for _ in range(count):
        ledger.commit(appended)


def _commit_in_four(root: str) -> list[int | None]:
    workers = [FORK.Process(target=_commit_many, args=(root, 10)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


def test_four_processes_commit_without_loss(tmp_path: Path) -> None:
    ledger = Ledger(LocalStore(tmp_path), "accounts")
    ledger.begin(SHAPE)
    assert alone(_commit_in_four, str(tmp_path)) == [0] * 4
    state = ledger.read()
    assert state.last_sqn == 40
    assert state.version == 41
