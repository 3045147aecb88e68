"""Marks what pyarrow's CSV parser reads in silence as something else: escaped nulls, and text behind a closing quote.

The parser takes the escape away before it looks for nulls, so that `\\N` becomes `N`. It drops a quote that ends within
a value, so that `"a" b` becomes `a b`. Both the run and `init` read CSV with these marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidefold.sources.landing.streams import chunks

NULL = b"\x1anull\x1a"
STRAY = b"\x1aquote\x1a"
# So many bytes may be between two line ends outside of quotes; beyond, a quote is taken for a character of its value.
_MOST = 16 << 20


@dataclass(frozen=True)
class CsvMarks:
    """Marks fields of CSV text. delimiter, quote, escape: one byte each; empty: none. nulls: the texts of null."""

    delimiter: bytes
    quote: bytes
    escape: bytes
    nulls: Sequence[bytes]

    @classmethod
    def of(cls, delimiter: str, quote: str, escape: str, nulls: Iterable[str]) -> CsvMarks:
        return cls(delimiter.encode(), quote.encode(), escape.encode(), tuple(null.encode() for null in nulls))

    @property
    def null_values(self) -> list[str]:
        """The texts that mean null in marked text."""
        plain = [null.decode() for null in self.nulls if null not in self._escaped]
        return [*plain, *([NULL.decode()] if self._escaped else [])]

    @cached_property
    def _escaped(self) -> tuple[bytes, ...]:
        return tuple(null for null in self.nulls if self.escape and self.escape in null)

    @cached_property
    def _suspect(self) -> re.Pattern[bytes]:
        """Finds text with a quote inside of a field, or with an escaped null. Other text needs no mark."""
        no = re.escape(self.delimiter + self.quote + self.escape)
        inside = rb"[^%s\r\n]%s[^%s\r\n]" % (no, re.escape(self.quote), re.escape(self.delimiter + self.quote))
        parts = [*([inside] if self.quote else []), *map(re.escape, self._escaped)]
        return re.compile(b"|".join(parts) or rb"(?!)")

    @cached_property
    def _fields(self) -> re.Pattern[bytes]:
        quote, escape, end = re.escape(self.quote), re.escape(self.escape), re.escape(self.delimiter) + rb"\r\n"
        begin = rb"(?<![^%s])" % end
        escaped = rb"|%s." % escape if self.escape else b""
        quoted = rb"%s%s(?:[^%s%s]%s|%s%s)*+%s([^%s]+)?" % (
            begin,
            quote,
            quote,
            escape,
            escaped,
            quote,
            quote,
            quote,
            end,
        )
        null = rb"%s(%s)(?![^%s])" % (begin, b"|".join(map(re.escape, self._escaped)) or rb"(?!)", end)
        return re.compile(quoted + rb"|" + null if self.quote else rb"()" + null, re.DOTALL)

    def mark(self, text: bytes) -> bytes:
        """Returns whole lines with their marks. A row with a mark of a stray quote has one field more."""

        def replace(match: re.Match[bytes]) -> bytes:
            if match[2] is not None:
                return NULL
            return STRAY + self.delimiter + match[0] if match[1] else match[0]

        needs_none = self.quote not in text and not self._escaped
        return text if needs_none or not self._suspect.search(text) else self._fields.sub(replace, text)

    def mark_blocks(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yields the marked text in whole lines."""
        rest = b""
        for block in blocks:
            rest += block
            end = rest.rfind(b"\n") + 1
            lines = rest[:end]
            if lines and (self._is_outside(lines) or len(rest) > _MOST):
                yield self.mark(lines)
                rest = rest[end:]
        if rest:
            yield self.mark(rest)

    def ends_outside(self, blocks: Iterable[bytes]) -> bool:
        """Whether these lines end outside of quotes for certain: every quote is where it opens or closes a value."""
        is_open: int | None = 0
        for chunk in chunks(blocks) if self.quote else ():
            if is_open is not None:
                is_open = None if chunk.too_long else self._follow(chunk.data, is_open)
        return is_open == 0

    def begins_outside(self, text: bytes) -> bool:
        """Whether text seems to begin outside of quotes."""
        return not self.quote or self._follow(text, 0) is not None

    def _follow(self, text: bytes, is_open: int) -> int | None:
        """Returns whether a quote is open behind a text; None: a quote is where it neither opens nor closes a value."""
        padded = np.frombuffer(b"\n%s\n" % text, np.uint8)
        quotes = np.flatnonzero(padded == ord(self.quote))
        beside = np.append(padded[quotes[is_open::2] - 1], padded[quotes[1 - is_open :: 2] + 1])
        near = np.frombuffer(self.delimiter + self.quote + b"\r\n", np.uint8)
        return (is_open + len(quotes)) % 2 if np.isin(beside, near).all() else None

    def _is_outside(self, text: bytes) -> bool:
        """Whether no quote is open at the end."""
        if not self.quote or self.quote not in text:
            return True
        if self.escape and self.escape in text:
            text = re.sub(re.escape(self.escape) + rb".", b"", text, flags=re.DOTALL)
        return text.count(self.quote) % 2 == 0
