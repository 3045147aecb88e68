"""`init` writes a file that validates, leaves out by name what it cannot propose, and overwrites nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidefold.cli.app import app
from tidefold.config import load_config


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEFOLD_CONFIG", raising=False)
    return tmp_path


def land(
    folder: Path, topic: str, row: dict[str, Any], key: dict[str, Any] | None, connector: str = "postgresql"
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    value = {"before": None, "after": row, "op": "c", "source": {"connector": connector, "sequence": '[null,"1"]'}}
    record = {"topic": topic, "partition": 0, "offset": 0, "key": key, "value": value}
    (folder / f"{topic}+0+0000000000.jsonl").write_text(json.dumps(record) + "\n")


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


def test_the_file_validates_and_its_comments_say_what_was_seen(folder: Path) -> None:
    land(
        folder / "landing/bank.public.accounts", "bank.public.accounts", {"aid": 7, "on": "x", "rate": 0.5}, {"aid": 7}
    )
    assert init("landing").exit_code == 0
    accounts = load_config(Path("tidefold.yaml")).logs["accounts"]
    assert accounts.landing == str(folder / "landing/bank.public.accounts")
    assert accounts.shape.key == ("aid",)
    assert [(c.name, c.type) for c in accounts.shape.columns] == [("aid", "long"), ("on", "string"), ("rate", "double")]
    assert "aid: long # 7 to 7 seen: `int` would fit" in Path("tidefold.yaml").read_text()
    assert CliRunner().invoke(app, ["validate"]).exit_code == 0


def test_a_folder_that_no_log_reads_is_named(folder: Path) -> None:
    land(folder / "landing/t", "t", {"id": 7}, {"id": 7})
    for name in ("t/readme.md", "statements/camt053.xml", "statements/_SUCCESS"):
        (folder / "landing" / name).parent.mkdir(exist_ok=True)
        (folder / "landing" / name).write_text("<x/>")
    lines = [line for line in init("landing").stderr.splitlines() if "no log reads" in line]
    assert lines == ["look at statements: no log reads its files, such as camt053.xml"]


def test_what_is_written_stops_growing(folder: Path) -> None:
    """Snapshots and log are bounded, and no store copies the whole table in every run (decision 0026)."""
    land(folder / "landing/t", "t", {"id": 7}, {"id": 7})
    assert init("landing").exit_code == 0
    config = load_config(Path("tidefold.yaml"))
    assert (config.retention.keep, config.retention.log, config.snapshots.kind) == (30, 30 * 86_400_000_000, "auto")


def test_an_existing_file_is_left_as_it_is(folder: Path) -> None:
    land(folder / "landing", "t", {"id": 1}, {"id": 1})
    Path("tidefold.yaml").write_text("mine")
    refused = init("landing")
    assert refused.exit_code == 3
    assert "error [CONFIG_EXISTS]" in refused.stderr
    assert "--config" in refused.stderr
    assert Path("tidefold.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("row", "key", "connector", "why"),
    [
        ({"a": 1}, None, "postgresql", "which columns tell rows apart?"),
        ({"a": 1}, {"a": 1}, "db2", "only postgresql, mysql, mariadb, sqlserver, oracle are supported"),
        ({"_": 1}, {"_": 1}, "postgresql", "begins with `_`"),
        ({"€ $": 1}, {"€ $": 1}, "postgresql", "cannot be the name of a column"),
        ({"a": 1.5}, {"a": 1.5}, "postgresql", "of type double"),
        ({"a": 1, "x\n  evil: {}": 1}, {"a": 1}, "postgresql", "cannot be the name of a column"),
    ],
)
def test_what_cannot_be_used_is_left_out_as_a_comment(
    row: dict[str, Any], key: dict[str, Any] | None, connector: str, why: str, folder: Path
) -> None:
    land(folder / "landing/good", "good", {"id": 1}, {"id": 1})
    land(folder / "landing/other", "other", row, key, connector)
    done = CliRunner().invoke(app, ["init", "landing", "--format", "json"])
    assert done.exit_code == 0
    assert why in json.loads(done.stdout)["left_out"]["other"][0]
    assert list(load_config(Path("tidefold.yaml")).logs) == ["good"]
    assert "  # other:" in Path("tidefold.yaml").read_text().splitlines()


@pytest.mark.parametrize("name", ["_a", "a b", "x: [y] # 'z"])
def test_a_name_that_no_table_has_becomes_an_alias(name: str, folder: Path) -> None:
    land(folder / "landing/other", "other", {name: 1}, {name: 1})
    assert init("landing").exit_code == 0
    log = load_config(Path("tidefold.yaml")).logs["other"]
    assert [column.aliases for column in log.shape.columns] == [(name,)]
    assert log.shape.key == (log.shape.columns[0].name,)


def test_nothing_landed_writes_nothing(folder: Path) -> None:
    (folder / "empty").mkdir()
    nothing = init("empty")
    assert (nothing.exit_code, "[NOTHING_LANDED]" in nothing.stderr) == (2, True)
    assert not Path("tidefold.yaml").exists()


def test_a_file_of_questions_alone_is_written_too_and_validate_says_what_to_do(folder: Path) -> None:
    (folder / "landing/t").mkdir(parents=True)
    (folder / "landing/t/t.csv").write_text("a,b,seen\n1,x,2026-11-01\n2,y,2026-11-01\n")
    done = init("landing")
    assert done.exit_code == 0, done.output
    assert "question: t: key: which columns tell rows apart?" in done.stderr
    text = Path("tidefold.yaml").read_text()
    assert "  ## QUESTION key:" in text
    refused = CliRunner().invoke(app, ["validate"])
    assert (refused.exit_code, "QUESTION" in refused.stderr) == (2, True)
    # What is asked is nowhere answered: without its marks the file waits for the same answers.
    Path("tidefold.yaml").write_text(uncommented(text))
    undecided = CliRunner().invoke(app, ["validate"])
    assert (undecided.exit_code, "is still `?`" in undecided.stderr) == (2, True), undecided.stderr
    Path("tidefold.yaml").write_text(
        uncommented(text).replace("key: [?]", "key: [a]").replace("order: [?]", "order: file")
    )
    assert CliRunner().invoke(app, ["validate"]).exit_code == 0


def uncommented(text: str) -> str:
    """As the file says it: each line of a log without its `# `."""
    lines = text[text.index("\nlogs:") :].splitlines()
    plain = [re.sub(r"^  # (?=  |[a-z_0-9]+:$)", "  ", line) for line in lines]
    return "\n".join([text[: text.index("\nlogs:")], *plain]) + "\n"


def test_a_landing_folder_around_the_store_is_left_out(folder: Path) -> None:
    land(folder, "t", {"id": 1}, {"id": 1})
    done = init(".")
    assert "contains the store" in done.stderr
    assert "  # t:" in Path("tidefold.yaml").read_text().splitlines()


def test_the_store_gets_its_id_and_the_file_names_it(folder: Path) -> None:
    land(folder / "landing", "t", {"id": 1}, {"id": 1})
    init("landing")
    made = json.loads((folder / "var/store/store.json").read_text())["id"]
    assert load_config(Path("tidefold.yaml")).store_id == made
    assert CliRunner().invoke(app, ["status"]).exit_code == 0
    shutil.rmtree("var/store")
    assert CliRunner().invoke(app, ["status"]).exit_code == 3


def test_deletes_of_a_csv_feed_are_deletes_without_a_word_of_the_user(folder: Path) -> None:
    (folder / "landing/orders").mkdir(parents=True)
    lines = [f"I,{i},2.50,2026-11-01 08:00:{i:02d}" for i in range(9)]
    lines += [f"D,{i},2.50,2026-11-02 08:00:{i:02d}" for i in range(3)]
    (folder / "landing/orders/orders.csv").write_text("\n".join(["op,order_id,total,updated_at", *lines, ""]))
    done = init("landing", "--format", "json")
    assert [text.split(" = ")[0] for text in json.loads(done.stdout)["assumed"]["orders"]] == ["op", "key", "order"]
    orders = load_config(Path("tidefold.yaml")).logs["orders"]
    assert orders.source.op.column == "op"
    assert (orders.shape.key, orders.shape.order_by) == (("order_id",), ("updated_at",))
    types = {"order_id": "long", "total": "decimal(18,2)", "updated_at": "timestamp"}
    assert {c.name: c.type for c in orders.shape.columns} == types


def test_the_path_ends_above_the_folders_of_partitions_and_days(folder: Path) -> None:
    land(folder / "landing/topics/t/partition=0", "t", {"id": 1}, {"id": 1})
    (folder / "landing/items/2026/11/01").mkdir(parents=True)
    (folder / "landing/items/2026/11/01/a.csv").write_text("id,updated_at\n1,2026-11-01\n2,2026-11-02\n")
    init("landing")
    logs = load_config(Path("tidefold.yaml")).logs
    assert {log: str(Path(logs[log].landing).relative_to(folder)) for log in logs} == {
        "t": "landing/topics/t",
        "items": "landing/items",
    }


def test_interactive_asks_each_question_and_takes_the_first_candidate_for_an_empty_answer(folder: Path) -> None:
    (folder / "landing/items").mkdir(parents=True)
    (folder / "landing/items/a.csv").write_text("code,place,seen\n1,x,2026-11-01\n2,y,2026-11-02\n1,y,2026-11-03\n")
    done = CliRunner().invoke(app, ["init", "landing", "--interactive"], input="code, place\n\n\n")
    assert done.exit_code == 0, done.output
    items = load_config(Path("tidefold.yaml")).logs["items"]
    assert (items.shape.key, items.shape.order_by) == (("code", "place"), ("file",))
    written = Path("tidefold.yaml").read_text().partition("logs:")[2]
    # What a person answered is no assumption, and needs no evidence.
    assert not any(mark in written for mark in ("QUESTION", "ASSUMED"))


def land_extract_and_flags(folder: Path) -> None:
    """A file with all rows of a table, and rows with a boolean that may mark deletes."""
    (folder / "landing/all").mkdir(parents=True)
    (folder / "landing/all/all-2026-11-01.csv").write_text("code,place\n1,x\n2,y\n")
    (folder / "landing/flags").mkdir()
    lines = (f'{{"id": {n}, "deleted": {"true" if n == 3 else "false"}, "updated_at": {n}}}\n' for n in range(9))
    (folder / "landing/flags/a.jsonl").write_text("".join(lines))


def test_interactive_takes_a_full_extract_and_a_column_that_says_nothing(folder: Path) -> None:
    """Faults: the answer became `order: ["extract: full"]`, and a boolean that is no operation became a text."""
    land_extract_and_flags(folder)
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input="none\n\n\ncode\nextract: full\n\n")
    assert done.exit_code == 0, done.output
    logs = load_config(Path("tidefold.yaml")).logs
    assert logs["all"].source.extract
    assert {column.name: column.type for column in logs["flags"].shape.columns}["deleted"] == "boolean"


def test_interactive_asks_again_and_assumes_no_order_that_an_extract_would_not_have(folder: Path) -> None:
    """Faults: `no` and any other word meant that a column marks deletes; Enter chose `file` for a full extract."""
    land_extract_and_flags(folder)
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input="rubbish\nno\n\n\ncode\n\n\n")
    assert done.exit_code == 0, done.output
    assert "`rubbish` is no answer; these are: deleted, no, none." in done.stderr
    text = Path("tidefold.yaml").read_text()
    assert " op: {" not in text
    assert "  #   order: [?]" in text


def test_interactive_names_columns_of_files_without_a_header(folder: Path) -> None:
    (folder / "landing/items").mkdir(parents=True)
    (folder / "landing/items/a.csv").write_text("1;x;2026-11-01\n2;y;2026-11-02\n")
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input="id, text, at\nid\nat\n\n")
    assert done.exit_code == 0, done.output
    items = load_config(Path("tidefold.yaml")).logs["items"]
    assert items.source.header == ["id", "text", "at"]
    assert (items.source.delimiter, items.shape.key, items.shape.order_by) == (";", ("id",), ("at",))


@pytest.mark.parametrize(("answer", "is_set"), [("y", True), ("n", False), ("", False)])
def test_interactive_asks_once_whether_all_readers_support_deletion_vectors(
    folder: Path, answer: str, is_set: bool
) -> None:
    for log in ("s", "t"):
        land(folder / "landing" / log, log, {"id": 1}, {"id": 1})
    done = CliRunner().invoke(app, ["init", "landing", "-i"], input=f"{answer}\n")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("deletion vectors?") == 1
    logs = load_config(Path("tidefold.yaml")).logs
    assert [logs[log].deletion_vectors for log in ("s", "t")] == [is_set] * 2


def test_without_a_person_the_file_names_deletion_vectors_and_leaves_them_off(folder: Path) -> None:
    land(folder / "landing", "t", {"id": 1}, {"id": 1})
    assert init("landing").exit_code == 0
    text = Path("tidefold.yaml").read_text()
    assert not load_config(Path("tidefold.yaml")).logs["t"].deletion_vectors
    Path("tidefold.yaml").write_text(text.replace("# deletion_vectors: true", "deletion_vectors: true"))
    assert load_config(Path("tidefold.yaml")).logs["t"].deletion_vectors


def test_landing_folders_elsewhere_are_named_in_full(folder: Path) -> None:
    land(folder / "in/landing", "t", {"id": 1}, {"id": 1})
    assert init("in/landing", "-c", "project/tidefold.yaml").exit_code == 0
    assert load_config(Path("project/tidefold.yaml")).logs["t"].landing == str(folder / "in/landing")


def land_change(topic: str, op: str = "c", transaction: str | None = None, connector: str = "postgresql") -> None:
    """Lands one record of a table with the columns id and amount."""
    row = {"id": 1, "amount": 2}
    block = {"id": transaction, "total_order": 1, "data_collection_order": 1} if transaction else None
    value = {"after": row, "op": op, "source": {"connector": connector, "sequence": '[null,"1"]'}, "transaction": block}
    write_records(topic, [{"key": {"id": 1}, "value": value}])


def write_records(topic: str, records: list[dict[str, Any]]) -> None:
    folder = Path("landing", topic)
    folder.mkdir(parents=True)
    lines = [json.dumps({"topic": topic, "partition": 0, "offset": i, **one}) for i, one in enumerate(records)]
    (folder / f"{topic}+0+0000000000.jsonl").write_text("\n".join(lines) + "\n")


MARKERS: list[dict[str, Any]] = [
    {"status": "BEGIN", "id": "7:1", "event_count": None, "data_collections": None},
    {
        "status": "END",
        "id": "7:2",
        "event_count": 1,
        "data_collections": [{"data_collection": "public.orders", "event_count": 1}],
    },
]


def test_a_transaction_topic_becomes_a_set_as_a_comment_and_no_log(folder: Path) -> None:
    land_change("shop.public.orders", transaction="7:1")
    land_change("shop.public.lines", op="r")
    land_change("shop.public.audit")
    land_change("other.public.parcels", transaction="9:1")
    write_records("shop.transaction", [{"key": {"id": "7:1"}, "value": one} for one in MARKERS])
    done = init("landing", "--format", "json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert sorted(said["logs"]) == ["audit", "lines", "orders", "parcels"]
    assert said["sets"] == {"shop": ["lines", "orders"]}
    assert (
        "set: shop.transaction is Debezium's transaction topic. The file proposes set `shop` of lines, orders as a "
        "comment"
    ) in done.stderr
    text = Path("tidefold.yaml").read_text()
    assert "## Not in the set: audit. Their sampled changes name no transaction." in text
    config = load_config(Path("tidefold.yaml"))
    assert ("transaction" in config.logs, dict(config.sets)) == (False, {})
    Path("tidefold.yaml").write_text(re.sub(r"(?m)^# (?=sets:|  )", "", text))
    chosen = load_config(Path("tidefold.yaml")).sets["shop"]
    assert (chosen.logs, chosen.topic) == (("lines", "orders"), str(folder / "landing/shop.transaction"))


def test_a_log_with_a_question_joins_its_set_later(folder: Path) -> None:
    land_change("shop.public.orders", transaction="7:1")
    write_records(
        "shop.public.lines",
        [
            {
                "value": {
                    "after": {"a": 1},
                    "op": "c",
                    "source": {"connector": "postgresql"},
                    "transaction": {"id": "7:1"},
                }
            }
        ],
    )
    write_records("shop.transaction", [{"value": one} for one in MARKERS])
    assert init("landing").exit_code == 0
    text = Path("tidefold.yaml").read_text()
    assert "#     logs: [orders]" in text.splitlines()
    assert "## Not in the set yet: lines. Answer the questions of these logs, then add them." in text


def test_a_connector_without_sets_and_a_table_called_transaction(folder: Path) -> None:
    land_change("erp.dbo.orders", transaction="7:1", connector="sqlserver")
    write_records("erp.transaction", [{"value": one} for one in MARKERS])
    land_change("shop.public.transaction")
    done = init("landing")
    assert "no log can be in a set with it" in done.stderr
    assert list(load_config(Path("tidefold.yaml")).logs) == ["orders", "transaction"]
    text = Path("tidefold.yaml").read_text()
    assert [line.split("connector ")[1][:9] for line in text.splitlines() if "is experimental" in line] == ["sqlserver"]
    assert "## Topic erp.transaction: no log can be in a set with it. A set needs PostgreSQL, MySQL or MariaDB." in text
    assert "# sets:" not in text


def test_names_are_written_with_their_letters(folder: Path) -> None:
    (folder / "landing/p").mkdir(parents=True)
    (folder / "landing/p/1.csv").write_text("id,gültig ab,größe\n1,2026-11-01,5\n2,2026-11-02,6\n", encoding="utf-8")
    init("landing")
    text = Path("tidefold.yaml").read_text(encoding="utf-8")
    assert '"gültig_ab": {type: date, aliases: ["gültig ab"]}' in text
    assert '"größe": long' in text
