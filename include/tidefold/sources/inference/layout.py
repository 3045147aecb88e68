"""Decides which files below a folder belong together: by topic, or by folder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from tidefold.sources.landing.listing import LandedFile

# Folders that sinks and Spark make again and again: `partition=0`, `dt=2026-11-01`, `2026`, `11`, `2026-11-01`.
_CHANGING = re.compile(
    r"[\w.-]+=.*|\d{1,4}|\d{4}[-_.]?\d\d([-_.]?\d\d)?([-_T]?\d\d.*)?|"
    r"(run|batch|load|unload|export|extract|dump|snapshot|backup|job|sync|part|chunk|delivery)[-_.]?\d[\w.:-]*",
    re.ASCII | re.IGNORECASE,
)
# Parts of names that change from file to file: dates, numbers, parts and random ids.
_PART = re.compile(r"(part|batch|chunk|file|export|dump|full|delta|inc|incremental|snapshot)?[-_.]?\d+|[0-9a-f]{8,}")


def landing_folder(files: Iterable[LandedFile]) -> PurePosixPath:
    """Returns the deepest folder that contains all present and future files. It is never a folder made for one day."""
    parents = [PurePosixPath(file.name).parent for file in files]
    common = parents[0]
    while not all(parent.is_relative_to(common) for parent in parents):
        common = common.parent
    for depth, part in enumerate(common.parts):
        if _CHANGING.fullmatch(part):
            return PurePosixPath(*common.parts[:depth])
    return common


def by_folder(files: Sequence[LandedFile]) -> dict[PurePosixPath, list[LandedFile]]:
    """Groups files by the folder that one log would read."""
    found: dict[PurePosixPath, list[LandedFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.name):
        found[landing_folder([file])].append(file)
    return dict(found)


def stem_of(file: LandedFile) -> str:
    """Returns the common part of the names of a feed: `orders` of `orders_2026-11-01.csv`."""
    stem = PurePosixPath(file.name).name.split(".")[0] if file.name.count(".") <= 2 else PurePosixPath(file.name).name
    stem = re.sub(r"\.(csv|tsv|txt|log|parquet|jsonl?|ndjson|gz|snappy|zstd?|c\d+)\b", "", stem, flags=re.IGNORECASE)
    stem = re.sub(r"\d{4}[-_.]?\d\d[-_.]?\d\d([-_.T ]?\d\d[-_.:]?\d\d([-_.:]?\d\d)?)?Z?", "", stem)
    stem = _PART.sub("", stem)
    return re.sub(r"[-_.+ ]+$|^[-_.+ ]+", "", re.sub(r"[-_.+ ]{2,}", "_", stem)).casefold()


def strange_stems(files: Sequence[LandedFile]) -> list[str]:
    """Returns the names of several feeds in one folder; empty if there is only one."""
    stems = sorted({stem for file in files if (stem := stem_of(file))})
    return stems if len(stems) > 1 else []


def choose_sample(files: Sequence[LandedFile]) -> list[LandedFile]:
    """Returns the first, the middle and the last file: deletes and new columns tend to come late."""
    return [files[index] for index in sorted({0, len(files) // 2, len(files) - 1})]
