"""The configuration of a pipeline: `load_config` reads `tidefold.yaml`, checked, or says every mistake in it."""

from tidefold.config.load import Config, LogConfig, QualityConfig, SourceConfig, key_line, load_config, log_mistakes
from tidefold.config.models.file import SparkConfig, json_schema
from tidefold.config.yaml_document import ConfigError, Problem, config_error

__all__ = [
    "Config",
    "ConfigError",
    "LogConfig",
    "Problem",
    "QualityConfig",
    "SourceConfig",
    "SparkConfig",
    "config_error",
    "json_schema",
    "key_line",
    "load_config",
    "log_mistakes",
]
