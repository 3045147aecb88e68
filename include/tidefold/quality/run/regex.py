"""Translates the patterns of checks, which are Java's, for RE2 in DuckDB."""

from __future__ import annotations

import re

# A token is an escape, a class of characters, a quantifier, a group, an anchor, or one plain character.
_TOKEN = re.compile(
    r"""
    (?P<escape>\\.)
  | (?P<class>\[\^?(?:[^\[\]\\&^]|\\[\\\-\]\[.^$*+?(){}|/dDwW])+\])
  | (?P<repeat>[*+?]|\{\d{1,3}(?:,\d{0,3})?\})
  | (?P<group>\(\?:|\((?!\?)|\)|\|)
  | (?P<anchor>[\^$])
  | (?P<any>\.)
  | (?P<plain>[^\\\[\](){}*+?|^$.])
    """,
    re.VERBOSE | re.DOTALL,
)
# Java ends a line at more characters than RE2, and lets `$` match before the last one.
_NO_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_ESCAPES = {
    **{f"\\{c}": f"\\{c}" for c in "\\-][.^$*+?(){}|/dDwW"},
    r"\t": r"\t",
    r"\n": r"\n",
    r"\r": r"\r",
    r"\s": r"[ \t\n\x0B\f\r]",
    r"\S": r"[^ \t\n\x0B\f\r]",
    r"\A": r"\A",
    r"\z": r"\z",
}


def translate_regex(pattern: str) -> str | None:
    """Returns the pattern for RE2; None if RE2 might match other strings."""
    parts: list[str] = []
    position, depth, repeatable = 0, 0, False
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        kind = token.lastgroup if token else None
        if token is None or kind is None:
            return None
        text = token.group()
        if kind == "repeat" and not repeatable:
            return None  # Possessive, lazy of a lazy one, or nothing to repeat: only Java has these.
        part = _translate(kind, text)
        if part is None:
            return None
        depth += (text in ("(", "(?:")) - (text == ")")
        if depth < 0:
            return None
        parts.append(part)
        position = token.end()
        lazy = kind == "repeat" and pattern[position : position + 1] == "?"
        if lazy:
            parts.append("?")
            position += 1
        repeatable = kind in ("escape", "class", "any", "plain") or text == ")"
    return "".join(parts) if depth == 0 else None


def _translate(kind: str, text: str) -> str | None:
    if kind == "escape":
        return _ESCAPES.get(text)
    if kind == "any":
        return _NO_LINE_END
    if kind == "anchor":
        return text if text == "^" else _END
    if kind == "plain" and not text.isascii() and not text.isprintable():
        return None
    return text
