"""The blocks of pages that no other test runs are run here.

tests/unit/cli/test_named_commands.py parses every command.
The tutorial, the worked example and docs/how-to/install.md have tests of their own.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from local_airflow.settings import PROJECT
from tidefold.cli.app import app

DOCS = PROJECT / "docs"
_FENCE = re.compile(r"^ *```\w*[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)

CONFIG = """\
version: 1
store: store
local: {mode: files, path: local}
snapshots: {savepoints: savepoints}
logs:
  accounts:
    source: {format: json, path: landing, record: value, commit_time: at}
    key: [id]
    columns: {id: long, amount: long, at: {type: timestamp, encoding: iso}}
    order: [at]
"""
# Pages whose blocks run here, from which chapter on, and what stands for their addresses and numbers. The other
# chapters of recover.md are run by test_recipes.py.
RUN = {"backfill.md": "# ", "tune.md": "# ", "read.md": "# ", "recover.md": "## Savepoints and imports\n"}
INSTEAD = {"--since 41": "--since 1", "--snapshot 12": "--snapshot 1"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log `accounts` with two published snapshots."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "tidefold.yaml").write_text(CONFIG)
    (tmp_path / "landing").mkdir()
    for day in (4, 6):
        rows = [{"id": i, "amount": day * i, "at": f"2026-11-0{day}T10:0{i}:00Z"} for i in range(3)]
        (tmp_path / f"landing/{day}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        call("run")
    return tmp_path


def call(*words: str) -> None:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, f"{words}\n{done.output}"


@pytest.mark.parametrize("name", RUN)
def test_the_commands_of_a_page_run(folder: Path, name: str) -> None:
    chapter = (DOCS / "how-to" / name).read_text().split(RUN[name], 1)[1].split("\n## Move a log")[0]
    commands = [
        line.split(" # ")[0].strip()
        for block in _FENCE.findall(chapter)
        for line in block.splitlines()
        if line.startswith("tidefold ") and not re.search(r"[A-Z]{3}|s3://", line.split(" # ")[0])
    ]
    assert commands
    for command in commands:
        for written, given in INSTEAD.items():
            command = command.replace(written, given)
        if command.startswith("tidefold move import"):
            # "Elsewhere": a store that has no such log.
            (folder / "tidefold.yaml").write_text(CONFIG.replace("store: store", "store: elsewhere"))
        call(*shlex.split(command.replace("/backup/", f"{folder}/backup/"))[1:])


@pytest.mark.parametrize("name", ["README.md", "docs/reference/cli.md", "docs/how-to/install.md"])
def test_the_first_commands_of_a_page_run_on_landed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What a newcomer types, in its order; `doctor` and a warm Spark have tests of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    (tmp_path / "landing").mkdir()
    for day in (20, 21):
        rows = "".join(f"{day + i},{i}.50,2026-11-{day}T10:0{i}:00Z\n" for i in range(2))
        (tmp_path / "landing" / f"orders-{day}.csv").write_text(f"order_id,amount,updated_at\n{rows}")
    blocks = "".join(_FENCE.findall((PROJECT / name).read_text()))
    commands = [found.split("#")[0] for found in re.findall(r"^(?:\./)?tidefold ([^\n]+)$", blocks, re.MULTILINE)]
    assert commands
    for command in commands:
        if not command.startswith(("check doctor", "spark start")):
            call(*shlex.split(command))


def test_the_files_of_the_first_page_give_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PROJECT / "README.md").read_text()
    files = next(block for block in _FENCE.findall(page) if "orders-1.csv" in block)
    columns = [re.split(r" {2,}", line) for line in files.splitlines()]
    for name, *lines in zip(*columns, strict=True):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "tidefold.yaml").write_text(re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0])
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["run"]).exit_code == 0
    rows = json.loads(CliRunner().invoke(app, ["read", "orders", "--format", "json"]).stdout)["rows"]
    table = page[page.index("| id | status | changed | _order |") :].split("\n\n")[0].splitlines()[2:]
    expected = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    shown = [[str(r["id"]), r["status"], str(r["changed"])[:19].replace("T", " "), str(r["_order"])] for r in rows]
    assert sorted(shown) == expected
    assert "names 1 log: orders" in CliRunner().invoke(app, ["init", "landing/", "-c", "proposal.yaml"]).output


ORDERS = """\
version: 1
store: store
logs:
  orders:
    source: {format: csv, path: landing/orders}
    key: [id]
    order: [changed]
    columns: {id: long, text: string, changed: timestamp}
"""


def test_a_case_and_the_run_lines_of_the_github_workflow_do_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "how-to" / "change-columns.md").read_text().split("\n## Test a configuration", 1)[1]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidefold.yaml").write_text(ORDERS)
    commands, files, workflow = _FENCE.findall(page)[:3]
    columns = [re.split(r" {2,}", line) for line in files.splitlines()]
    for at, name in enumerate(columns[0]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("".join(f"{line[at]}\n" for line in columns[1:] if len(line) > at))
    steps = [step.get("run", "") for step in yaml.safe_load(workflow)["jobs"]["configuration"]["steps"]]
    assert [step for step in steps if step and not step.startswith("tidefold ")] == ["pip install dist/tidefold-*.whl"]
    # `dist/` has the wheel of this clone, which is what runs here.
    run = [*commands.splitlines(), *(step for step in steps if step.startswith("tidefold "))]
    assert len(run) == 4
    for command in run:
        call(*shlex.split(command)[1:])
    rows = tmp_path / "tests/orders/corrections/rows.csv"
    rows.write_text(rows.read_text().replace("corrected", "first"))
    assert CliRunner().invoke(app, shlex.split(steps[-1])[1:]).exit_code == 3
