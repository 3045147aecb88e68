"""The input of every operation: a configuration, its store and its local copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidefold.config import Config, LogConfig
from tidefold.errors import NotFoundError
from tidefold.ledger import Chunk, Compared, Ledger, Versions
from tidefold.storage import Store, logs_at_once
from tidefold.storage.local_copies.roots import LocalRoots


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration, its store, and the folders of local copies on this machine.

    pages: a cache of the pages that its ledgers have read.
    before_write: called before a ledger is changed.
    compared: which ledgers were compared with the store.
    versions: a cache of the newest ledger version of each log; None: each call reads it again.
    any_target: whether operations may write to and import from any address, as for a person at the command line;
        else only below the configured `targets`.
    """

    config: Config
    store: Store
    local: LocalRoots | None = None
    pages: dict[str, Chunk] = field(default_factory=dict, compare=False, repr=False)
    before_write: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    compared: Compared = field(default_factory=dict, compare=False, repr=False)
    versions: Versions | None = field(default=None, compare=False, repr=False)
    any_target: bool = True

    def ledger(self, log: str) -> Ledger:
        return Ledger(self.store, log, self.pages, self.before_write, self.compared, self.versions)

    @property
    def at_once(self) -> int:
        """The number of logs that are looked at in parallel: several if each answer crosses a network."""
        return logs_at_once(self.store)

    def log(self, log: str) -> LogConfig:
        """Returns the configuration of a log. Raises NotFoundError."""
        found = self.config.logs.get(log)
        if found is None:
            raise NotFoundError(
                "LOG_NOT_CONFIGURED",
                f"`{self.config.path}` has no log `{log}`.",
                hint=f"Configured logs: {', '.join(self.config.logs)}.",
            )
        return found


def now() -> str:
    """Returns the current instant in UTC, for people. No decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
