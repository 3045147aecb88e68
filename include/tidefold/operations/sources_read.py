"""From where the inputs of tasks were read, in files and bytes, and which places could not serve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tidefold.fold.task import FoldResult, FoldTask, Read
from tidefold.lifecycle.copies import Where


def sources_of(tasks: Sequence[FoldTask], results: Sequence[FoldResult]) -> dict[str, Any]:
    """`local`, `store`, `external`: what served, in files, bytes and seconds; `failed`: each try that did not, with its
    reason; `older`: buckets that were made from an older snapshot, with its id (None: from the log alone).

    `tasks` and `results` are in the same order.
    """
    reads = [read for result in results for read in result.reads]
    served: dict[str, Any] = {where: _sum(r for r in reads if r.where is where and not r.why) for where in Where}
    older = {
        f"{task.bucket.first}-{task.bucket.last}": task.recipes[result.recipe].snapshot
        for task, result in zip(tasks, results, strict=True)
        if result.recipe > 0
    }
    failed = [{"file": r.name, "place": r.place, "why": r.why, "seconds": round(r.seconds, 3)} for r in reads if r.why]
    return {**served, "failed": failed, "older": older}


def _sum(reads: Iterable[Read]) -> dict[str, Any]:
    listed = list(reads)
    seconds = round(sum(read.seconds for read in listed), 3)
    return {"files": len(listed), "bytes": sum(read.bytes for read in listed), "seconds": seconds}
