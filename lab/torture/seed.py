"""A seed: a database with five tables, from its first transaction to the last comparison."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path

from torture.beginning import Beginning
from torture.beside import LOGS, Beside
from torture.capture import Capture, Java
from torture.comparison import compare_table
from torture.connector import list_properties
from torture.exports import LOG, Exports
from torture.grouped import NAME as GROUPED
from torture.grouped import Grouped
from torture.person import Landing, Person
from torture.plan import PHASES, STEPS, draw_plan
from torture.servers import Server
from torture.tables import Key, create, random_kinds, random_tables
from torture.twins import NAMES as TWINS
from torture.twins import Twins
from torture.workload import Workload

TABLES = 5


@dataclass
class Totals:
    """What was done and found, over all seeds."""

    seeds: int = 0
    phases: int = 0
    comparisons: int = 0
    rows: int = 0
    kills: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    workload: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)

    def add(self, other: Totals) -> None:
        for one in fields(Totals):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


class Seed:
    """One seed, from its database to the last comparison."""

    def __init__(self, number: int, server: Server, java: Java, folder: Path, totals: Totals) -> None:
        self.number, self.server, self.java, self.totals = number, server, java, totals
        self.rnd = random.Random(number)
        self._markers, self._signalled = 0, False
        self.folder = folder / f"seed{number}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.database = f"s{number}"
        self.plan = draw_plan(number, server.connector)
        self.form, self.modes = self.plan.form, self.plan.modes
        self.kinds = random_kinds(self.rnd, server.connector, self.modes)
        self.tables = random_tables(self.rnd, self.kinds, TABLES, self.plan)
        for table in self.tables:
            if table.policy in ("ignored", "nullable"):
                table.expected = ("extra", self.kinds[self.rnd.choice(sorted(self.kinds))])
        admin = server.session("")
        admin.execute(f"drop database if exists {self.database}", f"create database {self.database}")
        admin.close()
        self.work = Workload(self.rnd, server, self.database, self.tables, self.kinds)
        space = "public" if server.connector == "postgresql" else self.database
        self.prefix = f"p{number}.{space}"
        topics = {table.name: f"{self.prefix}.{table.name}" for table in self.tables}
        if self.form == "set":
            topics["transactions"] = f"p{number}.transaction"
        topics |= {name: name for name in (LOG, *LOGS)}
        topic = "" if self.form == "unwrapped" else f"{self.prefix}.{GROUPED}"
        if topic:
            topics[GROUPED] = topic
        self.twins = Twins(self.work.session, self.folder, self.prefix if self.form == "set" else "")
        self.work.along = self.twins.statements
        topics |= self.twins.topics
        self.capture = Capture(java, self.folder, list_properties(self, space), self.plan.rotate)
        self.landing = Landing(self.capture.out, self.folder / "landing", topics, self.plan.landed)
        # What the person does depends on when files arrive, so it draws by itself: the workload is the seed's alone.
        self.hand = random.Random(f"person {number}")
        self.person = Person(self.hand, self.folder, self.landing, self.tables, self.modes)
        self.person.leaves_out = self.plan.leaves_out
        if self.form == "unwrapped":
            self.person.write_again = self._write_again
        self.exports = Exports(random.Random(f"exports {number}"), self.folder, self.work)
        self.beside = Beside(random.Random(f"beside {number}"), self.folder, self.person)
        self.grouped = Grouped(random.Random(f"grouped {number}"), self.work.session, self.folder, topic)

    @property
    def slot(self) -> str:
        return f"slot{self.number}"

    def play(self) -> None:
        session = self.work.session
        session.execute("create table marker (id int primary key)")
        session.execute("create table signals (id varchar(64) primary key, type varchar(32), data text)")
        self.grouped.create()
        self.twins.create()
        for table in self.tables:
            create(table, self.server, session)
            for _ in range(6):
                session.execute(*self.work.insert(table))
        if self.server.connector == "postgresql":
            names = ", ".join(["marker", "signals", GROUPED, *TWINS, *(table.name for table in self.tables)])
            session.execute(f"create publication torture for table {names}")
        for phase in range(PHASES):
            self._capture_phase(phase)
            self._fold_phase(phase)
            self._compare(f"phase {phase + 1}")
            if phase:
                self._upkeep(phase)
            self.totals.phases += 1
        self._rebuild()

    # -- the database and the engine ----------------------------------------------------------------------------

    def _capture_phase(self, phase: int) -> None:
        steps, begins = STEPS if phase else 8, self.plan.begins[phase]
        if begins and self.capture.running:
            self.capture.stop()
        altered: set[str] = set()
        self._signalled = False
        for step in range(steps):
            if step == begins and not self.capture.running:
                self._start(phase)
            if step == steps // 2:
                self.work.end_spanning()
            for deed in (deed for when, deed in self.plan.deeds[phase] if when == step):
                self._do(deed.removesuffix(" again"), altered)
            self.work.transaction()
            self.exports.write()
            self.grouped.write()
        # The first marker may be in the initial snapshot, before the rows of other tables.
        for _ in range(1 if phase else 2):
            self._await_marker()
        self._finish_snapshots()
        if self.form == "set":
            # Whatever snapshot there was has ended: its marker came. A set is published at a point after this one,
            # and a later record of each table shows that a transaction is past, which a killed connector counted wrong.
            self.position = self.server.position(self.work.session)
            for table in self.tables:
                self.work.session.execute(*self.work.insert(table))
            self._await_marker()
        if phase < PHASES - 1:
            self.work.begin_spanning()

    def _start(self, phase: int) -> None:
        if phase:
            self.capture.start(kill=self.rnd.choice((0, 0, self.rnd.randint(20, 200))))
        else:
            Beginning(self.plan, self.server, self.work, self.capture, self.slot).start()

    def _await_marker(self) -> None:
        self._markers += 1
        self.work.session.execute(f"insert into marker values ({self._markers})")
        self.capture.await_marker(f"{self.prefix}.marker", self._markers)

    def _finish_snapshots(self) -> None:
        """Signals a blocking snapshot again in which the engine was killed, as docs/reference/debezium.md says."""
        cut = [table for table in self.tables if self.capture.is_cut_short(f"{self.prefix}.{table.name}")]
        for table in cut:
            self.work.signal_table("blocking", table)
            self.work.counts["blocking snapshot again"] = self.work.counts.get("blocking snapshot again", 0) + 1
        if cut:
            self._await_marker()

    def _catch_up(self) -> None:
        """Until the connector has read all changes, and made the snapshots that were signalled."""
        if not self.capture.running:
            self.capture.start()
        signals, before = "select count(*) from signals", None
        while before != (before := self.work.session.rows(signals)):
            # It writes the bounds of a chunk into the table of signals before it reads on.
            self._await_marker()

    def _do(self, deed: str, altered: set[str]) -> None:
        alters = deed in ("alter", "drop", "come back", "scale")
        if self.server.connector == "mariadb" and (self._signalled if alters else deed == "blocking" and altered):
            # Its connector (3.5.0) reads a snapshot by signal with the columns of the stream: it ends, or takes one
            # column for another, if the table has others by then.
            self._catch_up()
        self._signalled = self._signalled or deed in ("blocking", "incremental")
        if deed == "kill" and self.capture.running:
            time.sleep(self.hand.random())
            self.capture.kill()
            self.capture.start()
        elif deed == "truncate":
            self.work.truncate()
        elif deed == "copy":
            self.work.copy_alone()
        elif deed in ("incremental", "blocking"):
            self.work.signal(deed, altered)
        elif table := self.work.alter("" if deed == "alter" else deed):
            altered.add(table.name)

    def _write_again(self, keys: dict[str, set[Key]]) -> bool:
        """Changes rows once more, each in a transaction of its own; one that is gone comes and goes."""
        work, self.work.rnd = self.work, self.hand
        if not self.capture.running:
            self.capture.start()
        work.end_spanning()
        for table in (one for one in self.tables if one.name in keys):
            for key in sorted(keys[table.name]):
                if key in table.keys:
                    work.session.execute(work.update_row(table, key))
                else:
                    work.session.execute(work.insert_rows(table, [key]))
                    work.session.execute(work.delete_row(table, key))
                work.counts["written again"] = work.counts.get("written again", 0) + 1
        work.rnd = self.rnd
        self._await_marker()
        self.landing.arrive(self.hand, 1)
        return True

    # -- tidefold -----------------------------------------------------------------------------------------------

    def _fold_phase(self, phase: int) -> None:
        person, rnd = self.person, self.hand
        if phase == 0:
            self.landing.arrive(rnd, 1)
            person.initialise()
            self.exports.configure(person)
            self.beside.configure()
            self.grouped.configure(person)
            self.twins.configure(person)
            if self.form == "set":
                # The first point may be anywhere: records of the first transactions arrive in pieces, too.
                self.landing.withdraw()
        else:
            person.rescale()
        self.beside.step()
        for _ in range(rnd.randint(phase == 0 and self.form == "set", 2)):
            self.landing.arrive(rnd, 0.4)
            told = person.ingest()
            if rnd.random() < 0.3:
                person.meet(told)
            if rnd.random() < 0.4:
                person.publish()
            if rnd.random() < 0.4:
                person.upkeep()
        self.landing.arrive(rnd, 1)
        told = person.ingest()
        person.meet(told | person.refused())
        if rnd.random() < 0.3:
            person.call("retain", "compact")
        if told := person.publish():
            person.meet(told | person.refused())
            person.publish()
        if self.form == "set":
            person.release(self.position)
        person.require_counts()

    def _upkeep(self, phase: int) -> None:
        person, rnd = self.person, self.hand
        if rnd.random() < 0.5 and self.form != "set":
            name = rnd.choice(sorted(person.tables))
            person.restore(name)
            person.publish(name)
            self._compare(f"phase {phase + 1}, restored", name)
        if rnd.random() < 0.6:
            person.upkeep()
            if phase == PHASES - 1:
                self._compare(f"phase {phase + 1}, kept up")

    def _rebuild(self) -> None:
        # A set is dropped as a whole. A name that was used for two columns cannot be described (change-columns.md).
        names = [name for name, table in sorted(self.person.tables.items()) if not table.reused]
        if self.form == "set" or not names:
            return
        name = self.hand.choice(names)
        self.person.rebuild(name)
        self._compare("built again", name)
        self.person.require_counts()

    def _compare(self, when: str, only: str = "") -> None:
        for table in self.tables:
            if only in ("", table.name):
                compare_table(self, table, when)
        if not only:
            self.exports.compare(when)
            self.beside.compare(when)
            self.grouped.compare(when)
            self.twins.compare(when)
            self.totals.comparisons += 1 + len(LOGS)

    def close(self) -> None:
        if self.capture.running:
            self.capture.stop()
        self.work.end_spanning()
        self.work.close()
        admin = self.server.session("")
        of_slot = f"from pg_replication_slots where slot_name='{self.slot}'"
        while self.server.connector == "postgresql" and admin.rows(f"select 1 {of_slot}"):
            # An engine that was killed may still be at the other end of its connection.
            admin.execute(f"select pg_terminate_backend(active_pid) {of_slot} and active")
            admin.execute(f"select pg_drop_replication_slot(slot_name) {of_slot} and not active")
            time.sleep(0.1)
        admin.execute(f"drop database {self.database}{' with (force)' * (self.server.connector == 'postgresql')}")
        admin.close()
        drawn = {f"form: {self.form}", *(f"draw: {one}" for one in self.plan.dimensions)}
        self.totals.workload += Counter(drawn) + self.exports.counts + self.beside.counts + self.grouped.counts
        for counts in self.person.accounts.values():
            self.totals.counts += counts
        self.totals.workload += Counter(self.work.counts)
        self.totals.commands += self.person.done
        self.totals.kills += self.capture.kills
