"""Whether a name is free for a snapshot. Pure."""

from __future__ import annotations

from tidefold.domain.log_state import LogState, Tag
from tidefold.errors import RefusedError


def require_free(state: LogState, name: str, snapshot: int | None = None) -> Tag | None:
    """Returns the tag if the snapshot has it already; None: the name is free. Raises RefusedError if another has it."""
    taken = next((t for t in state.tags if t.name == name), None)
    if taken and taken.snapshot != snapshot:
        raise RefusedError(
            "TAG_TAKEN",
            f"Tag `{name}` of `{state.log}` already names snapshot {taken.snapshot}.",
            hint=f"`tidefold snapshot untag {state.log} {name}` removes that tag. Or choose another name.",
        )
    return taken
