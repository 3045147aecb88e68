"""Objects below a prefix in a container of Azure as landed files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from azure.core import MatchConditions

from tidefold.sources.landing.landing_place import Stamp
from tidefold.sources.landing.object_folder import ObjectFolder, StampPage
from tidefold.storage.azure.address import AzureAddress
from tidefold.storage.azure.client import ONCE, Container, is_folder

PAGE = 5000  # Names in one page of a listing: the most that Azure returns.


class AzureFolder(ObjectFolder):
    """All objects below a prefix. One request lists 5,000 of them."""

    # adlfs's client has no way to begin a listing at a name.
    cuts = False
    # The name of an object in Azure must not end with a slash.
    mark = ".keep"

    def __init__(self, address: str) -> None:
        self._place = AzureAddress.parse(address)
        self._container = Container(self._place)
        super().__init__(self._place.prefix, self._container)

    @property
    def address(self) -> str:
        return self._place.uri(self._prefix)

    def _read_pages(self, after: str) -> Iterator[StampPage]:
        """Yields one page. An account with folders sorts its names in another way than all other places."""
        prefix = self._key("")

        async def load(client: Any) -> StampPage:
            listed = client.list_blobs(
                name_starts_with=prefix or None, include=["metadata"], results_per_page=PAGE, **ONCE
            )
            return [(one.name.removeprefix(prefix), _stamp_from(one)) async for one in listed if not is_folder(one)]

        with self._container.translate_errors(self.address):
            yield sorted(self._container.call(load), key=lambda entry: entry[0])

    def _find_stamp(self, key: str) -> Stamp:
        properties = self._container.call(lambda client: client.get_blob_client(key).get_blob_properties(**ONCE))
        return _stamp_from(properties)

    def _open_pinned(self, key: str, name: str, stamp: Stamp) -> BinaryIO:
        pin = {"etag": f'"{stamp.etag}"', "match_condition": MatchConditions.IfNotModified}

        def load(start: int, length: int) -> bytes:
            options = {"offset": start, "length": length, "max_concurrency": 1, **pin, **ONCE}

            async def read(client: Any) -> bytes:
                return cast(bytes, await (await client.get_blob_client(key).download_blob(**options)).readall())

            return self._container.call(read)

        return self._open_ranges(key, name, stamp.size, load)


def _stamp_from(properties: Any) -> Stamp:
    # Azure's answers have the ETag with quotation marks, its listings without.
    return Stamp(0, properties.size, properties.last_modified.timestamp(), properties.etag.strip('"'))
