"""Logs of plain rows beside the capture, each with a model of its rows: what merges, restores and imports do to them.

`patches`: partial updates in any order, deletes, an age limit, and canonical savepoints that are imported.
`days`: whole rows of few days, so that changes tie, also below the newest; late changes below a delete; imports.
`sums`: every record counts; files are refused, land again under another name, and are retried, in any order.
`extract`: full extracts, some of which land while a restore that leaves changes out waits for its confirmation.
"""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from torture.person import FoundError, Person

LOGS = ("patches", "days", "sums", "extract")
# Rows of `patches` with a number from this one on may be old.
_OLD = 100
_FIRST_DAY = datetime.date(2026, 1, 1)
Row = dict[str, Any]


class Beside:
    """Lands files of these logs, does what may be done to them, and compares their tables with the models."""

    def __init__(self, rnd: random.Random, folder: Path, person: Person) -> None:
        self.rnd, self.person, self.folder = rnd, person, folder
        self.counts: Counter[str] = Counter()
        self._files, self._numbers = 0, 0
        # Of `patches` and `days`: what landed, in order; of `days` the keys that have a tie.
        self._patches: list[Row] = []
        self._days: list[Row] = []
        self._tied: set[int] = set()
        self._sums: Counter[int] = Counter()
        self._extract: dict[int, str] = {}
        self._engine = rnd.choice(("aggregate", "append"))

    def configure(self) -> None:
        long, text = "long", "string"
        logs: dict[str, Row] = {
            "patches": {
                "source": {"op": {"column": "op", "delete": ["d"]}},
                "columns": {
                    "id": long,
                    "a": long,
                    "b": long,
                    "seq": long,
                    "at": {"type": "timestamp", "encoding": "iso"},
                },
                "order": ["seq"],
                "merge": "partial",
                "ttl": {"column": "at", "days": 300},
            },
            "days": {
                "source": {"op": {"column": "op", "delete": ["d"]}},
                "columns": {"id": long, "v": text, "day": long},
                "order": ["day"],
            },
            "sums": {
                "source": {},
                "columns": {"id": long, "n": long, "seq": long},
                "on_bad_record": "quarantine",
                "merge": "append",
            },
            "extract": {"source": {"extract": {"max_deletes": 1}, "names": None}, "columns": {"id": long, "v": text}},
        }
        if self._engine == "aggregate":
            logs["sums"] |= {"order": ["seq"], "merge": {"engine": "aggregate", "deletes": "ignore"}}
            logs["sums"]["merge"]["aggregates"] = {"n": "sum", "seq": "max"}
        for name, entry in logs.items():
            (self.folder / "landing" / name).mkdir(parents=True)
            source = {"format": "json", "record": "value", "names": "any", "path": f"landing/{name}", **entry["source"]}
            entry["source"] = {key: value for key, value in source.items() if value is not None}
            entry |= {"key": ["id"]} if entry.get("merge") != "append" else {}
            entry |= {
                "key_groups": 16,
                "buckets": self.rnd.choice((1, 3)),
                "quality": {"max_row_drop": 1, "max_refused": 1},
            }
            self.person.config["logs"][name] = entry
        self.person.write()

    def step(self) -> None:
        """Lands something for each log, and does something to some of them."""
        for _ in range(self.rnd.randint(1, 3)):
            self._land_patches()
            self._land_days()
        if self.rnd.random() < 0.5:
            self._compact()
        self._count_files()
        if not self._restore_under_extract():
            self._land_extract()
        name = self.rnd.choice(("patches", "days"))
        if self.rnd.random() < 0.5:
            self._import(name)

    # -- patches ------------------------------------------------------------------------------------------------

    def _land_patches(self) -> None:
        made = []
        for _ in range(self.rnd.randint(1, 5)):
            self._numbers += 1
            number = self.rnd.randint(1, 6) + self.rnd.choice((0, _OLD))
            # Late ones too: orders differ by their last digits.
            change: Row = {"op": "u", "id": number, "seq": self.rnd.randint(1, 99) * 100_000 + self._numbers}
            if self.rnd.random() < 0.12:
                change["op"] = "d"
            else:
                change |= {name: self.rnd.randint(1, 9) for name in ("a", "b") if self.rnd.random() < 0.6}
                if number > _OLD and self.rnd.random() < 0.7:
                    year = self.rnd.choice((2001, 2900))
                    change["at"] = f"{year}-01-01T00:00:00Z"
            made.append(change)
        self._patches += made
        self._write("patches", made)

    def _compare_patches(self, rows: list[Row]) -> list[str]:
        """Rows that never age are exact. Whether others have aged depends on the folds, so each value is one given."""
        wrong = []
        expected: dict[int, Row] = {}
        for change in sorted(self._patches, key=lambda one: one["seq"]):
            if change["op"] == "d":
                expected.pop(change["id"], None)
            elif change["id"] < _OLD:
                expected.setdefault(change["id"], {}).update(change)
        names = ("id", "a", "b", "seq")
        shown = {row["id"]: tuple(row[name] for name in names) for row in rows}
        wanted = {number: tuple(row.get(name) for name in names) for number, row in expected.items()}
        young = {number: row for number, row in shown.items() if number < _OLD}
        wrong += [f"{n}: {wanted.get(n)} is {young.get(n)}" for n in {*wanted, *young} if wanted.get(n) != young.get(n)]
        given = {(one["id"], name, one[name]) for one in self._patches for name in names if name in one}
        for number, row in shown.items():
            pairs = zip(names, row, strict=True)
            if row[-1] is None or any(cell is not None and (number, name, cell) not in given for name, cell in pairs):
                wrong.append(f"{number}: no change gave {row}")
        return wrong

    # -- days ---------------------------------------------------------------------------------------------------

    def _land_days(self) -> None:
        """Each scenario has a key of its own, and its files land together, so one fold gets all of it or sees a tie."""
        self._numbers += 1
        number, kind = self._numbers, self.rnd.choice(("tie", "tie below", "late", "again", "plain"))
        self.counts[f"days: {kind}"] += 1

        def row(v: str | None, day: int, op: str = "u") -> Row:
            return {"op": op, "id": number, "v": v, "day": day}

        files = {
            "tie": [[row("a", 5)], [row("b", 5)]],
            "tie below": [[row("a", 5)], [row("b", 5), row("c", 6)]],
            "late": [[row("a", 5), row(None, 8, "d")]],
            "again": [[row("a", 5)], [row("b", 6)]],
            "plain": [[row("a", 5)]],
        }[kind]
        if kind.startswith("tie"):
            self._tied.add(number)
        for former in [one for one in self._days if one["op"] == "d" and self.rnd.random() < 0.2]:
            # Below a delete, perhaps of an earlier fold: the row stays away.
            files[0].append({**former, "op": "u", "v": "late", "day": 7 - self.rnd.randint(0, 1)})
        for made in files:
            self._days += made
            self._write("days", made)

    def _compare_days(self, rows: list[Row]) -> list[str]:
        expected: dict[int, Row] = {}
        for change in self._days:
            if change["id"] not in expected or change["day"] >= expected[change["id"]]["day"]:
                expected[change["id"]] = change
        wanted = {number: (row["v"], row["day"]) for number, row in expected.items() if row["op"] == "u"}
        shown = {row["id"]: (row["v"], row["day"]) for row in rows}
        wrong = [f"{n}: {wanted.get(n)} is {shown.get(n)}" for n in {*wanted, *shown} if wanted.get(n) != shown.get(n)]
        if (ties := self.person.ties["days"]) < len(self._tied):
            wrong.append(f"{len(self._tied)} keys have a tie, and all folds counted {ties}")
        return wrong

    def _compact(self) -> None:
        for name in ("patches", "days"):
            self.person.ingest(name)
            self.person.call("retain", "compact", name)

    # -- sums ---------------------------------------------------------------------------------------------------

    def _count_files(self) -> None:
        """A file that is refused, copies of it, the mended configuration and the retry, in any order."""
        self._land_sums({})
        if self.rnd.random() < 0.4:
            return
        self._numbers += 1
        strange = f"x{self._numbers}"
        self.counts["refused file"] += 1
        file = self._land_sums({strange: 1})
        deeds = ["mend", "retry", "copy", *(["copy"] if self.rnd.random() < 0.3 else [])]
        self.rnd.shuffle(deeds)
        for place, deed in enumerate([*deeds, "retry"]):
            self.person.ingest("sums")
            if deed == "mend":
                self.person.config["logs"]["sums"].setdefault("ignored", []).append(strange)
                self.person.write()
            elif deed == "copy":
                self.counts["refused file again"] += 1
                (file.parent / f"{file.stem}-copy{place}.jsonl").write_bytes(file.read_bytes())
                self.person.ingest("sums")
            elif "sums" in self.person.refused():
                self.person.call("quarantine", "retry", "sums", allowed=(0, 2, 3))
        if "sums" in self.person.refused():
            raise FoundError(f"blocked: sums, after {deeds}: {self.person.shown('sums')}")

    def _land_sums(self, more: Row) -> Path:
        made = []
        for _ in range(self.rnd.randint(1, 3)):
            self._numbers += 1
            made.append({"id": self.rnd.randint(1, 4), "n": self.rnd.randint(1, 9), "seq": self._numbers, **more})
            self._sums[made[-1]["id"]] += made[-1]["n"]
        return self._write("sums", made)

    def _compare_sums(self, rows: list[Row]) -> list[str]:
        shown: Counter[int] = Counter()
        for row in rows:
            shown[row["id"]] += row["n"]
        return [] if shown == self._sums else [f"{self._engine}: {dict(self._sums)} is {dict(shown)}"]

    # -- extract ------------------------------------------------------------------------------------------------

    def _land_extract(self) -> None:
        for number in range(1, 7):
            if self.rnd.random() < 0.4:
                self._extract[number] = self.rnd.choice("abc")
            elif self.rnd.random() < 0.1:
                self._extract.pop(number, None)
        self._extract.setdefault(9, "always")
        self._files += 1
        day = _FIRST_DAY + datetime.timedelta(self._files)
        text = "".join(json.dumps({"id": n, "v": v}) + "\n" for n, v in sorted(self._extract.items()))
        (self.folder / "landing/extract" / f"x-{day}.jsonl").write_text(text)

    def _restore_under_extract(self) -> bool:
        """Older rows wait for their confirmation, without the changes after them, and the next extract lands."""
        if self.counts["extract"] < 2 or self.rnd.random() < 0.4:
            self.counts["extract"] += 1
            return False
        snapshots = self.person.call("snapshot", "history", "extract")["snapshots"]
        older = [one["id"] for one in snapshots if one["state"] == "COMPLETED"][1:4]
        if not older:
            return False
        self.counts["extract under a restore"] += 1
        chosen = str(self.rnd.choice(older))
        self.person.call("restore", "extract", chosen, "--log-position", "skip")
        self._land_extract()
        told = [one["error"] for one in self.person.call("step", "ingest", "extract", allowed=(0, 2, 3))["outcomes"]]
        if self.rnd.random() < 0.25:
            self.person.call("step", "abort", "extract")
        else:
            self.person.call("step", "quality", "extract")
            self.person.call("step", "confirm", "extract")
        if told != ["ROWS_REPLACED"]:
            raise FoundError(f"silent: an extract was compared with rows that a restore replaced: {told}")
        return True

    def _compare_extract(self, rows: list[Row]) -> list[str]:
        shown = {row["id"]: row["v"] for row in rows}
        return [] if shown == self._extract else [f"the newest extract {self._extract} is {shown}"]

    # -- all ----------------------------------------------------------------------------------------------------

    def _write(self, log: str, made: list[Row]) -> Path:
        self._files += 1
        file = self.folder / "landing" / log / f"f{self._files:05d}.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in made))
        return file

    def _import(self, name: str) -> None:
        """What a canonical savepoint has replaces the log."""
        self.person.publish(name)
        if not self.person.call("snapshot", "history", name)["snapshots"]:
            return
        self.counts[f"imported: {name}"] += 1
        self._files += 1
        target = self.folder / "savepoints" / f"{name}{self._files}"
        kind = self.rnd.choice(("canonical", "canonical", "native"))
        self.person.call("move", "savepoint", name, "--to", str(target), "--as", kind)
        self.person.call("move", "import", name, str(target))
        self.person.call("step", "quality", name)
        self.person.call("step", "confirm", name)

    def compare(self, when: str) -> None:
        import polars

        for name in LOGS:
            path = self.folder / "var/store/tables" / name
            rows = polars.read_delta(str(path)).to_dicts() if path.exists() else []
            if wrong := getattr(self, f"_compare_{name}")(rows):
                raise FoundError(f"unequal: {name} after {when}: {'; '.join(wrong[:4])}")
