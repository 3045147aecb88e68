"""Google's storage-testbench on a free port of this machine, with the parts of the XML interface that it lacks.

The testbench is Google's own server for tests of its client libraries. It checks the preconditions of uploads, of
copies and of `PUT` in the XML interface. deltalake also lists, deletes and reads headers by XML. This module translates
those requests to the JSON interface of the same server. It also cuts listings into pages, which the testbench does not.
Whether a write succeeds is the testbench's decision alone. It runs in the testbench's own Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

_JSON = ("storage", "upload", "download")
_GENERATION = "x-goog-if-generation-match"


def find_testbench() -> str | None:
    """Returns the Python that has Google's storage-testbench; None if no variable names it."""
    return os.environ.get("GCS_TESTBENCH")


@dataclass(frozen=True)
class GcsBucketOfTest:
    """A separate bucket for one test. Its requests are not the store's: they show what others see."""

    server: GcsServer
    name: str

    @property
    def root(self) -> str:
        return f"gs://{self.name}"

    @property
    def address(self) -> str:
        return f"{self.root}/a/store"

    def put(self, key: str, data: bytes) -> None:
        place = f"{self.server.url}/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(key, safe='')}"
        _send("POST", place, data, "application/octet-stream")

    def delete(self, key: str) -> None:
        _send("DELETE", f"{self.server.url}/storage/v1/b/{self.name}/o/{quote(key, safe='')}")


def _send(method: str, place: str, data: bytes | None = None, kind: str = "application/json") -> None:
    request = urllib.request.Request(place, data, {"Content-Type": kind}, method=method)
    urllib.request.urlopen(request).close()


class GcsServer:
    """The server as the tests see it."""

    def __init__(self, python: str) -> None:
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([python, "-I", __file__], **streams)  # type: ignore[call-overload]
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, "the testbench ended"

    @property
    def environment(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": self.url}

    def make_bucket(self) -> GcsBucketOfTest:
        name = f"test-{uuid.uuid4().hex[:12]}"
        _send("POST", f"{self.url}/storage/v1/b?project=test", json.dumps({"name": name}).encode())
        return GcsBucketOfTest(self, name)

    def stop(self) -> None:
        self._process.communicate()  # It ends with its input.


class _Gateway:
    def __init__(self) -> None:
        from testbench.rest_server import server
        from werkzeug.test import Client
        from werkzeug.wrappers import Response

        self._server, self._response = server, Response
        self._json = Client(server, Response)
        # As Google promises, a condition and its write are one step.
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        from werkzeug.wrappers import Request

        request = Request(environ)
        bucket, _, key = request.path.lstrip("/").partition("/")
        with self._one_at_a_time:
            if request.method == "GET" and request.path.startswith("/storage/") and request.path.endswith("/o"):
                answer = self._list_page(request)
            elif bucket in _JSON:
                # Some answers of the testbench are streams of objects that a later request changes.
                given: list[Any] = []
                body = b"".join(self._server(environ, lambda *head: given.append(head) or (lambda data: None)))
                start(*given[0])
                return [body]
            else:
                answer = self._answer(request, bucket, key)
        found: Iterable[bytes] = answer(environ, start)
        return found

    def _answer(self, request: Any, bucket: str, key: str) -> Any:
        place = f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}"
        if not key:
            return self._list(bucket, request.args)
        if request.method == "DELETE":
            found = self._json.delete(place)
            return self._response(found.data, 204 if found.status_code == 200 else found.status_code)
        if request.method == "PUT" and "x-goog-copy-source" in request.headers:
            return self._copy(request, place)
        if request.args:
            return self._response("not implemented", 501)
        done = self._response.from_app(self._server, request.environ)
        if done.status_code < 300:
            self._add_headers(done, self._json.get(place).json)
        return done

    def _copy(self, request: Any, target: str) -> Any:
        source, _, key = request.headers["x-goog-copy-source"].lstrip("/").partition("/")
        condition = {"ifGenerationMatch": request.headers[_GENERATION]} if _GENERATION in request.headers else {}
        place = f"/storage/v1/b/{source}/o/{key}/copyTo{target.removeprefix('/storage/v1')}"
        found = self._json.post(place, query_string=condition)
        return self._response(found.data if found.status_code >= 300 else "<CopyObjectResult/>", found.status_code)

    def _add_headers(self, done: Any, described: dict[str, Any]) -> None:
        from datetime import datetime

        done.headers["ETag"] = f'"{described["etag"]}"'
        done.headers["Last-Modified"] = format_datetime(datetime.fromisoformat(described["updated"]))
        done.headers["x-goog-generation"] = described["generation"]

    def _list_page(self, request: Any) -> Any:
        wanted = request.args.to_dict()
        size, token = int(wanted.pop("maxResults", 1000)), wanted.pop("pageToken", "")
        wanted.pop("fields", None)
        found = self._json.get(request.path, query_string=wanted)
        if found.status_code != 200:
            return self._response(found.data, found.status_code, content_type="application/json")
        page = found.json
        items = [item for item in page.get("items", []) if item["name"] > token]
        page["items"] = items[:size]
        if len(items) > size:
            page["nextPageToken"] = items[size - 1]["name"]
        return self._response(json.dumps(page), content_type="application/json")

    def _list(self, bucket: str, given: Any) -> Any:
        names = {
            "prefix": "prefix",
            "delimiter": "delimiter",
            "startOffset": "start-after",
            "pageToken": "continuation-token",
            "maxResults": "max-keys",
        }
        wanted = {name: given[xml] for name, xml in names.items() if given.get(xml)}
        found = self._json.get(f"/storage/v1/b/{bucket}/o", query_string=wanted)
        if found.status_code != 200:
            return self._response(found.data, found.status_code)
        page = found.json
        after = given.get("start-after", "")
        parts = [_describe(item) for item in page.get("items", []) if item["name"] > after]
        prefixes = page.get("prefixes", [])
        parts += [f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes]
        if page.get("nextPageToken"):
            parts.append(f"<NextContinuationToken>{escape(page['nextPageToken'])}</NextContinuationToken>")
        text = f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"
        return self._response(text, content_type="application/xml")


def _describe(item: dict[str, Any]) -> str:
    values = {
        "Key": item["name"],
        "Size": item.get("size", "0"),
        "LastModified": item["updated"],
        "ETag": f'"{item["etag"]}"',
    }
    return f"<Contents>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in values.items())}</Contents>"


def _serve() -> None:
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, type: str, message: str, *args: Any) -> None:
            return

    server = make_server("127.0.0.1", 0, _Gateway(), threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
