"""How numbers and local times are spelled: what is read, what is refused, and what only a person knows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidefold.domain.log_state import Column
from tidefold.sources.inference.values import find_spellings
from tidefold.sources.landing.folders import read_folders
from tidefold.sources.landing.streams import CutShortError, DamagedError, split_document
from tidefold.sources.records.columnar_values import convert_texts, explain_misfit, find_day_order
from tidefold.sources.records.text_forms import Spelling, find_formats


def _read(texts: list[str], type_: str, spelling: Spelling) -> list[str | None]:
    values, _ = convert_texts(pa.array([text.encode() for text in texts]), Column("c", type_), spelling)
    return [None if value is None else str(value) for value in values.to_pylist()]


@pytest.mark.parametrize(
    ("spelling", "texts", "values"),
    [
        (Spelling(decimal=","), ["1,5", "-0,25", "7", "1.5", "1.234,5"], ["1.50", "-0.25", "7.00", None, None]),
        (
            Spelling(decimal=",", thousands="."),
            ["1.234,50", "12.345.678", "1234,5", "1.23,4", "0.123", "1.5"],
            ["1234.50", "12345678.00", "1234.50", None, None, None],
        ),
        (Spelling(thousands="'"), ["1'234.50", "1\u2019234", "12'34"], ["1234.50", "1234.00", None]),
        (Spelling(decimal=",", thousands=" "), ["1\u202f234,5", "1 234", "1\u00a0234 5"], ["1234.50", "1234.00", None]),
    ],
)
def test_numbers_are_read_as_spelled_or_refused(spelling: Spelling, texts: list[str], values: list[str | None]) -> None:
    assert _read(texts, "decimal(12,2)", spelling) == values


def test_a_local_time_is_the_earlier_of_two_and_one_that_clocks_never_showed_is_refused() -> None:
    berlin = Spelling(("%d.%m.%Y %H:%M",), time_zone="Europe/Berlin")
    texts = ["2026-07-01 12:00:00", "25.10.2026 02:30", "2026-03-29 02:30:00", "2026-03-29T02:30:00Z", "2026-01-31"]
    assert _read(texts, "timestamp", berlin) == [
        "2026-07-01 10:00:00+00:00",
        "2026-10-25 00:30:00+00:00",
        None,
        "2026-03-29 02:30:00+00:00",
        "2026-01-30 23:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("columns", "spellings"),
    [
        ([["1.234", "2.500"]], [(".", ""), (",", ".")]),
        ([["1,234"], ["a", "b"]], [(",", ""), (".", ",")]),
        ([["1.234", "0.5"]], [(".", "")]),
        ([["1.234", "1,5"]], [(",", ".")]),
        ([["1.234"], ["1.234,50"]], [(",", ".")]),
        ([["732 829 320", "1 000 000"]], [(".", "")]),
        ([["10.0.0.1"], ["01.11.2026"]], [(".", "")]),
        ([["1.5"], ["1,5"]], [(".", "")]),
    ],
)
def test_one_spelling_fits_all_columns_and_what_is_ambiguous_has_two(
    columns: list[list[str]], spellings: list[tuple[str, str]]
) -> None:
    assert [(one.decimal, one.thousands) for one in find_spellings(columns)] == spellings


@pytest.mark.parametrize(
    ("text", "path", "records"),
    [
        ('[{"a": 1.10}, {"a": "x\\ny}\\n{"}]', ".", ['{"a": 1.10}', '{"a": "x\\ny}\\n{"}']),
        ('{"a":\n 1}\n{"a": 2}', ".", ['{"a":  1}', '{"a": 2}']),
        ('{"a": "}{"}{"a": 2}', ".", ['{"a": "}{"}', '{"a": 2}']),
        ('{"r": {"i": [{"a": 1}]}}\n{"r": {"i": []}}', ".r.i", ['{"a": 1}']),
    ],
)
def test_records_of_documents_keep_their_text(text: str, path: str, records: list[str]) -> None:
    assert [one.decode() for one in split_document(text.encode(), path)] == records


@pytest.mark.parametrize(
    ("text", "error"), [('[{"a": 1}, {"a"', CutShortError), ("[1, }", DamagedError), ('{"a": 1}', DamagedError)]
)
def test_a_document_is_read_as_a_whole_or_not_at_all(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(split_document(text.encode(), ".data"))


def test_folders_name_values() -> None:
    assert read_folders("dt=2026-11-01/c=a%20b/n=__HIVE_DEFAULT_PARTITION__/x=1.csv") == {
        "dt": "2026-11-01",
        "c": "a b",
        "n": None,
    }


DAY, MONTH = '`timestamp_formats: ["%d/%m/%Y %H:%M"]`', '`timestamp_formats: ["%m/%d/%Y %H:%M"]`'
UNCLEAR = "The values do not decide whether the day or the month comes first."


@pytest.mark.parametrize(
    ("others", "formats", "ways"),
    [
        ([], (), [DAY, MONTH]),
        (["2026-11-12", "11/12/2026"], (), [DAY, MONTH]),
        (["11/25/2026 09:00"], (), [MONTH]),
        (["25/11/2026"], (), [DAY]),
        (["25/11/2026", "11/25/2026"], (), [DAY, MONTH]),
        ([], ("%m/%d/%Y",), ['`timestamp_formats: ["%m/%d/%Y", "%m/%d/%Y %H:%M"]`']),
    ],
)
def test_the_hint_names_both_orders_of_day_and_month_unless_a_value_decides(
    others: list[str], formats: tuple[str, ...], ways: list[str]
) -> None:
    at, value, spelling = Column("at", "timestamp"), b"11/12/2026 10:00", Spelling(formats)
    first = find_day_order(pa.array([value, *map(str.encode, others)]), at, spelling)
    text = explain_misfit(value, at, spelling, first)
    assert f"To read it, set {' or '.join(ways)} under `source`" in text
    assert (UNCLEAR in text) == (len(ways) == 2)


@pytest.mark.parametrize(("formats", "value"), [(("%d/%m/%Y %H:%M",), "29/03/2026 02:30"), ((), "2026-03-29 02:30:00")])
def test_a_time_that_the_clocks_skipped_needs_no_other_format(formats: tuple[str, ...], value: str) -> None:
    text = explain_misfit(value.encode(), Column("at", "timestamp"), Spelling(formats, time_zone="Europe/Berlin"))
    assert text == f"`at` is '{value}', in an hour that the clocks of Europe/Berlin skipped."


@pytest.mark.parametrize(
    ("used", "value"),
    [
        ("%d/%m/%Y", "11/25/2026"),
        ("%m/%d/%Y", "25/11/2026 10:00"),
        ("%d.%m.%y", "11.25.26"),
        ("%m-%d-%Y %H:%M", "25-11-2026"),
    ],
)
def test_no_hint_adds_a_format_with_day_and_month_swapped(used: str, value: str) -> None:
    """Values up to 12 of the same file were read in the configured order."""
    at, spelling = Column("at", "timestamp"), Spelling((used,))
    text = explain_misfit(value.encode(), at, spelling, find_day_order(pa.array([value.encode()]), at, spelling))
    names = ("day", "month") if used.startswith("%d") else ("month", "day")
    assert f"with the {names[1]} first. `timestamp_formats` has " in text
    assert f"other values of the file are read with the {names[0]} first." in text
    assert "set `timestamp_formats" not in text


def test_another_separator_or_length_says_nothing_about_the_order_of_day_and_month() -> None:
    for used, value in (("%Y/%m/%d", "25/11/2026"), ("%d.%m.%Y", "11/25/2026"), ("%d/%m/%Y", "25/11/2026 10:00")):
        assert "To read it, set `timestamp_formats" in explain_misfit(
            value.encode(), Column("at", "timestamp"), Spelling((used,))
        )


@pytest.mark.parametrize(
    ("value", "formats"),
    [
        ("11-12-2026", ["%d-%m-%Y", "%m-%d-%Y"]),
        ("11-25-2026", ["%m-%d-%Y"]),
        ("25/11/2026 1:00 PM", ["%d/%m/%Y %I:%M %p"]),
        ("11.12.2026", ["%d.%m.%Y"]),
        ("soon", []),
    ],
)
def test_the_formats_of_a_time(value: str, formats: list[str]) -> None:
    assert find_formats(value, "timestamp") == formats
