"""`explain` on real stores and on the bank sample: the change that made each row, and only what is needed is read.

Issue 6: "which change made this value, which ones lost and why, with segment, position, run and snapshot".
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from typer.testing import CliRunner, Result

from support.landing import ingest_items, land, make_landing, record, take
from support.landing_rows import land_text, make_rows_landing
from support.pipelines import CONFIG, contents, judge_all, make_pipeline, put
from support.savepoints import bring_in, make, save
from tidefold.changelog.schema import DELETE
from tidefold.changelog.segment import read_index
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.config import load_config
from tidefold.domain.explain.key_history import ChangeOutcome, RowAgreement
from tidefold.domain.paths import data_path
from tidefold.domain.snapshot.claim import RestoreMode, RestorePoint
from tidefold.errors import InvalidInputError, NotFoundError, TidefoldError
from tidefold.fold import inputs
from tidefold.ledger import read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ingest.ingest import ingest
from tidefold.operations.inspect.explain_key import KeyExplained, explain_key
from tidefold.operations.quarantine.settle import settle
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.retention.subsume import subsume
from tidefold.operations.retention.truncate import truncate
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import Confirmation, confirm
from tidefold.operations.snapshot.materialize import materialize
from tidefold.storage.local_store import LocalStore

BANK = Path(__file__).parents[3] / "data" / "bank"
BANK_CONFIG = """\
version: 1
store: store
logs:
  tellers:
    source: {format: debezium-json, connector: postgresql, path: landing/bank.public.pgbench_tellers}
    key: [tid]
    columns: {tid: int, bid: int, tbalance: int, filler: string}
"""


def truth(phase: int) -> dict[int, dict[str, Any]]:
    """The database's own dump; no text of the sample is empty, so an empty field is null."""
    with gzip.open(BANK / "truth" / f"phase{phase}" / "pgbench_tellers.csv.gz") as raw:
        found = list(csv.DictReader(io.TextIOWrapper(raw, "utf-8")))
    cast = {"filler": str}
    return {int(row["tid"]): {n: cast.get(n, int)(v) if v else None for n, v in row.items()} for row in found}


def fold(pipeline: Pipeline, run: str, log: str = "accounts", restore: RestorePoint | None = None) -> None:
    [outcome] = materialize(pipeline, [log], Restore(run, restore) if restore else Fold(run), in_process)
    assert not outcome.error_code, outcome
    judge_all(pipeline, log)
    assert confirm(pipeline, log, Confirmation(run=run)).status == "published"


def of(pipeline: Pipeline, key: int, **how: Any) -> KeyExplained:
    return explain_key(pipeline, "accounts", json.dumps({"id": key}), **how)


def row(pipeline: Pipeline, key: int, wanted: ReadRequest) -> dict[str, Any] | None:
    _, batches = read_rows(pipeline, "accounts", replace(wanted, key=json.dumps({"id": key})))
    return next((found for batch in batches for found in batch.to_pylist()), None)


