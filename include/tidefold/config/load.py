"""The configuration of a pipeline: `load_config` reads and checks `tidefold.yaml`, and reports every mistake in it."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from tidefold.config.addresses import check_all, check_sets
from tidefold.config.models.file import Config
from tidefold.config.models.log import LogConfig
from tidefold.config.validation import check_log
from tidefold.domain.wording import count_noun
from tidefold.errors import NotFoundError
from tidefold.yaml_files.document import ConfigProblem, YamlDocument, YamlPath, config_error, parse_document, read_text
from tidefold.yaml_files.messages import find_problems

# How `tidefold init` begins a question.
_ASKED = "## QUESTION "


def load_config(path: Path) -> Config:
    """Reads and checks a file, offline. Raises ConfigError with every mistake, or NotFoundError."""
    document, here = read_document(path), path.absolute()
    logs, problems = _read_logs(document, here)
    problems = [*document.problems, *problems]
    config = _read_all(document, here, logs, problems)
    problems += check_all(document, here.parent, logs)
    problems += check_sets(document, here.parent, config.sets if config else {}, logs)
    if problems or config is None:
        raise config_error(path, problems)
    return config


def key_line(path: Path, place: YamlPath) -> int:
    """Returns the line of a key in the file. Errors in a file that the key names point to this line."""
    return read_document(path).line(place)


def log_mistakes(log: str, data: object) -> list[str]:
    """Returns the mistakes of one log that is not in a file yet."""
    document = YamlDocument({}, {})
    try:
        problems = check_log(log, LogConfig.model_validate(data), document)
    except ValidationError as error:
        problems = find_problems(error, LogConfig, document, ("logs", log))
    return [f"{p.key} {p.message}" for p in problems]


def read_document(path: Path) -> YamlDocument:
    """Reads a configuration file, not checked yet. Raises NotFoundError or ConfigError."""
    if not path.exists():
        raise NotFoundError("CONFIG_NOT_FOUND", f"There is no configuration file `{path}`.")
    if not path.is_file():
        mistake = ConfigProblem("CONFIG_NOT_A_FILE", 0, "", "is not a file.", "Name the YAML file itself.")
        raise config_error(path, [mistake])
    text = read_text(path)
    document = parse_document(path, text)
    if document.data is None and not text.lstrip().startswith("~"):
        mistake = ConfigProblem("CONFIG_EMPTY", 0, "", "is empty.", "`tidefold init DIR` writes one.")
        raise config_error(path, [mistake])
    if not isinstance(document.data, dict):
        hint = "Begin with `version: 1`; `tidefold init DIR` writes an example."
        raise config_error(
            path, [ConfigProblem("CONFIG_NOT_A_MAPPING", 1, "", "must consist of `key: value` lines.", hint)]
        )
    if not document.data.get("logs") and (asked := text.count(_ASKED)):
        message = f"has no log yet: answer the {count_noun(asked, 'QUESTION line')} of the file first."
        hint = "Then remove the `# ` before the lines of the log."
        raise config_error(path, [ConfigProblem("CONFIG_EMPTY_VALUE", document.line(("logs",)), "logs", message, hint)])
    return document


def _read_logs(document: YamlDocument, path: Path) -> tuple[dict[str, LogConfig], list[ConfigProblem]]:
    """Reads each log by itself, so that a mistake in one does not hide the mistakes of another."""
    logs: dict[str, LogConfig] = {}
    problems: list[ConfigProblem] = []
    written = document.data.get("logs")
    for log, data in written.items() if isinstance(written, dict) else ():
        place = ("logs", log)
        try:
            logs[log] = LogConfig.model_validate(data, context=path)
            problems += check_log(log, logs[log], document)
        except ValidationError as error:
            problems += find_problems(error, LogConfig, document, place)
    return logs, problems


def _read_all(
    document: YamlDocument, path: Path, logs: dict[str, LogConfig], problems: list[ConfigProblem]
) -> Config | None:
    """Reads everything but the logs, which `_read_logs` has read."""
    written = document.data.get("logs")
    data = {**document.data, "logs": logs} if logs and len(logs) == len(written) else document.data
    try:
        return Config.model_validate(data, context=path)
    except ValidationError as error:
        problems += [p for p in find_problems(error, Config, document) if not p.key.startswith("logs.")]
        return None
