"""Entry of the command line."""

import os
import signal
import threading

from tidefold.cli.app import app


def main() -> None:
    """Runs a command; `tidefold` of an installed package calls this. SIGTERM interrupts it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    threading.Thread(target=_end_waits, args=(read,), daemon=True).start()
    app(prog_name="tidefold")


def _end_waits(signals: int) -> None:
    """Ends the waits for stores at the first signal. They would keep the process, also on its way out.

    A handler runs in the main thread only. A signal that comes just before that thread waits for others, or while it is
    in native code, would have to wait as long as they do.
    """
    os.read(signals, 1)
    from tidefold.storage.outage import stop_waiting

    stop_waiting()


if __name__ == "__main__":
    main()
