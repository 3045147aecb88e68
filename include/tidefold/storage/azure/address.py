"""Parses addresses of Azure stores, and finds the account in the environment. Imports nothing heavy."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

SCHEMES = ("abfs", "abfss")
_AZURITE = "http://127.0.0.1:10000"
_HOST = ".dfs.core.windows.net"
_ADDRESS = re.compile(
    r"abfss?://(?P<container>[a-z0-9](?:[a-z0-9]|-(?=[a-z0-9])){2,62})"
    rf"(?:@(?P<account>[a-z0-9]{{3,24}}){re.escape(_HOST)})?(?:/(?P<folder>.*))?"
)
# Characters that no reader of an address (Delta, Spark, HTTP) takes for anything but themselves.
_PART = re.compile(r"[A-Za-z0-9_=+.-]*[A-Za-z0-9_=+-]")
ACCOUNT_VARIABLE = "AZURE_STORAGE_ACCOUNT_NAME"


@dataclass(frozen=True, slots=True)
class AzureAddress:
    """A container of an account, and a folder in it ("" is the whole container)."""

    account: str
    container: str
    prefix: str

    @classmethod
    def parse(cls, address: str, environment: Mapping[str, str] = os.environ) -> AzureAddress:
        """Raises InvalidInputError without repeating the address: it may contain a secret (I26)."""
        match = _ADDRESS.fullmatch(address.rstrip("/"))
        parts = [part for part in (match["folder"] or "").split("/") if part] if match else []
        if not match or not all(_PART.fullmatch(part) for part in parts):
            raise InvalidInputError(
                "STORE_ADDRESS",
                "The address of the store is not `abfss://container@account.dfs.core.windows.net/folder`.",
                hint=f"`abfs://container/folder` takes the account of {ACCOUNT_VARIABLE}. A folder name has A-Z, a-z, "
                "0-9, `.`, `_`, `-`, `=` and `+`, and does not end with `.`.",
            )
        account = match["account"] or environment.get(ACCOUNT_VARIABLE, "")
        if not account:
            raise InvalidInputError(
                "STORE_ADDRESS",
                "The address of the store names no storage account.",
                hint=f"Write `abfss://container@account{_HOST}/folder`, or set {ACCOUNT_VARIABLE}.",
            )
        return cls(account, match["container"], "/".join(parts))

    def uri(self, key: str) -> str:
        """Returns the address of an object, as Spark, deltalake and Polars read it."""
        return f"abfss://{self.container}@{self.account}{_HOST}/{key}".rstrip("/")


@dataclass(frozen=True, slots=True)
class AzureAccount:
    """An account, and how to log in. Without a key or a token, clients use their own defaults (roles, identities).

    endpoint: the address of the blob service, if it is not Azure's own.
    emulated: whether that is Azurite. deltalake lists differently there.
    """

    name: str
    endpoint: str = ""
    key: str = ""
    sas: str = ""
    emulated: bool = False

    @classmethod
    def of(cls, name: str, environment: Mapping[str, str] = os.environ) -> AzureAccount:
        """Reads the variables that adlfs and deltalake read, so that both open the store in the same way."""
        emulated = environment.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("true", "1")
        endpoint = environment.get("AZURE_STORAGE_ENDPOINT", "")
        if emulated:
            endpoint = f"{environment.get('AZURITE_BLOB_STORAGE_URL', _AZURITE).rstrip('/')}/{name}"
        key = environment.get("AZURE_STORAGE_ACCOUNT_KEY", "")
        sas = environment.get("AZURE_STORAGE_SAS_TOKEN", "")
        return cls(name, endpoint.rstrip("/"), key, sas, emulated)

    @property
    def connection(self) -> str | None:
        """Returns a connection string, with its secret; None: the default credentials of Azure."""
        if not (self.key or self.sas):
            return None
        secret = f"AccountKey={self.key}" if self.key else f"SharedAccessSignature={self.sas.lstrip('?')}"
        blobs = self.endpoint or f"https://{self.name}.blob.core.windows.net"
        return f"AccountName={self.name};{secret};BlobEndpoint={blobs}"

    def delta_options(self) -> dict[str, str]:
        """Returns the options of deltalake and Polars besides the environment. They contain no secret."""
        options = {"azure_storage_account_name": self.name}
        if self.emulated:
            options["azure_storage_use_emulator"] = "true"
        elif self.endpoint:
            options["azure_storage_endpoint"] = self.endpoint
        return options
