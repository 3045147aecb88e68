"""Sends requests to S3, Azure and Google Cloud Storage by obstore, and converts errors to those of a Store.

obstore is the client that deltalake, DataFusion and Polars have inside. One request is sent at a time, without its own
retries: the patience of this process decides. Only parts of an upload are repeated by obstore itself.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError as TakenError
from obstore.exceptions import BaseError, InvalidPathError

from tidefold.errors import (
    NotFoundError,
    StorageError,
    StoreRefusedError,
    StoreUnusableError,
    StoreWrongError,
    TidefoldError,
    UnknownOutcomeError,
)
from tidefold.storage.cloud_address import CloudAddress
from tidefold.storage.foreign import find_foreign
from tidefold.storage.outage import PATIENCE, Outage, find_patience, find_unfit, is_refusal, may_succeed_later, wait
from tidefold.storage.store import make_taken_error
from tidefold.storage.traffic import traffic

T = TypeVar("T")
# Errors of a request, and of a stream.
FAILURES = (BaseError, OSError)
# Stored with the object: the put that made it. A put that is sent again then finds its own name taken.
PUT_MARK = "tidefoldput"
# Objects up to this size are one request. The parts of larger ones have this size.
PART = 16 << 20
# What one request copies inside a store.
COPIED = 5 << 30
# The most names that each service returns at once.
PAGE = 1000
_CONFLICTS = 5
_READ_SECONDS, _COPY_SECONDS = 60, 600
# Of HTTP. What follows the first lines may have the code of an error of the operating system, such as 111.
_STATUS = re.compile(r"status code: (\d{3})\b")
# Why no answer came: the operating system's words.
_CAUSE = re.compile(r'message: "([^"]{1,100})"')
_UNRESOLVED = "dns error"
_HOST = re.compile(r"https?://(?:[^/\s@]*@)?([^/\s?]+)\S*")
_CODE = re.compile(r"(?:<Code>|\(code: )([A-Z]\w+)")
_ABSENT, _NO_BUCKET = {"NoSuchKey", "BlobNotFound"}, {"NoSuchBucket", "InvalidBucketName", "ContainerNotFound"}
# versitygw answers 404 where S3 answers 403.
UNKNOWN_KEY, _WRONG_SECRET = {"InvalidAccessKeyId", "XAdminUserNotFound"}, "SignatureDoesNotMatch"
_WRONG_REGION, _MESSAGE = "AuthorizationHeaderMalformed", re.compile(r"<Message>([^<]*?)\.?</Message>")
_NO_ANSWER = re.compile("HTTP error|(?<!from )response|request or")
# The address where a machine of a cloud asks for its role is obstore's last way to log in.
_NO_LOGIN = re.compile(r"169\.254\.169\.254|Credentials \{|token request")


@dataclass(frozen=True, slots=True)
class _Connection:
    """The clients of one bucket in this process.

    once: sends a request once.
    copying: waits longer for an answer.
    parts: repeats the parts of an upload.
    """

    once: Any
    copying: Any
    parts: Any
    outage: Outage


@cache
def connect(address: CloudAddress) -> _Connection:
    """Returns the clients of a bucket. Threads share them; a forked process must not."""
    # AWS_MAX_ATTEMPTS is of S3.
    patience = find_patience() if address.scheme == "s3" else PATIENCE
    outage = Outage(patience, service=address.service.name)
    patient = {"max_retries": 60, "retry_timeout": timedelta(seconds=patience)}
    return _Connection(
        address.open({"max_retries": 0}, _READ_SECONDS),
        address.open({"max_retries": 0}, _COPY_SECONDS),
        address.open(patient if patience else {"max_retries": 0}, _READ_SECONDS),
        outage,
    )


def status_of(error: BaseException) -> int:
    """Returns the HTTP status of an answer; 0 without an answer."""
    match = _STATUS.search(_first_lines(error))
    return int(match[1]) if match else 0


def code_of(error: BaseException) -> str:
    """Returns the service's code of an error; "" without one."""
    match = _CODE.search(str(error))
    return match[1] if match else ""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later: the service is overloaded, broken, or out of reach."""
    if status := status_of(error):
        return was_sent(error) and may_succeed_later(status)
    # No answer came, or one that the service did not write (a proxy did).
    return was_sent(error) and bool(_NO_ANSWER.search(_first_lines(error)))


def was_sent(error: BaseException) -> bool:
    """Whether the service may have seen the request: there were credentials for it."""
    return not _NO_LOGIN.search(str(error))


class CloudBucket:
    """One bucket or container. Its requests raise FAILURES. `translate_errors` converts them."""

    def __init__(self, address: CloudAddress) -> None:
        self._address, self._service = address, address.service

    @property
    def connection(self) -> _Connection:
        """Returns the clients of this process. Raises StorageError in a fork of a process that used the store."""
        if (first := _find_process()) != os.getpid():
            raise StorageError(
                "STORE_FORKED",
                f"Process {first} used an object store and then forked process {os.getpid()}, which cannot use one.",
                hint="Start processes by `spawn`, or use stores only after the fork.",
            )
        try:
            return connect(self._address)
        except BaseError as error:
            message = f"The credentials for {self._service.name} cannot be used: {explain(error)}"
            raise StoreWrongError("STORE_CREDENTIALS", message, hint=self._service.login) from error

    def send(self, act: Callable[[_Connection], T], sent: int = 0) -> T:
        """Sends a request, and sends it again while the store is overloaded or out of reach."""
        connection = self.connection
        outage = connection.outage
        began, tries = outage.begin_request(), 0
        while True:
            traffic.add(1, sent)
            try:
                with outage.tell_silence():
                    answer = act(connection)
            except FAILURES as error:
                if not outage.has_answered and self._find_foreign(error):
                    raise
                if not is_transient(error):
                    outage.end()  # The service answered, or the request cannot be sent at all.
                    raise
                tries += 1
                pause = outage.choose_pause(began, tries, _find_reason(error))
                if pause is None or wait(pause):
                    raise
                continue
            outage.end()
            return answer

    def describe(self, key: str) -> dict[str, Any]:
        """Returns size, time and ETag of an object."""
        described: dict[str, Any] = self.send(lambda to: obstore.head(to.once, key))
        return described

    def load(self, key: str, start: int, length: int | None, etag: str | None = None) -> bytes:
        """Returns a part that is not empty, or the whole; only of the object with this ETag."""
        # Without a range for the whole: every range of an empty object is refused.
        options: Any = {"if_match": etag} if etag else {}
        if start or length is not None:
            options["range"] = {"offset": start} if length is None else (start, start + length)
        data = self.send(lambda to: bytes(obstore.get(to.once, key, options=options).bytes()))
        traffic.add(received=len(data))
        return data

    def put(self, key: str, path: str, data: bytes) -> None:
        """Sends one conditional request: it decides all races. Raises as `settle`."""
        mark = uuid.uuid4().hex
        named: Any = {"mode": "create", "attributes": {PUT_MARK: mark}, "use_multipart": False}
        for left in reversed(range(_CONFLICTS)):
            try:
                self.send(lambda to: obstore.put(to.once, key, data, **named), len(data))
            except FAILURES as error:
                # A put of the same name is under way.
                if code_of(error) == "ConditionalRequestConflict" and left:
                    continue
                self.settle(path, error, lambda: self.find_mark(key) == mark)
            return

    def copy(self, source: str, target: str, path: str, is_same: Callable[[], bool], overwrite: bool) -> None:
        """Copies inside the store, to a free name unless `overwrite`. Raises as `settle`, FileNotFoundError.

        is_same: whether the target has the bytes of the source. Raises FileNotFoundError for an absent target.
        """
        try:
            self.send(lambda to: obstore.copy(to.copying, source, target, overwrite=overwrite))
        except FileNotFoundError:
            raise  # The source is absent.
        except TakenError as error:
            raise make_taken_error(path) from error
        except FAILURES as error:
            self.settle(path, error, is_same)

    def settle(self, path: str, error: Exception, is_ours: Callable[[], bool]) -> None:
        """Finds out the outcome of a write that failed. Returns if it made the object, else raises the known outcome.

        Raises AlreadyExistsError, UnknownOutcomeError, StorageError.

        is_ours: whether this write made the object. Raises FileNotFoundError if there is none.
        """
        if isinstance(error, TidefoldError):
            raise error  # No request was sent.
        if not was_sent(error):
            raise self.as_ours(path, error) from error
        is_made: bool | None = None
        try:
            is_made = is_ours()
        except FileNotFoundError:
            pass
        except FAILURES:
            raise self._make_unknown(path, error) from error
        if is_made:
            return
        if is_refusal(status_of(error)):
            raise self.as_ours(path, error) from error
        if is_made is None or self._find_foreign(error):  # Absence proves nothing: the lost request may still arrive.
            raise self._make_unknown(path, error) from error
        raise make_taken_error(path) from error

    def find_mark(self, key: str) -> str:
        """Returns the mark of the put that made an object; "" for a foreign object. Raises FileNotFoundError."""
        attributes = self.send(lambda to: obstore.get(to.once, key, options={"head": True}).attributes)
        return str(attributes.get(PUT_MARK, ""))

    def read_pages(self, prefix: str, after: str = "") -> Iterator[Sequence[dict[str, Any]]]:
        """Yields the pages of all objects below a folder, or those behind a name. A page that fails is asked for again.

        A server that announces more names and does not say where they begin ends the listing: obstore cannot tell that.
        So an object that is not listed is absent only if a request for it says so.
        """
        last, stream = after, None

        def step(to: _Connection) -> Sequence[dict[str, Any]] | None:
            nonlocal stream
            try:
                stream = stream or iter(obstore.list(to.once, prefix, offset=last or None, chunk_size=self._page))
                return next(stream, None)
            except FAILURES as error:
                stream = None
                if code_of(error) in _ABSENT:  # That is no answer to a listing, unless something else lies there.
                    raise self._make_missing() from error
                raise

        while page := self.send(step):
            yield page
            last = page[-1]["path"]
            if len(page) < self._page:
                return

    @property
    def _page(self) -> int:
        """Names of one page. Where a store does not list in order, all names are one page."""
        return PAGE if self._address.is_sorted else 1 << 40

    def delete(self, keys: Sequence[str], path: str) -> None:
        """Deletes objects. An absent one is no error. Raises StorageError."""
        with self.translate_errors(path):
            try:
                self.send(lambda to: obstore.delete(to.once, keys))
            except FAILURES as error:
                if not self.is_absence(path, error):
                    raise
                if len(keys) == 1:
                    return
                for key in keys:  # Which one is absent is not said, nor which ones were deleted.
                    self.delete([key], path)

    def is_absence(self, path: str, error: Exception) -> bool:
        """Whether the service reported that the object itself is absent (I23)."""
        return isinstance(self.as_ours(path, error), NotFoundError)

    def as_ours(self, path: str, error: Exception) -> TidefoldError:
        """Returns the error to raise for a failed request about a path."""
        status, code, service = status_of(error), code_of(error), self._service
        is_absent = not code and (isinstance(error, FileNotFoundError) or status == 404)
        if code in _NO_BUCKET or (is_absent and not self._exists()):
            return self._make_missing()
        if code in _ABSENT or is_absent:
            return NotFoundError("NOT_FOUND", f"`{path}` does not exist.")
        if wrong := self._find_foreign(error) or find_unfit(path, status, service.name) or self._find_refusal(error):
            return wrong
        if isinstance(error, InvalidPathError):
            return StorageError(
                "STORE_KEY",
                f"`{path}`: {_first_lines(error)}.",
                hint="Give that object another name, or delete it: its folder cannot be listed.",
            )
        if status in (401, 403):
            reason = code or "no reason given"
            hint = f"Check the credentials; they need {service.rights}."
            return StoreRefusedError("STORE_DENIED", f"`{path}`: {service.name} refuses access ({reason}).", hint=hint)
        if not status and (host := _HOST.search(str(error))) and _NO_ANSWER.search(_first_lines(error)):
            return self._make_silent(host[1], error)
        return StorageError("STORAGE", f"`{path}`: {explain(error)}", hint=service.hint + self._address.doubt)

    @contextmanager
    def translate_errors(self, path: str) -> Iterator[None]:
        """Converts errors. Raises NotFoundError only if the service reported that the object itself is absent (I23)."""
        try:
            yield
        except TidefoldError:
            raise
        except FAILURES as error:
            raise self.as_ours(path, error) from error

    def _exists(self) -> bool:
        """Whether the bucket exists: an absent object and an absent bucket may have the same answer."""
        try:
            self.send(lambda to: next(iter(obstore.list(to.once, "tidefold-looks-for-the-bucket", chunk_size=1)), None))
        except FAILURES as error:
            if foreign := self._find_foreign(error):
                raise foreign from error
            if status_of(error) != 404 or code_of(error) in UNKNOWN_KEY:
                raise self.as_ours(self._address.bucket, error) from error
            return False
        return True

    def _find_refusal(self, error: Exception) -> StoreWrongError | None:
        """Returns the error for credentials or a region that the service does not take; None: it is another one."""
        code, service = code_of(error), self._service
        if code == _WRONG_REGION:
            words = match[1].replace("&#34;", '"') if (match := _MESSAGE.search(str(error))) else code
            return StoreWrongError("STORE_DENIED", f"{service.name} refuses: {words}.", hint="Set AWS_REGION.")
        if code in UNKNOWN_KEY or code == _WRONG_SECRET:
            secret = f"The secret key is wrong: it does not belong to the access key id ({code})."
            message = secret if code == _WRONG_SECRET else f"{service.name} does not know the access key id."
            return StoreWrongError("STORE_DENIED", message, hint=f"Check the credentials. {service.login}")
        if was_sent(error) or isinstance(error, InvalidPathError):
            return None
        return StoreWrongError("STORE_CREDENTIALS", f"There are no credentials for {service.name}.", hint=service.login)

    def _find_foreign(self, error: Exception) -> StoreWrongError | None:
        """Returns the error if another kind of server answered; None: it is the service, or may be."""
        return None if code_of(error) or not was_sent(error) else find_foreign(str(error), self._address)

    def _make_missing(self) -> StorageError:
        place = self._service.place
        return StoreWrongError(
            "STORE_BUCKET_MISSING",
            f"The {place} `{self._address.bucket}` does not exist, or these credentials may not see it.",
            hint=f"Create it, or correct its name and the endpoint.{self._address.doubt}",
        )

    def _make_silent(self, host: str, error: Exception) -> StorageError:
        """The same error for all paths: an outage is told once."""
        service, cause = self._service, _CAUSE.search(str(error))
        if _UNRESOLVED in str(error):
            message, hint = f"The host `{host}` of {service.name} is not found.", "Check the name of the host"
            return StoreUnusableError("STORAGE", message, hint=f"{hint} ({service.host}), and the DNS.")
        why = f" ({cause[1]})" if cause else ""
        return StoreUnusableError("STORAGE", f"{service.name} does not answer at `{host}`{why}.", hint=service.hint)

    def _make_unknown(self, path: str, error: Exception) -> UnknownOutcomeError:
        reason, code = self.as_ours(path, error), code_of(error)
        # In a conflict the other writer may be an earlier try of this put.
        doubt = "STORE_CONFLICT" if code == "ConditionalRequestConflict" else "UNKNOWN_OUTCOME"
        doubt = reason.code if is_refusal(status_of(error)) else doubt
        message = f"Whether `{path}` was written is not known ({code or type(error).__name__})."
        return UnknownOutcomeError(doubt, message, hint=reason.hint)


def explain(error: Exception) -> str:
    """Returns the service's own words, of the address of the request only its host: the rest may hold secrets (I26)."""
    text = _HOST.sub(r"\1", _first_lines(error))
    cause = _CAUSE.search(str(error)) if not status_of(error) else None
    why = f" ({cause[1]})" if cause else ""
    return f"{code_of(error) or type(error).__name__}: {' '.join(text.split())[:300]}{why}"


def _find_reason(error: Exception) -> str:
    """Returns why a request failed, for the line about an outage: the service's code, or the host that is silent."""
    host, cause = _HOST.search(str(error)), _CAUSE.search(str(error))
    why = code_of(error) or (cause[1] if cause else "no answer")
    return f"`{host[1]}`: {why}" if host else why


def _first_lines(error: BaseException) -> str:
    return str(error).partition("\n\nDebug source")[0]


@cache
def _find_process() -> int:
    """Returns the first process that used a store: this one, or the one that it was forked from."""
    return os.getpid()
