"""Sizes in `tidefold.yaml`: `500MB`, `1.5 GB` (units of 1000) or `20GiB` (units of 1024)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from tidefold.yaml_files.model import mistake

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B", re.ASCII)
_POWERS = {"k": 1, "M": 2, "G": 3, "T": 4}


def count_bytes(size: str) -> int:
    """Bytes of `500MB`, `1.5 GB` (units of 1000) or `20GiB` (units of 1024); 0 if it is not a size."""
    found = _SIZE.fullmatch(size)
    unit = (found[2] or "") if found else ""
    factor = (1024 if unit.endswith("i") else 1000) ** _POWERS.get(unit[:1], 0)
    return int(Decimal(found[1]) * factor) if found else 0


def _require_size(value: Any) -> Any:
    if isinstance(value, str) and count_bytes(value) > 0:
        return value
    hint = "Write it as `500MB`, `20GB` (units of 1000) or `20GiB` (units of 1024)."
    raise mistake("CONFIG_WRONG_TYPE", "must be a size greater than zero, such as 500MB or 20GB.", hint)


def _require_limit(value: Any) -> Any:
    return value if isinstance(value, str) and _SIZE.fullmatch(value) else _require_size(value)


Size = Annotated[
    str | None, BeforeValidator(_require_size), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"})
]
# A size that may be zero.
Limit = Annotated[
    str, BeforeValidator(_require_limit), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"})
]
