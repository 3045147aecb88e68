"""moto's S3 on a free port of this machine, which can fail on request. It is a real server, not a mock of the client.

moto checks If-None-Match of PutObject and of CompleteMultipartUpload (not of CopyObject, which the store does not use),
but it reads and writes in two steps. Here the server handles one request after the other, so that the two steps are
atomic, as S3 promises. moto never returns ConditionalRequestConflict, accepts any credentials, and knows no rights:
this module makes those answers. It is a separate process, because deltalake holds the interpreter during some of its
requests.
"""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # Failures are made on purpose here: nobody waits for them to pass.
    "AWS_MAX_ATTEMPTS": "1",
}
_CONTROL = "/-test-/"
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_CONFIG_FILE")


@dataclass
class Fault:
    """What happens to requests whose method and address (path and query) contain this text."""

    method: str
    address: str
    status: int = 0
    code: str = ""
    body: str = ""
    # The request is carried out and its answer is lost on the way.
    lost: bool = False
    times: int = 1

    def hits(self, method: str, address: str) -> bool:
        return self.times > 0 and self.method == method and self.address in address


class S3Server:
    """The server as the tests see it: its address, and the faults to make."""

    def __init__(self, delay: float = 0.0) -> None:
        """Starts the server.

        delay: seconds that each answer takes longer, as from a remote place.
        """
        command = [sys.executable, __file__, str(delay)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert self._process.stdout
        self.url = self._process.stdout.readline().decode().strip()

    def stop(self) -> None:
        self._process.communicate()  # It ends with its input.

    def fail(self, method: str, address: str, **how: Any) -> None:
        self._control("fail", asdict(Fault(method, address, **how)))

    def heal(self) -> None:
        """Forgets all faults and all requests."""
        self._control("heal", {})

    def requests(self) -> list[tuple[str, str]]:
        """Returns method and address of every request since the last `heal`."""
        return [(method, address) for method, address in self._control("requests", {})]

    def _control(self, verb: str, data: Any) -> Any:
        with urllib.request.urlopen(f"{self.url}{_CONTROL}{verb}", json.dumps(data).encode()) as answer:
            return json.load(answer)


@dataclass(frozen=True)
class S3Bucket:
    """A separate bucket for one test."""

    server: S3Server
    name: str

    @property
    def address(self) -> str:
        return f"s3://{self.name}/a/store"

    @property
    def root(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    @property
    def client(self) -> Any:
        """Returns a client other than the store's: it sees what others see."""
        import boto3

        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        return boto3.client("s3", endpoint_url=self.server.url, region_name="us-east-1", **keys)


class _Application:
    def __init__(self, delay: float) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._s3 = DomainDispatcherApplication(create_backend_app)
        self._one_at_a_time = threading.Lock()
        self._delay = delay
        self._faults: list[Fault] = []
        self._requests: list[tuple[str, str]] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        time.sleep(self._delay)
        method, address = environ["REQUEST_METHOD"], f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        with self._one_at_a_time:
            if address.startswith(_CONTROL):
                return self._controlled(address.removeprefix(_CONTROL).rstrip("?"), _body(environ), start)
            self._requests.append((method, address))
            fault = next((f for f in self._faults if f.hits(method, address)), None)
            if fault:
                fault.times -= 1
            if fault and not fault.lost:
                _body(environ)
                return _refusal(fault, method, start)
            given: list[Any] = []
            body = b"".join(self._s3(environ, lambda *head: given.append(head) or io.BytesIO().write))
        if fault:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start(*given[0])
        return [body]

    def _controlled(self, verb: str, data: bytes, start: Callable[..., Any]) -> list[bytes]:
        answer: Any = None
        if verb == "fail":
            self._faults.append(Fault(**json.loads(data)))
        elif verb == "heal":
            self._faults.clear()
            self._requests.clear()
        else:
            answer = self._requests
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


def _body(environ: dict[str, Any]) -> bytes:
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


def _refusal(fault: Fault, method: str, start: Callable[..., Any]) -> list[bytes]:
    text = fault.body or f"<Error><Code>{fault.code}</Code><Message>Made by a test.</Message></Error>"
    body = b"" if method == "HEAD" else text.encode()
    start(f"{fault.status} {fault.code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _serve(delay: float) -> None:
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Silent(MotoRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            return

    server = make_server("127.0.0.1", 0, _Application(delay), threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(float(sys.argv[1]))
