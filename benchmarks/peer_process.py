"""Peers that run in an environment of their own: one process each, whose session stays warm as ours does.

Their table is loaded once from the files of ours, outside of any time, and put back before each run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from fold_data import Case, checksum_of, connection, files_of, table_of
from fold_measured import Way, all_files, sync_new
from peer_environment import ENVIRONMENTS, PROGRAMS, Peer, PeerError, make

COW, MOR = "copy-on-write", "merge-on-read"
READ, COMPACTED = f"{MOR}, then one full read", f"{MOR}, with compaction"
# What is called so, its table, and what it is charged for beside the merge.
_CHARGED: tuple[tuple[str, str, dict[str, bool]], ...] = (
    (COW, COW, {}),
    (MOR, MOR, {}),
    (READ, MOR, {"read": True}),
    (COMPACTED, MOR, {"compact": True}),
)


# A peer knows its tables by where they are.
COPY = "copy"


class PeerProcess:
    """A peer's program and the tables that it loaded. `seconds`: what its start took."""

    def __init__(self, peer: Peer, scratch: Path, heap: str) -> None:
        make(peer)
        self.peer, self.live, self._loaded = peer, scratch / COPY / peer.name, scratch / peer.name
        temporary = scratch / f"{peer.name}-scratch"
        temporary.mkdir()
        told = {"jar": str(peer.jar_path or ""), "heap": heap, "scratch": str(temporary), "live": str(self.live)}
        command = [str(peer.python), "-E", str(PROGRAMS / f"{peer.name}.py"), json.dumps(told)]
        # Nothing of our own Spark may reach theirs.
        env = {key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME") if key in os.environ}
        env |= {"TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}
        begun = time.perf_counter()
        with (ENVIRONMENTS / f"{peer.name}.log").open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                text=True,
                # By its session its processes are told from ours when memory is measured.
                start_new_session=True,
            )
        self._answer()
        self.seconds = time.perf_counter() - begun

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    def ask(self, do: str, **what: Any) -> None:
        """Asks and waits. Raises PeerError with what the peer says went wrong."""
        if self._process.stdin is None:
            raise PeerError("it has no input")
        print(json.dumps({"do": do, **what}), file=self._process.stdin, flush=True)
        self._answer()

    def _answer(self) -> None:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise PeerError(f"its process ended, see var/bench/{self.peer.name}.log")
        if error := json.loads(line).get("error"):
            raise PeerError(error)

    def load(self, base: Path) -> None:
        """Its tables, from the files of the Delta table of a store."""
        for table in self.peer.tables:
            self.live.mkdir(parents=True)
            self.ask("load", table=table, files=files_of(table_of(base)))
            shutil.move(self.live, self._loaded / table)
            shutil.rmtree(self.live.parent)

    def ways(self) -> list[Way]:
        charged = [one for one in _CHARGED if one[1] in self.peer.tables]
        return [self._way(name, table, **more) for name, table, more in charged]

    def _way(self, name: str, table: str, read: bool = False, compact: bool = False) -> Way:
        def act(root: Path, case: Case) -> None:
            before = all_files(root)
            self.ask("merge", table=table, changes=str(case.export_path), compact=compact)
            if read:
                self.ask("read", table=table)
            sync_new(root, before)

        return Way(
            f"{self.peer.title}: {name}",
            act,
            prepare=partial(self._put_back, table),
            checked=partial(self._compute_checksum, table),
            process=lambda: self.process,
            folder=COPY,
        )

    def _put_back(self, table: str, root: Path) -> None:
        # Copied, not linked: some of these files are written to in their place.
        shutil.copytree(self._loaded / table, root / self.peer.name)

    def _compute_checksum(self, table: str, root: Path) -> tuple[int, int]:
        exported = root / "read"
        self.ask("export", table=table, path=str(exported))
        with connection() as db:
            return checksum_of(db, f"read_parquet('{exported}/*.parquet')")

    def close(self) -> None:
        """Without input it ends by itself."""
        self._process.communicate()
