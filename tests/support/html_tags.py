"""Parses a page as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """Every element of a page with its attributes, and all its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [value for _, attrs in self.tags for name in ("href", "src", "action") if (value := attrs.get(name))]
