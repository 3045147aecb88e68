"""The address of the store leads to something else than S3: that is said at once, with the variable to correct."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority
from support.s3_server import ENVIRONMENT, FOREIGN, S3Bucket
from tidefold.errors import StorageError, StoreRefusedError
from tidefold.storage import Store, open_store
from tidefold.storage.identity import read_identity

HERE = Path("/")
PAGE = "<!DOCTYPE html>\n<html><head><meta charset='utf-8'><title>{0}</title></head><body>{0}</body></html>"
Serve = Callable[..., str]


class _Answering(BaseHTTPRequestHandler):
    status, body = 404, ""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        data = self.body.encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else data)

    do_PUT = do_POST = do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        return


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        return


class _SecureServer(ThreadingHTTPServer):
    """Speaks TLS. To whom speaks without, it says so, as servers in Go do, or hangs up."""

    context: ssl.SSLContext
    refusal = b""

    def get_request(self) -> tuple[Any, Any]:
        plain, address = super().get_request()
        if plain.recv(1, socket.MSG_PEEK) == b"\x16":
            return self.context.wrap_socket(plain, server_side=True), address
        plain.recv(65536)
        plain.sendall(self.refusal)
        plain.close()
        raise OSError


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server, and lets the store's address lead to it."""
    started = []
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")

    def start(handler: Any, scheme: str = "http", kind: Any = ThreadingHTTPServer) -> str:
        server = kind(("127.0.0.1", 0), handler)
        started.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://{place}")
        return place

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def answering(status: int, body: str) -> Any:
    return type("Handler", (_Answering,), {"status": status, "body": body})


def refuse_each(place: str, reason: str, step: str) -> None:
    """Each request is refused at once, with the same error."""
    store = open_store("s3://bucket/store", HERE)
    acts: list[Callable[[Store], Any]] = [
        read_identity,
        lambda s: s.list(""),
        lambda s: s.list("", unfinished=True),
    ]
    began = time.monotonic()
    for act in acts:
        with pytest.raises(StorageError) as refused:
            act(store)
        assert refused.value.message.startswith(f"What answers at `{place}` {reason}")
        assert (refused.value.code, refused.value.exit_code, refused.value.transient) == ("STORE_FOREIGN", 2, False)
        assert step in refused.value.hint
    with pytest.raises(StorageError) as refused:
        store.put_if_absent("mine", b"")
    assert step in refused.value.hint
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, PAGE.format("404 Not Found"), "404 Not Found"),
        (404, '{"detail": "Not Found"}', "404 Not Found"),
        (404, "", "404 Not Found"),
        (405, PAGE.format("405 Not Allowed"), "405 Method Not Allowed"),
        (501, PAGE.format("Unsupported method"), "501 Not Implemented"),
        (400, "bad request", "400 Bad Request"),
        (401, PAGE.format("Authorization required"), "401 Unauthorized"),
        (403, PAGE.format("Forbidden"), "403 Forbidden"),
    ],
)
def test_a_server_of_another_kind_is_named(serve: Serve, status: int, body: str, reason: str) -> None:
    """Fault: it was a bucket that is missing, a key that is denied, or an S3 without conditional writes."""
    place = serve(answering(status, body))
    refuse_each(place, f"is no S3 server ({reason}).", "Correct AWS_ENDPOINT_URL")


def test_a_web_server_with_a_folder_of_the_buckets_name_is_named(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: its page was waited for as if S3 had lost its answer."""
    (tmp_path / "bucket").mkdir()
    monkeypatch.chdir(tmp_path)
    place = serve(_Silent)
    with pytest.raises(StoreRefusedError, match=rf"`{place}` is no S3 server"):
        open_store("s3://bucket", HERE).list("")


def test_a_page_is_no_identity_of_a_store(serve: Serve) -> None:
    """Fault: a decoder's words, and the advice to restore a backup."""
    serve(answering(200, PAGE.format("Welcome")))
    with pytest.raises(StoreRefusedError, match="sends a web page") as refused:
        read_identity(open_store("s3://bucket/store", HERE))
    assert "AWS_ENDPOINT_URL" in refused.value.hint


def test_a_page_after_a_put_is_no_proof_that_nothing_was_written(serve: Serve) -> None:
    serve(answering(200, PAGE.format("Welcome")))
    with pytest.raises(StorageError, match="not known") as doubted:
        open_store("s3://bucket/store", HERE).put_if_absent("mine", b"")
    assert "Correct AWS_ENDPOINT_URL" in doubted.value.hint


def test_https_to_a_server_without_it_says_which_scheme(serve: Serve) -> None:
    place = serve(answering(404, ""), "https")
    refuse_each(place, "does not speak TLS.", "Write `http://` in AWS_ENDPOINT_URL")


@pytest.mark.parametrize("refusal", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to HTTPS.\n"])
def test_http_to_a_server_with_tls_says_which_scheme(serve: Serve, tmp_path: Path, refusal: bytes) -> None:
    kind = type("Server", (_SecureServer,), {"context": _trusting(tmp_path), "refusal": refusal})
    place = serve(answering(404, ""), "http", kind)
    refuse_each(place, "speaks TLS.", "Write `https://` in AWS_ENDPOINT_URL")


def test_a_certificate_that_nobody_trusts_is_named(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Server", (_SecureServer,), {"context": _trusting(tmp_path)})
    place = serve(answering(404, ""), "https", kind)
    with pytest.raises(
        StoreRefusedError, match=rf"certificate of `{place}` is not trusted \(UnknownIssuer\)"
    ) as refused:
        open_store("s3://bucket/store", HERE).read("x")
    assert "SSL_CERT_FILE" in refused.value.hint
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    with pytest.raises(StoreRefusedError, match="is no S3 server"):  # Another client: one is kept a process.
        open_store("s3://other-bucket/store", HERE).read("x")


def test_a_server_that_speaks_no_http_is_named(serve: Serve) -> None:
    class Greeting(BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            self.rfile.read(1)

    place = serve(Greeting)
    with pytest.raises(StoreRefusedError, match=rf"`{place}` is no S3 server"):
        open_store("s3://bucket/store", HERE).read("x")


def test_a_page_from_a_store_that_answered_before_is_an_outage(s3: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in front of it shows a page while it is restarted."""
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    store = open_store(s3.address, HERE)
    store.put_if_absent("mine", b"")
    s3.server.fail("GET", "list-type=2", status=200, body=PAGE.format("Back soon"), times=2)
    assert [one.path for one in store.list("")] == ["mine"]


def _trusting(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = Authority()
    (folder / "authority.pem").write_text(authority.pem)
    for name, text in zip(("key.pem", "certificate.pem"), authority.issue("127.0.0.1"), strict=True):
        (folder / name).write_text(text)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
