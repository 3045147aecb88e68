"""Parses addresses of S3 stores, and finds the S3 endpoint in the environment. Imports nothing heavy."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidefold.errors import InvalidInputError

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Characters that no reader of an address (Delta, Spark, HTTP) takes for anything but themselves.
_PART = re.compile(r"[A-Za-z0-9_=+.-]+")


@dataclass(frozen=True, slots=True)
class S3Address:
    """A bucket and a folder in it ("" is the whole bucket)."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, address: str) -> S3Address:
        """Raises InvalidInputError without repeating the address: it may contain a secret (I26)."""
        if "@" in address:
            raise InvalidInputError("STORE_SECRET", "The address of the store contains credentials.")
        bucket, _, prefix = address.removeprefix("s3://").strip("/").partition("/")
        parts = prefix.split("/") if prefix else []
        if not _BUCKET.fullmatch(bucket) or not all(_PART.fullmatch(p) and p not in (".", "..") for p in parts):
            raise InvalidInputError(
                "STORE_ADDRESS",
                "The address of the store is not `s3://bucket/folder`.",
                hint="A bucket name has a-z, 0-9, `.` and `-`. A folder name can also have A-Z, `_`, `=` and `+`.",
            )
        return cls(bucket, prefix)


@dataclass(frozen=True)
class S3Endpoint:
    """The S3 endpoint of the usual AWS variables; None: clients use their own defaults (profiles, machine roles).

    variable: the one that names it.
    """

    url: str | None
    region: str | None
    variable: str = "AWS_ENDPOINT_URL"

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> S3Endpoint:
        """Reads the variables, so that every library that opens the store uses the same ones."""

        def first(*names: str) -> str | None:
            return next((environment[name] for name in names if environment.get(name)), None)

        variable = "AWS_ENDPOINT_URL_S3"
        if not environment.get(variable):
            variable = cls.variable
        url = environment.get(variable) or None
        if url and not url.startswith(("http://", "https://")):
            raise InvalidInputError(
                "STORE_ADDRESS",
                f"{variable} does not begin with `http://` or `https://`.",
                hint="Write it as `https://host` or `http://host:port`.",
            )
        return cls(url, first("AWS_REGION", "AWS_DEFAULT_REGION"), variable)

    def delta_options(self) -> dict[str, str]:
        """Returns the options of deltalake and Polars besides the environment. They contain no secret."""
        # If-None-Match decides commits, whatever the environment sets: never a rename, which may replace.
        options = {"aws_conditional_put": "etag", "aws_s3_allow_unsafe_rename": "false"}
        if self.url:
            options["aws_endpoint"] = self.url
            options["aws_allow_http"] = str(self.url.startswith("http://")).lower()
        if self.region:
            options["aws_region"] = self.region
        return options
