"""Entry of the command line."""

import signal

from tidefold.cli.app import app


def main() -> None:
    """Runs a command; `tidefold` of an installed package calls this. A request to end is like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app(prog_name="tidefold")


if __name__ == "__main__":
    main()
