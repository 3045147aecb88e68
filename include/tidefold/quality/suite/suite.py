"""The checks of a snapshot: tidefold's own checks and those of the log's suite file.

A suite file is code (row conditions, SQL, regular expressions), so suites come from files only, never from parameters.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from tidefold.domain.log_state import TableSpec
from tidefold.domain.source_progress_history import LandedRange
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.arguments import (
    Allowed,
    SuiteContext,
    context_of,
    explain_unknown_column,
    is_plain,
    listing,
    refuse,
)
from tidefold.quality.suite.catalogue import CATALOGUE, AnyCheck
from tidefold.quality.suite.check import (
    COUNTED,
    OWN,
    REFUSED_RECORDS,
    SOURCE_SNAPSHOT,
    Check,
    Severity,
    Types,
    canonical,
)
from tidefold.yaml_files.document import ConfigError, ConfigProblem, config_error, parse_document, read_text
from tidefold.yaml_files.messages import StrictModel, Text, find_problems, mistakes_below, suggest

# A list of values may be long.
_SIZE_LIMIT = 16 << 20
# Arguments that select rows or the form of results: tidefold sets them.
_RESERVED = ("batch_id", "result_format", "catch_exceptions", "meta", "id", "severity")
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
_LONGEST_NAME = 80
# A part of the hash. It rises when the meaning of a built-in check changes.
_BUILT_IN = 3
# Refused records are missing or stale rows. One in a hundred is more than a few bad records.
MAX_REFUSED = 0.01


def _require_line(name: str) -> str:
    if not name.isprintable():
        raise refuse("must be one line of text.")
    return name


class _SharedKeys(StrictModel):
    """The keys of every entry."""

    page = "docs/reference/quality.md"
    name: Annotated[str, AfterValidator(_require_line)] | None = None
    severity: Literal["fail", "warn"] | None = None

    @property
    def effect(self) -> Severity:
        """Returns what a failure does."""
        return Severity(self.severity or Severity.FAIL)


class CheckEntry(_SharedKeys):
    """An entry of `checks`: one kind of the catalogue, and what every entry may have."""

    implicit = ("check",)
    allow: Allowed = None
    check: AnyCheck

    @model_validator(mode="before")
    @classmethod
    def _find_check(cls, entry: Any) -> Any:
        kinds = ", ".join(CATALOGUE)
        if not isinstance(entry, dict):
            raise refuse("must be a mapping such as `range: {column: ..., min: 0}`.", f"Checks are: {kinds}.")
        shared = {key: entry[key] for key in ("name", "severity", "allow") if key in entry}
        named = {key: value for key, value in entry.items() if key not in shared}
        words = [*CATALOGUE, "name", "severity", "allow"]
        unknown: dict[tuple[str | int, ...], PydanticCustomError] = {
            (key,): refuse("is not a known check.", suggest(key, words, f"Checks are: {kinds}."))
            for key in named
            if key not in CATALOGUE
        }
        if unknown:
            raise mistakes_below(unknown, entry)
        if len(named) != 1:
            raise refuse(f"must have exactly one check, but it has {listing(named) or 'none'}.")
        return {**shared, "check": named}

    @model_validator(mode="after")
    def _require_rows(self) -> Self:
        if self.allow is not None and not self.check.of_rows:
            rows = ", ".join(kind for kind, check in CATALOGUE.items() if check.of_rows)
            raise mistakes_below({("allow",): refuse(f"works only with checks of single rows: {rows}.")}, self.allow)
        return self

    def build(self) -> list[Check]:
        """Returns the checks of the entry. `mostly` of Great Expectations is the share of good rows."""
        checks = self.check.build()
        mostly = {"mostly": 1 - self.allow} if self.allow else {}
        return [
            replace(check, name=self._name(check, len(checks)), kwargs={**check.kwargs, **mostly}, severity=self.effect)
            for check in checks
        ]

    def _name(self, check: Check, checks: int) -> str:
        if not self.name:
            return check.name
        return self.name if checks == 1 else f"{self.name} ({check.name})"


def _refuse_own(type_: str) -> str:
    if type_.startswith(OWN):
        raise refuse(f"is `{type_}`, which is not an expectation.", "Write it under `checks`, as the catalogue shows.")
    return type_


def _check_kwargs(kwargs: Any, info: ValidationInfo) -> Any:
    errors: dict[tuple[str | int, ...], PydanticCustomError] = {
        (key,): refuse("is set by tidefold.", "Remove it.") for key in kwargs if key in _RESERVED
    }
    if not is_plain(kwargs):
        errors[()] = refuse("contains a value that is not text, a number, a date, a list or a mapping.")
    if info.data.get("type") != "expect_column_to_exist":
        named: dict[tuple[str | int, ...], Any] = {(k,): kwargs[k] for k in _COLUMN_ARGUMENTS if k in kwargs}
        listed = kwargs.get("column_list")
        named |= {("column_list", i): name for i, name in enumerate(listed if isinstance(listed, list) else [])}
        columns = context_of(info).columns
        errors |= {at: explain_unknown_column(name, columns) for at, name in named.items() if name not in columns}
    if errors:
        raise mistakes_below(errors, kwargs)
    return kwargs


class ExpectationEntry(_SharedKeys):
    """An entry of `expectations`: an expectation of Great Expectations by its own name."""

    type: Annotated[Text, AfterValidator(_refuse_own)] = Field(
        description="the name of an expectation of Great Expectations, in snake case"
    )
    kwargs: Annotated[dict[str, Any], AfterValidator(_check_kwargs)] | None = Field(
        default=None, description="its arguments"
    )

    def build(self) -> Check:
        """Returns the check."""
        kwargs = self.kwargs or {}
        return Check(self.name or _describe(self.type, kwargs), self.type, kwargs, self.effect)


def _describe(type_: str, kwargs: Mapping[str, Any]) -> str:
    """`expect_column_values_to_be_in_set` of column bid: `bid values to be in set`."""
    columns = [kwargs[k] for k in _COLUMN_ARGUMENTS if isinstance(kwargs.get(k), str)]
    listed = kwargs.get("column_list")
    columns += [str(c) for c in listed] if isinstance(listed, list) else []
    text = type_.removeprefix("expect_")
    if columns:
        for prefix in ("column_pair_", "compound_columns_", "multicolumn_", "select_column_", "column_"):
            text = text.removeprefix(prefix)
        text = f"{', '.join(columns)} {text}"
    return text.replace("_", " ")[:_LONGEST_NAME]


class SuiteFile(StrictModel):
    """A suite file: entries of the catalogue, and expectations of Great Expectations."""

    page = "docs/reference/quality.md"
    checks: list[CheckEntry] | None = None
    expectations: list[ExpectationEntry] | None = None

    def build(self) -> tuple[Check, ...]:
        """Returns all checks, those of the catalogue first."""
        catalogue = [check for entry in self.checks or () for check in entry.build()]
        return (*catalogue, *(entry.build() for entry in self.expectations or ()))


def read_suite_file(path: Path, context: SuiteContext) -> tuple[Check, ...]:
    """Returns the checks of a suite file. Raises ConfigError with every mistake."""
    try:
        text = read_text(path, _SIZE_LIMIT)
    except ConfigError as error:
        hint = "Correct the path `quality.suite` of the log, or make the file readable."
        unreadable = [
            replace(p, code="SUITE_UNREADABLE", hint=hint if p.code == "CONFIG_UNREADABLE" else p.hint)
            for p in error.problems
        ]
        raise config_error(path, unreadable) from error
    problems: list[ConfigProblem] = []
    checks: tuple[Check, ...] = ()
    try:
        document = parse_document(path, text, dates=True)
        problems += document.problems
        if not isinstance(document.data, dict):
            message = "must be a mapping with the keys `checks` and `expectations`."
            raise config_error(path, [ConfigProblem("SUITE_INVALID", 1, "", message)])
        checks = SuiteFile.model_validate(document.data, context=context).build()
    except ValidationError as error:
        problems += find_problems(error, SuiteFile, document)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise config_error(path, [replace(p, code="SUITE_INVALID") for p in problems])
    return checks


@dataclass(frozen=True, slots=True)
class Suite:
    """The checks of a log.

    max_row_drop: the share of rows (0 to 1) that a snapshot may have less than its base.
    max_refused: the share of the new records (0 to 1) that may be in quarantine.
    max_ties: how many keys may have a tie; None: any number, as a tie is no error.
    max_left_out: how many keys may have no row; None: the check warns of each.
    """

    key: tuple[str, ...]
    max_row_drop: float
    own: tuple[Check, ...] = ()
    max_refused: float = MAX_REFUSED
    max_ties: int | None = None
    max_left_out: int | None = None

    @property
    def sha256(self) -> str:
        """Returns the hash of the content in canonical form, with the built-in checks and their parameters."""
        content = {
            "built_in": {
                "version": _BUILT_IN,
                "key": self.key,
                "max_row_drop": self.max_row_drop,
                "max_refused": self.max_refused,
                "max_ties": self.max_ties,
                "max_left_out": self.max_left_out,
            },
            "expectations": [[c.name, c.type, c.kwargs, c.severity] for c in self.own],
        }
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    def checks(
        self,
        rows: int,
        base_rows: int | None,
        landed: LandedRange | None = None,
        advice: str = "",
        ties: int = 0,
        left_out: int = 0,
    ) -> tuple[Check, ...]:
        """Returns all checks of a snapshot.

        base_rows: rows of its base; None: no base.
        landed: its input.
        advice: the next step for refused records.
        ties, left_out: how many keys have a tie, and how many have no row, because a value was not sent.
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
        if landed.unended:
            checks.append(_build_source_snapshot(landed))
        if ties or self.max_ties is not None:
            checks.append(_build_check("ties", COUNTED, ties=ties, max_ties=self.max_ties))
        if left_out or self.max_left_out is not None:
            severity = Severity.WARN if self.max_left_out is None else Severity.FAIL
            kwargs = {"left_out": left_out, "max_left_out": self.max_left_out}
            checks.append(Check("rows left out", COUNTED, kwargs, severity, built_in=True))
        # What a user wrote again stands once.
        written = [(check.type, check.kwargs) for check in checks]
        return (*checks, *(one for one in self.own if (one.type, one.kwargs) not in written))


