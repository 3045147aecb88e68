"""Loads the configured suites of logs, and finds those that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidefold.config import Config, LogConfig
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.suite import Suite, load_suite


@dataclass(frozen=True, slots=True)
class ConfiguredTypes(Mapping[str, Mapping[str, str]]):
    """The types of the columns of each configured log. A suite asks for few logs of thousands."""

    logs: Mapping[str, LogConfig]

    def __getitem__(self, log: str) -> Mapping[str, str]:
        return {column.name: column.type for column in self.logs[log].shape.columns}

    def __iter__(self) -> Iterator[str]:
        return iter(self.logs)

    def __len__(self) -> int:
        return len(self.logs)


def load_configured_suite(config: Config, log: LogConfig, shape: TableSpec) -> Suite:
    """Returns the suite of a log for rows with this table definition. Raises InvalidInputError."""
    quality, columns = log.quality, ConfiguredTypes(config.logs)
    limits = quality.max_refused, quality.max_ties, quality.max_left_out
    return load_suite(log.suite, shape, quality.max_row_drop, columns, *limits)


def find_suite_errors(config: Config) -> dict[str, InvalidInputError | None]:
    """Returns the error of the suite of each log; None: the suite is valid."""
    return {log.id: _find_error(config, log) for log in config.logs.values()}


def _find_error(config: Config, log: LogConfig) -> InvalidInputError | None:
    try:
        load_configured_suite(config, log, log.shape)
    except InvalidInputError as error:
        return error
    return None
