"""Writes to Azure only if the name is free, and finds out the outcome of a write even if its answer is lost."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, generate_blob_sas

from tidefold.storage.azure.client import FAILURES, ONCE, PUT_MARK, Container
from tidefold.storage.store import make_taken_error

# What one request copies inside Azure.
COPIED_AT_ONCE = 256 << 20
_SAS_HOURS = 12


def put(container: Container, key: str, path: str, data: bytes) -> None:
    """Sends one conditional PUT. Raises AlreadyExistsError, UnknownOutcomeError, StorageError."""
    mark = uuid.uuid4().hex

    async def send(client: Any) -> None:
        # One request: all callers send less than the client's limit for one.
        await client.get_blob_client(key).upload_blob(data, overwrite=False, metadata={PUT_MARK: mark}, **ONCE)

    if not _attempt(container, key, path, mark, send):
        upload = BlockUpload(container, key, path)
        if data:
            upload.add(data)
        upload.complete()


def copy_at_once(container: Container, source: str, key: str, path: str) -> bool:
    """Copies an object of at most COPIED_AT_ONCE bytes with one conditional request.

    Returns False if the copy must pass through this process: the key of the account is not known, or a killed writer
    left blocks. Raises as `put`, NotFoundError.
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
        return container.settle(key, path, mark, error)
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
        """Makes the object visible if its name is free. Raises as `put`."""

        async def send(client: Any) -> None:
            blocks = [BlobBlock(block_id=block) for block in self._blocks]
            named = {"metadata": {PUT_MARK: self._mark}, "match_condition": MatchConditions.IfMissing}
            await client.get_blob_client(self._key).commit_block_list(blocks, **named, **ONCE)

        if not _attempt(self._container, self._key, self._path, self._mark, send):
            raise make_taken_error(self._path)  # An object that was deleted meanwhile.

    def abort(self) -> None:
        """Does nothing: the blocks are invisible, and Azure deletes them."""
