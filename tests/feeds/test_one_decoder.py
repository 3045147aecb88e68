"""`init` and a run read a file alike: a run takes the records that `init` sampled, and refuses those that it says."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support import effort
from tidefold.cli.app import app
from tidefold.compute.runners import in_process
from tidefold.operations.ingest.ingest import ingest
from tidefold.sources.inference.propose import propose
from tidefold.wiring import open_pipeline

_CELLS = st.text(st.sampled_from("ab1,;\"\\N .'|\tü\n"), max_size=6)
_AT = "2026-11-01T08:00:00Z"


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[str, bytes]:
    rows = draw(st.lists(st.tuples(_CELLS, _CELLS), min_size=2, max_size=5))
    escapes = draw(st.booleans())
    stream = io.StringIO()
    writer = csv.writer(
        stream,
        delimiter=draw(st.sampled_from(",;\t|")),
        quoting=draw(st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC))),
        doublequote=not escapes,
        escapechar="\\" if escapes else None,
        lineterminator=draw(st.sampled_from(("\n", "\r\n"))),
    )
    writer.writerows([("id", "name", "note", "updated_at"), *((i, *row, _AT) for i, row in enumerate(rows, 1))])
    encoding = draw(st.sampled_from(("utf-8", "utf-8-sig", "cp1252")))
    # Some bytes are lost, or come twice, within the rows.
    text = stream.getvalue()
    at = draw(st.integers(0, len(text) - 2))
    if text.find("\n") < at < text.rfind(_AT) and draw(st.booleans()):
        text = text[:at] + draw(st.sampled_from(("", '"', "\\", ","))) + text[at + 1 :]
    return "items.csv", text.encode(encoding)


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), _CELLS, st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(0, 9), max_size=2), st.dictionaries(st.sampled_from(("x", "$y")), _CELLS, max_size=2),
    st.sampled_from(({"$date": _AT}, {"$numberLong": "12"}, {"$oid": "0a"})),
)  # fmt: skip


@st.composite
def json_files(draw: st.DrawFn) -> tuple[str, bytes]:
    rows = draw(st.lists(st.fixed_dictionaries({"a": _VALUES}, optional={"b": _VALUES}), min_size=2, max_size=5))
    records = [{"id": i, **row, "updated_at": _AT} for i, row in enumerate(rows, 1)]
    shape = draw(st.sampled_from(("lines", "array", "pretty", "objects", "data", "joined")))
    indent = draw(st.sampled_from((None, 1)))
    texts = {
        "lines": "".join(json.dumps(one) + "\n" for one in records),
        "array": json.dumps(records),
        "pretty": json.dumps(records, indent=2, ensure_ascii=False),
        "objects": "\n".join(json.dumps(one, indent=1) for one in records),
        "data": json.dumps({"page": 1, "data": records}, indent=indent),
        "joined": "".join(map(json.dumps, records)),
    }
    return "items.json", texts[shape].encode()


def _take(folder: Path, name: str, data: bytes) -> tuple[Any, Any]:
    """Returns the proposal, and the outcome of an ingest if the proposal leaves nothing open."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "landing/items").mkdir(parents=True)
    (folder / "landing/items" / name).write_bytes(data)
    [proposal] = propose(str(folder / "landing"))
    if not proposal.usable:
        return proposal, None
    done = CliRunner().invoke(app, ["init", "landing"])
    assert done.exit_code == 0, done.output
    [outcome] = ingest(open_pipeline(folder / "tidefold.yaml"), ["items"], in_process)
    return proposal, outcome


@settings(max_examples=effort.choose(12, 150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(csv_files(), json_files()))
def test_a_run_takes_what_init_sampled(tmp_path: Path, file: tuple[str, bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.delenv("TIDEFOLD_CONFIG", raising=False)
        proposal, outcome = _take(tmp_path, *file)
    # An odd number of quotes looks like a row that is not complete yet: the run names the file and waits for its end.
    if outcome is None or outcome.facts["still_writing"]:
        return
    refused = sum(outcome.facts.get("refused", {}).values())
    assert (outcome.facts["changes"], refused) == (proposal.records, proposal.refused), (outcome.message, file[1])
