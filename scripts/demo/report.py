"""What the demo shows at the end: every snapshot of every log, and how to read the table."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from tidefold.domain.log_state import Snapshot
from tidefold.domain.paths import LogPaths
from tidefold.wiring import open_pipeline


def show(config: Path) -> None:
    """Prints the snapshots of each log and a reader of three lines."""
    pipeline = open_pipeline(config)
    console = Console(width=max(110, Console().width), soft_wrap=True)
    for log in pipeline.config.logs:
        uri = pipeline.store.uri(LogPaths(log).table)
        ledger = pipeline.ledger(log)
        snapshots = ledger.read().snapshots if ledger.exists() else ()
        console.print()
        console.print(_table(log, snapshots))
        for snapshot in snapshots:
            if snapshot.verdict:
                console.print(f"  report {snapshot.id}: {pipeline.store.uri(snapshot.verdict.path)}", highlight=False)
        console.print("  read it, in a Python that knows nothing of tidefold:", highlight=False)
        for line in ("import polars", f'rows = polars.read_delta("{uri}")', "print(rows)"):
            console.print(f"    {line}", highlight=False, markup=False)


def _table(log: str, snapshots: tuple[Snapshot, ...]) -> Table:
    table = Table(title=log, title_justify="left", title_style="bold")
    for name in ("snapshot", "state", "table version", "rows", "verdict", "bytes", "written"):
        table.add_column(name, justify="left" if name in ("state", "verdict") else "right")
    for s in snapshots:
        version = "-" if s.table_version is None else str(s.table_version)
        verdict = "-" if s.verdict is None else f"{'pass' if s.verdict.passed else 'FAIL'}: {s.verdict.summary}"
        row = (str(s.id), s.state, version, f"{s.rows:,}", verdict, f"{s.bytes_full:,}", f"{s.bytes_written:,}")
        table.add_row(*row)
    return table