def load_suite(
    path: Path | None,
    shape: TableSpec,
    max_row_drop: float,
    logs: Mapping[str, Types] | None = None,
    max_refused: float = MAX_REFUSED,
    max_ties: int | None = None,
    max_left_out: int | None = None,
) -> Suite:
    """The suite of a log with this shape; without a file it has only the built-in checks. `logs`: the columns (name:
    type) of the logs that it may refer to.

    Raises InvalidInputError, which lists every problem of the file with its line. Whether the expectation types exist
    is known only where Great Expectations is loaded.
    """
    if not 0 <= max_row_drop <= 1:
        raise InvalidInputError("MAX_ROW_DROP", f"`max_row_drop` must be from 0 to 1, not {max_row_drop}.")
    if path is None:
        return Suite(shape.table_key, max_row_drop, (), max_refused, max_ties, max_left_out)
    checks = read_suite_file(path, SuiteContext(shape.types, logs or {}))
    return Suite(shape.table_key, max_row_drop, checks, max_refused, max_ties, max_left_out)


def _build_unique(key: tuple[str, ...]) -> Check:
    name = f"{', '.join(key)} unique"
    if len(key) == 1:
        return _build_check(name, "expect_column_values_to_be_unique", column=key[0])
    return _build_check(name, "expect_compound_columns_to_be_unique", column_list=list(key))


def _build_not_null(column: str) -> Check:
    return _build_check(f"{column} not null", "expect_column_values_to_not_be_null", column=column)


def build_age_check(rows: int, expired: int) -> Check:
    """Returns a check that fails: all rows with an age were dropped, as a clock that is wrong would drop them."""
    named = f"row count: `ttl` dropped all {expired:,} rows with an age, by the clock of the run"
    return _build_check(named, "expect_table_row_count_to_be_between", min_value=rows + 1)


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


def _build_source_snapshot(landed: LandedRange) -> Check:
    """Returns a check that never passes: it fails when rows went, and warns as long as they are missing."""
    severity = Severity.FAIL if landed.is_unended_new else Severity.WARN
    return Check("source snapshot", SOURCE_SNAPSHOT, {"topics": [*landed.unended]}, severity, built_in=True)


def _build_check(name: str, kind: str, **kwargs: Any) -> Check:
    return Check(name, kind, kwargs, built_in=True)
