"""Sends requests to Google Cloud Storage, with one client a process, and converts errors to those of a Store.

gcsfs is fsspec's Google Cloud Storage. It holds the session and the credentials. Its own calls lose the reasons of
refusals, and its writes keep no mark. So the requests of the JSON interface are sent here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import ClientError as TransportError
from aiohttp import ClientTimeout
from fsspec.asyn import sync
from gcsfs.core import GCSFileSystem
from google.auth.exceptions import GoogleAuthError
from google.auth.exceptions import TransportError as LoginTransportError

from tidefold.errors import NotFoundError, StorageError, TidefoldError
from tidefold.storage import object_client
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint

T = TypeVar("T")
_TIMEOUT = ClientTimeout(sock_connect=20, sock_read=60)
# Stored with the object: the put that made it. A put that is sent again then finds its own name taken.
PUT_MARK = "tidefold-put"
_LOGIN = "google_default"
_RIGHTS = "the role Storage Object Admin (roles/storage.objectAdmin)"
# Never emptied. A forked process has no event loop, and must not use the sockets of its parent.
_clients: dict[tuple[int, GcsEndpoint], tuple[GCSFileSystem, object_client.Outage]] = {}


class GcsError(Exception):
    """An answer of Google Cloud Storage that is a refusal.

    status: the HTTP status.
    reason: Google's word for it, such as `notFound`; "" without one.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(status, reason, message)
        self.status, self.reason, self.message = status, reason, message

    def __str__(self) -> str:
        return self.message


FAILURES = (GcsError, OSError, TransportError, GoogleAuthError)


@dataclass(frozen=True, slots=True)
class GcsAnswer:
    """What Google Cloud Storage answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def read_json(self) -> dict[str, Any]:
        """Returns the described resource."""
        document: dict[str, Any] = json.loads(self.body)
        return document


class Session:
    """Sends single requests about one bucket. It is used inside the event loop."""

    def __init__(self, files: GCSFileSystem, bucket: str) -> None:
        self._files, self._bucket = files, bucket

    async def send(
        self, method: str, place: str, data: bytes = b"", head: Mapping[str, str] | None = None, **query: Any
    ) -> GcsAnswer:
        """Sends a request. Raises GcsError for a refusal, TransportError, OSError, GoogleAuthError.

        method: an HTTP method.
        place: a path, or the address of an upload.
        """
        await self._files._set_session()
        headers = self._files._get_headers(dict(head or {}))
        wanted = {name: str(value) for name, value in query.items() if value is not None}
        url = place if "://" in place else f"{self._files._location}{place}"
        asked = self._files.session.request(
            method, url, params=wanted, headers=headers, data=data or None, timeout=_TIMEOUT, allow_redirects=False
        )
        async with asked as answer:
            body = await answer.read()
            if answer.status >= 400:
                raise _read_refusal(answer.status, body)
            return GcsAnswer(answer.status, answer.headers, body)

    def find_object(self, key: str) -> str:
        """Returns the path of an object's resource."""
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o/{quote(key, safe='')}"

    @property
    def objects(self) -> str:
        """Returns the path of the bucket's listing."""
        return f"/storage/v1/b/{quote(self._bucket, safe='')}/o"

    @property
    def uploads(self) -> str:
        """Returns the path to which new objects are sent."""
        return f"/upload{self.objects}"


def _read_refusal(status: int, body: bytes) -> GcsError:
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        message = str(error.get("message", ""))
        reasons = error.get("errors") or [{}]
        return GcsError(status, str(reasons[0].get("reason", "")), message)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return GcsError(status, "", " ".join(text.split())[:200])


