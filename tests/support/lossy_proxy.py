"""A proxy in front of an HTTP server that loses answers and fails on request."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class Fault:
    """What happens to requests whose method and address contain these texts.

    status: the answer instead of the server's; 0: the request is carried out, and its answer is lost.
    """

    method: str
    address: str
    status: int = 0
    code: str = ""
    times: int = 1


@dataclass
class LossyProxy:
    """The proxy as tests see it."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def fail(self, method: str, address: str, status: int = 0, code: str = "", times: int = 1) -> None:
        self.faults.append(Fault(method, address, status, code, times))

    def find_fault(self, method: str, address: str) -> Fault | None:
        self.requests.append((method, address))
        found = next((f for f in self.faults if f.times and f.method == method and f.address in address), None)
        if found:
            found.times -= 1
        return found


def _read_body(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("Transfer-Encoding", ""):
        return request.rfile.read(int(request.headers.get("Content-Length") or 0))
    parts = []
    while size := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


@contextmanager
def lossy_proxy(target: str) -> Iterator[LossyProxy]:
    """Runs a proxy on a free port of this machine."""
    place = urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = _read_body(self)
            with lock:
                fault = proxy.find_fault(self.command, self.path)
            if fault and fault.status:
                self._answer(fault.status, [("x-ms-error-code", fault.code)], b"")
                return
            server = http.client.HTTPConnection(place.hostname or "", place.port)
            server.request(self.command, self.path, body, dict(self.headers.items()))
            answer = server.getresponse()
            data = answer.read()
            server.close()
            if fault:
                self.close_connection = True
                return
            skip = ("transfer-encoding", "connection", "content-length")
            head = [(name, value) for name, value in answer.getheaders() if name.lower() not in skip]
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self._answer(answer.status, head, data, length)

        def _answer(self, status: int, head: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in [*head, ("Content-Length", length or str(len(data)))]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = LossyProxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
