"""Wraps the text of Markdown pages at 100 columns; tables, code, headings and comments stay as they are.

`make wrap`; names of pages as arguments: only these. Decisions and benchmarks are left alone.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
ROOT = Path(__file__).parents[1]
_ALONE = ("decisions", "benchmarks")
_ITEM = re.compile(r"^\s*(?:[-*] |\d+\. )")
# At the beginning of a line Markdown would take these for a list, a heading or a quotation.
_MARK = re.compile(r"^(?:[-+*#>]|\d+[.)])(?:\s|$)")


def pages() -> list[Path]:
    """The pages whose text is wrapped."""
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name not in _ALONE]
    return sorted([*ROOT.glob("*.md"), *docs])


def wrap(text: str) -> str:
    """The text of a page, wrapped."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    block: list[str] = []
    in_code = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        if fence or in_code or _stays(line):
            yield from _wrap_block(block)
            block = []
            yield line
        elif _ITEM.match(line):
            yield from _wrap_block(block)
            block = [line]
        else:
            block.append(line)
        in_code ^= fence
    yield from _wrap_block(block)


def _stays(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith(("|", "<!--")) or line.startswith("#")


def _wrap_block(block: list[str]) -> Iterator[str]:
    if not block:
        return
    item = _ITEM.match(block[0])
    lead = item.group() if item else ""
    text = " ".join([block[0][len(lead) :].strip(), *(line.strip() for line in block[1:])])
    wrapped = textwrap.wrap(text, WIDTH - len(lead), break_long_words=False, break_on_hyphens=False)
    for number in range(1, len(wrapped)):
        if _MARK.match(wrapped[number]):
            word, _, wrapped[number] = wrapped[number].partition(" ")
            wrapped[number - 1] += f" {word}"
    yield lead + wrapped[0]
    yield from (" " * len(lead) + line for line in wrapped[1:] if line)


if __name__ == "__main__":
    for page in [Path(name) for name in sys.argv[1:]] or pages():
        page.write_text(wrap(page.read_text()))
