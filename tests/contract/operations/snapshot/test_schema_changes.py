"""A log whose columns change: S5, I28. Rows are compared with a dict that took every change and every
change of the schema, one after the other, with values that Python converts.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import choose
from support.faults import Fault, FaultyStore, Killed
from support.pipelines import contents, judge_all, make_pipeline, put, with_log_shape
from tidefold.changelog.schema import DELETE, MERGE
from tidefold.compute.runners import in_process
from tidefold.domain.explain.key_history import RowAgreement
from tidefold.domain.log_state import Column
from tidefold.domain.paths import LogPaths
from tidefold.domain.snapshot.claim import KindPolicy, RestoreMode, RestorePoint
from tidefold.domain.table.schema_evolution import Policies, Policy, describe_schemas
from tidefold.domain.table.table_spec import Deletes, Engine, Group, Merge
from tidefold.errors import RefusedError, TidefoldError
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ground.read import ReadRequest, What, read_rows
from tidefold.operations.ground.schema_update import apply_configured_schema
from tidefold.operations.inspect.diff import diff
from tidefold.operations.inspect.explain_key import explain_key
from tidefold.operations.inspect.status import status
from tidefold.operations.requests import Fold, Restore
from tidefold.operations.restore.export import restore_to
from tidefold.operations.savepoint.take import SavepointRequest as Saving
from tidefold.operations.savepoint.take import take_savepoint
from tidefold.operations.snapshot.compact_log import compact_log, take_tail
from tidefold.operations.snapshot.confirm import confirm
from tidefold.operations.snapshot.materialize import materialize

Row = dict[str, Any]
ALL = Policies(*[Policy.EVOLVE] * 6)
LOG = "accounts"


def configured(pipeline: Pipeline, *columns: Column, policies: Policies = ALL, **changes: Any) -> Pipeline:
    return with_log_shape(pipeline, columns=columns, policies=policies, **changes)


def new_pipeline(folder: Path, *columns: Column) -> Pipeline:
    return configured(make_pipeline(folder), *columns)


def take(pipeline: Pipeline, *rows: Row) -> None:
    """As an ingest does: the configured columns first, then the changes."""
    ledger = pipeline.ledger(LOG)
    ledger.begin(pipeline.log(LOG).shape)
    apply_configured_schema(pipeline, ledger.read())
    put(pipeline, [*rows])


def fold(
    pipeline: Pipeline, run: str, kind: KindPolicy = KindPolicy.FULL, restore: RestorePoint | None = None
) -> Outcome:
    [outcome] = materialize(
        pipeline, [LOG], Restore(run, restore, kind=kind) if restore else Fold(run, kind=kind), in_process
    )
    if outcome.status == "staged":
        judge_all(pipeline)
        confirm(pipeline, LOG)
    return outcome


def read(pipeline: Pipeline, wanted: ReadRequest | None = None, key: str = "id") -> dict[Any, Row]:
    schema, batches = read_rows(pipeline, LOG, wanted)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert all(list(row) == schema.names for row in rows)
    return {row[key]: row for row in rows}


def delta_rows(pipeline: Pipeline, path: str = "", key: str = "id") -> dict[Any, Row]:
    """The rows of a Delta table, read by deltalake, Polars and DuckDB, which must agree."""
    uri = path or pipeline.store.uri(LogPaths(LOG).table)
    rows = DeltaTable(uri).to_pyarrow_table().to_pylist()
    by_polars = polars.read_delta(uri).to_dicts()
    found = {row[key]: row for row in rows}
    assert {row[key]: row for row in by_polars} == found
    files = [file.removeprefix("file://") for file in DeltaTable(uri).file_uris()]
    if files:
        names = list(DeltaTable(uri).schema().to_arrow().names) if rows else []
        counted = duckdb.sql(f"SELECT count(*) FROM read_parquet({files}, union_by_name=true)").fetchall()
        assert counted == [(len(found),)]
        assert not rows or list(rows[0]) == names
    return found


def column(name: str, type_: str = "int", *aliases: str, default: str | None = None) -> Column:
    return Column(name, type_, aliases=aliases, default=default)


ID, N, TEXT = column("id"), column("n"), column("text", "string")


def non_nulls(rows: Mapping[Any, Row]) -> dict[str, int]:
    names = {name for row in rows.values() for name in row}
    return {name: sum(row[name] is not None for row in rows.values()) for name in names}


KINDS: list[tuple[str, Column, Column | None, Callable[[Any], Any]]] = [
    ("add", N, N, lambda v: v),
    ("widen", N, column("n", "long"), lambda v: v),
    ("widen to decimal", N, column("n", "decimal(12,2)"), Decimal),
    ("widen date", column("n", "date"), column("n", "timestamp"), lambda v: datetime.combine(v, time(), UTC)),
    ("rename", N, column("m", "int", "n"), lambda v: v),
    ("rename and widen", N, column("m", "long", "n"), lambda v: v),
    ("narrow", column("n", "long"), N, lambda v: v),
    ("retype", N, column("n", "string"), str),
    ("drop", N, None, lambda v: v),
]  # fmt: skip


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", [KindPolicy.FULL, KindPolicy.INCREMENTAL])
@pytest.mark.parametrize(("name", "before", "after", "converted"), KINDS, ids=[k[0] for k in KINDS])
def test_complaint_21_no_value_becomes_null_through_a_schema_change(
    tmp_path: Path, kind: KindPolicy, name: str, before: Column, after: Column | None, converted: Callable[[Any], Any]
) -> None:
    """Elsewhere a schema change nulls or doubles a column (delta-io/delta#1551, #2248, apache/paimon#1076). By count of
    non-nulls and by values: in the table, in the snapshot itself, and live, before anything was folded.
    """
    pipeline = new_pipeline(tmp_path, ID, before)
    value = (lambda i: date(2026, 1, 1 + i % 28)) if before.type == "date" else (lambda i: i * 3)
    rows = [{"id": i, before.name: value(i) if i % 5 else None} for i in range(50)]
    take(pipeline, *rows)
    fold(pipeline, "first", kind)
    # Not folded yet: change sets of the older schema come through the same conversion.
    late = [{"id": i, before.name: value(i) if i % 5 else None} for i in range(45, 60)]
    take(pipeline, *late)
    files = set(contents(tmp_path / "store" / "tables" / LOG / "_data"))
    columns = [ID, *([after] if after else []), *([column("more", "string")] if name == "add" else [])]
    pipeline = configured(pipeline, *columns)
    take(pipeline, {"id": 1000, **({after.name: None} if after else {})})
    expected: dict[Any, Row] = {}
    for row in [*rows, *late, {"id": 1000, before.name: None}]:
        given = row[before.name]
        shown = {after.name: None if given is None else converted(given)} if after else {}
        expected[row["id"]] = {"id": row["id"], **shown, **({"more": None} if name == "add" else {})}
    assert read(pipeline, ReadRequest(What.LIVE)) == expected
    outcome = fold(pipeline, "second", kind)
    assert read(pipeline) == delta_rows(pipeline) == expected
    assert non_nulls(expected).get(after.name if after else "", 48) == 48
    table = DeltaTable(pipeline.store.uri(LogPaths(LOG).table))
    assert [f.name for f in table.schema().fields] == [c.name for c in columns]
    assert table.version() == 1, "files and schema come in one version"
    if kind is KindPolicy.FULL:
        assert delta_rows(pipeline, pipeline.store.uri(LogPaths(LOG).snapshot(outcome.snapshot or 0))) == expected
    # The older snapshot shows what it always showed.
    old = read(pipeline, ReadRequest(snapshot=1))
    assert old == {row["id"]: row for row in rows}
    assert files <= set(contents(tmp_path / "store" / "tables" / LOG / "_data"))


def test_an_added_column_leaves_files_as_they_are(tmp_path: Path) -> None:
    """Every reader gives null for a column that a file lacks; only what changes are for is written."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, *({"id": i, "n": i} for i in range(40)))
    fold(pipeline, "a", KindPolicy.INCREMENTAL)
    pipeline = configured(pipeline, ID, N, column("more", "decimal(12,2)"))
    take(pipeline, {"id": 3, "n": 3, "more": Decimal("1.50")})
    outcome = fold(pipeline, "b", KindPolicy.INCREMENTAL)
    assert (outcome.facts["files"], outcome.facts["files_carried"]) == (4, 3)
    expected = {i: {"id": i, "n": i, "more": Decimal("1.50") if i == 3 else None} for i in range(40)}
    assert delta_rows(pipeline) == read(pipeline) == expected
    # With a value for them all rows that were there before are written.
    pipeline = configured(pipeline, ID, N, column("more", "decimal(12,2)"), column("flag", "boolean", default="true"))
    take(pipeline, {"id": 3, "n": 3, "more": None, "flag": None})
    assert fold(pipeline, "c", KindPolicy.INCREMENTAL).facts["files_carried"] == 0
    rows = delta_rows(pipeline)
    assert {i: row["flag"] for i, row in rows.items()} == {i: None if i == 3 else True for i in range(40)}
    assert {i: row["n"] for i, row in rows.items()} == {i: i for i in range(40)}


def test_a_name_that_comes_again_shows_nothing_of_the_column_that_was_dropped(tmp_path: Path) -> None:
    """Also when no snapshot lies between, and in what was not folded yet."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 10})
    fold(pipeline, "a")
    take(pipeline, {"id": 2, "n": 20})
    for columns in ((ID,), (ID, column("n", "string"))):
        pipeline = configured(pipeline, *columns)
        take(pipeline, {"id": 3})
    take(pipeline, {"id": 4, "n": "new"})
    expected = {i: {"id": i, "n": "new" if i == 4 else None} for i in (1, 2, 3, 4)}
    assert read(pipeline, ReadRequest(What.LIVE)) == expected
    fold(pipeline, "b", KindPolicy.INCREMENTAL)
    assert delta_rows(pipeline) == expected


def test_a_value_that_does_not_fit_ends_the_attempt_and_changes_nothing(tmp_path: Path) -> None:
    """The way back is the former type; what was taken in meanwhile counts."""
    long = column("n", "long")
    pipeline = new_pipeline(tmp_path, ID, long)
    take(pipeline, {"id": 1, "n": 2**40}, {"id": 2, "n": 7})
    fold(pipeline, "a")
    before = delta_rows(pipeline)
    narrow = configured(pipeline, ID, N)
    take(narrow, {"id": 3, "n": 8})
    outcome = fold(narrow, "b")
    assert (outcome.status, outcome.error_code) == ("error", "VALUE_UNFIT")
    assert "1099511627776" in outcome.message
    assert delta_rows(narrow) == before
    assert DeltaTable(pipeline.store.uri(LogPaths(LOG).table)).version() == 0
    take(pipeline, {"id": 4, "n": 9})
    fold(pipeline, "c")
    assert {i: row["n"] for i, row in delta_rows(pipeline).items()} == {1: 2**40, 2: 7, 3: 8, 4: 9}


def test_a_policy_holds_before_anything_happens(tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    held = configured(pipeline, ID, policies=Policies())
    before = contents(tmp_path / "store")
    with pytest.raises(RefusedError, match="drop `n` int"):
        apply_configured_schema(held, held.ledger(LOG).read())
    [outcome] = materialize(held, [LOG], Fold("r"), in_process)
    assert outcome.error_code == "SHAPE_CHANGED"
    assert contents(tmp_path / "store") == before


def test_a_schema_change_of_somebody_else_is_still_refused(tmp_path: Path) -> None:
    """Ours follows the files in one commit; a foreign one is told from it."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    fold(pipeline, "a")
    uri = pipeline.store.uri(LogPaths(LOG).table)
    DeltaTable(uri).alter.add_columns(_fields("theirs"))
    pipeline = configured(pipeline, ID, N, column("more"))
    take(pipeline, {"id": 2, "n": 2, "more": 2})
    materialize(pipeline, [LOG], Fold("b"), in_process)
    judge_all(pipeline)
    with pytest.raises(RefusedError, match="Another program changed schema of the table"):
        confirm(pipeline, LOG)


def _fields(name: str) -> list[Any]:
    return list(Schema.from_arrow(pa.schema([pa.field(name, pa.int32())])).fields)


def test_publishing_twice_is_publishing_once(tmp_path: Path) -> None:
    """A crash between the commit and the ledger: who comes next finds the version that shows the snapshot."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    fold(pipeline, "a")
    pipeline = configured(pipeline, ID, column("m", "long", "n"))
    take(pipeline, {"id": 2, "m": 2})
    fold(pipeline, "b")
    ledger = pipeline.ledger(LOG)
    forgotten = lambda s: s.with_snapshot(replace(s.latest, table_version=None)) if s.latest else s  # noqa: E731
    ledger.commit(forgotten)
    confirm(pipeline, LOG)
    latest = ledger.read().latest
    assert latest
    assert (latest.table_version, DeltaTable(pipeline.store.uri(LogPaths(LOG).table)).version()) == (1, 1)


@pytest.mark.parametrize("fault", list(Fault))
def test_a_publication_with_a_new_schema_survives_every_crash(tmp_path: Path, fault: Fault) -> None:
    """I4, I11: each call of it fails in turn, with and without having taken effect; repeating it ends it, once."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    fold(pipeline, "a")
    pipeline = configured(pipeline, ID, column("m", "long", "n"))
    take(pipeline, {"id": 2, "m": 2})
    materialize(pipeline, [LOG], Fold("b"), in_process)
    judge_all(pipeline)
    counting = 0
    for number in range(100):
        copy = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "store", copy)
        failing = FaultyStore(copy, at=number, fault=fault)
        with suppress(Killed, TidefoldError):
            confirm(replace(pipeline, store=failing), LOG)
        healed = replace(pipeline, store=FaultyStore(copy))
        confirm(healed, LOG)
        assert delta_rows(healed) == {1: {"id": 1, "m": 1}, 2: {"id": 2, "m": 2}}
        assert DeltaTable(healed.store.uri(LogPaths(LOG).table)).version() == 1
        shutil.rmtree(copy)
        if failing.calls <= number:
            break
        counting = number
    assert counting >= 3


