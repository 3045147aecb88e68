"""The tiers and their lanes, as data."""

from __future__ import annotations

from dataclasses import dataclass

_CHEAP = ("tests/unit", "tests/contract", "tests/model", "tests/feeds")
# Whole operations cost most; what starts Java or Airflow is in the folders that are left out as well.
_FAST = (
    "tests/unit", "tests/model", "tests/contract", "--without-servers", "--ignore=tests/contract/operations",
    "--ignore=tests/contract/cli", "--ignore=tests/contract/airflow_ui", "--ignore=tests/contract/docs",
    "--ignore=tests/contract/quality", "--ignore=tests/contract/ledger/test_set_ledger.py",
    "--ignore=tests/contract/storage/test_plugin_store.py", "--ignore-glob=tests/contract/test_*.py",
)  # fmt: skip


@dataclass(frozen=True)
class Lane:
    """Commands of pytest that run one after the other; the lanes of a tier run beside each other.

    commands: the arguments of each command.
    seed: of random tests, where it is another than that of the run.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    seed: int | None = None


@dataclass(frozen=True)
class Tier:
    """budget: CPU seconds, children and servers included. Above 1.3 times of it the tier fails."""

    name: str
    budget: int
    lanes: tuple[Lane, ...]


# Neighbours stay together, so that what a module makes is made once; who is done first takes from the other's end.
_ON_TWO = ("-n", "2", "--dist", "worksteal")

TIERS = {
    tier.name: tier
    for tier in (
        Tier("test-fast", 200, (Lane("fast", ((*_ON_TWO, *_FAST),)),)),
        Tier(
            "test",
            1300,
            (
                # A running Airflow waits a lot, so the rest runs beside it; both lanes end at about the same time.
                Lane("airflow-spark", (("tests/airflow",), ("tests/spark",))),
                Lane("rest", (("tests/kafka", "tests/database"), (*_ON_TWO, *_CHEAP, "tests/faults"))),
            ),
        ),
    )
}
