"""What a reader is told of an error: ours as it is, of any other only that there was one."""

from __future__ import annotations

import logging

from tidefold.lifecycle.errors import TidefoldError

_log = logging.getLogger(__name__)


def told(error: Exception, where: str) -> TidefoldError:
    """The error for the reader. What nobody foresaw may hold anything, and goes to the server's log alone."""
    if isinstance(error, TidefoldError):
        return error
    _log.error("%s failed", where, exc_info=error)
    return TidefoldError("UNFORESEEN", f"{where} failed.", hint="The log of the api-server has the reason.")
