"""The old key that a record names, after a change of the key of its row."""

from __future__ import annotations

import base64
import json
from typing import Any


def former_key(headers: object) -> Any:
    """Returns the content of the header `__debezium.oldkey`, however headers are written; None: there is none."""
    if isinstance(headers, list):
        pairs = {one.get("key"): one.get("value") for one in headers if isinstance(one, dict)}
    else:
        pairs = headers if isinstance(headers, dict) else {}
    value = pairs.get("__debezium.oldkey")
    if isinstance(value, str):
        value = _decode(value)
    return value["payload"] if isinstance(value, dict) and isinstance(value.get("payload"), dict) else value


def _decode(text: str) -> Any:
    for plain in (lambda: text, lambda: base64.b64decode(text, validate=True)):
        try:
            return json.loads(plain())
        except ValueError:
            continue
    return None
