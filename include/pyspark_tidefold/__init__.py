"""Spark looks for modules called `pyspark_*` on the Python path and registers their `DefaultSource` by itself."""

from tidefold.datasource import TidefoldSource as DefaultSource

__all__ = ["DefaultSource"]
