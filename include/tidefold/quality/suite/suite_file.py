"""Reads a suite file: every mistake with its line, key and next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

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
from tidefold.quality.suite.check import OWN, Check, Severity
from tidefold.yaml_files.document import ConfigError, ConfigProblem, config_error, parse_document, read_text
from tidefold.yaml_files.messages import find_problems
from tidefold.yaml_files.model import StrictModel, Text, mistakes_below, suggest

# A list of values may be long.
_SIZE_LIMIT = 16 << 20
# Arguments that select rows or the form of results: tidefold sets them.
_RESERVED = ("batch_id", "result_format", "catch_exceptions", "meta", "id", "severity")
_COLUMN_ARGUMENTS = ("column", "column_A", "column_B")
_LONGEST_NAME = 80


def _require_line(name: str) -> str:
    if not name.isprintable():
        raise refuse("must be one line of text.")
    return name


class _SharedKeys(StrictModel):
    """The keys of every entry."""

    page = "docs/quality.md"
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
        known = [*CATALOGUE, "name", "severity", "allow"]
        unknown: dict[tuple[str | int, ...], PydanticCustomError] = {
            (key,): refuse("is not a known check.", suggest(key, known, f"Checks are: {kinds}."))
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

    page = "docs/quality.md"
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
