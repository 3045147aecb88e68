"""The input of every operation: a configuration, its store and its local copies; one transition of a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidefold.config import Config, LogConfig
from tidefold.config.models.sources import StateJsonEntry
from tidefold.domain.log_state import Expire, LogState, Snapshot, State
from tidefold.domain.paths import PlanPaths
from tidefold.errors import NotFoundError
from tidefold.ledger import ComparedFields, Items, Ledger, SetLedger, Versions
from tidefold.operations.ground.outcome import Outcome, Status
from tidefold.sources.connections import FindConnection, find_in_environment
from tidefold.storage import Store, logs_at_once
from tidefold.storage.local_copies.host_copies import HostFolders
from tidefold.storage.local_copies.roots import LocalRoots


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration, its store, and the folders of local copies on this machine.

    hosts: instead of `local`, where the hosts of a cluster have their copies.
    pages: a cache of the pages that its ledgers have read.
    before_read, before_write: called before a ledger is read, and before one is changed.
    compared: which ledgers were compared with the store.
    versions: a cache of the newest ledger version of each log; None: each call reads it again.
    any_target: whether operations may write to and import from any address, as for a person at the command line;
        else, as in Airflow, only below the configured `targets`.
    plan_of: in the shadow store of a plan: what it is a plan of.
    connections: returns an Airflow connection, as JSON; empty: there is none. It may have secrets.
    """

    config: Config
    store: Store
    local: LocalRoots | None = None
    hosts: HostFolders | None = None
    pages: dict[str, Items] = field(default_factory=dict, compare=False, repr=False)
    before_read: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    before_write: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)
    compared: ComparedFields = field(default_factory=dict, compare=False, repr=False)
    versions: Versions | None = field(default=None, compare=False, repr=False)
    any_target: bool = True
    plan_of: PlanOf | None = field(default=None, compare=False, repr=False)
    connections: FindConnection = field(default=find_in_environment, compare=False, repr=False)

    @property
    def again(self) -> Mapping[str, int] | None:
        """The landed files that a plan reads again, in the order of their arrival, with the bytes taken of each.

        None: whatever landed is ingested.
        """
        # The last part of a file that grew has the length of the whole.
        return {entry.name: entry.length for entry in self.plan_of.state.landed} if self.plan_of else None

    def ledger(self, log: str) -> Ledger:
        self.before_read()
        return Ledger(self.store, log, self.pages, self.before_write, self.compared, self.versions)

    def set_ledger(self, name: str) -> SetLedger:
        """Returns the ledger of a configured set."""
        logs = self.config.sets[name].logs
        self.before_read()
        return SetLedger(self.store, name, logs, self.pages, self.before_write, self.compared)

    @property
    def at_once(self) -> int:
        """The number of logs that are looked at in parallel: several if each answer crosses a network."""
        return logs_at_once(self.store)

    def log(self, log: str) -> LogConfig:
        """Returns the configuration of a log. Raises NotFoundError."""
        configured = self.config.logs.get(log)
        if configured is None:
            raise NotFoundError(
                "LOG_NOT_CONFIGURED",
                f"`{self.config.path}` has no log `{log}`.",
                hint=f"Configured logs: {', '.join(self.config.logs)}.",
            )
        return configured

    def log_of(self, state: LogState) -> LogConfig:
        """Returns the configuration of a log. Its rows live as long as a metadata said later, if it is trusted."""
        config, newer = self.log(state.log), state.followed_ttl
        is_trusted = isinstance(config.source, StateJsonEntry) and config.source.metadata == "follow"
        if config.ttl is None or newer is None or not is_trusted or newer.configured != config.ttl.days:
            return config
        return config.model_copy(update={"ttl": config.ttl.model_copy(update={"days": newer.days})})


@dataclass(frozen=True, slots=True)
class PlanOf:
    """What a shadow store is a plan of.

    live: the pipeline of the log, which a plan does not change.
    state: of the log. The plan reads again the landed files that it has.
    """

    live: Pipeline
    paths: PlanPaths
    state: LogState


def now() -> str:
    """Returns the current instant in UTC, for people. No decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def apply_transition(
    pipeline: Pipeline,
    log: str,
    transition: Callable[[LogState], LogState],
    describe: Callable[[LogState], Outcome],
) -> Outcome:
    """Commits the transition. Returns its outcome, which `describe` makes from the earlier state.

    An outcome with the status `nothing` commits nothing.
    """
    ledger = pipeline.ledger(log)
    outcome = describe(ledger.read())
    if outcome.status is not Status.NOTHING:
        ledger.commit(transition)
    return outcome


def find_last_clean_up(state: LogState) -> Expire | None:
    """The limit of the newest snapshot of the table that dropped rows for their age."""
    ended = (State.ABORTED, State.ONGOING)
    made = (s for s in reversed(state.snapshots) if s.in_main_lineage and s.state not in ended)
    return next((s.expire for s in made if s.expire), None)


def find_current_limit(pipeline: Pipeline, state: LogState, snapshot: Snapshot | None = None) -> Expire | None:
    """Which rows are too old now. None: none are, or the rows are those of an instant in the past."""
    if state.log not in pipeline.config.logs or (snapshot and snapshot.as_of):
        return None
    return pipeline.log_of(state).expire(now())


def find_horizon(pipeline: Pipeline, state: LogState) -> int | None:
    """Returns the order below which changes are quarantined, because such old deletes are forgotten. None: no limit."""
    late = pipeline.log(state.log).late
    if late is None or late.policy != "quarantine":
        return None
    announced = (s.horizon for s in state.snapshots if s.state is not State.ABORTED)
    return max((one for one in announced if one is not None), default=None)
