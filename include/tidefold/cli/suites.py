"""What `validate` looks at beside the configuration file itself: the files and folders that it names."""

from __future__ import annotations

from tidefold.config import Config, Problem, config_error, key_line
from tidefold.lifecycle.errors import InvalidInputError
from tidefold.quality.suite import load_suite


def check_suites(config: Config) -> None:
    """Raises ConfigError naming each log whose suite file is missing or wrong, with the line that names the file."""
    problems = []
    columns = {log.id: {c.name: c.type for c in log.columns} for log in config.logs.values()}
    for log in config.logs.values():
        try:
            load_suite(log.quality.suite, log.shape, log.quality.max_row_drop, columns)
        except InvalidInputError as error:
            place = ("logs", log.id, "quality", "suite")
            line = key_line(config.path, place)
            problems.append(Problem(error.code, line, ".".join(place), f"is of no use: {error.message}", error.hint))
    if problems:
        raise config_error(config.path, problems)


def missing_folders(config: Config) -> list[str]:
    """Landing folders that are not there: no mistake, since files may land later."""
    return [
        f"{log.id}: the landing folder {log.source.folder} does not exist yet."
        for log in config.logs.values()
        if log.source and log.source.folder and not log.source.folder.is_dir()
    ]
