"""Spreads the commit times of landed Debezium records over some days, so that there are days to look back at.

    python scripts/shift_times.py landing/phase2 /tmp/shift_record --start 2026-11-01 --days 5

Reads every `.jsonl` and `.jsonl.gz` file below the first folder and writes it under the same name below the second.
`source.ts_ms`, `ts_us` and `ts_ns` are replaced, and those beside it; all else of a record stays as it is. The order of
the times stays, and what was committed at one instant still is: the instants are put at equal distances.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Record = dict[str, Any]


def commit_time_of(record: Mapping[str, Any]) -> int | None:
    """Returns when a change was committed, in microseconds since 1970; None for other records."""
    source = (record.get("value") or {}).get("source") or {}
    if source.get("ts_us") is not None:
        return int(source["ts_us"])
    return None if source.get("ts_ms") is None else int(source["ts_ms"]) * 1_000


def spread(times: Iterable[int], start: datetime, days: int) -> dict[int, int]:
    """Returns the new instant of each old one in microseconds. They are whole milliseconds, as of older connectors."""
    known = sorted(set(times))
    first, step = (start - _EPOCH) // timedelta(microseconds=1), timedelta(days=days) / max(len(known), 1)
    return {at: first + (number * step) // timedelta(milliseconds=1) * 1_000 for number, at in enumerate(known)}


def shift_record(record: Record, now: Mapping[int, int]) -> Record:
    """Returns the record with its new time."""
    at = commit_time_of(record)
    if at is None:
        return record
    value = record["value"]
    return {**record, "value": {**_set_times(value, now[at]), "source": _set_times(value["source"], now[at])}}


def _set_times(part: Mapping[str, Any], at: int) -> dict[str, Any]:
    new = {"ts_ms": at // 1_000, "ts_us": at, "ts_ns": at * 1_000}
    return {name: new.get(name, old) for name, old in part.items()}


def lines_of(path: Path) -> list[bytes]:
    """The records of a landed file as texts."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.name.endswith((".jsonl", ".jsonl.gz")))


def shift(source: Path, target: Path, start: datetime, days: int) -> int:
    """Writes all files again; returns how many records have a new time."""
    files = files_below(source)
    times = [at for path in files for line in lines_of(path) if (at := commit_time_of(json.loads(line))) is not None]
    now = spread(times, start, days)
    for path in files:
        _rewrite(path, target / path.relative_to(source), lambda record: shift_record(record, now))
    return len(times)


def _rewrite(path: Path, target: Path, change: Callable[[Record], Record]) -> None:
    lines = [json.dumps(change(json.loads(line)), separators=(",", ":")) for line in lines_of(path)]
    data = "".join(f"{line}\n" for line in lines).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with landed files")
    parser.add_argument("target", type=Path, help="folder for the new ones")
    parser.add_argument("--start", type=datetime.fromisoformat, required=True, help="first day, as 2026-11-01 (UTC)")
    parser.add_argument("--days", type=int, required=True, help="over how many days")
    given = parser.parse_args(arguments)
    count = shift(given.source, given.target, given.start.replace(tzinfo=UTC), given.days)
    print(f"{count:,} records of {len(files_below(given.source)):,} files, over {given.days} days")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
