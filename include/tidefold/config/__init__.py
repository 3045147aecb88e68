"""The configuration of a pipeline: `load_config` reads and checks `tidefold.yaml`, and reports every mistake in it."""

from tidefold.config.load import (
    Config,
    LogConfig,
    QualityConfig,
    SetConfig,
    SourceConfig,
    key_line,
    load_config,
    log_mistakes,
)
from tidefold.config.models.file import json_schema
from tidefold.config.models.sizes import count_bytes
from tidefold.config.models.spark import SparkConfig
from tidefold.yaml_files.document import ConfigError, ConfigProblem, config_error

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "LogConfig",
    "QualityConfig",
    "SetConfig",
    "SourceConfig",
    "SparkConfig",
    "config_error",
    "count_bytes",
    "json_schema",
    "key_line",
    "load_config",
    "log_mistakes",
]
