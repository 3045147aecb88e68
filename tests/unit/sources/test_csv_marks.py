"""What pyarrow's parser would read in silence as something else is a null, or a refused row: never another value."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from tidefold.sources.files.csv_marks import NULL, STRAY, CsvMarks

_CELLS = st.text(st.sampled_from("aN\\\"',;\n\r \x1b"), max_size=6)


def _written(rows: list[list[str]], escape: str) -> bytes:
    text = io.StringIO()
    kind = {"doublequote": False, "escapechar": escape} if escape else {}
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n", **kind).writerows(rows)
    return text.getvalue().encode()


@given(st.lists(st.lists(_CELLS, min_size=2, max_size=3), max_size=4), st.sampled_from(["", "\\"]), st.integers(1, 9))
def test_well_written_text_gets_no_mark(rows: list[list[str]], escape: str, size: int) -> None:
    text = _written(rows, escape)
    marks = CsvMarks.of(",", '"', escape, ("", "\\N"))
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert b"".join(marks.mark_blocks(blocks)) == text


def test_only_a_whole_unquoted_field_is_an_escaped_null() -> None:
    marks = CsvMarks.of(",", '"', "\\", ("", "\\N"))
    assert marks.mark(b'\\N,"\\N",a\\N,\\N\r\n\\N\n') == NULL + b',"\\N",a\\N,' + NULL + b"\r\n" + NULL + b"\n"
    assert marks.null_values == ["", NULL.decode()]
    assert CsvMarks.of(",", '"', "", ("", "\\N")).null_values == ["", "\\N"]


def test_text_behind_a_closing_quote_is_marked() -> None:
    marks = CsvMarks.of(",", '"', "", ("",))
    for stray in (b'"a" b', b'"say \\"hi\\""', b'"a"b"'):
        assert marks.mark(b"1," + stray + b"\n") == b"1," + STRAY + b"," + stray + b"\n"
    for plain in (b'5" pipe', b'"a ""b"" c"', b'a"b"', b'"""a"""'):
        assert marks.mark(b"1," + plain + b"\n") == b"1," + plain + b"\n"