def test_an_attempt_that_began_before_shows_its_own_columns(tmp_path: Path) -> None:
    """A change of the schema does not wait for a verdict, and a verdict is about the columns that were judged."""
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    materialize(pipeline, [LOG], Fold("a"), in_process)
    renamed = configured(pipeline, ID, column("m", "int", "n"))
    take(renamed, {"id": 2, "m": 2})
    judge_all(renamed)
    confirm(renamed, LOG)
    assert delta_rows(renamed) == {1: {"id": 1, "n": 1}}
    fold(renamed, "b")
    assert delta_rows(renamed) == {1: {"id": 1, "m": 1}, 2: {"id": 2, "m": 2}}


def test_diff_compares_the_columns_that_both_have(tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, ID, N, TEXT)
    take(pipeline, *({"id": i, "n": i, "text": "a"} for i in range(10)))
    fold(pipeline, "a")
    pipeline = configured(pipeline, ID, column("m", "long", "n"), column("more"))
    take(pipeline, {"id": 3, "m": 33, "more": 1}, {"id": 4, "m": 4, "more": 1})
    fold(pipeline, "b")
    found = diff(pipeline, LOG, 1, 2)
    assert found.left_out == ("more", "text")
    assert [(d.change, d.before, d.after) for d in found.rows] == [
        ("changed", {"id": 3, "m": 3}, {"id": 3, "m": 33}),
    ]
    assert [d.before for d in diff(pipeline, LOG, 2, 1).rows] == [{"id": 3, "m": 33}]
    assert diff(pipeline, LOG, 2, 2).left_out == ()


