"""The configured `source.extract`, as plain values that tasks receive."""

from __future__ import annotations

import msgspec


class ExtractOptions(msgspec.Struct, frozen=True):
    """How a log reads full extracts.

    marker: the file that marks an extract as complete; None: there is none.
    row_count: the file that contains how many rows an extract has; None: there is none.
    min_rows: an extract with fewer rows is refused.
    max_deletes: an extract that deletes a larger share of the rows is refused.
    accept: the dates, as in file names, of extracts that are ingested in spite of these two limits.
    date_format: how file names write the date of an extract; None: as ISO 8601.
    """

    marker: str | None = None
    row_count: str | None = None
    min_rows: int = 1
    max_deletes: float = 0.2
    accept: tuple[str, ...] = ()
    date_format: str | None = None
