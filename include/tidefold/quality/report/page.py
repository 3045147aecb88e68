"""Pages in HTML that stand alone: their frame, their style and their filters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tidefold.domain.wording import clip_text, escape_control_characters, in_units

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_CODE = re.compile("`([^`]*)`")
_FRAME = "page.html.j2"


@cache
def load_page(package: str, name: str, **filters: Callable[..., Any]) -> Template:
    """Returns a template of a package, which extends the frame. It escapes every value."""
    # Who reads a verdict needs no pages.
    from jinja2 import DictLoader, Environment, StrictUndefined

    # The package may be an archive.
    templates = ((files(__package__), _FRAME), (files(package), name))
    environment = Environment(
        loader=DictLoader({file: (folder / file).read_text(encoding="utf-8") for folder, file in templates}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # No value can reverse the text around it.
        finalize=lambda value: escape_control_characters(value) if type(value) is str else value,
    )
    environment.filters |= {"size": in_units, "clip_text": clip_text, "commands": mark_commands, **filters}
    return environment.get_template(name)


def mark_commands(text: str) -> Markup:
    """Renders a sentence of tidefold with the text in backticks as code. Everything is escaped."""
    from markupsafe import Markup, escape

    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(escape_control_characters(text)))))
