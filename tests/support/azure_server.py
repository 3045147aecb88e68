"""Azurite, the emulator of Azure's blob service by Microsoft, on a free port of this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from typing import Any

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own.
_LISTENS = re.compile(rb"listens on (http://\S+)")


def find_azurite() -> str | None:
    """Returns the program `azurite-blob`; None if it is not installed."""
    return os.environ.get("AZURITE") or shutil.which("azurite-blob")


@dataclass(frozen=True)
class AzureContainer:
    """A separate container for one test.

    client: another client than the store's: it sees what others see.
    """

    name: str
    client: Any

    @property
    def root(self) -> str:
        return f"abfss://{self.name}@{_ACCOUNT}.dfs.core.windows.net"

    @property
    def address(self) -> str:
        return f"{self.root}/a/store"

    def put(self, key: str, data: bytes) -> None:
        self.client.upload_blob(key, data, overwrite=True)

    def delete(self, key: str) -> None:
        self.client.delete_blob(key)


class AzureServer:
    """The server as the tests see it. Its account is `devstoreaccount1`."""

    def __init__(self, program: str) -> None:
        given = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry"]
        quiet = ["--silent", "--skipApiVersionCheck"]
        self._process = subprocess.Popen([program, *given, *quiet], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert self._process.stdout
        found = None
        while found is None:
            line = self._process.stdout.readline()
            assert line, "Azurite ended"
            found = _LISTENS.search(line)
        self.url = found[1].decode()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.url,
        }

    def make_container(self) -> AzureContainer:
        from azure.storage.blob import BlobServiceClient

        service = BlobServiceClient(f"{self.url}/{_ACCOUNT}", credential=_KEY)
        name = f"test-{uuid.uuid4().hex[:12]}"
        return AzureContainer(name, service.create_container(name))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
