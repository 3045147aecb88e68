"""A store in a container of Azure. fsspec's adlfs holds the client; conditional puts decide the races."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from azure.core.exceptions import ResourceNotFoundError

from tidefold.errors import RefusedError
from tidefold.storage.azure.address import AzureAddress
from tidefold.storage.azure.client import FAILURES, ONCE, Container, code_of, is_folder
from tidefold.storage.azure.upload import COPIED_AT_ONCE, BlockUpload, copy_at_once, put
from tidefold.storage.object_client import gather
from tidefold.storage.object_store import ObjectStore
from tidefold.storage.store import StoredObject

_PAGE = 1000  # Names in one page of a listing.


class AzureStore(ObjectStore):
    """Objects below a prefix of a container."""

    def __init__(self, address: str) -> None:
        self._place = AzureAddress.parse(address)
        self._container = Container(self._place)
        super().__init__(self._place.prefix, self._container)

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

    def _put(self, key: str, path: str, data: bytes) -> None:
        put(self._container, key, path, data)

    def _begin_upload(self, key: str, path: str) -> BlockUpload:
        return BlockUpload(self._container, key, path)

    def _copy(self, source: str, target: str, size: int) -> None:
        """Copies inside Azure, with one conditional request, if the account's key is known. Else reads and writes."""
        if size > COPIED_AT_ONCE or not copy_at_once(self._container, self._key(source), self._key(target), target):
            self._stream(source, target)

    _copy_unique = _copy

    def _make_no_replace(self, path: str) -> RefusedError:
        return RefusedError(
            "AZURE_NO_REPLACE",
            f"`{path}` exists, and tidefold never replaces an object in Azure.",
            hint="Delete the object (`az storage blob delete`) and call again: repair writes it back.",
        )

    def list(self, folder: str, unfinished: bool = False) -> list[StoredObject]:
        """Returns the files below a folder. Blocks that were never committed are in no listing: Azure deletes them."""

        async def load(client: Any) -> list[StoredObject]:
            return [self._describe(item) async for item in self._list(client, folder) if not is_folder(item)]

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
            sizes = await gather(left, lambda path: _find_size(client, self._key(path)))
            return found | {path: size for path, size in zip(left, sizes, strict=True) if size is not None}

        with self._container.translate_errors(folder):
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
            found = self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        return float(found.last_modified.timestamp())

    def _require_size(self, path: str) -> int:
        key = self._key(path)
        with self._container.translate_errors(path):
            found = self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        return int(found.size)


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