def test_a_restore_brings_rows_to_the_columns_of_today_and_says_what_is_gone(tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, ID, N, TEXT)
    take(pipeline, {"id": 1, "n": 1, "text": "a"})
    fold(pipeline, "a")
    pipeline = configured(pipeline, ID, column("m", "decimal(12,2)", "n"), column("flag", "boolean", default="true"))
    take(pipeline, {"id": 1, "m": Decimal("9.00"), "flag": False})
    fold(pipeline, "b")
    outcome = fold(pipeline, "back", restore=RestorePoint(1, RestoreMode.SKIP))
    assert "without columns that the log has no more: text" in outcome.message
    assert delta_rows(pipeline) == {1: {"id": 1, "m": Decimal("1.00"), "flag": True}}
    # Elsewhere a snapshot is what it was.
    restore_to(pipeline, LOG, 1, str(tmp_path / "elsewhere"))
    assert delta_rows(pipeline, str(tmp_path / "elsewhere")) == {1: {"id": 1, "n": 1, "text": "a"}}
    take_savepoint(pipeline, LOG, Saving(str(tmp_path / "saved"), snapshot=2))
    assert delta_rows(pipeline, str(tmp_path / "saved")) == {1: {"id": 1, "m": Decimal("9.00"), "flag": False}}


