"""The restore drill of a set: every table of one version, and the checks across its tables."""

from __future__ import annotations

from collections.abc import Callable

from tidefold.domain.sets.set_state import SetVersion
from tidefold.domain.wording import count_noun
from tidefold.errors import CorruptError
from tidefold.operations.outcome import Outcome, Status, for_each_log
from tidefold.operations.pipeline import Pipeline
from tidefold.operations.restore.drill import Trial, drill
from tidefold.operations.sets.checks import find_unequal_sums
from tidefold.operations.sets.read import find_set


def drill_set(pipeline: Pipeline, name: str, version: SetVersion, trial: Callable[[str], Trial]) -> list[Outcome]:
    """Restores each table of a version into a scratch folder, checks and records it, and compares configured sums.

    trial: how the drill of a log runs. An outcome with an error names the table that cannot be restored.
    """
    tables = {one.log: one.snapshot for one in version.members}
    outcomes = for_each_log(list(tables), lambda log: drill(pipeline, log, tables[log], trial(log)))
    if any(outcome.error for outcome in outcomes):
        return outcomes
    chosen = find_set(pipeline, name)
    unequal = find_unequal_sums(pipeline, chosen, tables)
    if unequal:
        message = f"version {version.number} of set `{name}` is not consistent: {unequal.message}"
        return [*outcomes, Outcome.of_error(name, CorruptError("SET_SUMS", message))]
    sums = f", {count_noun(len(chosen.equal_sums), 'sum')} compared" if chosen.equal_sums else ""
    message = f"version {version.number} at position {version.position}: {len(outcomes)} tables restored{sums}"
    return [*outcomes, Outcome(name, Status.PASSED, message)]
