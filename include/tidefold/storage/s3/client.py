"""Sends requests to S3 through s3fs, with one client a process, and converts errors to those of a Store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from aiohttp import ClientError as TransportError
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError, ParamValidationError
from botocore.exceptions import ConnectionError as EndpointError
from botocore.parsers import ResponseParserError
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from tidefold.errors import InvalidInputError, NotFoundError, StorageError, TidefoldError
from tidefold.storage import object_client
from tidefold.storage.s3.address import S3Endpoint
from tidefold.storage.s3.traffic import count_answer, count_request

# The errors that s3fs raises: S3's responses (as OSError), and errors of the connection.
FAILURES = (OSError, ClientError, BotoCoreError, ResponseParserError, TransportError)
# No response came, or one that S3 did not write (a proxy did).
_OUT_OF_REACH = (HTTPClientError, EndpointError, ResponseParserError, TransportError, ConnectionError, TimeoutError)
_READ_SECONDS = 60
# Stored with the object: the put that made it. If an answer is lost, botocore and aiohttp send the put again (aiohttp
# whatever botocore's settings are, and silently). Then that very put finds its own name taken.
PUT_MARK = "tidefold-put"
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_ABSENT = {"NoSuchKey", "NoSuchBucket", "404", ""}  # "404": a HEAD; "": s3fs looked for a file and for a folder.
_RIGHTS = "s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload"
# Never emptied, and not fsspec's own cache: a forked process drops the instances of that one. Each then waits a second
# (measured) for the event loop of the parent, which does not exist here, and touches the parent's sockets.
_clients: dict[tuple[int, type[S3FileSystem], S3Endpoint], S3FileSystem] = {}
_FOLLOWING = {
    "list_objects_v2": {"ContinuationToken": "NextContinuationToken"},
    "list_multipart_uploads": {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"},
}


class PatientFileSystem(S3FileSystem):  # type: ignore[misc]
    """s3fs that outlasts an outage of minutes. It also repeats a read whose body was cut off."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.outage = object_client.Outage()

    async def _call_s3(self, method: str, *arguments: Any, **named: Any) -> Any:
        async def send() -> Any:
            count_request(method, named)
            answer = await super(PatientFileSystem, self)._call_s3(method, *arguments, **named)
            count_answer(method, answer)
            return answer

        return await object_client.insist(self.outage, send, FAILURES, is_transient, code_of)

    call_s3 = sync_wrapper(_call_s3)


class Once(PatientFileSystem):
    """s3fs without its own retries: botocore retries, and then the patience of this process decides."""

    retries = 1


def connect(kind: type[S3FileSystem] = Once) -> S3FileSystem:
    """Returns this process's client. Threads share s3fs safely, but not a process forked after its first request."""
    endpoint = S3Endpoint.of()
    key = (os.getpid(), kind, endpoint)
    if key not in _clients:
        # A later thread loses its instance before it has connected.
        _clients.setdefault(key, _new(kind, endpoint))
    return _clients[key]


def _new(kind: type[S3FileSystem], endpoint: S3Endpoint) -> S3FileSystem:
    return kind(
        skip_instance_cache=True,
        # A listing that is remembered would hide what other processes wrote (I23).
        use_listings_cache=False,
        endpoint_url=endpoint.url,
        client_kwargs={"region_name": endpoint.region} if endpoint.region else {},
        # botocore's own limit is 10 connections.
        config_kwargs={"read_timeout": _READ_SECONDS, "max_pool_connections": object_client.REQUESTS_AT_ONCE},
    )