def told(found: KeyExplained) -> list[tuple[int, ChangeOutcome]]:
    return [(one.sqn, one.fate) for one in found.changes]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Key 1 was changed in every change set, key 2 deleted in snapshot 2, key 3 came and waits."""
    made = make_pipeline(tmp_path, CONFIG.replace("store: store\n", "store: store\nretention: {snapshots: 2}\n"))
    put(made, [{"id": i, "text": "a"} for i in (1, 2, *range(10, 60))])
    fold(made, "run-1")
    put(made, [{"id": 1, "text": "b"}, {"id": 2, "text": None, "_op": DELETE}, {"id": 1, "text": "c"}])
    fold(made, "run-2")
    put(made, [{"id": 1, "text": "d"}, {"id": 3, "text": "d"}])
    return made


def test_the_row_its_maker_and_the_losers(pipeline: Pipeline) -> None:
    before = contents(pipeline.config.path.parent)
    found = of(pipeline, 1)
    assert (found.view, found.snapshot, found.to_sqn) == ("published", 2, 2)
    assert found.row == {"id": 1, "text": "c"}
    assert found.standing is RowAgreement.MADE
    assert told(found) == [
        (1, ChangeOutcome.OLDER),
        (2, ChangeOutcome.OLDER),
        (2, ChangeOutcome.CURRENT),
        (3, ChangeOutcome.WAITING),
    ]
    made = found.made_by
    assert made
    assert made == found.changes[2]
    change_set = pipeline.ledger("accounts").read().change_sets[1]
    assert (made.segment, made.ordinal, made.sqn) == (change_set.location.segment, change_set.location.ordinal, 2)
    assert (made.op, made.order, made.topic, made.partition, made.offset) == ("upsert", (1, 54), "accounts", 0, 54)
    assert (made.landed, made.snapshot, made.run) == ("accounts+0+0000000052.jsonl", 2, "run-2")
    assert made.values == {"id": 1, "text": "c"}
    assert [(kept.snapshot, kept.present) for kept in found.kept] == [(1, True), (2, True)]
    assert found.kept[0].row_hash != found.kept[1].row_hash == found.row_hash
    assert found.unknown == ()
    assert contents(pipeline.config.path.parent) == before


def test_live_an_older_snapshot_a_deleted_key_and_one_that_waits(pipeline: Pipeline) -> None:
    live = of(pipeline, 1, live=True)
    assert live.row == row(pipeline, 1, ReadRequest(What.LIVE)) == {"id": 1, "text": "d"}
    assert told(live)[-1] == (3, ChangeOutcome.CURRENT)
    assert live.made_by
    assert (live.made_by.snapshot, live.made_by.run) == (None, None)
    old = of(pipeline, 1, snapshot=1)
    assert old.row == {"id": 1, "text": "a"}
    assert told(old) == [
        (1, ChangeOutcome.CURRENT),
        (2, ChangeOutcome.LATER),
        (2, ChangeOutcome.LATER),
        (3, ChangeOutcome.WAITING),
    ]
    deleted = of(pipeline, 2)
    assert (deleted.row, deleted.standing) == (None, RowAgreement.DELETED)
    assert deleted.made_by
    assert (deleted.made_by.op, deleted.made_by.run) == ("delete", "run-2")
    waiting = of(pipeline, 3)
    assert (waiting.row, waiting.standing, waiting.made_by) == (None, RowAgreement.ABSENT, None)
    assert told(waiting) == [(3, ChangeOutcome.WAITING)]


def test_a_key_that_never_was(pipeline: Pipeline) -> None:
    for how in ({}, {"live": True}, {"snapshot": 1}):
        with pytest.raises(NotFoundError) as never:
            of(pipeline, 777, **how)
        assert never.value.code == "KEY_UNKNOWN"
    with pytest.raises(InvalidInputError):
        explain_key(pipeline, "accounts", "7")


def test_a_key_whose_record_was_refused(tmp_path: Path) -> None:
    made = make_rows_landing(tmp_path, more="order: [seq]\n    on_bad_file: warn")
    land_text(tmp_path, "a.csv", "id,text,seq\n1,a,1\n2,b,2,more\n3,c,three\n")
    ingest_items(made)

    def never(key: int, **how: Any) -> str:
        with pytest.raises(TidefoldError) as error:
            explain_key(made, "items", json.dumps({"id": key}), **how)
        return str(error.value)

    # The text of this row does not show its key: its fields could not be told apart.
    assert never(2).startswith("[NOTHING_PUBLISHED]")
    assert "Refused records may be of it: record 2 of `a.csv` [FIELD_COUNT]." in never(2)
    assert "Refused records have this key: record 3 of `a.csv` [VALUE_INVALID]." in never(3)
    assert "Refused records may be of it: record 2 of `a.csv` [FIELD_COUNT]." in never(2, live=True)
    assert "efused" not in never(777)
    settle(made, "items", "ann", "corrected at the shop")
    assert "`a.csv` 2 by ann: corrected at the shop." in never(2, live=True)


def test_what_was_cut_is_said_and_where_the_row_already_was(pipeline: Pipeline) -> None:
    fold(pipeline, "run-3")
    put(pipeline, [{"id": 1, "text": "e"}])
    fold(pipeline, "run-4")
    subsume(pipeline, "accounts")
    assert truncate(pipeline, "accounts").status == "truncated"
    untouched = of(pipeline, 20)
    assert (untouched.row, untouched.standing, untouched.made_by) == ({"id": 20, "text": "a"}, RowAgreement.CUT, None)
    assert untouched.unknown == ((1, 3),)
    assert [(kept.snapshot, kept.row_hash) for kept in untouched.kept] == [(n, untouched.row_hash) for n in (3, 4)]
    changed = of(pipeline, 1)
    assert (told(changed), changed.standing) == ([(4, ChangeOutcome.CURRENT)], RowAgreement.MADE)
    before = of(pipeline, 1, snapshot=3)
    assert (before.row, before.made_by, told(before)) == ({"id": 1, "text": "d"}, None, [(4, ChangeOutcome.LATER)])
    # A delete that was cut leaves no trace, and that is said.
    with pytest.raises(NotFoundError, match="keys deleted before that are not known"):
        of(pipeline, 2)


def test_squashed_changes_are_said_to_be_gone(pipeline: Pipeline) -> None:
    put(pipeline, [{"id": 1, "text": "e"}])
    compact_log(pipeline, "accounts")
    found = of(pipeline, 1, live=True)
    assert told(found)[-1] == (4, ChangeOutcome.CURRENT)
    assert (found.changes[-1].first, found.unknown) == (3, ((3, 4),))
    assert found.changes[-1].landed == "accounts+0+0000000057.jsonl"


def test_tails_and_restores(pipeline: Pipeline) -> None:
    take_tail(pipeline, "accounts", "tail-1")
    put(pipeline, [{"id": 1, "text": "e"}])
    tail = of(pipeline, 1, snapshot=3)
    assert tail.row == row(pipeline, 1, ReadRequest(snapshot=3)) == {"id": 1, "text": "d"}
    assert told(tail)[-2:] == [(3, ChangeOutcome.CURRENT), (4, ChangeOutcome.WAITING)]
    assert [kept.row_hash for kept in tail.kept][-1] == tail.row_hash
    fold(pipeline, "back", restore=RestorePoint(1, RestoreMode.SKIP))
    found = of(pipeline, 1)
    assert found.row == {"id": 1, "text": "a"}
    assert told(found) == [(1, ChangeOutcome.CURRENT), *[(sqn, ChangeOutcome.SKIPPED) for sqn in (2, 2, 3, 4)]]
    assert {one.run for one in found.changes[1:]} == {"back"}
    assert [kept.snapshot for kept in found.kept] == [1, 2, 3, 4]
    left_out = of(pipeline, 3)
    assert (left_out.row, left_out.standing) == (None, RowAgreement.ABSENT)
    assert told(left_out) == [(3, ChangeOutcome.SKIPPED)]


def test_rows_that_were_imported_are_said_to_be(tmp_path: Path) -> None:
    save(make(tmp_path / "one"), tmp_path / "save")
    made = make_pipeline(tmp_path / "two")
    put(made, [{"id": 20, "text": "own"}, {"id": 99, "text": "own"}])
    bring_in(made, tmp_path / "save")
    put(made, [{"id": 7, "text": "after"}])
    imported = of(made, 20)
    assert (imported.row, imported.standing, imported.made_by) == (
        {"id": 20, "text": "a 20"},
        RowAgreement.IMPORTED,
        None,
    )
    assert told(imported) == [(1, ChangeOutcome.SKIPPED)]
    assert imported.changes[0].run == "in"
    assert told(of(made, 99)) == [(1, ChangeOutcome.SKIPPED)]
    after = of(made, 7, live=True)
    assert (after.standing, told(after)) == (RowAgreement.MADE, [(2, ChangeOutcome.CURRENT)])


def test_records_that_were_sent_again_are_told(tmp_path: Path) -> None:
    def committed(offset: int, order: int) -> dict[str, Any]:
        return record(offset, order=order, sequence=f'["{order}","{order}"]')

    made = make_landing(tmp_path)
    land(tmp_path, 0, [committed(0, 10), committed(1, 20)])
    land(tmp_path, 2, [committed(2, 10), committed(3, 20), committed(4, 30)])
    outcome = take(made)
    found = explain_key(made, "items", '{"id": 1}', live=True)
    assert [(one.offset, one.fate) for one in found.changes] == [
        (0, ChangeOutcome.OLDER),
        (1, ChangeOutcome.OLDER),
        (2, ChangeOutcome.REPEATED),
        (3, ChangeOutcome.OLDER),
        (4, ChangeOutcome.CURRENT),
    ]
    assert {one.ingest_run for one in found.changes} == {outcome.facts["run"]}
    assert found.made_by
    assert (found.made_by.landed, found.made_by.committed) == (
        "shop.public.items+0+0000000002.jsonl",
        "1970-01-01T00:00:00.030000+00:00",
    )
    assert found.made_by.taken


class Watched(LocalStore):
    """Notes which files are opened, and which bytes of the segments are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: set[str] = set()
        self.ranges: set[tuple[str, int]] = set()

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self.opened.add(path)
        with super().open(path) as stream:
            seek = stream.seek

            def noted(position: int, whence: int = 0) -> int:
                self.ranges.add((path, position))
                return seek(position, whence)

            wrapped: Any = type(
                "Noted", (), {"__getattr__": lambda _, name: getattr(stream, name), "seek": staticmethod(noted)}
            )
            yield wrapped() if path.endswith(".seg") else stream


