"""The changelog writer: a library with which a program appends changes to logs, without Spark or Airflow."""

from __future__ import annotations

from tidefold.changelog.writer.changelog import Changelog
from tidefold.changelog.writer.log_writer import LogWriter
from tidefold.changelog.writer.settings import WriterSettings

__all__ = ["Changelog", "LogWriter", "WriterSettings"]
