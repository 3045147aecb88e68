"""Loads the configured suites of logs, and finds those that cannot be used."""

from __future__ import annotations

from tidefold.config import Config, LogConfig
from tidefold.domain.table.table_spec import TableSpec
from tidefold.errors import InvalidInputError
from tidefold.quality.suite.suite import Suite, load_suite


def load_configured_suite(config: Config, log: LogConfig, shape: TableSpec) -> Suite:
    """Returns the suite of a log for rows with this table definition. Raises InvalidInputError."""
    columns = {each.id: {c.name: c.type for c in each.shape.columns} for each in config.logs.values()}
    quality = log.quality
    return load_suite(quality.suite, shape, quality.max_row_drop, columns, quality.max_refused)


def find_suite_errors(config: Config) -> dict[str, InvalidInputError | None]:
    """Returns the error of the suite of each log; None: the suite is valid."""
    return {log.id: _find_error(config, log) for log in config.logs.values()}


def _find_error(config: Config, log: LogConfig) -> InvalidInputError | None:
    try:
        load_configured_suite(config, log, log.shape)
    except InvalidInputError as error:
        return error
    return None
