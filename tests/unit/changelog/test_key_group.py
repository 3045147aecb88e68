"""Key groups are for ever: what DuckDB computes is what this plain formula says. Requirement L8; promise I27."""

from __future__ import annotations

import hashlib

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidefold.changelog.key_group_hash import with_key_groups
from tidefold.domain.log_state import Column, TableSpec


def plain(texts: list[str], key_groups: int) -> int:
    digest = hashlib.md5("\x1f".join(texts).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little") % key_groups


@given(
    keys=st.lists(
        st.tuples(st.text(max_size=20).filter(lambda t: "\0" not in t), st.integers(-(2**63), 2**63 - 1)), min_size=1
    ),
    key_groups=st.integers(1, 32_768),
)
def test_of_any_key(keys: list[tuple[str, int]], key_groups: int) -> None:
    shape = TableSpec(("name", "id"), (Column("name", "string"), Column("id", "long")), "arrival", key_groups, 1)
    names, ids = zip(*keys, strict=True)
    table = pa.table({"_kg": pa.array([0] * len(keys), pa.uint16()), "name": names, "id": pa.array(ids, pa.int64())})
    expected = [plain([name, str(number)], key_groups) for name, number in keys]
    assert with_key_groups(table, shape)["_kg"].to_pylist() == expected
