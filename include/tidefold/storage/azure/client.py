"""Sends requests to Azure's blob service through adlfs, with one client a process, and converts errors to the Store's.

adlfs is fsspec's Azure. Its own writes replace objects, so conditional requests use the client that it holds.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from adlfs import AzureBlobFileSystem
from aiohttp import ClientError as TransportError
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from fsspec.asyn import sync

from tidefold.errors import NotFoundError, StorageError, TidefoldError
from tidefold.storage.azure.address import AzureAccount, AzureAddress
from tidefold.storage.object_client import PATIENCE, ObjectClient, Outage, find_unfit, insist, may_succeed_later

T = TypeVar("T")
FAILURES = (AzureError, OSError, TransportError)
# Stored with the object: the put that made it. A put that is sent again then finds its own name taken.
PUT_MARK = "tidefold_put"
# The patience of this module decides, not the client's own retries. A read whose body was cut off is repeated.
ONCE = {"retry_total": 0, "connection_timeout": 20, "read_timeout": 60}
_RIGHTS = "the role Storage Blob Data Contributor"

# Never emptied. A forked process has no event loop, and must not use the sockets of its parent.
_clients: dict[tuple[int, AzureAccount], tuple[AzureBlobFileSystem, Outage]] = {}


class Container(ObjectClient):
    """One container. `call` raises the errors of Azure. `translate_errors` converts them into those of the Store."""

    failures = FAILURES

    def __init__(self, address: AzureAddress) -> None:
        self.name = address.container
        self.account = AzureAccount.of(address.account)

    def call(self, act: Callable[[Any], Awaitable[T]]) -> T:
        """Runs requests on a client of the container, and repeats all of them while Azure is out of reach."""
        files, outage = _connect(self.account)

        def send() -> Awaitable[T]:
            return act(files.service_client.get_container_client(self.name))

        result: T = sync(files.loop, insist, outage, send, FAILURES, is_transient, code_of)
        return result

    def as_ours(self, path: str, error: Exception) -> TidefoldError:
        """Returns the error to raise for a failed request about a path."""
        code = code_of(error)
        if unfit := find_unfit(path, status_of(error), "Azure"):
            return unfit
        if isinstance(error, ResourceNotFoundError) and code in ("BlobNotFound", ""):
            # The answer to a HEAD names no code, also if the container is missing.
            if code or self._exists():
                return NotFoundError("NOT_FOUND", f"`{path}` does not exist.")
            code = "ContainerNotFound"
        if code == "ContainerNotFound":
            return StorageError(
                "AZURE_CONTAINER_MISSING",
                f"The container `{self.name}` does not exist in account `{self.account.name}`.",
            )
        if isinstance(error, ClientAuthenticationError) or status_of(error) in (401, 403):
            hint = f"Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or give the identity {_RIGHTS}."
            return StorageError("AZURE_DENIED", f"`{path}`: Azure refuses access ({code or 'no code'}).", hint=hint)
        # The first line: the others repeat headers of the request.
        line = (str(error).splitlines() or [""])[0]
        hint = "Call again. If it happens again, check AZURE_STORAGE_ENDPOINT and the state of Azure."
        return StorageError("STORAGE", f"`{path}`: {code or type(error).__name__}: {line}", hint=hint)

    def find_put_mark(self, key: str) -> str | None:
        try:
            properties = self.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        except ResourceNotFoundError as error:
            if not isinstance(self.as_ours(key, error), NotFoundError):
                raise  # The container is missing.
            return None
        return str((properties.metadata or {}).get(PUT_MARK, ""))

    def name_failure(self, error: BaseException) -> str:
        return code_of(error)

    def status_of(self, error: BaseException) -> int:
        return status_of(error)

    def refuses(self, error: BaseException) -> bool:
        return status_of(error) in (401, 403, 404, 501)

    def blocks_name(self, error: BaseException) -> bool:
        """Blocks of a killed writer are no object. Azurite refuses all writes to their name except a block list."""
        return code_of(error) == "BlobAlreadyExists"

    def _exists(self) -> bool:
        try:
            self.call(lambda container: container.get_container_properties(**ONCE))
        except ResourceNotFoundError:
            return False
        except FAILURES as error:
            raise self.as_ours(self.name, error) from error
        return True


def _connect(account: AzureAccount) -> tuple[AzureBlobFileSystem, Outage]:
    key = (os.getpid(), account)
    if key not in _clients:
        options: dict[str, Any] = {"anon": False, "account_host": urlsplit(account.endpoint).netloc or None}
        if account.connection:
            options = {"connection_string": account.connection}
        files = AzureBlobFileSystem(account_name=account.name, skip_instance_cache=True, **options)
        _clients.setdefault(key, (files, Outage(PATIENCE, service="Azure")))
    return _clients[key]


def code_of(error: BaseException) -> str:
    """Returns Azure's error code; "" without one."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def status_of(error: BaseException) -> int:
    """Returns the HTTP status of an answer; 0 without an answer."""
    return (error.status_code or 0) if isinstance(error, HttpResponseError) else 0


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later: Azure is overloaded, broken, or out of reach."""
    if status := status_of(error):
        return may_succeed_later(status)
    lost = (ServiceRequestError, ServiceResponseError, TransportError, ConnectionError, TimeoutError)
    return isinstance(error, lost) or (isinstance(error, HttpResponseError) and not error.status_code)


def is_folder(item: Any) -> bool:
    """Whether a listed name is a directory of an account with a hierarchical namespace."""
    return bool((item.metadata or {}).get("hdi_isfolder"))
