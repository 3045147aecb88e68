"""The target folder of a savepoint during the write: who started it, what it contains, and what may be deleted."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from tidefold.domain.snapshot.savepoint import BEGUN, DESCRIPTION, ROWS, Savepoint
from tidefold.errors import NotFoundError, RefusedError
from tidefold.ledger import read_description
from tidefold.storage import Store
from tidefold.typed_json import decode_json

# The paths of a finished or unfinished savepoint.
_OURS = re.compile(rf"(_data|_delta_log|{ROWS})/.+|({re.escape(DESCRIPTION)}|{re.escape(BEGUN)})(\..+\.part)?")


@dataclass(frozen=True, slots=True)
class Begun:
    """The mark of an unfinished savepoint.

    token: identifies the call.
    run: the run that stopped the log. Its next call may continue the savepoint.
    """

    log: str
    snapshot: int
    token: str
    run: str = ""


def savepoint_there(store: Store) -> Savepoint | None:
    """Returns the savepoint that is already at a place. Raises CorruptError if it cannot be read."""
    try:
        return read_description(store)[0]
    except NotFoundError:
        return None


def begin(store: Store, begun: Begun, overwrite: bool) -> None:
    """Marks a free place, or with `overwrite` one with an unfinished savepoint. The run that left it needs no
    `overwrite`.

    Raises RefusedError if the place contains anything else.
    """
    there = [e.path for e in store.list("", unfinished=True)]
    foreign = next((path for path in there if not _OURS.fullmatch(path)), None)
    if foreign or (there and not any(path.startswith(BEGUN) for path in there)):
        raise RefusedError(
            "ADDRESS_NOT_EMPTY",
            f"{store.address} already contains other files, such as `{foreign or there[0]}`.",
            hint="Give a folder that does not exist or is empty.",
        )
    if there:
        left = _read_begun(store)
        if not overwrite and not (left and begun.run and left.run == begun.run):
            raise RefusedError(
                "SAVEPOINT_UNFINISHED",
                f"The savepoint at {store.address} is unfinished. Its writer stopped, or is still writing.",
                hint="If no process is writing it, call again with --overwrite-unfinished.",
            )
        remove(store)
    store.put_if_absent(BEGUN, msgspec.json.encode(begun))


def _read_begun(store: Store) -> Begun | None:
    try:
        return decode_json(store.read(BEGUN), Begun)
    except (NotFoundError, msgspec.DecodeError):
        return None


def require_mine(store: Store, begun: Begun) -> None:
    """Raises RefusedError if another call has taken the place meanwhile."""
    if _read_begun(store) != begun:
        raise RefusedError(
            "SAVEPOINT_OVERTAKEN",
            f"Another call started a savepoint at {store.address} at the same time.",
            hint="Wait until that call ends.",
        )


def give_up(store: Store, begun: Begun) -> None:
    """Deletes the written files, unless another call has taken the place."""
    if _read_begun(store) == begun and savepoint_there(store) is None:
        remove(store)


def remove(store: Store) -> None:
    """Deletes an unfinished savepoint; its marker is deleted last."""
    there = [e.path for e in store.list("", unfinished=True) if _OURS.fullmatch(e.path)]
    store.delete([path for path in there if not path.startswith(BEGUN)])
    store.delete([path for path in there if path.startswith(BEGUN)])