def test_a_key_is_explained_in_the_columns_of_today(tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    fold(pipeline, "a")
    pipeline = configured(pipeline, column("number", "long", "id"), column("m", "long", "n"), key=("number",))
    take(pipeline, {"number": 1, "m": 2})
    fold(pipeline, "b")
    key = '{"number": 1}'
    newest, first = explain_key(pipeline, LOG, key), explain_key(pipeline, LOG, key, snapshot=1)
    assert (newest.row, first.row) == ({"number": 1, "m": 2}, {"number": 1, "m": 1})
    assert (newest.standing, first.standing) == (RowAgreement.MADE, RowAgreement.MADE)
    assert [(kept.snapshot, bool(kept.error)) for kept in newest.kept] == [(1, False), (2, False)]


def test_what_waits_for_a_full_snapshot_is_told(tmp_path: Path) -> None:
    pipeline = new_pipeline(tmp_path, ID, N)
    take(pipeline, {"id": 1, "n": 1})
    fold(pipeline, "a")
    pipeline = configured(pipeline, ID, column("m", "int", "n"))
    [outcome] = materialize(pipeline, [LOG], Fold("b"), in_process)
    assert (outcome.status, "schema 2 waits" in outcome.message) == ("nothing", True)
    [found] = status(pipeline, [LOG])
    assert found.schema_waits.endswith("rename `n` to `m`")
    assert fold(pipeline, "c", KindPolicy.FULL).status == "staged"
    assert delta_rows(pipeline) == {1: {"id": 1, "m": 1}}
    [found] = status(pipeline, [LOG])
    assert (found.schema, found.schema_waits) == (2, "")
    assert [line.split(": ", 1)[1] for line in describe_schemas(pipeline.ledger(LOG).read())] == ["rename `n` to `m`"]


OLD = (column("id"), column("at", "long"), column("n"), column("gone"))
NEW = (column("number", "long", "id"), column("m", "long", "n"), column("when", "long", "at"), column("more"))
NAMES = {"number": "id", "m": "n", "when": "at"}


@pytest.mark.rotates(6)
@pytest.mark.parametrize("kind", [KindPolicy.FULL, KindPolicy.INCREMENTAL])
@pytest.mark.parametrize(
    "merge",
    [
        Merge(),
        Merge(Engine.FIRST, Deletes.IGNORE),
        Merge(Engine.PARTIAL),
        Merge(Engine.PARTIAL, Deletes.IGNORE, (Group(("m",), ("when",)),)),
        Merge(Engine.AGGREGATE, Deletes.IGNORE, (), (("m", "sum"), ("more", "max"), ("when", "max"))),
        Merge(Engine.HISTORY),
    ],
    ids=lambda merge: f"{merge.engine}{'-groups' if merge.groups else ''}",
)
def test_every_engine_goes_on_as_if_the_columns_had_always_been_so(
    tmp_path: Path, merge: Merge, kind: KindPolicy
) -> None:
    """What is kept beside rows follows the names, so late changes find their place after a rename too."""
    applies = merge.deletes is Deletes.APPLY
    op = {"_op": MERGE} if merge.engine is Engine.AGGREGATE else {}
    early = [{"number": i % 6, "m": i, "when": (i * 7) % 20, **op} for i in range(18)]
    early += [{"number": 2, "when": 30, "_op": DELETE}, {"number": 3, "when": 9, "_op": DELETE}] if applies else []
    late = [{"number": i % 6, "m": 100 + i, "when": (i * 5) % 25, "more": i, **op} for i in range(12)]
    late += [
        {"number": 2, "m": 7, "when": 29, "more": 1, **op},
        {"number": 4, "when": 19, "m": 8, "_absent": ["more"], **op},
    ]
    found = []
    for name in ("changing", "always"):
        (tmp_path / name).mkdir()
        new = _ordered(new_pipeline(tmp_path / name, *NEW), NEW, merge)
        old = _ordered(new, OLD, _with_old_names(merge)) if name == "changing" else new
        named = NAMES if name == "changing" else {}
        # Where absent is not null, nothing was said of a column that is not there yet.
        silent = {"_absent": ["more"]} if merge.engine is Engine.PARTIAL and name == "always" else {}
        rows = [
            {**{named.get(k, k): v for k, v in row.items()}, **silent, "_o0": row["when"], "_offset": i}
            for i, row in enumerate(early)
        ]
        take(old, *rows[:10])
        fold(old, "a", kind)
        take(old, *rows[10:])
        take(new, *({**row, "_o0": row["when"], "_offset": 100 + i} for i, row in enumerate(late)))
        fold(new, "b", kind)
        _, batches = read_rows(new, LOG)
        found.append(sorted((row for batch in batches for row in batch.to_pylist()), key=str))
    assert found[0] == found[1]
    assert len(found[0]) > 3


def _ordered(pipeline: Pipeline, columns: tuple[Column, ...], merge: Merge) -> Pipeline:
    by = columns[1].name if columns is OLD else columns[2].name
    key = (columns[0].name,)
    return configured(pipeline, *columns, key=key, order="columns", order_by=(by,), merge=merge)


def _with_old_names(merge: Merge) -> Merge:
    groups = tuple(Group(tuple(NAMES[n] for n in g.columns), tuple(NAMES[n] for n in g.order)) for g in merge.groups)
    known = ((NAMES[name], how) for name, how in merge.aggregates if name in NAMES)
    old = (*known, ("gone", "max")) if merge.aggregates else ()
    return replace(merge, groups=groups, aggregates=tuple(sorted(old)))


# The oracle: events of a life, and what each does to rows that are dicts.
Rows = dict[int, Row]


@dataclass
class Life:
    """`events`: changes and changes of the schema, in order; `gone`: those that the newest snapshot leaves out.

    `kept`: of each snapshot the number of events before it, and those of them that it leaves out.
    """

    pipeline: Pipeline
    columns: list[Column]
    events: list[tuple[str, Callable[[Rows], None]]] = field(default_factory=list)
    gone: frozenset[int] = frozenset()
    kept: dict[int, tuple[int, frozenset[int]]] = field(default_factory=dict)
    names: int = 0
    runs: int = 0

    def at(self, end: int, gone: frozenset[int]) -> Rows:
        """The rows after so many events without those that are gone, as all schema changes make them."""
        rows: Rows = {}
        for number, (kind, event) in enumerate(self.events):
            if kind == "schema" or (number < end and number not in gone):
                event(rows)
        return rows

    def now(self) -> Rows:
        return self.at(len(self.events), self.gone)

    def fresh(self) -> str:
        self.names += 1
        return f"c{self.names}"

    def change(self, changed: list[Column], event: Callable[[Row], None]) -> None:
        self.columns = changed
        self.pipeline = configured(self.pipeline, *changed)
        apply_configured_schema(self.pipeline, self.pipeline.ledger(LOG).read())
        self.events.append(("schema", lambda rows: [event(row) for row in rows.values()] and None))

    def alter(self, kind: str, data: st.DataObject) -> None:
        others = [c for c in self.columns if c.name != "id"]
        if kind == "add":
            given = data.draw(st.sampled_from([None, "5"]))
            new = Column(data.draw(st.sampled_from(["again", self.fresh()])), "int", default=given)
            if new.name not in [c.name for c in self.columns]:
                self.change([*self.columns, new], lambda row: row.update({new.name: given and int(given)}))
            return
        if not others:
            return
        one = data.draw(st.sampled_from(others))
        rest = [c for c in self.columns if c != one]
        if kind == "drop":
            self.change(rest, lambda row: row.pop(one.name) and None)
        elif kind == "rename":
            new = replace(one, name=self.fresh(), aliases=(one.name,))
            self.change([*rest, new], lambda row: row.update({new.name: row.pop(one.name)}))
        elif one.type in NEXT:
            type_, convert = data.draw(st.sampled_from(NEXT[one.type]))
            new = replace(one, type=type_)
            self.change(
                [new if c == one else c for c in self.columns],
                lambda row: row.update({one.name: None if row[one.name] is None else convert(row[one.name])}),
            )

    def put(self, data: st.DataObject) -> None:
        rows = []
        for key in data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=6)):
            if data.draw(st.integers(0, 5)) == 0:
                rows.append({"id": key, "_op": DELETE})
                self.events.append(("change", lambda all_, key=key: all_.pop(key, None) and None))
                continue
            row = {c.name: data.draw(VALUES[c.type]) for c in self.columns if c.name != "id"}
            rows.append({"id": key, **row})
            self.events.append(("change", lambda all_, key=key, row=row: all_.update({key: {"id": key, **row}})))
        put(self.pipeline, rows)

    def fold(self, kind: KindPolicy, restore: RestorePoint | None = None) -> None:
        self.runs += 1
        outcome = fold(self.pipeline, f"run-{self.runs}", kind, restore)
        if outcome.status != "staged":
            assert outcome.status == "nothing", outcome
            return
        assert outcome.snapshot
        end = len(self.events)
        if restore:
            # What comes after is folded again, or left out: also what an earlier restore left out after it.
            end, self.gone = self.kept[restore.snapshot]
            if restore.mode is RestoreMode.SKIP:
                self.gone |= {*range(end, len(self.events))}
        self.kept[outcome.snapshot] = end, self.gone
        assert read(self.pipeline) == self.at(end, self.gone)

    def check(self) -> None:
        assert read(self.pipeline, ReadRequest(What.LIVE)) == self.now()
        latest = self.pipeline.ledger(LOG).read().latest
        if latest:
            assert delta_rows(self.pipeline) == read(self.pipeline)