class GcsBucket(object_client.ObjectClient):
    """One bucket. `call` raises GcsError and errors of the connection. `translate_errors` converts them."""

    failures = FAILURES

    def __init__(self, address: GcsAddress) -> None:
        self.name = address.bucket

    def call(self, act: Callable[[Session], Awaitable[T]]) -> T:
        """Runs requests, and repeats all of them while Google Cloud Storage is out of reach."""
        files, outage = _connect(GcsEndpoint.of())
        session = Session(files, self.name)
        result: T = sync(
            files.loop, object_client.insist, outage, lambda: act(session), FAILURES, is_transient, code_of
        )
        return result

    def describe(self, key: str) -> dict[str, Any]:
        """Returns the resource of an object."""
        return self.call(lambda session: session.send("get", session.find_object(key))).read_json()

    def list_page(
        self, prefix: str, start: str = "", size: int = 1000, token: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Returns a page of a listing, and the token of the next one; None: it is the last.

        start: the first name, inclusive.
        size: names in one page. Google may return fewer.
        """
        wanted: dict[str, Any] = {
            "prefix": prefix,
            "startOffset": start or None,
            "maxResults": size,
            "pageToken": token,
        }
        fields = "items(name,size,updated,generation),nextPageToken"
        page = self.call(lambda s: s.send("get", s.objects, fields=fields, **wanted)).read_json()
        return page.get("items", []), page.get("nextPageToken")

    def list_pages(self, prefix: str, start: str = "", size: int = 1000) -> Iterator[list[dict[str, Any]]]:
        """Yields all pages of a listing, as `list_page` returns them."""
        token: str | None = None
        while True:
            items, token = self.list_page(prefix, start, size, token)
            yield items
            if not token:
                return

    def as_ours(self, path: str, error: Exception) -> TidefoldError:
        """Returns the error to raise for a failed request about a path."""
        status, code = status_of(error), code_of(error)
        if unfit := object_client.find_unfit(path, status, "Google Cloud Storage"):
            return unfit
        if status == 404:
            # An absent object and an absent bucket have the same status and reason.
            self.require_bucket()
            return NotFoundError("NOT_FOUND", f"`{path}` does not exist.")
        if isinstance(error, GoogleAuthError):
            hint = "Set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`."
            return StorageError("GCS_CREDENTIALS", "The login to Google Cloud Storage failed.", hint=hint)
        if status in (401, 403):
            hint = f"Check the credentials; they need {_RIGHTS}."
            message = f"`{path}`: Google Cloud Storage refuses access ({code})."
            return StorageError("GCS_DENIED", message, hint=hint)
        text = " ".join(str(error).split())
        hint = "Call again. If it happens again, check the state of Google Cloud Storage."
        return StorageError("STORAGE", f"`{path}`: {code or type(error).__name__}: {text}", hint=hint)

    def find_put_mark(self, key: str) -> str | None:
        try:
            return str(self.describe(key).get("metadata", {}).get(PUT_MARK, ""))
        except GcsError as error:
            if error.status != 404:
                raise
            self.require_bucket()
            return None

    def name_failure(self, error: BaseException) -> str:
        return code_of(error)

    def status_of(self, error: BaseException) -> int:
        return status_of(error)

    def was_sent(self, error: BaseException) -> bool:
        return not isinstance(error, GoogleAuthError)

    def require_bucket(self) -> None:
        """Raises StorageError if the bucket itself is missing. To see the bucket takes one more right than to list."""
        try:
            self.call(lambda session: session.send("get", session.objects, maxResults=1, fields="nextPageToken"))
        except FAILURES as error:
            if status_of(error) != 404:
                raise self.as_ours(self.name, error) from error
            raise StorageError("GCS_BUCKET_MISSING", f"The bucket `{self.name}` does not exist.") from error


def _connect(endpoint: GcsEndpoint) -> tuple[GCSFileSystem, object_client.Outage]:
    key = (os.getpid(), endpoint)
    if key not in _clients:
        # Google's default credentials: deltalake looks for the same ones.
        options = {"token": "anon", "endpoint_url": endpoint.emulator} if endpoint.emulator else {"token": _LOGIN}
        files = GCSFileSystem(skip_instance_cache=True, use_listings_cache=False, access="read_write", **options)
        _clients.setdefault(key, (files, object_client.Outage(object_client.PATIENCE, service="Google Cloud Storage")))
    return _clients[key]


def status_of(error: BaseException) -> int:
    """Returns the HTTP status of an answer; 0 without an answer."""
    return error.status if isinstance(error, GcsError) else 0


def code_of(error: BaseException) -> str:
    """Returns Google's reason of a refusal, or its status; "" without an answer."""
    return (error.reason or str(error.status)) if isinstance(error, GcsError) else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later: the service is overloaded, broken, or out of reach."""
    if status := status_of(error):
        return object_client.may_succeed_later(status)
    return isinstance(error, TransportError | ConnectionError | TimeoutError | LoginTransportError)
