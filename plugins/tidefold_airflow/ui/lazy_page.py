"""Mounts the page in Airflow. The api-server builds it at the first request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class LazyPage:
    """The page as an ASGI app that is built at the first request.

    If it cannot be built, for example because Airflow moved its checks of rights, it shows only an error.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if self._app is None:
            from tidefold_airflow.ui.access import GUARDS, RUN_GUARDS, find_failed, find_visible
            from tidefold_airflow.ui.app import build_app

            self._app = build_app(GUARDS, RUN_GUARDS, find_visible, find_failed=find_failed)
        await self._app(scope, receive, send)
