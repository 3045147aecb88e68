"""A registry of schemas that speaks Confluent's API, as far as readers need it, on a port of this machine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class SchemaRegistry(ThreadingHTTPServer):
    """schemas: by id, as the API answers. user: name:password that it wants. failing: answers before it works."""

    daemon_threads = True

    def __init__(self, schemas: Mapping[int, Mapping[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas, self.user, self.asked = dict(schemas), "", list[str]()
        self.failing: list[tuple[int, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: SchemaRegistry

    def do_GET(self) -> None:
        known = self.server
        known.asked.append(self.path)
        wanted = f"Basic {base64.b64encode(known.user.encode()).decode()}" if known.user else None
        number = self.path.removeprefix("/schemas/ids/")
        if known.failing:
            self._answer(*known.failing.pop(0))
        elif self.headers["Authorization"] != wanted:
            self._answer(401, {}, b'{"error_code": 401}')
        elif self.path == "/subjects":
            self._answer(200, {}, b"[]")
        elif number.isdigit() and int(number) in known.schemas:
            self._answer(200, {}, json.dumps(known.schemas[int(number)]).encode())
        else:
            self._answer(404, {}, b'{"error_code": 40403, "message": "Schema not found"}')

    def _answer(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def serve_schemas(schemas: Mapping[int, Mapping[str, Any]]) -> Iterator[SchemaRegistry]:
    server = SchemaRegistry(schemas)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
