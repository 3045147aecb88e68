"""Records whose schema is in a registry: a zero byte, four bytes with the id of the schema, then Avro or JSON.

Such a record becomes what a JsonConverter with schemas writes, so all that reads landed files stays as it is. The
schema lands with each record: the store needs the registry no more.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import msgspec

from tidefold.errors import InvalidInputError, NotFoundError, StorageError
from tidefold.sources.kafka.client import PREFIX
from tidefold.typed_json import make_decoder

MAGIC = b"\0"
_HEAD, _TIMEOUT, _MOST = 5, 10.0, 16 << 20
# Seconds between two tries, while a registry does not answer.
_PAUSES = (0.5, 2.0, 5.0)
_check = make_decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of records.

    avro: as fastavro parsed it; None: records are JSON.
    words: in the words of Kafka Connect, as JSON.
    has_floats: values may be no numbers of JSON.
    """

    avro: Any
    words: bytes
    has_floats: bool

    def decode(self, data: bytes) -> bytes | None:
        """Returns a record in wire format as JSON; None: it is not of this schema."""
        from fastavro import schemaless_reader

        from tidefold.sources.debezium.typed_records import name_number

        stream = io.BytesIO(data)
        stream.seek(_HEAD)
        try:
            if self.avro is None:
                return bytes(_check(data[_HEAD:]))
            value = schemaless_reader(stream, self.avro, None)
            payload = _encode(name_number(value) if self.has_floats else value)
        except Exception:  # Whatever fastavro raises for bytes of something else.
            return None
        return payload if stream.tell() == len(data) else None


class Registry:
    """The schemas of records, at an address of a registry's HTTP API, or in a folder as ID.avsc."""

    def __init__(self, place: str, folder: Path, settings: Mapping[str, Any]) -> None:
        """folder: to which a folder of schemas is relative. settings: of the connection, with secrets."""
        self._is_remote = "://" in place
        self.place = place.rstrip("/") if self._is_remote else str(folder / place)
        user = str(settings.get(f"{PREFIX}basic.auth.user.info", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        self._ca = settings.get(f"{PREFIX}ssl.ca.location")
        self.schemas: dict[int, RegisteredSchema] = {}  # Those that records had.

    def render(self, data: bytes, *, is_key: bool) -> bytes | None:
        """Returns a record in wire format as JSON, a value with its schema; None: it is none. Raises TidefoldError."""
        if len(data) < _HEAD:
            return None
        number = int.from_bytes(data[1:_HEAD], "big")
        schema = self.schemas.get(number)
        if schema is None:
            schema = self.schemas[number] = self._load(number)
        payload = schema.decode(data)
        return payload if is_key or payload is None else b'{"schema":%s,"payload":%s}' % (schema.words, payload)

    def check(self) -> None:
        """Raises StorageError if the registry does not answer, or the folder is not there."""
        if (self._fetch("subjects") if self._is_remote else Path(self.place).is_dir() or None) is None:
            raise self._unreadable("nothing is there")

    def _load(self, number: int) -> RegisteredSchema:
        """Returns the schema with an id. Raises TidefoldError."""
        from tidefold.sources.debezium.avro_file import connect_words, parse_bounded
        from tidefold.sources.debezium.typed_records import shorten_schema
        from tidefold.sources.landing.streams import DamagedError

        file = Path(self.place) / f"{number}.avsc"
        stored = {"schema": file.read_text("utf-8")} if not self._is_remote and file.is_file() else None
        answer = self._fetch(f"schemas/ids/{number}") if self._is_remote else stored
        if answer is None:
            message = f"`{self.place}` has no schema with the id {number}, which a record names."
            hint = (
                "Correct `source.kafka.registry`: name the registry of the program that wrote the record, or a folder "
            )
            raise NotFoundError("SCHEMA_MISSING", message, hint=f"{hint}with {number}.avsc.")
        try:
            if (kind := answer.get("schemaType") or "AVRO") == "JSON":
                return RegisteredSchema(None, b"null", has_floats=False)
            if kind != "AVRO" or answer.get("references"):
                raise DamagedError("it refers to other schemas" if kind == "AVRO" else f"its kind is {kind:.40}")
            text, schema = answer["schema"], json.loads(answer["schema"])
            words = _encode(shorten_schema(connect_words(schema)))
            return RegisteredSchema(parse_bounded(schema), words, has_floats='"float"' in text or '"double"' in text)
        except (DamagedError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidInputError(
                "SCHEMA_UNUSABLE",
                f"The schema {number} of a record cannot be used: {str(error)[:200]}.",
                hint=f"Name a folder as `source.kafka.registry`, with the whole Avro schema in {number}.avsc. Other"
                " kinds need a connector that writes Avro or JSON.",
            ) from None

    def _fetch(self, path: str) -> Any:
        """Returns an answer of the API; None: it has no such object. Raises StorageError."""
        request = urllib.request.Request(f"{self.place}/{path}", headers=self._headers)
        words = ""
        for pause in (*_PAUSES, None):
            try:
                context = ssl.create_default_context(cafile=self._ca) if self.place.startswith("https") else None
                https = urllib.request.HTTPSHandler(context=context)
                with urllib.request.build_opener(_NoRedirect, https).open(request, timeout=_TIMEOUT) as answer:
                    return json.loads(answer.read(_MOST))
            except HTTPError as error:
                if error.code == 404 and b'"error_code"' in error.read(_MOST):
                    return None
                words, passes = f"it answers {error.code} {error.reason}", error.code >= 500 or error.code == 429
            except (OSError, HTTPException) as error:
                words, passes = str(getattr(error, "reason", "") or error), True
            except ValueError:
                words, passes = "its answer is no JSON", False
            if not passes or pause is None:
                break
            time.sleep(pause)
        raise self._unreadable(words)

    def _unreadable(self, words: str) -> StorageError:
        return StorageError(
            "REGISTRY_UNREADABLE",
            f"The schemas at `{self.place}` cannot be read: {words.rstrip('.')}.",
            hint="Check the registry, `source.kafka.registry` and its connection. For Apicurio the address ends in "
            "`/apis/ccompat/v7`. What had landed before is ingested.",
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another host must not get the password."""

    def redirect_request(self, *_: Any) -> None:
        return None
