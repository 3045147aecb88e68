"""A deleted table of a set is made again, and the pointer of the set names it (I1, I3)."""

from __future__ import annotations

import shutil
from pathlib import Path

from deltalake import DeltaTable

from support.bank_sets import ALL, KEYS, LAST, land, make_bank, replay, run
from tidefold.operations.restore.rebuild import rebuild_table
from tidefold.operations.sets.read import find_tables


def test_the_deleted_table_of_a_set_is_made_again(tmp_path: Path) -> None:
    pipeline = make_bank(tmp_path)
    for part, name in ((2, "r1"), (1, "r2")):
        land(tmp_path, {topic: count // part for topic, count in ALL.items()})
        run(pipeline, name)
    shutil.rmtree(tmp_path / "store/tables/tellers")
    pipeline = make_bank(tmp_path)
    assert rebuild_table(pipeline, "tellers").message.startswith("would publish snapshot")
    rebuild_table(pipeline, "tellers", plan=False)

    tables = find_tables(make_bank(tmp_path), "bank")
    assert tables["tellers"].version == 0
    for log, one in tables.items():
        rows = DeltaTable(one.address, version=one.version).to_pyarrow_table().to_pylist()
        assert {row[KEYS[log]]: row for row in rows} == replay().rows[LAST][log]
    assert not any(outcome.error for outcome in run(make_bank(tmp_path), "r3"))
