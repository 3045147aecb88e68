"""Free ports on the loopback."""

from __future__ import annotations

import socket


def free_port(preferred: int = 0) -> int:
    """The preferred port if nobody listens on it, else any free one."""
    for wanted in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")
