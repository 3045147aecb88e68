"""The person who runs tidefold: initialises it once, calls its commands, and meets what they report."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from tidefold.cli.app import app
from torture.landing import Landing
from torture.tables import Alteration, Key, Table, key_literal

COUNTS = ("changes", "tombstones", "repeated", "quarantined", "resent", "unproved", "ignored")
_STOPS = ("UNKNOWN_COLUMN", "MISSING_COLUMN", "DECIMAL_SCALE", "LANDED_REFUSED")
# A file whose last line is not complete yet; the rest of the pieces makes it complete.
_WAITS = "LANDED_WAITING"


# Their commands are counted by their own words.
GROUPS = ("step", "snapshot", "retain", "check", "move", "set")


class FoundError(Exception):
    """What the product did and must not do."""


def _answered(text: str) -> str:
    """What init wrote, with its one question answered: rows without a key only come."""
    lines = [line.replace("# ", "", 1) if line.startswith("  # ") else line for line in text.splitlines()]
    return "\n".join(lines).replace("key: [?]", "merge: append")


def _told(outcome: dict[str, Any]) -> dict[str, str]:
    """What an ingest said of a log that it stopped, or of which it refused records."""
    refused = outcome["facts"].get("refused")
    why = outcome["message"] if outcome["error"] in _STOPS else str(refused) if refused else ""
    return {outcome["log"]: why} if why else {}


SET = "all"


class Person:
    """Calls tidefold's commands. `accounts` has, a table, every count that `ingest` reported, and `exits` the exit code
    of its newest `run`, and `ties` how many keys with a tie its folds counted.
    """

    def __init__(self, rnd: random.Random, folder: Path, landing: Landing, tables: list[Table], modes: dict[str, str]):
        self.rnd, self.folder, self.landing, self.modes = rnd, folder, landing, modes
        self.tables = {table.name: table for table in tables}
        self.path = folder / "tidefold.yaml"
        self.config: dict[str, Any] = {}
        # What `init` proposed for each topic.
        self.proposed: dict[str, dict[str, Any]] = {}
        self.accounts: dict[str, Counter[str]] = {name: Counter() for name in landing.topics if name != "transactions"}
        self.done: Counter[str] = Counter()
        self._met: dict[str, int] = {}
        self._exit, self.leaves_out = 0, False
        self.ties: Counter[str] = Counter()
        self.exits: dict[str, int] = {}
        # Called after each publication.
        self.published: Callable[[], None] = lambda: None
        # Has rows changed once more at their source, if the form of the records cannot tell which row they mean.
        self.write_again: Callable[[dict[str, set[Key]]], bool] = lambda keys: False
        self._again: dict[str, set[Key]] = {}

    # -- commands -----------------------------------------------------------------------------------------------

    def call(self, *arguments: str, allowed: tuple[int, ...] = (0,)) -> dict[str, Any]:
        line = [*arguments, "--config", str(self.path), "--format", "json"]
        result = CliRunner().invoke(app, line)
        self.done[next(word for word in arguments if word not in GROUPS)] += 1
        self._exit = result.exit_code
        said = (
            f"tidefold {' '.join(arguments)}: exit {result.exit_code}: {result.stdout[-3000:]} {result.stderr[-1500:]}"
        )
        if result.exit_code == 130:
            raise KeyboardInterrupt
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise FoundError(said) from result.exception
        if result.exit_code not in allowed:
            raise FoundError(said)
        found: dict[str, Any] = json.loads(result.stdout) if result.stdout.strip() else {}
        return found

    def initialise(self) -> None:
        """`tidefold init`, and what a person who knows the tables then writes into its file."""
        self.call("init", str(self.landing.folder))
        self.config = yaml.safe_load(_answered(self.path.read_text()))
        by_topic = {Path(entry["source"]["path"]).name: name for name, entry in self.config["logs"].items()}
        self.proposed = {topic: self.config["logs"][name] for topic, name in by_topic.items()}
        for table in self.tables.values():
            topic = self.landing.topics[table.name]
            if topic not in by_topic:
                raise FoundError(f"init proposes nothing for {topic}")
            entry = self.config["logs"].pop(by_topic[topic])
            if not table.key and entry.pop("key", None):
                entry["merge"] = "append"  # The answer to the question for the key, which had candidates.
            if self.landing.landed == "values":
                entry.pop("merge", None)
                entry["key"] = list(table.key)  # No record says it: the answer to a question, or to an assumption.
            if list(entry.get("key", [])) != list(table.key):
                raise FoundError(f"init proposes the key {entry.get('key')} for {topic}, which has {list(table.key)}")
            self.config["logs"][table.name] = self._described(table, entry)
        self.config.pop("sets", None)
        if self.modes["form"] == "set":
            folder = self.landing.folder / self.landing.topics["transactions"]
            empty = [name for name, table in self.tables.items() if not table.key]
            rules = {"consistent": True, "transactions": str(folder), "may_be_empty": empty}
            self.config["sets"] = {SET: {"logs": sorted(self.tables), **rules}}
        self.config["logs"] = {name: self.config["logs"][name] for name in self.tables}
        self.config["spark"] = {"above": "1GB"}
        self.config["retention"] = {"snapshots": self.rnd.choice((2, 3, "all"))}
        self.write()

    def _described(self, table: Table, entry: dict[str, Any]) -> dict[str, Any]:
        proposed = entry["columns"]
        columns = {}
        for name, kind in (table.key | table.columns).items():
            spec = yaml.safe_load(kind.spec(self.modes))
            # The schema of a decimal that comes as text says `string`, which cannot become another decimal later.
            hidden = kind.must or (kind.name.startswith("numeric-scaled") and self.modes["decimal"] == "string")
            columns[name] = proposed[name] if self.modes["schemas"] == "on" and not hidden else spec
        schema: dict[str, str] = {"drop": "evolve", "retype": "evolve"}
        if table.policy in ("evolve", "quarantine"):
            schema["add"] = table.policy
        # What ExtractNewRecordState adds to a row.
        specs = [spec for spec in proposed.values() if isinstance(spec, dict)]
        added = [name for spec in specs for name in spec.get("aliases", ()) if name.startswith("__")]
        if table.expected is not None and table.policy == "ignored":
            added.append(table.expected[0])
        if added:
            entry["ignored"] = added
        if table.expected is not None and table.policy == "nullable":
            columns[table.expected[0]] = self._line(table.expected[1], "null")
        buckets = self.rnd.choice((1, 2, 5))
        quality = {"max_row_drop": 1, "max_refused": 1}
        vectors = bool(table.key) and self.rnd.random() < 0.4
        own = {"columns": columns, "schema_evolution": schema, "buckets": buckets, "quality": quality, "key_groups": 16}
        return {**entry, **own, **({"deletion_vectors": True} if vectors else {})}

    def write(self) -> None:
        self.path.write_text(yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))

    def _line(self, kind: Any, default: str | None) -> dict[str, Any]:
        spec = yaml.safe_load(kind.spec(self.modes))
        found: dict[str, Any] = dict(spec) if isinstance(spec, dict) else {"type": spec}
        if default is not None:
            found["default"] = yaml.safe_load(default)
        return found

    # -- ingest, and what it may report -------------------------------------------------------------------------

    def ingest(self, *logs: str) -> dict[str, str]:
        """The logs that stopped or refused records, with the reason; any other error is a finding."""
        told: dict[str, str] = {}
        for outcome in self.call("step", "ingest", *logs, allowed=(0, 2, 3))["outcomes"]:
            self._account(outcome)
            told |= _told(outcome)
            if outcome["error"] not in (None, _WAITS, *_STOPS):
                raise FoundError(f"ingest: {outcome}")
        return told

    def _account(self, outcome: dict[str, Any]) -> None:
        facts = {name: outcome["facts"].get(name, 0) for name in (*COUNTS, "records")}
        self.accounts[outcome["log"]].update(facts)
        if facts["records"] != sum(facts[name] for name in COUNTS):
            raise FoundError(f"silent: {outcome['log']}: the counts of an ingest do not sum up: {facts}")

    def meet(self, told: dict[str, str]) -> None:
        """Writes into the configuration what was altered in the database, and has refused records read again."""
        for _ in range(4):
            if not told:
                break
            for name in told:
                self._describe(self.tables[name])
                self._let_columns_come(name, "stop")
            self.write()
            self.done["configuration changed"] += 1
            told = self.ingest()
            for name in self.refused():
                self.call("quarantine", "retry", name, allowed=(0, 2, 3))
            told |= self.refused()
        for name in self.tables:
            self._let_columns_come(name, "quarantine")
        self.write()
        if self._takes_over(told):
            self.meet(self.ingest() | self.refused())
        elif told:
            shown = {name: self.shown(name) for name in told}
            raise FoundError(f"blocked: {told}: {shown}; {[self.tables[name].altered for name in told]}")

    def _takes_over(self, told: dict[str, str]) -> bool:
        """Does what the hint of KEY_TAKEN_OVER says: the rows change at their source, and the records are settled."""
        if not told or any(why.split()[1::2] != ["KEY_TAKEN_OVER"] for why in told.values()):
            return False
        keys = {name: self._refused_keys(self.tables[name]) for name in told}
        new = {name: ones - self._again.get(name, set()) for name, ones in keys.items()}
        if any(new.values()) and not self.write_again(new):
            return False
        for name, ones in keys.items():
            self._again[name] = self._again.get(name, set()) | ones
            self.call("quarantine", "settle", name, "--by", "rig", "--reason", "their rows were written again")
        return True

    def _refused_keys(self, table: Table) -> set[Key]:
        """The keys of refused unwrapped records, as literals."""
        keys = set()
        for one in self.call("quarantine", "show", table.name, "--limit", "1000")["records"]:
            texts = [
                re.search(rf'"{name}":("[^"]*"|-?[0-9]+)', one["record"].partition('"value":')[2] or one["record"])
                for name in table.key
            ]
            cells = [json.loads(text[1]) for text in texts if text]
            keys.add(tuple(key_literal(kind.name, cell) for kind, cell in zip(table.key.values(), cells, strict=True)))
        return keys

    def _let_columns_come(self, name: str, policy: str) -> None:
        """With the policy `quarantine` the configuration cannot add a column: for a while it is another policy."""
        if self.tables[name].policy == "quarantine":
            self.config["logs"][name]["schema_evolution"]["add"] = policy

    def refused(self) -> dict[str, str]:
        """The logs with records in quarantine, and their reasons."""
        found: dict[str, str] = {}
        for one in self.call("quarantine", "list")["refused"]:
            found[one["log"]] = f"{found.get(one['log'], '')} {one['count']} {one['reason']}"
        return found

    def shown(self, name: str) -> str:
        return json.dumps(self.call("quarantine", "show", name, "--limit", "3"))[:1500]

    def _describe(self, table: Table) -> None:
        """The columns of the log, by all alterations of the table."""
        done = self._met.get(table.name, 0)
        entry = self.config["logs"][table.name]
        for one in table.history[done:]:
            if one.what == "add" and one.column not in entry.get("ignored", []):
                self._add(table, entry, one)
            elif one.what == "drop" and one.column in table.reused:
                # What the name means next is decided after the stop that the DROP makes.
                del entry["columns"][one.column]
                self._met[table.name] = table.history.index(one) + 1
                return
            elif one.what == "drop":
                self._drop(entry, one.column)
            elif one.what == "rename":
                spec = entry["columns"].pop(one.column)
                spec = dict(spec) if isinstance(spec, dict) else {"type": spec}
                entry["columns"][one.to] = {**spec, "aliases": [*spec.get("aliases", []), one.column]}
            elif one.what == "type" and one.kind:
                spec = entry["columns"][one.column]
                kept = {k: v for k, v in spec.items() if k in ("aliases", "default")} if isinstance(spec, dict) else {}
                new = self._line(one.kind, None)
                if new["type"] == "string":
                    new["encoding"] = "json"
                elif (
                    one.kind.name.startswith("numeric-scaled")
                    and "base64" in str(new.get("encoding"))
                    and (self.modes["schemas"] == "on")
                ):
                    # The schema beside each record has its scale: a promise would stop the records of the other one.
                    del new["encoding"]
                entry["columns"][one.column] = {**new, **kept}
        self._met[table.name] = len(table.history)

    def _add(self, table: Table, entry: dict[str, Any], one: Alteration) -> None:
        if one.column not in entry["columns"] and (table.policy != "evolve" or self.modes["schemas"] == "off"):
            entry["columns"][one.column] = self._line(one.kind, one.default or "null")
        elif one.kind is not None and one.kind.must and table.policy == "evolve":
            entry["columns"][one.column] = self._line(one.kind, "null")

    def _drop(self, entry: dict[str, Any], column: str) -> None:
        """The table loses the column, which records from before the DROP still have."""
        del entry["columns"][column]
        entry.setdefault("ignored", []).append(column)

    # -- the rest of a table's life -----------------------------------------------------------------------------

    def publish(self, *logs: str) -> dict[str, str]:
        """Returns the logs whose ingest stopped or refused records, with the reason."""
        told: dict[str, str] = {}
        self.config["snapshots"] = {"kind": self.rnd.choice(("full", "incremental", "auto"))}
        self.write()
        # A log that stops holds its set; the comparison after the phase shows whether it still does.
        held = ("SET_HELD",) if self.modes["form"] == "set" else ()
        steps = self.call("run", *logs, allowed=(0, 2, 3))["steps"]
        self.exits |= dict.fromkeys(logs or self.tables, self._exit)
        for step, outcomes in steps.items():
            for outcome in outcomes:
                if step == "quality" and "source snapshot" in outcome["message"]:
                    # Its end has not landed yet; the comparison after the phase shows whether the log still waits.
                    self.done["waited for a snapshot"] += 1
                    continue
                if self.leaves_out and outcome["error"] == "UNAVAILABLE_VALUE":
                    # The table lacks rows, of which the comparison after the phase looks for the proof.
                    self.done["left out"] += 1
                    continue
                if outcome["error"] not in (None, _WAITS, *_STOPS, *held) or outcome["result"] == "failed":
                    raise FoundError(f"run: {step}: {outcome}")
                if step == "ingest":
                    self._account(outcome)
                    told |= _told(outcome)
                elif step == "materialize":
                    self.ties[outcome["log"]] += outcome["facts"].get("ties", 0)
        self.published()
        return told

    def release(self, position: int) -> None:
        """Tells a set that waits for the end of a snapshot by signal what the source had reached after it."""
        for _ in self.tables:
            [status] = self.call("set", "show")["sets"]
            if "a snapshot by signal" not in json.dumps(status):
                return
            self.call(
                "set",
                "release",
                SET,
                "--snapshot-ended",
                str(position),
                "--by",
                "rig",
                "--reason",
                "its marker has landed",
            )
            # What the set held back may have what stops a log.
            if told := self.publish():
                self.meet(told | self.refused())
                self.publish()
        raise FoundError(f"blocked: the set is still held: {self.call('set', 'show')}")

    def status(self, name: str) -> dict[str, Any]:
        """What `tidefold status` says of the newest snapshot of a log."""
        [log] = self.call("status", name, allowed=(0, 2, 3))["logs"]
        found: dict[str, Any] = log["latest"]
        return found

    def upkeep(self) -> None:
        """Something that must not change what a reader finds."""
        deeds = ("retain compact", "retain subsume", "retain truncate", "retain clean", "check verify", "ingest")
        deed = self.rnd.choice(deeds)
        if deed == "ingest":
            self.ingest()
        else:
            self.call(*deed.split())

    def rescale(self) -> None:
        for entry in self.config["logs"].values():
            if self.rnd.random() < 0.3:
                entry["buckets"] = self.rnd.choice((1, 2, 3, 8))
                self.done["rescaled"] += 1
        self.write()

    def restore(self, name: str) -> None:
        """An older snapshot comes back, is published, and the changes after it are folded again."""
        snapshots = self.call("snapshot", "history", name)["snapshots"]
        kept = [one["id"] for one in snapshots if one["state"] == "COMPLETED"][1:4]
        if kept:
            replay = ("restore", name, str(self.rnd.choice(kept)), "--log-position", "replay")
            [outcome] = self.call(*replay, allowed=(0, 3))["outcomes"]
            if outcome["error"] == "LOG_CUT":  # A `truncate` was there first.
                return
            if outcome["error"]:
                raise FoundError(f"restore: {outcome}")
            self.call("step", "quality", name)
            self.call("step", "confirm", name)

    def rebuild(self, name: str) -> None:
        """The log is dropped, and taken again from its landed files under today's configuration."""
        self.call("retain", "drop", name, "--yes")
        self.accounts[name].clear()
        self.done["built again"] += 1
        told: dict[str, str] = {}
        for outcome in self.call("step", "ingest", name, allowed=(0, 2))["outcomes"]:
            self._account(outcome)
            if outcome["error"]:
                told[name] = str(outcome)
        told |= {log: why for log, why in self.refused().items() if log == name}
        if told and not self._takes_over(told):
            raise FoundError(f"a rebuild is blocked: {told}: {self.shown(name)}; {self.tables[name].altered}")
        self.publish(name)

    def require_counts(self) -> None:
        """Every record that arrived is in exactly one count."""
        for name, counts in self.accounts.items():
            if "extract" in self.config["logs"][name]["source"]:
                continue  # A key that an extract lacks counts as a record.
            landed = self.landing.lines(name)
            if counts["records"] != landed:
                raise FoundError(
                    f"silent: {name}: {landed} records landed, {counts['records']} counted: {dict(counts)}"
                )
