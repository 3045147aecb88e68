"""The tasks of a fold as texts, so that a runner sends each plan once, and the work that reads and does them."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from tidefold.changelog.segment import Indexes
from tidefold.domain.key_groups import KeyGroups
from tidefold.fold.fold_bucket import make_bucket
from tidefold.fold.inputs import Inputs
from tidefold.fold.plan import FoldPlan, FoldTask, Recipe
from tidefold.storage.local_copies.host_copies import HostCopies
from tidefold.typed_json import decode_json


class FoldWork:
    """Makes buckets: takes the text of a task of `serialize_tasks`, returns a FoldResult as JSON.

    A process keeps the decoded plans, and the indexes of the segments that its tasks have read. Raises CorruptError if
    no recipe of a task can be followed.
    """

    def __init__(self, plans: tuple[str, ...]) -> None:
        self.plans = plans
        self._decoded: dict[int, FoldPlan] = {}
        self._indexes: dict[str, Indexes] = {}
        self._hosts: dict[tuple[str, int], HostCopies] = {}

    def __reduce__(self) -> tuple[type[FoldWork], tuple[tuple[str, ...]]]:
        return FoldWork, (self.plans,)

    def __call__(self, text: str) -> str:
        task = self.task(text)
        inputs = Inputs(indexes=self._indexes, host=self._find_host(task.plan))
        return msgspec.json.encode(make_bucket(task, inputs)).decode()

    def prefer(self, text: str, present: Set[str]) -> tuple[str, ...]:
        """Returns the names of the host, of those that are present, that should run a task; empty: any."""
        task = self.task(text)
        return task.plan.hosts.prefer(f"{task.plan.log} {task.bucket.first}", present) if task.plan.hosts else ()

    def _find_host(self, plan: FoldPlan) -> HostCopies | None:
        if plan.hosts is None:
            return None
        key = plan.log, plan.snapshot
        if key not in self._hosts:
            self._hosts[key] = HostCopies(plan.hosts)
        return self._hosts[key]

    def task(self, text: str) -> FoldTask:
        """Returns the task with this text."""
        stored = decode_json(text, _SerializedTask)
        if stored.plan not in self._decoded:
            self._decoded[stored.plan] = decode_json(self.plans[stored.plan], FoldPlan)
        return FoldTask(self._decoded[stored.plan], stored.bucket, stored.recipes, stored.part)


class _SerializedTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A FoldTask whose plan is a number."""

    plan: int
    bucket: KeyGroups
    recipes: tuple[Recipe, ...]
    part: str | None = None


def serialize_tasks(tasks: Sequence[FoldTask]) -> tuple[FoldWork, list[str]]:
    """Returns what a runner needs: the work, which has each plan once, and the text of each task."""
    plans = {id(task.plan): task.plan for task in tasks}
    numbers = {plan: number for number, plan in enumerate(plans)}
    stored = (_SerializedTask(numbers[id(task.plan)], task.bucket, task.recipes, task.part) for task in tasks)
    texts = [msgspec.json.encode(one).decode() for one in stored]
    return FoldWork(tuple(msgspec.json.encode(plan).decode() for plan in plans.values())), texts
