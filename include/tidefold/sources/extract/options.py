"""What `source.extract` of a configuration says, as plain values that tasks receive."""

from __future__ import annotations

import msgspec


class ExtractOptions(msgspec.Struct, frozen=True):
    """How a log reads full extracts.

    marker: the file that says that an extract is complete; None: there is none.
    row_count: the file that contains how many rows an extract has; None: there is none.
    min_rows: an extract with fewer rows is refused.
    max_deletes: an extract that deletes a larger share of the rows is refused.
    accept: the extracts, as their names have the date, that somebody accepts in spite of these two limits.
    date_format: how names have the date of an extract; None: as ISO 8601.
    """

    marker: str | None = None
    row_count: str | None = None
    min_rows: int = 1
    max_deletes: float = 0.2
    accept: tuple[str, ...] = ()
    date_format: str | None = None
