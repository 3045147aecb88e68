"""Entry of the command line."""

import signal
from typing import Any

from tidefold.cli.app import app


def main() -> None:
    """Runs a command; `tidefold` of an installed package calls this. A request to end is like Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # A shell lets programs behind it ignore Ctrl-C.
        signal.signal(signal.SIGINT, _interrupt)
    app(prog_name="tidefold")


def _interrupt(*_: Any) -> None:
    # Threads that wait for a store, and what a command does on its way out, would keep the process.
    from tidefold.storage.outage import stop_waiting

    stop_waiting()
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
