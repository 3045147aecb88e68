"""The catalog of a Spark session, through delta-spark: `CREATE TABLE ... USING delta LOCATION`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidefold.compute.connect_session import find_outage
from tidefold.errors import RefusedError, StorageError, TidefoldError
from tidefold.storage.addresses import to_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class SparkCatalog:
    """A catalog of the session, by its name there."""

    spark: SparkSession
    name: str

    def register(self, database: str, table: str, location: str) -> bool:
        """Registers a Delta table; returns false if it was registered before. See `TableCatalog`."""
        location = to_spark(location)
        schema = f"`{self.name}`.`{database}`"
        full = f"{schema}.`{table}`"
        self._require_storage()
        try:
            # Not always: a user may be allowed to make tables, but no databases.
            if not self.spark.catalog.databaseExists(f"{self.name}.{database}"):
                self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            new = not self.spark.catalog.tableExists(f"{self.name}.{database}.{table}")
            if new:
                quoted = location.replace("\\", "\\\\").replace("'", "\\'")
                self.spark.sql(f"CREATE TABLE IF NOT EXISTS {full} USING delta LOCATION '{quoted}'")
            self._require_location(full, location)
        except TidefoldError:
            raise
        except Exception as error:  # Each catalog has errors of its own.
            if outage := find_outage(error):
                raise outage from error
            message = " ".join(str(error).split())[:_SHOWN]
            raise StorageError(
                "CATALOG_FAILED", f"The catalog `{self.name}` did not register `{database}.{table}`: {message}"
            ) from error
        return new

    def _require_storage(self) -> None:
        if self.name == "spark_catalog" and self.spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
            raise RefusedError(
                "CATALOG_IN_MEMORY",
                "The catalog of this Spark session ends with the session, so nobody would find the tables.",
            )

    def _require_location(self, full: str, location: str) -> None:
        actual = self.spark.sql(f"DESCRIBE DETAIL {full}").collect()[0]["location"]
        if _normalize(actual) != _normalize(location):
            raise RefusedError("CATALOG_NAME_TAKEN", f"{full.replace('`', '')} is another table, at {actual}.")


def _normalize(location: str) -> str:
    """A location without the spellings that mean the same."""
    return re.sub("^file:/*", "/", location).rstrip("/")
