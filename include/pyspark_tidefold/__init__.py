"""Spark looks for modules called `pyspark_*` on the Python path and registers their `DefaultSource` by itself."""

from tidefold.spark.data_source import TidefoldSource as DefaultSource

__all__ = ["DefaultSource"]
