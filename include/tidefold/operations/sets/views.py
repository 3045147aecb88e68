"""Writes the SQL of views on a set: one view for each table, at the version that the pointer names."""

from __future__ import annotations

import re

from tidefold.operations.pipeline import Pipeline
from tidefold.operations.sets.read import find_tables


def write_views(pipeline: Pipeline, name: str) -> list[str]:
    """Returns statements of Spark SQL that make the views of a set's published version.

    With a configured catalog the views stay in its database, beside the tables. Else they are those of a session.
    Raises NotFoundError if nothing is published.
    """
    entry = pipeline.config.catalog
    statements = []
    for log, one in find_tables(pipeline, name).items():
        if entry:
            make, place = "CREATE OR REPLACE VIEW", f"`{entry.name}`.`{entry.database}`."
            table = f"{place}`{log}`"
        else:
            # Spark's client for S3 has a scheme of its own.
            make, place = "CREATE OR REPLACE TEMPORARY VIEW", ""
            address = re.sub("^s3://", "s3a://", one.address).replace("`", "``")
            table = f"delta.`{address}`"
        view = f"{place}`{name}_{log}`"
        statements.append(f"{make} {view} AS SELECT * FROM {table} VERSION AS OF {one.version}")
    return statements
