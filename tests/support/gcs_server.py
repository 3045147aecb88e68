"""Google's storage-testbench on a free port of this machine, with the parts of the XML interface that it lacks.

The testbench is Google's own server for tests of its client libraries. It checks the preconditions of uploads, of
copies and of `PUT` in the XML interface. deltalake and obstore also list, delete, read headers, keep metadata and
upload in parts by XML. This module translates those requests to the JSON interface of the same server. It also cuts
listings into pages, which the testbench does not. Whether a write succeeds is the testbench's decision alone. It runs
in the testbench's own Python.
"""

from __future__ import annotations

import base64
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
_META = "x-goog-meta-"
_PAGE = 1000


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
        self._uploads: dict[str, tuple[dict[str, str], dict[int, bytes]]] = {}

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        from werkzeug.wrappers import Request

        request = Request(environ)
        bucket, _, key = request.path.lstrip("/").partition("/")
        with self._one_at_a_time:
            if bucket in _JSON:
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
        if "uploads" in request.args or "uploadId" in request.args:
            return self._upload(request, bucket, key)
        if request.method == "DELETE":
            found = self._json.delete(place)
            return self._response(found.data, 204 if found.status_code == 200 else found.status_code)
        if request.method == "PUT" and "x-goog-copy-source" in request.headers:
            return self._copy(request, place)
        if request.args:
            return self._response("not implemented", 501)
        wanted = request.headers.get("If-Match")
        if wanted and wanted != _tag(self._json.get(place).json):
            return self._response("<Error><Code>PreconditionFailed</Code></Error>", 412)
        done = self._response.from_app(self._server, request.environ)
        if done.status_code < 300:
            if request.method == "PUT":
                self._json.patch(place, json={"metadata": _find_metadata(request.headers)})
            self._add_headers(done, self._json.get(place).json)
        return done

    def _upload(self, request: Any, bucket: str, key: str) -> Any:
        """An upload in parts, which the testbench knows by JSON alone."""
        if "uploads" in request.args:
            upload = uuid.uuid4().hex
            self._uploads[upload] = (_find_metadata(request.headers), {})
            result = f"<UploadId>{upload}</UploadId>"
            return self._response(f"<InitiateMultipartUploadResult>{result}</InitiateMultipartUploadResult>")
        upload = request.args["uploadId"]
        if upload not in self._uploads:
            return self._response("<Error><Code>NoSuchUpload</Code></Error>", 404)
        metadata, parts = self._uploads[upload]
        if request.method == "PUT":
            parts[int(request.args["partNumber"])] = request.get_data()
            return self._response("", headers={"ETag": f'"{upload}-{len(parts)}"'})
        del self._uploads[upload]
        if request.method == "DELETE":
            return self._response("", 204)
        data = b"".join(parts[number] for number in sorted(parts))
        place = f"/upload/storage/v1/b/{bucket}/o"
        self._json.post(place, query_string={"uploadType": "media", "name": key}, data=data)
        self._json.patch(f"/storage/v1/b/{bucket}/o/{quote(key, safe='')}", json={"metadata": metadata})
        return self._response(f'<CompleteMultipartUploadResult><ETag>"{upload}"</ETag></CompleteMultipartUploadResult>')

    def _copy(self, request: Any, target: str) -> Any:
        source, _, key = request.headers["x-goog-copy-source"].lstrip("/").partition("/")
        condition = {"ifGenerationMatch": request.headers[_GENERATION]} if _GENERATION in request.headers else {}
        place = f"/storage/v1/b/{source}/o/{key}/copyTo{target.removeprefix('/storage/v1')}"
        found = self._json.post(place, query_string=condition)
        return self._response(found.data if found.status_code >= 300 else "<CopyObjectResult/>", found.status_code)

    def _add_headers(self, done: Any, described: dict[str, Any]) -> None:
        from datetime import datetime

        done.headers["ETag"] = _tag(described)
        done.headers["Last-Modified"] = format_datetime(datetime.fromisoformat(described["updated"]))
        done.headers["x-goog-generation"] = described["generation"]
        for name, value in described.get("metadata", {}).items():
            done.headers[f"{_META}{name}"] = value

    def _list(self, bucket: str, given: Any) -> Any:
        names = {
            "prefix": "prefix",
            "delimiter": "delimiter",
            "startOffset": "start-after",
        }
        wanted = {name: given[xml] for name, xml in names.items() if given.get(xml)}
        found = self._json.get(f"/storage/v1/b/{bucket}/o", query_string=wanted)
        if found.status_code != 200:
            return self._response(found.data, found.status_code)
        page = found.json
        after = max(given.get("start-after", ""), given.get("continuation-token", ""))
        items = [item for item in page.get("items", []) if item["name"] > after]
        size = int(given.get("max-keys", _PAGE))
        parts = [_describe(item) for item in items[:size]]
        prefixes = page.get("prefixes", [])
        parts += [f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes]
        if len(items) > size:
            parts.append(f"<NextContinuationToken>{escape(items[size - 1]['name'])}</NextContinuationToken>")
        text = f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"
        return self._response(text, content_type="application/xml")


def _tag(described: dict[str, Any]) -> str:
    """The ETag of an object by XML: the MD5 of its bytes."""
    return f'"{base64.b64decode(described["md5Hash"]).hex()}"' if "md5Hash" in described else ""


def _find_metadata(headers: Any) -> dict[str, str]:
    return {name.lower().removeprefix(_META): value for name, value in headers if name.lower().startswith(_META)}


def _describe(item: dict[str, Any]) -> str:
    values = {
        "Key": item["name"],
        "Size": item.get("size", "0"),
        "LastModified": item["updated"],
        "ETag": _tag(item),
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