def test_only_the_key_s_bucket_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours, 17: under seconds on a large table by bucket pruning."""
    made = make_pipeline(tmp_path)
    for number in range(3):
        put(made, [{"id": i, "text": f"{number}"} for i in range(40_000)])
        fold(made, f"run-{number}")
    put(made, [{"id": 7, "text": "new"}])
    watched = Watched(tmp_path / "store")
    # Tasks open their own store.
    monkeypatch.setattr(inputs, "open_store", lambda *_: watched)
    found = of(replace(made, store=watched), 7, live=True)
    assert len(found.changes) == 4
    state = made.ledger("accounts").read()
    manifests = [read_manifest(made.store, "accounts", s) for s in state.snapshots]
    wanted = [f for m in manifests for f in m.files if f.key_groups.meets(key_groups_of(made, 7))]
    assert {path.rsplit("/", 1)[1] for path in watched.opened if path.endswith(".parquet")} == {f.name for f in wanted}
    assert sum(path.endswith(".parquet") for path in watched.opened) == len(manifests)
    assert data_path(manifests[0].data_folder, wanted[0].name) in watched.opened
    for change_set in state.change_sets:
        [entry] = read_index(made.store, change_set.location.segment)
        read = [b for b in entry.batches if (change_set.location.segment, entry.offset + b.offset) in watched.ranges]
        meant = [b for b in entry.batches if b.first <= key_groups_of(made, 7).first <= b.last]
        assert read == meant
        assert change_set.rows < 40_000 or len(meant) < len(entry.batches)


def key_groups_of(pipeline: Pipeline, key: int) -> Any:
    from tidefold.domain.key_groups import KeyGroups
    from tidefold.operations.ground.read import one_key

    found = one_key(pipeline.log("accounts").shape, json.dumps({"id": key})).key_group
    return KeyGroups(found, found)


def test_every_row_of_the_bank_is_explained(tmp_path: Path) -> None:
    """Real Debezium data: the change that is named is the row of the database's own dump."""
    (tmp_path / "tidefold.yaml").write_text(BANK_CONFIG)
    made = Pipeline(load_config(tmp_path / "tidefold.yaml"), LocalStore(tmp_path / "store"))
    for phase in (1, 2, 3):
        shutil.copytree(BANK / "landing" / f"phase{phase}", tmp_path / "landing", dirs_exist_ok=True)
        ingest(made, ["tellers"], in_process)
        if phase < 3:
            fold(made, f"run-{phase}", "tellers")
    expected = truth(3)
    for key in expected:
        found = explain_key(made, "tellers", json.dumps({"tid": key}), live=True)
        assert found.row == expected[key]
        assert found.standing is RowAgreement.MADE
        assert found.made_by
        assert found.made_by.values == expected[key]
        assert found.made_by.landed
        assert found.made_by.landed.endswith(".jsonl.gz")
        assert len(found.changes) > 1
        places = [
            (one.order, one.partition, one.offset) for one in found.changes if one.fate is not ChangeOutcome.REPEATED
        ]
        assert max(places) == (found.made_by.order, found.made_by.partition, found.made_by.offset)
        assert explain_key(made, "tellers", json.dumps({"tid": key})).row == truth(2)[key]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments], prog_name="tidefold")