def text(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


NEXT: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "int": [("long", int), ("decimal(12,2)", lambda v: Decimal(v).quantize(Decimal("0.01"))), ("string", text)],
    "long": [("int", int), ("decimal(20,0)", Decimal), ("string", text)],
    "decimal(12,2)": [("decimal(14,3)", lambda v: v.quantize(Decimal("0.001"))), ("string", text)],
    "decimal(20,0)": [("long", int), ("string", text)],
}
NUMBERS = st.one_of(st.none(), st.integers(-1000, 1000))
VALUES: dict[str, Any] = {
    "int": NUMBERS,
    "long": NUMBERS,
    "decimal(12,2)": st.one_of(
        st.none(), st.integers(-99, 99).map(lambda v: (Decimal(v) / 4).quantize(Decimal("0.01")))
    ),
    "decimal(14,3)": st.one_of(
        st.none(), st.integers(-99, 99).map(lambda v: (Decimal(v) / 8).quantize(Decimal("0.001")))
    ),
    "decimal(20,0)": st.one_of(st.none(), st.integers(-99, 99).map(Decimal)),
    "string": st.one_of(st.none(), st.sampled_from(["", "a", "7"])),
}
STEPS = ["put", "put", "fold", "fold", "add", "drop", "rename", "type", "type", "restore", "squash", "tail"]


