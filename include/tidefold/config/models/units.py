"""Sizes and times: the texts of the configuration, and their numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from tidefold.yaml_files.messages import mistake

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B", re.ASCII)
_POWERS = {"k": 1, "M": 2, "G": 3, "T": 4}
_SPAN = re.compile(r"[1-9]\d{0,5}[mhd]", re.ASCII)
SPAN = _SPAN.pattern
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE_TEXT = WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"})


def find_bytes(size: Any) -> int | None:
    """Bytes of `500MB`, `1.5 GB` (units of 1000) or `20GiB` (units of 1024); None if it is not a size."""
    parts = _SIZE.fullmatch(size) if isinstance(size, str) else None
    unit = (parts[2] or "") if parts else ""
    factor = (1024 if unit.endswith("i") else 1000) ** _POWERS.get(unit[:1], 0)
    return int(Decimal(parts[1]) * factor) if parts else None


def count_seconds(span: str) -> int:
    """Returns the seconds of a time such as `30d`."""
    return int(span[:-1]) * _SECONDS[span[-1]]


def find_seconds(span: Any) -> int | None:
    """Returns the seconds of a time such as `90m`, `12h` or `30d`; None if it is not a time."""
    return count_seconds(span) if isinstance(span, str) and _SPAN.fullmatch(span) else None


def _require_limit(value: Any) -> int:
    if (size := find_bytes(value)) is not None:
        return size
    hint = "Write it as `500MB`, `20GB` (units of 1000) or `20GiB` (units of 1024)."
    raise mistake("CONFIG_WRONG_TYPE", "must be a size greater than zero, such as 500MB or 20GB.", hint)


def _require_size(value: Any) -> int:
    return _require_limit(value if find_bytes(value) else None)


def _require_micros(value: Any) -> int:
    if (seconds := find_seconds(value)) is not None:
        return seconds * 1_000_000
    raise mistake("CONFIG_WRONG_TYPE", "must be a time such as 12h or 30d.", "Units are m, h and d.")


# In bytes.
Size = Annotated[int | None, BeforeValidator(_require_size), _SIZE_TEXT]
# A size that may be zero.
SizeLimit = Annotated[int, BeforeValidator(_require_limit), _SIZE_TEXT]
# In microseconds.
Span = Annotated[
    int, BeforeValidator(_require_micros), WithJsonSchema({"type": "string", "pattern": f"^{_SPAN.pattern}$"})
]