def test_the_command_line(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pipeline.config.path.parent)
    monkeypatch.setenv("COLUMNS", "160")
    said = call("accounts", "id=1").stdout
    assert said.startswith(
        "accounts id=1 (published, snapshot 2, up to change set 2): text=c\nmade by upsert of order 1/54"
    )
    assert "folded into snapshot 2 by run run-2" in said
    assert "older order than change set 2" in " ".join(said.split())
    assert "not folded yet" in said
    whole = json.loads(call("accounts", '{"id": 1}', "--format", "json").stdout)
    assert whole["made_by"] == whole["changes"][2]
    assert whole["kept"][0]["present"] is True
    assert "not there\n" in call("accounts", "id=2").stdout
    fold(pipeline, "run-3")
    put(pipeline, [{"id": 11, "text": "b"}])
    fold(pipeline, "run-4")
    kept = call("accounts", "id=1").stdout.partition("in kept snapshots:")[2]
    assert [line.split()[0] for line in kept.splitlines() if "there, row" in line] == ["1", "2", "3-4"]
    assert "deleted by delete of order" in call("accounts", "id=2").stdout
    never = call("accounts", "id=777")
    assert never.exit_code == 4
    assert "[KEY_UNKNOWN]" in never.stderr
    wrong = (
        ["accounts", "x"],
        ["accounts", "id=x"],
        ["accounts", "id=1", "id=2"],
        ["accounts", "id=1", "--live", "--snapshot", "1"],
    )
    assert [call(*words).exit_code for words in wrong] == [2] * 4
    page = call("--help").stdout
    assert "Example: tidefold explain" in page
    assert "Next: tidefold " in page


def test_escape_sequences_in_rows_do_not_reach_the_terminal(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pipeline.config.path.parent)
    put(pipeline, [{"id": 1, "text": "\x1b]0;owned\x07"}])
    assert "\x1b" not in call("accounts", "id=1", "--live").stdout


def test_a_log_without_a_published_snapshot_says_how_to_look(tmp_path: Path) -> None:
    made = make_pipeline(tmp_path)
    put(made, [{"id": 1, "text": "a"}])
    with pytest.raises(NotFoundError) as nothing:
        of(made, 1)
    assert (nothing.value.code, "--live" in nothing.value.hint) == ("NOTHING_PUBLISHED", True)
    assert told(of(made, 1, live=True)) == [(1, ChangeOutcome.CURRENT)]
