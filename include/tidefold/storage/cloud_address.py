"""Addresses of folders in object stores, and how obstore opens each. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidefold.errors import InvalidInputError
from tidefold.storage.azure.address import SCHEMES as AZURE_SCHEMES
from tidefold.storage.azure.address import AzureAccount, AzureAddress
from tidefold.storage.gcs.address import SCHEME as GCS_SCHEME
from tidefold.storage.gcs.address import GcsAddress, GcsEndpoint
from tidefold.storage.s3.address import S3Address, S3Endpoint

S3_SCHEME = "s3"
SCHEMES = (S3_SCHEME, *AZURE_SCHEMES, GCS_SCHEME)

# With one of these obstore logs in by itself.
_OWN = ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"]


@dataclass(frozen=True, slots=True)
class CloudService:
    """The words for one service.

    place: what holds objects there.
    rights: what credentials need.
    login: how to give credentials.
    hint: what to check after a failed request.
    host: what decides to which host requests go.
    remove: the command that deletes the object at an address.
    """

    name: str
    place: str
    rights: str
    login: str
    hint: str
    host: str
    remove: str


_AZURE = CloudService(
    name="Azure",
    place="container",
    rights="the role Storage Blob Data Contributor",
    login="Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or give the machine an identity.",
    hint="Call again. If it happens again, check AZURE_STORAGE_ENDPOINT and the state of Azure.",
    host="AZURE_STORAGE_ENDPOINT, else the account",
    remove="az storage blob delete --blob-url",
)
_GCS = CloudService(
    name="Google Cloud Storage",
    place="bucket",
    rights="the role Storage Object Admin (roles/storage.objectAdmin)",
    login="Set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`.",
    hint="Call again. If it happens again, check the state of Google Cloud Storage.",
    host="STORAGE_EMULATOR_HOST",
    remove="gcloud storage rm",
)


@dataclass(frozen=True, slots=True)
class CloudAddress:
    """A bucket or container, how to log in, and a folder there ("" is the whole bucket).

    root: the address of the bucket.
    """

    scheme: str
    root: str
    bucket: str
    access: S3Endpoint | AzureAccount | GcsEndpoint

    @classmethod
    def parse(cls, address: str) -> tuple[CloudAddress, str]:
        """Returns the bucket, and the folder there. Raises InvalidInputError without repeating the address (I26)."""
        scheme = address.partition(":")[0]
        if scheme in AZURE_SCHEMES:
            azure = AzureAddress.parse(address)
            return cls(scheme, azure.uri(""), azure.container, AzureAccount.of(azure.account)), azure.prefix
        if scheme == GCS_SCHEME:
            gcs = GcsAddress.parse(address)
            return cls(scheme, gcs.uri(""), gcs.bucket, GcsEndpoint.of()), gcs.prefix
        s3 = S3Address.parse(address)
        return cls(scheme, f"s3://{s3.bucket}", s3.bucket, S3Endpoint.of()), s3.prefix

    @property
    def service(self) -> CloudService:
        """The words for the service."""
        if isinstance(self.access, S3Endpoint):
            return _name_s3(self.access.variable)
        return _AZURE if isinstance(self.access, AzureAccount) else _GCS

    @property
    def is_sorted(self) -> bool:
        """Whether a listing is in order, and may begin at a name. An account with folders in Azure sorts otherwise."""
        return self.scheme not in AZURE_SCHEMES

    @property
    def doubt(self) -> str:
        """Returns a sentence about an endpoint that is probably wrong; empty: there is none."""
        if not isinstance(self.access, S3Endpoint) or not urlsplit(self.access.url or "").path.strip("/"):
            return ""
        return f" {self.access.variable} ends with a path, and most servers have none: remove it."

    def open(self, retries: Mapping[str, Any], seconds: int) -> Any:
        """Opens obstore's client. It reads the environment, where credentials are.

        seconds: how long a connection may be silent.
        """
        from obstore.store import AzureStore, GCSStore, S3Store

        named: Any = {
            "retry_config": dict(retries),
            "client_options": {
                "timeout": "6h",
                "read_timeout": f"{seconds}s",
                "connect_timeout": "20s",
                "allow_http": True,
            },
        }
        options = self.access.delta_options()
        if isinstance(self.access, AzureAccount):
            return AzureStore(self.bucket, config=options, **named)
        if isinstance(self.access, GcsEndpoint):
            return GCSStore(self.bucket, config=options, **named)
        del options["aws_s3_allow_unsafe_rename"]  # deltalake's own.
        options["aws_copy_if_not_exists"] = "multipart"
        return S3Store(self.bucket, config=options, credential_provider=find_profile(), **named)


def _name_s3(endpoint: str) -> CloudService:
    """Returns the words for S3. endpoint: the variable that names the server."""
    return CloudService(
        name="S3",
        place="bucket",
        rights="s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:AbortMultipartUpload",
        login="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE with `pip install boto3`.",
        hint=f"Call again. If it happens again, check {endpoint}, AWS_REGION and the state of S3.",
        host=f"{endpoint}, else AWS_REGION",
        remove="aws s3 rm",
    )


def find_profile(environment: Mapping[str, str] = os.environ) -> Any:
    """Returns boto3's credentials if the environment has none, and there is a profile; None: obstore finds its own.

    Raises InvalidInputError if the environment names a profile, and boto3 is not installed.
    """
    if any(environment.get(name) for name in _OWN):
        return None
    named = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    files = (
        environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        environment.get("AWS_CONFIG_FILE", "~/.aws/config"),
    )
    if not named and not any(Path(file).expanduser().is_file() for file in files):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError as error:
        if not named:
            return None
        raise InvalidInputError(
            "STORE_EXTRA",
            f"The profile `{named}` of AWS is read by the package `{error.name}`, which is not installed.",
            hint="Install it: `pip install boto3`, also where Spark's tasks run.",
        ) from error
    try:
        return Boto3CredentialProvider()
    except ValueError:  # The profile has no credentials.
        return None
