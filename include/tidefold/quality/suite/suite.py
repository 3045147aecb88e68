"""The checks of a snapshot: tidefold's own checks and those of the log's suite file.

A suite file is code (row conditions, SQL, regular expressions), so suites come from files only, never from parameters.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidefold.domain.landed_range import LandedRange
from tidefold.domain.log_state import TableSpec
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.arguments import SuiteContext
from tidefold.quality.suite.check import REFUSED_RECORDS, Check, Severity, Types, canonical
from tidefold.quality.suite.suite_file import read_suite_file

# A part of the hash. It rises when the meaning of a built-in check changes.
_BUILT_IN = 3
# Refused records are missing or stale rows. One in a hundred is more than a few bad records.
MAX_REFUSED = 0.01


@dataclass(frozen=True, slots=True)
class Suite:
    """The checks of a log.

    max_row_drop: the share of rows (0 to 1) that a snapshot may have less than its base.
    max_refused: the share of the new records (0 to 1) that may be in quarantine.
    """

    key: tuple[str, ...]
    max_row_drop: float
    own: tuple[Check, ...] = ()
    max_refused: float = MAX_REFUSED

    @property
    def sha256(self) -> str:
        """Returns the hash of the content in canonical form, with the built-in checks and their parameters."""
        content = {
            "built_in": {
                "version": _BUILT_IN,
                "key": self.key,
                "max_row_drop": self.max_row_drop,
                "max_refused": self.max_refused,
            },
            "expectations": [[c.name, c.type, c.kwargs, c.severity] for c in self.own],
        }
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    def checks(
        self, rows: int, base_rows: int | None, landed: LandedRange | None = None, advice: str = ""
    ) -> tuple[Check, ...]:
        """Returns all checks of a snapshot.

        base_rows: rows of its base; None: no base.
        landed: its input.
        advice: the next step for refused records.
        """
        landed = landed or LandedRange()
        # A table without a key may hold equal rows.
        checks = [_build_unique(self.key), *(_build_not_null(column) for column in self.key)] if self.key else []
        checks.append(_build_check("row count of manifest", "expect_table_row_count_to_equal", value=rows))
        if base_rows is not None and landed.truncated_in:
            named = f"row count: any, as the source truncated the table in {landed.truncated_in[-1]}"
            checks.append(_build_check(named, "expect_table_row_count_to_be_between", min_value=0))
        elif base_rows is not None:
            # A fraction is exact: 1000 rows less 70 % are 300, not 300.00000000000006.
            least = math.ceil(base_rows * (1 - Fraction(str(self.max_row_drop))))
            checks.append(_build_check("row count", "expect_table_row_count_to_be_between", min_value=least))
        if landed.refused or landed.earlier:
            checks.append(_build_refused(landed, self.max_refused, advice))
        return (*checks, *self.own)


def load_suite(
    path: Path | None,
    shape: TableSpec,
    max_row_drop: float,
    logs: Mapping[str, Types] | None = None,
    max_refused: float = MAX_REFUSED,
) -> Suite:
    """The suite of a log with this shape; without a file it has only the built-in checks. `logs`: the columns (name:
    type) of the logs that it may refer to.

    Raises InvalidInputError, which lists every problem of the file with its line. Whether the expectation types exist
    is known only where Great Expectations is loaded.
    """
    if not 0 <= max_row_drop <= 1:
        raise InvalidInputError(
            "MAX_ROW_DROP",
            f"`max_row_drop` must be from 0 to 1, not {max_row_drop}.",
            hint="Give a share from 0 (no drop) to 1 (any drop).",
        )
    if path is None:
        return Suite(shape.table_key, max_row_drop, max_refused=max_refused)
    columns = {c.name: c.type for c in shape.table_columns}
    checks = read_suite_file(path, SuiteContext(columns, logs or {}))
    return Suite(shape.table_key, max_row_drop, checks, max_refused)


def _build_unique(key: tuple[str, ...]) -> Check:
    name = f"{', '.join(key)} unique"
    if len(key) == 1:
        return _build_check(name, "expect_column_values_to_be_unique", column=key[0])
    return _build_check(name, "expect_compound_columns_to_be_unique", column_list=list(key))


def _build_not_null(column: str) -> Check:
    return _build_check(f"{column} not null", "expect_column_values_to_not_be_null", column=column)


def _build_refused(landed: LandedRange, allowed: float, advice: str) -> Check:
    """Returns a check that never passes: it warns, and fails if too many new records are not in the table."""
    share = Fraction(landed.refused, max(landed.new, 1))
    severity = Severity.FAIL if share > Fraction(str(allowed)) else Severity.WARN
    kwargs = {
        "refused": landed.refused,
        "new": landed.new,
        "max_refused": allowed,
        "earlier": landed.earlier,
        "advice": advice,
    }
    return Check("refused records", REFUSED_RECORDS, kwargs, severity, built_in=True)


def _build_check(name: str, kind: str, **kwargs: Any) -> Check:
    return Check(name, kind, kwargs, built_in=True)
