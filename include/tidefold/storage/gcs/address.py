"""Parses addresses in Google Cloud Storage, and finds its endpoint in the environment. Imports nothing heavy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

SCHEME = "gs"
EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
# Characters that no reader of an address (Delta, Spark, HTTP) takes for anything but themselves.
_PART = re.compile(r"[A-Za-z0-9_=+.-]+")


@dataclass(frozen=True, slots=True)
class GcsAddress:
    """A bucket and a folder in it ("" is the whole bucket)."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, address: str) -> GcsAddress:
        """Raises InvalidInputError without repeating the address: it may contain a secret (I26)."""
        bucket, _, prefix = address.removeprefix("gs://").strip("/").partition("/")
        parts = prefix.split("/") if prefix else []
        if not _BUCKET.fullmatch(bucket) or not all(_PART.fullmatch(p) and p not in (".", "..") for p in parts):
            raise InvalidInputError(
                "STORE_ADDRESS",
                "The address of the store is not `gs://bucket/folder`.",
                hint="A bucket name has a-z, 0-9, `.`, `_` and `-`. A folder name can also have A-Z, `=` and `+`.",
            )
        return cls(bucket, prefix)

    def uri(self, key: str) -> str:
        """Returns the address of an object, as deltalake and Polars read it."""
        return f"gs://{self.bucket}/{key}".rstrip("/")


@dataclass(frozen=True, slots=True)
class GcsEndpoint:
    """The address of a server that emulates Google Cloud Storage; "": Google's own, and its default credentials."""

    emulator: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> GcsEndpoint:
        """Reads the variable that Google's own clients and gcsfs read."""
        emulator = environment.get(EMULATOR_VARIABLE, "").rstrip("/")
        return cls(emulator if not emulator or "://" in emulator else f"http://{emulator}")

    def delta_options(self) -> dict[str, str]:
        """Returns the options of deltalake and Polars besides the environment. They contain no secret."""
        if not self.emulator:
            return {}
        # A key without a secret: the only way to tell deltalake not to log in.
        nobody = {"client_email": "", "private_key": "", "private_key_id": ""}
        key = {"gcs_base_url": self.emulator, "disable_oauth": True, **nobody}
        return {"google_service_account_key": json.dumps(key)}
