"""The catalogue: short entries under `checks` of a suite file. One class is one kind of check.

Great Expectations evaluates single rows and fixed bounds. tidefold computes what compares with another snapshot or
another table (`run/run_checks.py`).

The first line of a class says when the check passes; `scripts/suite_reference.py` writes the table in
docs/reference/quality.md from it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import Discriminator, Tag, model_validator

from tidefold.quality.suite import arguments, check
from tidefold.yaml_files.messages import StrictModel

_LONGEST_NAME = 80


class CatalogueCheck(StrictModel):
    """One kind of check. Its fields are the keys of the entry."""

    page: ClassVar[str] = "docs/reference/quality.md"
    # Whether the check tests single rows, so that a share of them may fail.
    of_rows: ClassVar[bool] = False
    implicit = ("columns",)

    @model_validator(mode="before")
    @classmethod
    def _find_arguments(cls, entry: dict[str, Any]) -> Any:
        """Returns the arguments of `{kind: arguments}`."""
        [value] = entry.values()
        if list(cls.model_fields) == ["columns"]:
            return {"columns": value}
        if not isinstance(value, dict):
            keys = [f"`{k}`{'' if f.is_required() else ' (optional)'}" for k, f in cls.model_fields.items()]
            raise arguments.refuse(f"must be a mapping with {', '.join(keys)}.")
        return value

    def build(self) -> list[check.Check]:
        """Returns the checks of the entry."""
        raise NotImplementedError

    def _require_one_of(self, *keys: str) -> None:
        if all(getattr(self, key) is None for key in keys):
            raise arguments.refuse(f"needs {' or '.join(f'`{k}`' for k in keys)}.")


class UniqueCheck(CatalogueCheck):
    """no two rows have the same value (of the columns together). Rows that are null in all of them are left out"""

    of_rows = True
    columns: arguments.Columns

    def build(self) -> list[check.Check]:
        name = f"{', '.join(self.columns)} unique"
        if len(self.columns) == 1:
            return [check.Check(name, "expect_column_values_to_be_unique", {"column": self.columns[0]})]
        return [check.Check(name, "expect_compound_columns_to_be_unique", {"column_list": self.columns})]


class NotNullCheck(CatalogueCheck):
    """every row has a value; one check for each column"""

    of_rows = True
    columns: arguments.Columns

    def build(self) -> list[check.Check]:
        type_ = "expect_column_values_to_not_be_null"
        return [check.Check(f"{column} not null", type_, {"column": column}) for column in self.columns]


class BoundedCheck(CatalogueCheck):
    """A check with a least and a greatest value."""

    @property
    def bounds(self) -> dict[str, Any]:
        """Returns the bounds as arguments of Great Expectations."""
        limits = {"min_value": getattr(self, "min", None), "max_value": getattr(self, "max", None)}
        return {key: value for key, value in limits.items() if value is not None}

    @model_validator(mode="after")
    def _require_bounds(self) -> Self:
        self._require_one_of("min", "max")
        least, most = self.bounds.get("min_value"), self.bounds.get("max_value")
        if least is not None and most is not None and least > most:
            raise arguments.refuse(f"has a `min` ({least}) that is greater than its `max` ({most}).")
        return self

    def _describe_bounds(self) -> str:
        least, most = self.bounds.get("min_value"), self.bounds.get("max_value")
        if most is None:
            return f"at least {least}"
        return f"at most {most}" if least is None else f"from {least} to {most}"


class RangeCheck(BoundedCheck):
    """every value is in the range, bounds included; one bound is enough"""

    of_rows = True
    column: arguments.Ordered
    min: arguments.BoundValue = None
    max: arguments.BoundValue = None

    def build(self) -> list[check.Check]:
        name = f"{self.column} {self._describe_bounds()}"
        return [check.Check(name, "expect_column_values_to_be_between", {"column": self.column, **self.bounds})]


class InSetCheck(CatalogueCheck):
    """every value is in the list"""

    of_rows = True
    column: arguments.Discrete
    values: arguments.Values
    words: ClassVar[str] = "in set"
    type_: ClassVar[str] = "expect_column_values_to_be_in_set"

    def build(self) -> list[check.Check]:
        kwargs = {"column": self.column, "value_set": self.values}
        return [check.Check(f"{self.column} {self.words}", self.type_, kwargs)]


class NotInSetCheck(InSetCheck):
    """no value is in the list"""

    words, type_ = "not in set", "expect_column_values_to_not_be_in_set"


class LengthCheck(BoundedCheck):
    """every text has so many characters, bounds included; one bound is enough"""

    of_rows = True
    column: arguments.String
    min: arguments.RowLimit = None
    max: arguments.RowLimit = None

    def build(self) -> list[check.Check]:
        name = f"length of {self.column} {self._describe_bounds()}"
        kwargs = {"column": self.column, **self.bounds}
        return [check.Check(name, "expect_column_value_lengths_to_be_between", kwargs)]


class MatchesCheck(CatalogueCheck):
    """the regular expression (Java's) is found in every value; `^` and `$` anchor it"""

    of_rows = True
    column: arguments.String
    regex: arguments.Regex

    def build(self) -> list[check.Check]:
        name = f"{self.column} matches {self.regex}"[:_LONGEST_NAME]
        kwargs = {"column": self.column, "regex": self.regex}
        return [check.Check(name, "expect_column_values_to_match_regex", kwargs)]


class RowCountCheck(BoundedCheck):
    """the number of rows is in the range"""

    min: arguments.RowLimit = None
    max: arguments.RowLimit = None

    def build(self) -> list[check.Check]:
        return [
            check.Check(f"row count {self._describe_bounds()}", "expect_table_row_count_to_be_between", self.bounds)
        ]


class RowCountDriftCheck(CatalogueCheck):
    """the number of rows changed by no more than these shares of the base's (0.1: a tenth)"""

    max_drop: arguments.DriftShare = None
    max_growth: arguments.DriftShare = None

    @model_validator(mode="after")
    def _require_limit(self) -> Self:
        self._require_one_of("max_drop", "max_growth")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """Returns the limits that the entry sets."""
        shares = {"max_drop": self.max_drop, "max_growth": self.max_growth}
        return {key: value for key, value in shares.items() if value is not None}

    def build(self) -> list[check.Check]:
        return [check.Check("row count drift", check.ROW_COUNT_DRIFT, self.limits)]


class SumDriftCheck(RowCountDriftCheck):
    """the same for the column's sum; shares of its absolute value. If the base's sum is 0, only 0 passes"""

    column: arguments.Number

    def build(self) -> list[check.Check]:
        return [check.Check(f"sum of {self.column}", check.SUM_DRIFT, {"column": self.column, **self.limits})]


class MeanDriftCheck(RowCountDriftCheck):
    """the same for the mean"""

    column: arguments.Number

    def build(self) -> list[check.Check]:
        return [check.Check(f"mean of {self.column}", check.MEAN_DRIFT, {"column": self.column, **self.limits})]


class FreshnessCheck(CatalogueCheck):
    """the newest value is not older (minutes, hours, days). Without any value it fails"""

    column: arguments.Instant
    max_age: arguments.Age

    def build(self) -> list[check.Check]:
        kwargs = {"column": self.column, "max_age_seconds": arguments.count_seconds(self.max_age)}
        return [check.Check(f"{self.column} at most {self.max_age} old", check.FRESHNESS, kwargs)]


class ReferencesCheck(CatalogueCheck):
    """every value is found there, in the newest completed snapshot of that log. Without a snapshot it fails"""

    column: arguments.Comparable
    to: arguments.ReferencedColumn
    staged: arguments.Flag = False

    def build(self) -> list[check.Check]:
        log, _, other = self.to.partition(".")
        kwargs = {"column": self.column, "log": log, "log_column": other, "staged": self.staged}
        return [check.Check(f"{self.column} in {log}.{other}", check.REFERENCES, kwargs)]


class DistributionCheck(CatalogueCheck):
    """no more than this share of the rows moved (0.1: a tenth)"""

    column: arguments.Comparable
    max_shift: Annotated[float, arguments.share_from(0.01, 1)]

    def build(self) -> list[check.Check]:
        kwargs = {"column": self.column, "max_shift": self.max_shift}
        return [check.Check(f"distribution of {self.column}", check.DISTRIBUTION, kwargs)]


_Union = (
    Annotated[UniqueCheck, Tag("unique")]
    | Annotated[NotNullCheck, Tag("not_null")]
    | Annotated[RangeCheck, Tag("range")]
    | Annotated[InSetCheck, Tag("in_set")]
    | Annotated[NotInSetCheck, Tag("not_in_set")]
    | Annotated[LengthCheck, Tag("length")]
    | Annotated[MatchesCheck, Tag("matches")]
    | Annotated[RowCountCheck, Tag("row_count")]
    | Annotated[RowCountDriftCheck, Tag("row_count_drift")]
    | Annotated[SumDriftCheck, Tag("sum_drift")]
    | Annotated[MeanDriftCheck, Tag("mean_drift")]
    | Annotated[FreshnessCheck, Tag("freshness")]
    | Annotated[ReferencesCheck, Tag("references")]
    | Annotated[DistributionCheck, Tag("distribution")]
)
# The name of each kind -> its class.
CATALOGUE: dict[str, type[CatalogueCheck]] = {
    tag.tag: kind for kind, tag in (get_args(choice) for choice in get_args(_Union))
}
# `{kind: arguments}`, as the file has it.
AnyCheck = Annotated[_Union, Discriminator(lambda entry: next(iter(entry)))]
