"""`schema_evolution` of a log, `aliases` and `default` of its columns: what they mean, and mistakes by name.
An option that has no effect is an error of the configuration.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidefold.config import ConfigError, json_schema, load_config
from tidefold.config.load import LogConfig
from tidefold.domain.log_state import Column
from tidefold.domain.table.schema_evolution import Policies, Policy

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {{format: json, path: landing/items}}
    key: [id]
    {more}
    columns: {{id: int, {columns}}}
"""


def load(folder: Path, columns: str = "text: string", more: str = "") -> LogConfig:
    path = folder / "tidefold.yaml"
    path.write_text(CONFIG.format(columns=columns, more=more or "buckets: 4"))
    return load_config(path).logs["items"]


def test_policies_by_kind_or_in_one_word(tmp_path: Path) -> None:
    assert load(tmp_path).policies == Policies()
    some = load(tmp_path, more="schema_evolution: {add: quarantine, drop: evolve}").policies
    assert some == Policies(add=Policy.QUARANTINE, drop=Policy.EVOLVE)
    for word in ("evolve", "freeze"):
        assert load(tmp_path, more=f"schema_evolution: {word}").policies == Policies(*[Policy(word)] * 7)


def test_the_former_key_is_refused_with_its_name_now(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, more="schema: freeze")
    assert (refused.value.code, refused.value.hint) == ("CONFIG_UNKNOWN_KEY", "Did you mean `schema_evolution`?")


def test_former_names_and_values_of_before(tmp_path: Path) -> None:
    columns = "n: {type: long, aliases: [m, k], default: 5}, ok: {type: boolean, default: true}, d: {type: date, default: '2026-01-31'}"  # noqa: E501
    assert load(tmp_path, columns).shape.columns[1:] == (
        Column("n", "long", aliases=("m", "k"), default="5"),
        Column("ok", "boolean", default="true"),
        Column("d", "date", default="2026-01-31"),
    )


@pytest.mark.parametrize(
    ("columns", "more", "code", "said"),
    [
        ("t: string", "schema_evolution: quarantine", "CONFIG_UNKNOWN_VALUE", "only for `add` and `retype`"),
        ("t: string", "schema_evolution: {drop: quarantine}", "CONFIG_UNKNOWN_VALUE", "schema_evolution.drop"),
        ("t: string", "schema_evolution: {remove: evolve}", "CONFIG_UNKNOWN_KEY", "Allowed here: add, widen"),
        ("t: string", "schema_evolution: 5", "CONFIG_WRONG_TYPE", "schema_evolution"),
        ("t: {type: string, aliases: [id]}", "", "COLUMN_ALIAS", "is already a name of `id`"),
        ("t: {type: string, aliases: [t]}", "", "COLUMN_ALIAS", "is already a name of `t`"),
        ("t: {type: string, aliases: [a, a]}", "", "COLUMN_ALIAS", "aliases[1]"),
        (
            "t: {type: string, aliases: [a]}, u: {type: int, aliases: [A]}",
            "",
            "COLUMN_ALIAS",
            "is already a name of `t`",
        ),
        ("t: {type: string, aliases: a}", "", "CONFIG_WRONG_TYPE", "list"),
        ("n: {type: int, default: x}", "", "COLUMN_DEFAULT", "'x' is not a value of type int"),
        ("n: {type: binary, default: x}", "", "COLUMN_DEFAULT", "a column of type binary cannot have a default"),
        (
            "n: {type: int, default: 5}",
            "merge: partial",
            "COLUMN_DEFAULT",
            "no exact meaning with the engine `partial`",
        ),
        ("n: {type: int, default: 5}", "merge: aggregate", "COLUMN_DEFAULT", "`aggregate`"),
    ],
)
def test_mistakes(columns: str, more: str, code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, columns, more)
    assert [problem.code for problem in refused.value.problems] == [code]
    assert said in str(refused.value)


def test_a_key_column_has_no_value_of_before(tmp_path: Path) -> None:
    path = tmp_path / "tidefold.yaml"
    path.write_text(
        CONFIG.format(columns="n: int", more="buckets: 4").replace("id: int", "id: {type: int, default: 1}")
    )
    with pytest.raises(ConfigError, match="has no effect: a key column"):
        load_config(path)


def test_editors_know_the_words() -> None:
    text = str(json_schema())
    assert "'schema_evolution'" in text
    assert "'aliases'" in text
    assert "'quarantine'" in text
