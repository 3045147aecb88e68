"""Entry of the command line."""

import os
import signal
import sys
import threading
from typing import Any

from tidefold.cli.app import app
from tidefold.interruption import interrupt


def main() -> None:
    """Runs a command; `tidefold` of an installed package calls this. SIGTERM interrupts it as Ctrl-C does."""
    for name in ("stdout", "stderr"):  # A shell may close them: `>&-`.
        setattr(sys, name, getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # A shell lets programs behind it ignore Ctrl-C.
        signal.signal(signal.SIGINT, _interrupt)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    threading.Thread(target=_end_waits, args=(read,), daemon=True).start()
    try:
        app(prog_name="tidefold")
    except OSError as error:  # Of `--help` and `--version`: a command tells its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"error [OUTPUT_LOST] What the command printed could not be written: {error.strerror}.")


def _interrupt(*_: Any) -> None:
    interrupt()
    raise KeyboardInterrupt


def _end_waits(signals: int) -> None:
    """Ends the waits for stores at the first signal. They would keep the process, also on its way out.

    A handler runs in the main thread only. A signal that comes just before that thread waits for others, or while it is
    in native code, would have to wait as long as they do.
    """
    os.read(signals, 1)
    interrupt()


if __name__ == "__main__":
    main()
