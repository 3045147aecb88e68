"""Files of plain rows that land in the folders of several logs, each command line call as a user makes it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from tidefold.cli.app import app

Row = dict[str, Any]
JSON = "format: json, record: value, op: {column: op}"


@dataclass
class Landing:
    """A pipeline in a folder of its own. Each log has its landing folder `landing/<log>`."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, logs: Mapping[str, str], source: str = JSON, top: str = "") -> Landing:
        """`logs`: the lines of each log below its source. `source`: its keys beside the path. `top`: further keys."""
        text = f"version: 1\nstore: store\n{top}logs:\n"
        for log, lines in logs.items():
            (folder / "landing" / log).mkdir(parents=True)
            text += f"  {log}:\n    source: {{{source}, path: landing/{log}}}\n"
            text += "".join(f"    {line}\n" for line in lines.strip().splitlines())
        (folder / "tidefold.yaml").write_text(text)
        return cls(folder)

    def land(self, name: str, rows: Sequence[Row] | str, *logs: str) -> None:
        """Lands one file in the folders of these logs; of all logs by default."""
        text = rows if isinstance(rows, str) else _text(name, rows)
        for folder in sorted((self.folder / "landing").iterdir()):
            if not logs or folder.name in logs:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)

    def edit(self, old: str, new: str) -> None:
        path = self.folder / "tidefold.yaml"
        path.write_text(path.read_text().replace(old, new))

    def call(self, *words: str, code: int | None = 0) -> Result:
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            done = CliRunner().invoke(app, list(words))
        finally:
            os.chdir(before)
        assert code is None or done.exit_code == code, f"{words}: {done.exit_code}\n{done.output}\n{done.exception!r}"
        return done

    def run(self, code: int | None = 0) -> Result:
        return self.call("run", code=code)

    def rows(self, log: str) -> list[Row]:
        """The rows that readers see, without system columns, sorted by their JSON."""
        found = json.loads(self.call("read", log, "--format", "json").stdout)["rows"]
        plain = [{name: value for name, value in row.items() if not name.startswith("_")} for row in found]
        return sorted(plain, key=lambda row: json.dumps(row, sort_keys=True))

    def snapshots(self, log: str) -> list[Row]:
        """The snapshots of a log, the newest first."""
        found: list[Row] = json.loads(self.call("snapshot", "history", log, "--format", "json").stdout)["snapshots"]
        return found

    def lose_ledger(self, log: str) -> None:
        shutil.rmtree(self.folder / "store" / "logs" / log / "ledger")

    def moved(self, folder: Path, *logs: str) -> Landing:
        """Returns a new store that continues each log from a savepoint of this one."""
        folder.mkdir()
        shutil.copy(self.folder / "tidefold.yaml", folder / "tidefold.yaml")
        shutil.copytree(self.folder / "landing", folder / "landing")
        other = Landing(folder)
        other.edit(_store_id(folder), "")
        for log in logs:
            self.call("move", "savepoint", log, "--to", str(folder / "saved" / log))
            other.call("move", "import", log, str(folder / "saved" / log))
            other.call("step", "quality", log)
            other.call("step", "confirm", log)
        return other


def _store_id(folder: Path) -> str:
    lines = (folder / "tidefold.yaml").read_text().splitlines(keepends=True)
    return next((line for line in lines if line.startswith("store_id")), "store_id: none\n")


def _text(name: str, rows: Sequence[Row]) -> str:
    if not name.endswith(".csv"):
        return "".join(json.dumps(row) + "\n" for row in rows)
    names = list(rows[0]) if rows else []
    lines = [names, *([row[one] for one in names] for row in rows)]
    return "".join(",".join("" if value is None else str(value) for value in line) + "\n" for line in lines)
