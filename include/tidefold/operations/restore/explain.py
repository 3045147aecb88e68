"""What a restore would do: for each bucket its files and every place where they may be, then older ways. Reads names,
lengths and manifests; claims nothing, changes nothing, needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidefold.domain.log_state import ChangeSet
from tidefold.domain.verify.expected_files import Where
from tidefold.errors import NotFoundError, StorageError
from tidefold.fold.inputs import Inputs
from tidefold.fold.task import Address, FoldTask, Input, Recipe
from tidefold.operations.outcome import Outcome, Status, UntypedDetails
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.restore import Restore
from tidefold.operations.snapshot.task_results import failures

# Lengths of what lies in a folder, or why nobody knows.
_Listed = Mapping[str, int] | str


def explain(pipeline: Pipeline, log: str, request: Restore) -> Outcome:
    """The plan of a restore as facts. Raises what the restore itself would be refused with."""
    state = pipeline.ledger(log).read()
    claimed = request.claimant(pipeline)(state).open_attempt
    if claimed is None or claimed.run != request.run:
        raise NotFoundError("NOTHING_TO_RESTORE", f"Run `{request.run}` would make nothing.", hint="Use a new run id.")
    attempt = request.plan(pipeline, state, claimed)
    look = _Look(Inputs({pipeline.store.uri(""): pipeline.store}))
    buckets = [_bucket(task, look) for task in sorted(attempt.tasks, key=lambda task: task.bucket)]
    facts = {
        "restored": request.point.snapshot,
        "mode": request.point.mode,
        "as": claimed.id,
        "kind": claimed.kind,
        "because": claimed.kind_reason,
        "from_sqn": claimed.from_sqn,
        "to_sqn": claimed.to_sqn,
        "manifests": failures(attempt.restored.unread if attempt.restored else ()),
        "buckets": buckets,
    }
    ways = max((len(bucket["ways"]) for bucket in buckets), default=0)
    message = f"would restore snapshot {request.point.snapshot} as {claimed.id} in {len(buckets)} buckets"
    return Outcome(log, Status.PLANNED, f"{message}, {ways} ways each at most", details=UntypedDetails(values=facts))


def _bucket(task: FoldTask, look: _Look) -> dict[str, Any]:
    ways = [_way(recipe, look) for recipe in task.recipes]
    return {"key_groups": [task.bucket.first, task.bucket.last], "ways": ways}


def _way(recipe: Recipe, look: _Look) -> dict[str, Any]:
    return {
        "snapshot": recipe.snapshot,
        "files": [_file(one, look) for one in recipe.base],
        "change_sets": spans(recipe.change_sets),
        "change_bytes": sum(change_set.location.length for change_set in recipe.change_sets),
    }


def spans(change_sets: Sequence[ChangeSet]) -> list[list[int]]:
    """Change sets as ranges of sqns, first and last; those that follow each other are one."""
    found: list[list[int]] = []
    for one in change_sets:
        if found and one.begin == found[-1][1] + 1:
            found[-1][1] = one.sqn
        else:
            found.append([one.begin, one.sqn])
    return found


def _file(one: Input, look: _Look) -> dict[str, Any]:
    places = [look.at(address, one.file.bytes) for address in one.addresses]
    return {"file": one.file.name, "bytes": one.file.bytes, "rows": one.file.rows, "places": places}


class _Look:
    """Lists each folder once."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._listed: dict[tuple[str, str], _Listed] = {}

    def at(self, address: Address, expected: int) -> dict[str, Any]:
        """What is at an address: its length (None: nothing), and what that means."""
        folder = address.path.rpartition("/")[0]
        if (address.root, folder) not in self._listed:
            self._listed[address.root, folder] = self._list(address, folder)
        listed = self._listed[address.root, folder]
        if isinstance(listed, str):
            return {"place": str(address), "bytes": None, "found": listed}
        length = listed.get(address.path)
        found = "missing" if length is None else "there" if length == expected else "of another length"
        return {"place": str(address), "bytes": length, "found": found}

    def _list(self, address: Address, folder: str) -> _Listed:
        try:
            return {entry.path: entry.bytes for entry in self._inputs.store(address).list(folder)}
        except StorageError as error:
            if address.where is Where.STORE:
                raise
            return f"unreadable ({error.message})"
