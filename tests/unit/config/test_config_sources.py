"""What is refused of a log and its source together: options without effect, and results that luck would decide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidefold.config import ConfigError, load_config

CONFIG = """\
version: 1
store: store
logs:
  items:
    source: {source}
    columns: {columns}
    {more}
"""
COLUMNS = "{id: int, seq: long, text: string}"
KEYED = "key: [id]"
ADDED = "merge: {engine: aggregate, aggregates: {text: max, seq: max}}"


def load(folder: Path, source: str, more: str, columns: str = COLUMNS) -> str | None:
    """The codes of the mistakes; None when there are none."""
    path = folder / "tidefold.yaml"
    path.write_text(CONFIG.format(source=source, columns=columns, more=more))
    try:
        load_config(path)
    except ConfigError as error:
        return ",".join(p.code for p in error.problems)
    return None


@pytest.mark.parametrize("name", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("options", "more", "code"),
    [
        ("", f"{KEYED}\n    order: [seq]", None),
        ("", f"{KEYED}\n    order: [seq]\n    merge: first", None),
        ("", KEYED, "SOURCE_ORDER"),
        ("", f"{KEYED}\n    order: columns", "SOURCE_ORDER"),
        ("", f"{KEYED}\n    order: position", "ORDER_INVALID"),
        ("", f"{KEYED}\n    order: [seq]\n    {ADDED}", None),
        ("", "key: []\n    merge: append", None),
        ("", f"{KEYED}\n    order: file", None),
        ("", f"{KEYED}\n    order: [seq, file]", None),
        ("", f"{KEYED}\n    order: [file, seq]", "ORDER_FILE"),
        (", time_zone: Europe/Berlin", f"{KEYED}\n    order: file", None),
        (", time_zone: Mars/Crater", f"{KEYED}\n    order: file", "CONFIG_UNKNOWN_VALUE"),
        (", offset: seq", KEYED, "CONFIG_UNKNOWN_KEY"),
        (", op: {column: op, upsert: [I], delete: [D]}", f"{KEYED}\n    order: [seq]", None),
        (", op: {column: op, upsert: [I], delete: [I]}", f"{KEYED}\n    order: [seq]", "OP_TWICE"),
        (", op: {column: op, upsert: any, ignore: [Total]}", f"{KEYED}\n    order: [seq]", "CONFIG_MISSING_KEY"),
        (", op: {column: op, upsert: any, delete: [], ignore: [Total]}", f"{KEYED}\n    order: [seq]", None),
    ],
)
def test_rows_without_offsets_need_an_order(
    name: str, options: str, more: str, code: str | None, tmp_path: Path
) -> None:
    """I25: what the number and the names of files would decide is refused."""
    assert load(tmp_path, f"{{format: {name}, path: landing/items{options}}}", more) == code


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ("{id: int, seq: long, v: binary}", "SOURCE_TYPE"),
        ('{id: int, seq: long, v: "array<int>"}', "SOURCE_TYPE"),
        ("{id: int, seq: long, v: {type: timestamp, encoding: millis}}", None),
        ('{id: int, seq: long, v: "decimal(5,2)"}', None),
    ],
)
def test_types_that_csv_cannot_have(columns: str, code: str | None, tmp_path: Path) -> None:
    assert load(tmp_path, "{format: csv, path: landing/items}", f"{KEYED}\n    order: [seq]", columns) == code


DELTA = "{id: int, text: string}"


@pytest.mark.parametrize(
    ("options", "more", "columns", "code"),
    [
        ("table: t", KEYED, DELTA, None),
        ("table: s3://bucket/t, from_version: 0", KEYED, DELTA, None),
        ("table: t", f"{KEYED}\n    merge: history", DELTA, None),
        ("table: t", "key: []\n    merge: append", DELTA, None),
        ("table: t", f"{KEYED}\n    merge: {{engine: aggregate, aggregates: {{text: max}}}}", DELTA, "SOURCE_ENGINE"),
        ("table: t", f"{KEYED}\n    order: [id]", DELTA, "ORDER_INVALID"),
        ("table: t", KEYED, "{id: int, text: {type: binary, encoding: hex}}", "ENCODING_WITHOUT_EFFECT"),
        ("table: t, from_version: -1", KEYED, DELTA, "CONFIG_OUT_OF_RANGE"),
        ("table: 's3://me:secret@bucket/t'", KEYED, DELTA, "CONFIG_SECRET"),
        ("table: wasb://bucket/t", KEYED, DELTA, "NOT_IN_THIS_VERSION"),
        ("table: ../t", KEYED, DELTA, "CONFIG_PATH"),
    ],
)
def test_logs_fed_by_a_table(options: str, more: str, columns: str, code: str | None, tmp_path: Path) -> None:
    assert load(tmp_path, f"{{format: delta-cdf, {options}}}", more, columns) == code


def test_a_table_has_no_landing_folder(tmp_path: Path) -> None:
    assert load(tmp_path, "{format: delta-cdf, path: t}", KEYED, DELTA) == "CONFIG_MISSING_KEY,CONFIG_UNKNOWN_KEY"
    assert load(tmp_path, "{format: delta-cdf, table: t}", KEYED, DELTA) is None
    log = load_config(tmp_path / "tidefold.yaml").logs["items"]
    assert log.feed
    assert (log.landing, log.feed.path) == (None, str(tmp_path / "t"))


EXTRACTED = "{id: int, text: string}"


@pytest.mark.parametrize("name", ["csv", "parquet", "json"])
@pytest.mark.parametrize(
    ("options", "more", "code"),
    [
        ("extract: full", KEYED, None),
        ("extract: {marker: _SUCCESS, min_rows: 5, max_deletes: 0.1, accept: [2026-11-02, 20261103]}", KEYED, None),
        ("extract: {row_count: '{extract}.count', date_format: '%Y%m%d_%H%M'}", f"{KEYED}\n    merge: history", None),
        ("extract: all", KEYED, "CONFIG_WRONG_TYPE"),
        ("extract: {marks: x}", KEYED, "CONFIG_UNKNOWN_KEY"),
        ("extract: {date_format: '%d %H'}", KEYED, "CONFIG_UNKNOWN_VALUE"),
        ("extract: {max_deletes: 2}", KEYED, "CONFIG_OUT_OF_RANGE"),
        ("extract: full", f"{KEYED}\n    merge: first", "EXTRACT_MERGE"),
        ("extract: full", f"{KEYED}\n    order: [id]", "ORDER_INVALID"),
        ("extract: full", f"{KEYED}\n    order: position", "ORDER_INVALID"),
        ("extract: full, op: {column: op}", KEYED, "EXTRACT_OPTION"),
    ],
)
def test_full_extracts_have_rows_and_nothing_else(
    name: str, options: str, more: str, code: str | None, tmp_path: Path
) -> None:
    assert load(tmp_path, f"{{format: {name}, path: landing/items, {options}}}", more, EXTRACTED) == code


def test_the_dates_of_accepted_extracts_are_texts(tmp_path: Path) -> None:
    """YAML reads them as a date and as a number."""
    assert (
        load(tmp_path, "{format: json, path: l, extract: {accept: [2026-11-02, 20261103]}}", KEYED, EXTRACTED) is None
    )
    feed = load_config(tmp_path / "tidefold.yaml").logs["items"].feed
    assert feed
    assert feed.options["extract"]["accept"] == ["2026-11-02", "20261103"]
    assert feed.options["record"] == "value"


@pytest.mark.parametrize(
    ("formats", "code"),
    [
        (["%d/%m/%Y", "%m/%d/%Y"], "TIME_FORMATS_AMBIGUOUS"),
        (["%d.%m.%Y", "%m-%d-%Y %H:%M", "%d-%m-%Y %H:%M"], "TIME_FORMATS_AMBIGUOUS"),
        (["%d/%m/%y", "%y/%m/%d"], "TIME_FORMATS_AMBIGUOUS"),
        (["%d/%m/%Y %H:%M", "%d/%m/%Y %I:%M"], "TIME_FORMATS_AMBIGUOUS"),
        (["%d/%m/%Y", "%m-%d-%Y", "%m/%d/%Y %H:%M", "%d/%m/%y"], None),
        (["%Y%m%d", "%Y%m%d%H%M", "%d/%m/%Y %H:%M", "%d/%m/%Y %I:%M %p"], None),
    ],
)
def test_formats_that_read_one_text_as_different_times_are_refused(
    formats: list[str], code: str | None, tmp_path: Path
) -> None:
    """A file with the month first had half of its dates read with the day first."""
    assert (
        load(
            tmp_path, f"{{format: csv, path: l, timestamp_formats: {json.dumps(formats)}}}", f"{KEYED}\n    order: file"
        )
        == code
    )
