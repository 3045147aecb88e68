"""A store in a container of Azure. fsspec's adlfs holds the client; conditional puts decide the races."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from azure.core.exceptions import ResourceNotFoundError

from tidefold.errors import AlreadyExistsError, NotFoundError, RefusedError
from tidefold.storage.azure.address import AzureAddress
from tidefold.storage.azure.client import FAILURES, ONCE, REQUESTS_AT_ONCE, Container, code_of
from tidefold.storage.azure.upload import COPIED_AT_ONCE, BlockUpload, copy_at_once, find_put_mark, put
from tidefold.storage.store import StoredObject, make_outside_error
from tidefold.storage.upload_stream import PART, UploadStream

_READ = 8 << 20
_PAGE = 1000  # Names in one page of a listing.


class AzureStore:
    """Objects below a prefix. An object appears under its name only when it is complete."""

    def __init__(self, address: str) -> None:
        self._place = AzureAddress.parse(address)
        self._container = Container(self._place)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        key = self._key(path)
        if length == 0:
            self._require_size(path)
            return b""

        async def load(client: Any) -> bytes:
            # Without a range for the whole: Azure refuses every range of an empty object.
            part = {} if length is None and not start else {"offset": start, "length": length}
            stream = await client.get_blob_client(key).download_blob(**part, max_concurrency=1, **ONCE)
            return cast(bytes, await stream.readall())

        with self._container.translate_errors(path):
            try:
                return self._container.call(load)
            except FAILURES as error:
                if code_of(error) == "InvalidRange":
                    return b""  # It begins behind the end.
                raise

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        ranges = _Ranges(self, path, self._require_size(path))
        with io.BufferedReader(ranges, _READ) as stream:
            yield cast(BinaryIO, stream)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if len(data) > PART:
            with self.create(path) as stream:
                stream.write(data)
        else:
            put(self._container, self._key(path), path, data)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        where = (self._container, self._key(path), path)
        stream = UploadStream(lambda data: put(*where, data), lambda: BlockUpload(*where))
        try:
            yield cast(BinaryIO, stream)
        except BaseException:
            stream.abort()
            raise
        stream.complete()

    @property
    def links(self) -> bool:
        return False

    def link(self, source: str, target: str, copy: bool = False) -> str:
        return self.link_unique(source, target, self._require_size(source))

    def link_unique(self, source: str, target: str, size: int) -> str:
        """Copies inside Azure, with one conditional request, if the account's key is known. Else reads and writes."""
        try:
            if size > COPIED_AT_ONCE or not copy_at_once(self._container, self._key(source), self._key(target), target):
                self._stream(source, target)
        except AlreadyExistsError:
            if not self._is_same(source, target):
                raise
            return "kept"
        return "copy"

    def _stream(self, source: str, target: str) -> None:
        with self.open(source) as old, self.create(target) as new:
            while part := old.read(_READ):
                new.write(part)

    def _is_same(self, one: str, other: str) -> bool:
        size = self._require_size(one)
        if self._find_size(other) != size:
            return False
        return all(self.read(one, start, _READ) == self.read(other, start, _READ) for start in range(0, size, _READ))

    @property
    def at_once(self) -> int:
        return REQUESTS_AT_ONCE

    @contextmanager
    def replace(self, paths: Sequence[str]) -> Iterator[BinaryIO]:
        """Fills free names only, as in S3."""
        taken = [path for path in paths if self._find_size(path) is not None]
        if taken:
            raise RefusedError(
                "AZURE_NO_REPLACE",
                f"`{taken[0]}` exists, and tidefold never replaces an object in Azure.",
                hint="Delete the object (`az storage blob delete`) and call again: repair writes it back.",
            )
        with self.create(paths[0]) as stream:
            yield stream
        for path in paths[1:]:
            self.link(paths[0], path)

    def identity(self, path: str) -> str:
        return self.uri(path)

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns the files below a folder. Blocks that were never committed are in no listing: Azure deletes them."""

        async def load(client: Any) -> list[StoredObject]:
            return [self._describe(item) async for item in self._list(client, folder) if not _is_folder(item)]

        with self._container.translate_errors(folder):
            return sorted(self._container.call(load), key=lambda entry: entry.path)

    def find_sizes(self, folder: str, paths: Sequence[str]) -> dict[str, int]:
        """Returns the sizes of files. One request shows a small folder. In a larger one, each file costs a request."""
        if not paths:
            return {}

        async def load(client: Any) -> dict[str, int]:
            pages = self._list(client, folder, results_per_page=_PAGE).by_page()
            first = [self._describe(item) async for item in await anext(pages)]
            found = {entry.path: entry.bytes for entry in first}
            left = [path for path in paths if path not in found] if pages.continuation_token else []
            sizes = await _gather(left, lambda path: _find_size(client, self._key(path)))
            return found | {path: size for path, size in zip(left, sizes, strict=True) if size is not None}

        with self._container.translate_errors(folder):
            return self._container.call(load)

    def _list(self, client: Any, folder: str, **how: Any) -> Any:
        prefix = f"{self._key(folder)}/".lstrip("/")
        return client.list_blobs(name_starts_with=prefix, include=["metadata"], **how, **ONCE)

    def _describe(self, item: Any) -> StoredObject:
        return StoredObject(item.name.removeprefix(f"{self._place.prefix}/" if self._place.prefix else ""), item.size)

    def delete(self, paths: Iterable[str]) -> None:
        keys = {path: self._key(path) for path in paths}

        async def remove(client: Any) -> None:
            await _gather([*keys.values()], lambda key: _delete(client, key))

        if keys:
            with self._container.translate_errors(next(iter(keys))):
                self._container.call(remove)

    def sync(self, path: str) -> None:
        return  # What Azure acknowledged is durable.

    @property
    def address(self) -> str:
        return self.uri("")

    def uri(self, path: str) -> str:
        return self._place.uri(self._key(path))

    def options(self) -> dict[str, str]:
        return self._container.account.delta_options()

    def keeps_marks(self, path: str) -> bool:
        """Whether Azure stores with an object which put made it. tidefold needs that to settle a lost response."""
        with self._container.translate_errors(path):
            return bool(find_put_mark(self._container, self._key(path)))

    def read_instant(self, path: str) -> float:
        """Returns when Azure wrote an object, by its clock: seconds since 1970."""
        key = self._key(path)
        with self._container.translate_errors(path):
            found = self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        return float(found.last_modified.timestamp())

    def _find_size(self, path: str) -> int | None:
        try:
            return self._require_size(path)
        except NotFoundError:
            return None

    def _require_size(self, path: str) -> int:
        key = self._key(path)
        with self._container.translate_errors(path):
            found = self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        return int(found.size)

    def _key(self, path: str) -> str:
        """Returns the object's key. Raises InvalidInputError if it is outside the root (I26)."""
        parts = path.split("/")
        if path.startswith("/") or ".." in parts:
            raise make_outside_error(path)
        below = [part for part in parts if part not in ("", ".")]
        return "/".join([*filter(None, [self._place.prefix]), *below])


class _Ranges(io.RawIOBase):
    """Reads ranges of an object. A buffer above it asks for large ones."""

    def __init__(self, store: AzureStore, path: str, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size, self._at = store, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        data = self._store.read(self._path, self._at, length)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _is_folder(item: Any) -> bool:
    """Whether a listed name is a directory of an account with a hierarchical namespace."""
    return bool((item.metadata or {}).get("hdi_isfolder"))


async def _gather(items: Sequence[str], act: Any) -> list[Any]:
    """Awaits an action for each item, some at the same time."""
    free = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def limit(item: str) -> Any:
        async with free:
            return await act(item)

    return await asyncio.gather(*map(limit, items))


async def _delete(client: Any, key: str) -> None:
    try:
        await client.get_blob_client(key).delete_blob(**ONCE)
    except ResourceNotFoundError as error:
        if code_of(error) != "BlobNotFound":
            raise


async def _find_size(client: Any, key: str) -> int | None:
    try:
        return int((await client.get_blob_client(key).get_blob_properties(**ONCE)).size)
    except ResourceNotFoundError:
        return None
