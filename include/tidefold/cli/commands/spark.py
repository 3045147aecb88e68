"""A Spark server that stays warm, and the jars that Spark needs.

While a server runs, every ingest, fold and gate with rows runs on it, whatever its size: no command waits for the start
of a JVM. Without it, `spark.above` in the configuration decides.

Example: tidefold spark start
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidefold.cli.terminal import Terminal
from tidefold.errors import UnavailableError

if TYPE_CHECKING:
    from tidefold.config import Config


def start(terminal: Terminal) -> int:
    """Start a Spark Connect server, which this pipeline's steps then use.

    It listens on localhost and wants the token in var/server. It is started again if it dies, or if code or jars
    change. `tidefold spark serve` stays in the foreground, for a container.

    Example: tidefold spark start

    Next: tidefold run
    """
    from tidefold.spark import local_server

    return _act(terminal, local_server.start)


def serve(terminal: Terminal) -> None:
    """Run the server in the foreground, for a container.

    Example: tidefold spark serve

    Next: tidefold spark status
    """
    from tidefold.config import load_config
    from tidefold.spark import local_server

    local_server.serve(load_config(terminal.config_path))


def stop(terminal: Terminal) -> int:
    """Stop the server. The next one takes its token.

    Example: tidefold spark stop

    Next: tidefold spark start
    """
    from tidefold.spark import local_server

    return _act(terminal, local_server.stop)


def status(terminal: Terminal) -> int:
    """Show the server. Exit code 6 if one that shall run does not answer.

    Example: tidefold spark status

    Next: tidefold spark start
    """
    return _act(terminal, lambda _: False)


def _act(terminal: Terminal, act: Callable[[Config], object]) -> int:
    """Acts on the server and shows what runs then."""
    from tidefold.config import load_config
    from tidefold.spark import local_server

    config = load_config(terminal.config_path)
    stopped = act(config) is True
    server, fault = local_server.find_running(config), local_server.find_fault(config)
    if server is None:
        message = "The Spark Connect server was stopped." if stopped else "No Spark Connect server runs here."
        terminal.result({"command": terminal.command, "running": False, "fault": fault}, fault or message)
    else:
        data = {"address": server.address, "ui": server.ui, "pid": server.pid, "folder": str(server.folder)}
        text = (
            f"The Spark Connect server {server.address} answers. Its pages: {server.ui}. Log, events: {server.folder}."
        )
        text = f"{fault or text} Its supervisor is process {server.pid}."
        terminal.result(
            {"command": terminal.command, "running": True, **data, "answers": not fault, "fault": fault}, text
        )
    return UnavailableError.exit_code if fault else 0


def jars(terminal: Terminal) -> None:
    """Fetch the jars that Spark needs, once, by checksum.

    Fetches Delta, and the client for S3 that check verify --spark needs, into the user's cache folder (a clone: .jars),
    or into the folder that TIDEFOLD_JARS names. Needs Java and pyspark. It is not needed where the configuration has
    spark: {jars: packages} or {jars: spark}, nor for runs small enough to start no Spark.

    Example: tidefold spark jars

    Next: tidefold check doctor
    """
    from tidefold.installation import jar_folder
    from tidefold.spark.jars import fetch_missing

    fetched = fetch_missing()
    what = "were fetched and checked" if fetched else "are up to date"
    terminal.result(
        {"command": terminal.command, "folder": str(jar_folder()), "fetched": fetched},
        f"The jars in {jar_folder()} {what}.",
    )