class Bucket(object_client.ObjectClient):
    """One bucket. `call` raises the errors of s3fs. `translate_errors` converts them into those of the Store port."""

    failures = FAILURES

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Calls one S3 operation on this bucket, by botocore's names."""
        answer: dict[str, Any] = connect().call_s3(method, Bucket=self.name, **arguments)
        return answer

    @property
    def files(self) -> S3FileSystem:
        """Returns s3fs for reading: it repeats a read whose body was cut off."""
        return connect(PatientFileSystem)

    def pages(self, method: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yields all pages of a listing. A page that announces more but gives no position is an error, not the end."""
        following = dict(arguments)
        while True:
            page = self.call(method, **following)
            yield page
            if not page.get("IsTruncated"):
                return
            names = _FOLLOWING[method]
            following = {**arguments, **{name: page.get(key) for name, key in names.items()}}
            if not all(following[name] for name in names):
                raise StorageError("STORAGE", "S3 ended a listing too early.", hint="Call again.")

    def as_ours(self, path: str, error: Exception) -> TidefoldError:
        """Returns the error to raise for a failed request about a path."""
        if not isinstance(error, FileNotFoundError) or code_of(error) not in _ABSENT:
            return _storage_error(path, error)
        # s3fs raises the same error for a missing bucket, and a HEAD returns 404 for both.
        if code_of(error) == "NoSuchKey" or self._exists():
            return NotFoundError("NOT_FOUND", f"`{path}` does not exist.")
        return StorageError(
            "S3_BUCKET_MISSING", f"The bucket `{self.name}` does not exist, or these credentials may not see it."
        )

    def find_put_mark(self, key: str) -> str | None:
        try:
            return str(self.call("head_object", Key=key).get("Metadata", {}).get(PUT_MARK, ""))
        except FileNotFoundError:
            return None

    def name_failure(self, error: BaseException) -> str:
        return code_of(error)

    def status_of(self, error: BaseException) -> int:
        return _status_of(error)

    def was_sent(self, error: BaseException) -> bool:
        return not isinstance(error, NoCredentialsError | ParamValidationError)

    def name_doubt(self, error: BaseException, reason: TidefoldError) -> str:
        # In a conflict the other writer may be an earlier try of this put.
        return "S3_CONFLICT" if conflicts(error) else super().name_doubt(error, reason)

    def _exists(self) -> bool:
        try:
            self.call("head_bucket")
        except FileNotFoundError:
            return False
        except FAILURES as error:
            raise _storage_error(self.name, error) from error
        return True


def _storage_error(path: str, error: Exception) -> TidefoldError:
    code = code_of(error)
    if unfit := object_client.find_unfit(path, _status_of(error), "S3"):
        return unfit
    if isinstance(error, NoCredentialsError):
        hint = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        return StorageError("S3_CREDENTIALS", "There are no credentials for S3.", hint=hint)
    if isinstance(error, ParamValidationError):
        return InvalidInputError("S3_REQUEST", f"`{path}` cannot be a name in S3.")
    if code in _DENIED or isinstance(error, PermissionError):
        hint = f"Check the credentials; they need {_RIGHTS}."
        return StorageError("S3_DENIED", f"`{path}`: S3 refuses access ({code or 'no reason given'}).", hint=hint)
    text = f"{code}: {error}" if code else f"{type(error).__name__}: {error}"
    hint = "Call again. If it happens again, check AWS_ENDPOINT_URL, AWS_REGION and the state of S3."
    return StorageError("STORAGE", f"`{path}`: {' '.join(text.split())}", hint=hint)


def _status_of(error: BaseException) -> int:
    """Returns the HTTP status of S3's response; 0 without one."""
    return int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answer(error: BaseException | None) -> dict[str, Any]:
    """Returns S3's response, which s3fs keeps as the cause of its errors; empty without one."""
    while error is not None and not isinstance(error, ClientError):
        error = error.__cause__
    return dict(error.response) if isinstance(error, ClientError) else {}


def code_of(error: BaseException) -> str:
    """Returns S3's error code, or the HTTP status if a response has no body; "" without a response."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def conflicts(error: BaseException) -> bool:
    """Whether S3 refused because another write of the name was running: the request can be sent again."""
    return code_of(error) in ("ConditionalRequestConflict", "409")


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later: S3 is overloaded, broken, or out of reach."""
    if status := _status_of(error):
        return object_client.may_succeed_later(status)
    return isinstance(error, _OUT_OF_REACH) or isinstance(error.__cause__, _OUT_OF_REACH)
