"""A store in a container of Azure. fsspec's adlfs holds the client; conditional puts decide the races."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import BlobBlock, generate_blob_sas

from tidefold.errors import RefusedError
from tidefold.storage.azure.address import AzureAddress
from tidefold.storage.azure.client import FAILURES, ONCE, PUT_MARK, Container, code_of, is_folder
from tidefold.storage.object_client import gather
from tidefold.storage.object_store import ObjectStore
from tidefold.storage.store import StoredObject, make_taken_error

# What one request copies inside Azure.
COPIED_AT_ONCE = 256 << 20
_SAS_HOURS = 12
_PAGE = 1000  # Names in one page of a listing.


def copy_at_once(container: Container, source: str, key: str, path: str) -> bool:
    """Copies an object of at most COPIED_AT_ONCE bytes with one conditional request.

    Returns False if the copy must pass through this process: the key of the account is not known, or a killed writer
    left blocks. Raises as `_put`, NotFoundError.
    """
    account = container.account
    if not account.key:
        return False
    mark = uuid.uuid4().hex
    expiry = datetime.now(UTC) + timedelta(hours=_SAS_HOURS)
    sas = generate_blob_sas(
        account.name, container.name, source, account_key=account.key, permission="r", expiry=expiry
    )

    async def send(client: Any) -> None:
        url = f"{client.get_blob_client(source).url}?{sas}"
        named = {"metadata": {PUT_MARK: mark}, "requires_sync": True, "match_condition": MatchConditions.IfMissing}
        await client.get_blob_client(key).start_copy_from_url(url, **named, **ONCE)

    return _attempt(container, key, path, mark, send)


def _attempt(container: Container, key: str, path: str, mark: str, send: Callable[[Any], Awaitable[None]]) -> bool:
    """Sends a write and finds out its outcome. Returns False if only blocks of a killed writer have the name."""
    try:
        container.call(send)
    except FAILURES as error:
        return container.resolve_put(key, path, mark, error)
    return True


class BlockUpload:
    """An upload in blocks. The object appears, whole, when they are committed. Until then it is invisible.

    Azure deletes blocks that were never committed after a week. No request deletes them before.
    """

    def __init__(self, container: Container, key: str, path: str) -> None:
        self._container, self._key, self._path = container, key, path
        # Uploads of one name share its blocks, so the ids of this upload are its own.
        self._mark = uuid.uuid4().hex
        self._blocks: list[str] = []

    def add(self, data: bytes) -> None:
        """Sends the next block."""
        block = f"{self._mark}-{len(self._blocks):06d}"
        with self._container.translate_errors(self._path):
            self._container.call(
                lambda client: client.get_blob_client(self._key).stage_block(block, data, len(data), **ONCE)
            )
        self._blocks.append(block)

    def complete(self) -> None:
        """Makes the object visible if its name is free. Raises as `_put`."""

        async def send(client: Any) -> None:
            blocks = [BlobBlock(block_id=block) for block in self._blocks]
            named = {"metadata": {PUT_MARK: self._mark}, "match_condition": MatchConditions.IfMissing}
            await client.get_blob_client(self._key).commit_block_list(blocks, **named, **ONCE)

        if not _attempt(self._container, self._key, self._path, self._mark, send):
            raise make_taken_error(self._path)  # An object that was deleted meanwhile.

    def abort(self) -> None:
        """Does nothing: the blocks are invisible, and Azure deletes them."""


class AzureStore(ObjectStore):
    """Objects below a prefix of a container."""

    def __init__(self, address: str) -> None:
        self._place = AzureAddress.parse(address)
        self._container = Container(self._place)
        super().__init__(self._place.prefix, self._container)

    def _load(self, key: str, start: int, length: int | None) -> bytes:
        async def load(client: Any) -> bytes:
            # Without a range for the whole: Azure refuses every range of an empty object.
            part = {} if length is None and not start else {"offset": start, "length": length}
            stream = await client.get_blob_client(key).download_blob(**part, max_concurrency=1, **ONCE)
            return cast(bytes, await stream.readall())

        return self._container.call(load)

    def _put(self, key: str, path: str, data: bytes) -> None:
        mark = uuid.uuid4().hex

        async def send(client: Any) -> None:
            # One request: all callers send less than the client's limit for one.
            await client.get_blob_client(key).upload_blob(data, overwrite=False, metadata={PUT_MARK: mark}, **ONCE)

        if not _attempt(self._container, key, path, mark, send):
            upload = BlockUpload(self._container, key, path)
            if data:
                upload.add(data)
            upload.complete()

    def _begin_upload(self, key: str, path: str) -> BlockUpload:
        return BlockUpload(self._container, key, path)

    def _copy(self, source: str, target: str, size: int) -> None:
        """Copies inside Azure, with one conditional request, if the account's key is known. Else reads and writes."""
        if size > COPIED_AT_ONCE or not copy_at_once(self._container, self._key(source), self._key(target), target):
            self._stream(source, target)

    _copy_unique = _copy

    def _make_no_replace(self, path: str) -> RefusedError:
        return RefusedError("AZURE_NO_REPLACE", f"`{path}` exists, and tidefold never replaces an object in Azure.")

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns the files below a folder. Blocks that were never committed are in no listing: Azure deletes them."""

        async def load(client: Any) -> list[StoredObject]:
            return [self._describe(item) async for item in self._list(client, folder) if not is_folder(item)]

        with self._container.translate_errors(folder):
            return sorted(self._container.call(load), key=lambda entry: entry.path)

    def _read_page(self, folder: str) -> tuple[dict[str, int], bool]:
        async def load(client: Any) -> tuple[dict[str, int], bool]:
            pages = self._list(client, folder, results_per_page=_PAGE).by_page()
            first = [self._describe(item) async for item in await anext(pages)]
            return {entry.path: entry.bytes for entry in first}, bool(pages.continuation_token)

        return self._container.call(load)

    def _list(self, client: Any, folder: str, **how: Any) -> Any:
        prefix = f"{self._key(folder)}/".lstrip("/")
        return client.list_blobs(name_starts_with=prefix, include=["metadata"], **how, **ONCE)

    def _describe(self, item: Any) -> StoredObject:
        return StoredObject(self._path(item.name), item.size)

    def delete(self, paths: Iterable[str]) -> None:
        keys = {path: self._key(path) for path in paths}

        async def remove(client: Any) -> None:
            await gather([*keys.values()], lambda key: _delete(client, key))

        if keys:
            with self._container.translate_errors(next(iter(keys))):
                self._container.call(remove)

    def uri(self, path: str) -> str:
        return self._place.uri(self._key(path))

    def options(self) -> dict[str, str]:
        return self._container.account.delta_options()

    def read_instant(self, path: str) -> float:
        """Returns when Azure wrote an object, by its clock: seconds since 1970."""
        key = self._key(path)
        with self._container.translate_errors(path):
            return float(self._read_properties(key).last_modified.timestamp())

    def _read_size(self, key: str) -> int:
        return int(self._read_properties(key).size)

    def _read_properties(self, key: str) -> Any:
        return self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))


async def _delete(client: Any, key: str) -> None:
    try:
        await client.get_blob_client(key).delete_blob(**ONCE)
    except ResourceNotFoundError as error:
        if code_of(error) != "BlobNotFound":
            raise
