"""`catalog` of `tidefold.yaml`: where published tables are registered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tidefold.yaml_files.model import StrictModel, mistake

_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,127}$"
_BAD_NAME = ("CATALOG_NAME", "must be letters, digits and underscores, beginning with a letter.", "Rename it.")
_ALLOWED = ("spark.sql.catalog", "spark.sql.hive.", "spark.sql.warehouse.dir", "spark.hadoop.", "spark.jars.packages")
# Delta itself, which every job of tidefold needs.
_TAKEN = "spark.sql.catalog.spark_catalog"
_SECRET = re.compile("password|secret|token|credential|access.?key", re.IGNORECASE)


def _require_settings(value: Any) -> Any:
    for name, setting in value.items() if isinstance(value, dict) else ():
        if _SECRET.search(str(name)):
            hint = "Write it into `spark-defaults.conf` in a folder that SPARK_CONF_DIR names."
            raise mistake("CATALOG_SECRET", f"has the secret `{name}`.", hint)
        if not isinstance(setting, str):
            raise mistake("CONFIG_WRONG_TYPE", f"must have text as the value of `{name}`.", "Quote the value.")
        if not str(name).startswith(_ALLOWED) or name == _TAKEN:
            hint = f"Allowed are names that begin with {', '.join(f'`{one}`' for one in _ALLOWED)}."
            raise mistake("CATALOG_SETTING", f"must not set `{name}`.", hint)
    return value


class CatalogEntry(StrictModel):
    """Where published tables are registered, each under the name of its log."""

    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {"name": _BAD_NAME, "database": _BAD_NAME}

    database: str = Field(pattern=_NAME, description="database (schema) of the tables; it is made if it is missing")
    name: str = Field(default="spark_catalog", pattern=_NAME, description="catalog of the Spark session")
    settings: Annotated[dict[str, str], BeforeValidator(_require_settings)] = Field(
        default={}, description="settings of Spark for the catalog, such as the address of its metastore; no secrets"
    )

    def table(self, log: str) -> str:
        """The name of a log's table for people: `spark_catalog.sales.orders`."""
        return f"{self.name}.{self.database}.{log}"
