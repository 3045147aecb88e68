"""The command that fetches what Spark needs: jars."""

from __future__ import annotations

from tidefold.cli.terminal import Terminal


def jars(terminal: Terminal) -> None:
    """Fetch the jars that Spark needs, once, by checksum.

    Fetches Delta, and the client for S3 that verify --spark needs, into the user's cache folder (a clone: .jars), or
    into the folder that TIDEFOLD_JARS names. Needs Java and pyspark. It is not needed where the configuration has
    spark: {jars: packages} or {jars: spark}, nor for runs small enough to start no Spark.

    Example: tidefold jars

    Next: tidefold doctor
    """
    from tidefold.installation import jar_folder
    from tidefold.spark.jars import fetch_missing

    fetched = fetch_missing()
    what = "were fetched and checked" if fetched else "are up to date"
    terminal.result(
        {"command": "jars", "folder": str(jar_folder()), "fetched": fetched}, f"The jars in {jar_folder()} {what}."
    )
