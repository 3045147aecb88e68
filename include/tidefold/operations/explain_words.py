"""The words in which a key is explained: operations, why a change counts or not, and how a row agrees with the log."""

from __future__ import annotations

from tidefold.changelog.columns import CLEAR, DELETE, MERGE, UPSERT
from tidefold.lifecycle.explain import Change, Fate, Standing, Told
from tidefold.lifecycle.shape import Engine, Shape

OPS = {UPSERT: "upsert", DELETE: "delete", CLEAR: "clear", MERGE: "merge"}
_SEVERAL = (Engine.PARTIAL, Engine.AGGREGATE)
REMARKS = {
    Standing.MADE: "",
    Standing.DELETED: "The row is not there: it was deleted.",
    Standing.EXPIRED: "The row is not there: it was dropped for its age.",
    Standing.IMPORTED: "The log does not tell of it: the rows below its changes were imported.",
    Standing.CUT: "What made it so is no longer in the log, which was cut.",
    Standing.ABSENT: "The row is not there: no change of this key is folded in.",
    Standing.DIFFERS: "The row is not what the log says of it: `tidefold verify` looks for damage.",
}


def why(told: Told, winner: Change | None, shape: Shape) -> str:
    """What became of a change, for people."""
    gave = f"gives {', '.join(told.gave)}; " if told.gave and shape.merge.engine in _SEVERAL else ""
    where = "" if told.snapshot is None else f"snapshot {told.snapshot} by run {told.run}"
    lost = f" than change set {winner.sqn}" if winner else ""
    return {
        Fate.CURRENT: gave + (f"counts; folded into {where}" if where else "counts; not folded into a snapshot yet"),
        Fate.OLDER: f"older order{lost}",
        Fate.EARLIER: f"same order, earlier position{lost}",
        Fate.AGAIN: "the same change once more",
        Fate.REPEATED: "sent again: its order lies below what its partition had brought before",
        Fate.REPLACED: f"replaced by what was folded later{f'; itself into {where}' if where else ''}",
        Fate.SKIPPED: f"left out for good by what made {where}",
        Fate.LATER: f"later than this view: folded into {where}",
        Fate.AFTER: "committed after the instant of this view",
        Fate.WAITING: "not folded yet",
    }[told.fate]
