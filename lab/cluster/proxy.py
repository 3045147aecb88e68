"""A proxy before an S3 server, which may answer 503 for a while or stop listening, as a server that is gone."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# They belong to one connection.
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "expect", "proxy-connection"})
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class S3Proxy:
    """Passes requests on as they are, with the host that the client has signed.

    busy: whether each request gets 503 instead.
    refused: how many requests got 503.
    passed: how many were passed on.
    """

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target).netloc
        self.busy = False
        self.refused = 0
        self.passed = 0
        self._server: _Server | None = None
        self._port = 0
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def listen(self) -> None:
        """Listens, again on the same port."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.proxy = self
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def leave(self) -> None:
        """Stops listening: new connections are refused."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A connection of before must not hold up the end.
    block_on_close = False
    request_queue_size = 256
    proxy: S3Proxy


class _Handler(BaseHTTPRequestHandler):
    # Each request has a connection of its own, so that a change of the proxy counts for all that follow.
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        proxy = self.server.proxy
        body = self._read_body()
        if proxy.busy:
            proxy.refused += 1
            self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
            return
        backend = http.client.HTTPConnection(proxy.target, timeout=60)
        try:
            backend.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP:
                    backend.putheader(name, value)
            backend.endheaders(body or None)
            answer = backend.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            # As a connection that breaks.
            self.close_connection = True
            return
        finally:
            backend.close()
        proxy.passed += 1
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        self._answer(answer.status, headers, content)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        self.headers["Content-Length"] = str(len(body))
        return body

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        size = headers.get("Content-Length", str(len(content))) if self.command == "HEAD" else str(len(content))
        if status not in (204, 304):
            self.send_header("Content-Length", size)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        return
