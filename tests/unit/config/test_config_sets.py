"""What `validate` refuses of a set, and that each refusal names the next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bank_sets import SET, config
from tidefold.config import ConfigError, load_config


def _load(folder: Path, text: str) -> None:
    (folder / "tidefold.yaml").write_text(text)
    load_config(folder / "tidefold.yaml")


def test_a_set_is_read(tmp_path: Path) -> None:
    (tmp_path / "tidefold.yaml").write_text(config())
    found = load_config(tmp_path / "tidefold.yaml")
    assert found.set_of("tellers") == found.sets["bank"]
    assert found.sets["bank"].topic == str(tmp_path / "landing" / "bank.transaction")
    assert found.sets["bank"].sums == ((("branches", "bbalance"), ("tellers", "tbalance")),)


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("    transactions: landing/bank.transaction\n", "", "SET_TRANSACTIONS", "provide.transaction.metadata"),
        ("tellers, history]", "tellers, histories]", "SET_LOG_UNKNOWN", "histories"),
        ("tellers, history]", "tellers, history, tellers]", "SET_LOG_TWICE", "tellers"),
        ("may_be_empty: [history]", "may_be_empty: [orders]", "SET_LOG_UNKNOWN", "orders"),
        ("tellers.tbalance", "tellers.balance", "SET_COLUMN", "tellers.balance"),
        ("landing/bank.transaction", "landing/bank.public.tellers", "FOLDERS_OVERLAP", "folder of its own"),
        ("landing/bank.transaction", "../elsewhere", "CONFIG_PATH", "sets.bank.transactions"),
        ("  bank:\n", "  Bank:\n", "SET_NAME", "sets.Bank"),
        ("    logs: [acc", "    consistent: false\n    logs: [acc", "CONFIG_UNKNOWN_VALUE", "cannot be `false`"),
        (
            "    logs: [acc",
            "    consistent: false\n    logs: [acc",
            "CONFIG_UNKNOWN_VALUE",
            "Allowed: true. Next: Write `true`.",
        ),
        ("tellers.tbalance", "orders.total", "SET_COLUMN", "not a column with exact sums"),
        ("tellers, history]", "history]", "SET_COLUMN", "is `tellers.tbalance`, and `tellers` is not in `logs`"),
        ("tellers, history]", "telers, history]", "SET_LOG_UNKNOWN", "Did you mean `tellers`?"),
    ],
)
def test_a_wrong_set_is_refused(tmp_path: Path, old: str, new: str, code: str, says: str) -> None:
    assert old in SET
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, config(SET.replace(old, new)))
    assert code in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        # `tellers` of `equal_sums` and `history` of `may_be_empty` are right.
        ("tellers, history]", "telers, history]", ["sets.bank.logs[2]"]),
        ("tellers, history]", "tellers, histry]", ["sets.bank.logs[3]"]),
        ("tellers", "telers", ["sets.bank.logs[2]"]),
        # The log has a mistake of its own, so nothing is known about its columns.
        ("tbalance: long", "tbalance: lang", ["logs.tellers.columns.tbalance"]),
    ],
)
def test_what_follows_from_a_mistake_is_not_reported(tmp_path: Path, old: str, new: str, keys: list[str]) -> None:
    text = config(SET.replace(old, new)).replace(old, new) if "balance" in old else config(SET.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert [problem.key for problem in caught.value.problems] == keys


def test_a_log_is_in_one_set(tmp_path: Path) -> None:
    second = f"{SET}  other: {{logs: [tellers], transactions: landing/bank.transaction}}\n"
    with pytest.raises(ConfigError, match="SET_LOG_TWICE"):
        _load(tmp_path, config(second))


def test_a_source_without_proof_is_refused(tmp_path: Path) -> None:
    text = config().replace("connector: postgresql", "connector: oracle")
    with pytest.raises(ConfigError, match="SET_SOURCE"):
        _load(tmp_path, text)


@pytest.mark.parametrize(("old", "new"), [("debezium-json", "debezium-avro"), ("postgresql", "mariadb")])
def test_logs_of_two_sources_are_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ConfigError, match="SET_SOURCES"):
        _load(tmp_path, config().replace(old, new, 1))


@pytest.mark.parametrize("connector", ["postgresql", "mysql", "mariadb"])
@pytest.mark.parametrize("form", ["debezium-json", "debezium-avro", "debezium-parquet"])
def test_sources_with_transactions_are_accepted(tmp_path: Path, connector: str, form: str) -> None:
    _load(tmp_path, config().replace("debezium-json", form).replace("postgresql", connector))
