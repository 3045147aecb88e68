"""The configuration of a pipeline: `load_config` reads and checks `tidefold.yaml`, and reports every mistake in it."""

from tidefold.config.load import key_line, load_config, log_mistakes
from tidefold.config.models.file import Config, json_schema
from tidefold.config.models.log import LogConfig, QualityConfig, TtlConfig
from tidefold.config.models.sections import SetConfig
from tidefold.config.models.sources import SourceEntry
from tidefold.config.models.spark import SparkConfig
from tidefold.yaml_files.document import ConfigError, ConfigProblem, config_error

__all__ = [
    "Config",
    "ConfigError",
    "ConfigProblem",
    "LogConfig",
    "QualityConfig",
    "SetConfig",
    "SourceEntry",
    "SparkConfig",
    "TtlConfig",
    "config_error",
    "json_schema",
    "key_line",
    "load_config",
    "log_mistakes",
]