@settings(max_examples=choose(8, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_row_of_schema_changes_between_any_folds_gives_the_rows_of_the_oracle(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        life = Life(new_pipeline(Path(folder), ID, N), [ID, N])
        life.pipeline.ledger(LOG).begin(life.pipeline.log(LOG).shape)
        life.put(data)
        for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=3, max_size=12)):
            if step == "put":
                life.put(data)
            elif step == "fold":
                life.fold(data.draw(st.sampled_from([KindPolicy.FULL, KindPolicy.INCREMENTAL])))
            elif step == "squash":
                compact_log(life.pipeline, LOG)
            elif step == "restore" and life.kept:
                which = data.draw(st.sampled_from(sorted(life.kept)))
                life.fold(
                    KindPolicy.FULL,
                    RestorePoint(which, data.draw(st.sampled_from([RestoreMode.SKIP, RestoreMode.REPLAY]))),
                )
            elif step == "tail" and life.pipeline.ledger(LOG).read().latest:
                life.runs += 1
                outcome = take_tail(life.pipeline, LOG, f"run-{life.runs}")
                if outcome.status == "completed":
                    assert read(life.pipeline, ReadRequest(snapshot=outcome.snapshot)) == life.now()
            elif step in ("add", "drop", "rename", "type"):
                life.alter(step, data)
        life.check()
