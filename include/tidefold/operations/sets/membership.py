"""What one log in a set may not do alone."""

from __future__ import annotations

from tidefold.errors import RefusedError
from tidefold.operations.pipeline import Pipeline


def require_alone(pipeline: Pipeline, log: str, why: str, hint: str) -> None:
    """Raises RefusedError (SET_TOGETHER) if the log is in a set.

    why: goes on after "`log` is in set `name`".
    hint: the next step; `{set}` in it is the name of the set.
    """
    chosen = pipeline.config.set_of(log)
    if chosen:
        message = f"`{log}` is in set `{chosen.name}`{why}"
        raise RefusedError("SET_TOGETHER", message, hint=hint.format(set=chosen.name))
