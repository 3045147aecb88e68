"""The types that a column may have, as text: `long`, `decimal(12,2)`, `array<string>`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Types without parameters.
PLAIN = ("boolean", "int", "long", "float", "double", "string", "date", "timestamp", "binary")
MAX_PRECISION = 38
# How the types are described to people.
DESCRIBED = f"{', '.join(PLAIN)}, decimal(p,s), array<type>"

_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(\d\d?)\)", re.ASCII)
_ARRAY = re.compile(r"array<(.+)>")
# Equal values of these have several texts or none, or none that people can type.
_NO_KEY = ("float", "double", "binary", "array")


@dataclass(frozen=True, slots=True)
class Type:
    """A parsed type. `precision` and `scale` are of a decimal, `element` of an array."""

    name: str
    precision: int = 0
    scale: int = 0
    element: Type | None = None

    @property
    def can_be_key(self) -> bool:
        """Whether values of the type can identify rows."""
        return self.name not in _NO_KEY


def parse_type(text: str) -> Type:
    """Parses a type. Raises ValueError with the reason if the text is not a type."""
    if text in PLAIN:
        return Type(text)
    if array := _ARRAY.fullmatch(text):
        element = parse_type(array[1])
        if element.element is not None:
            raise ValueError("an array of arrays is not supported in this version")
        return Type("array", element=element)
    if decimal := _DECIMAL.fullmatch(text):
        precision, scale = int(decimal[1]), int(decimal[2])
        if precision > MAX_PRECISION or scale > precision:
            raise ValueError(f"a decimal has a precision of 1 to {MAX_PRECISION}, and a scale of 0 up to it")
        return Type("decimal", precision, scale)
    raise ValueError(f"types are: {DESCRIBED}")


def canonical(text: str) -> str:
    """The one way to write a type: `decimal(12, 2)` is `decimal(12,2)`."""
    return text.replace(" ", "")


# How a source may write values of a type; the first is what Debezium does when nothing else is configured.
_ENCODINGS = {
    "boolean": ("boolean", "number", "any"),
    "int": ("number", "any"),
    "long": ("number", "any"),
    "float": ("number", "any"),
    "double": ("number", "any"),
    "decimal": ("base64", "string", "number", "any"),
    "string": ("text", "json", "decimal", "days", "micros", "millis", "nanos"),
    "date": ("days", "iso", "any"),
    "timestamp": ("micros", "millis", "nanos", "iso", "any"),
    "binary": ("base64", "base64url", "hex"),
}


def encodings_of(type_: Type) -> tuple[str, ...]:
    """The names of the encodings that values of a type can have; those of an array are its elements'."""
    return encodings_of(type_.element) if type_.element else _ENCODINGS.get(type_.name, ())
