"""Adds to the documentation site what is not a file below docs/, and references that are made from the program.

mkdocs loads this module as a hook (`mkdocs.yml`). The pages that it adds exist nowhere else, so none can be stale.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from metrics_reference import describe_metrics

ROOT = Path(__file__).resolve().parents[1]
# Pages beside docs/, and their places on the site.
_BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributors/contributing.md",
    "SECURITY.md": "explanation/security.md",
}
# The changes follow on the page about upgrades.
_CHANGES, _UPGRADE = "CHANGELOG.md", "how-to/upgrade.md"
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the project's root, and the schema."""
    from mkdocs.structure.files import File

    for name, target in _BESIDE.items():
        files.append(File.generated(config, target, content=(ROOT / name).read_text()))
    schema = json.dumps(_schema(), indent=2)
    files.append(File.generated(config, "reference/tidefold.schema.json", content=schema))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leads links to the pages of the site, and adds what is made from the program."""
    place = page.file.src_uri
    source = {target: name for name, target in _BESIDE.items()}.get(place, f"docs/{place}")
    text = lead_links(markdown, source, place)
    if place == _UPGRADE:
        changes = re.sub(r"^#", "##", (ROOT / _CHANGES).read_text(), flags=re.MULTILINE)
        text += "\n" + lead_links(changes, _CHANGES, place)
    return text + make_reference().get(place, "")


def lead_links(markdown: str, source: str, place: str) -> str:
    """Writes each link as one between pages of the site; a link to a file that only the repository has is its text.

    source: the file that the text stands in, from the root of the repository. place: its page on the site.
    """

    def lead(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        if path.startswith(("http://", "https://")):
            return found[0]
        target = os.path.normpath(os.path.join(os.path.dirname(source), path))
        page = _find_page(target)
        if page is None:
            return text
        return f"[{text}]({os.path.relpath(page, os.path.dirname(place) or '.')}{anchor})"

    return _LINK.sub(lead, markdown)


def _find_page(target: str) -> str | None:
    """The place on the site of a file or a folder of the repository."""
    if target == _CHANGES:
        return _UPGRADE
    if target in _BESIDE:
        return _BESIDE[target]
    inside = target.removeprefix("docs/")
    if inside == target:
        return None
    if not (ROOT / target).is_dir():
        return inside
    return next(page for page in (f"{inside}/README.md", "contributors/README.md") if (ROOT / "docs" / page).is_file())


@cache
def make_reference() -> dict[str, str]:
    """What is made from the program, by the page that it follows on."""
    parts = {
        "reference/airflow.md": [*_describe_operators(), *describe_metrics()],
        "reference/cli.md": _describe_commands(),
        "reference/config.md": _describe_schema(),
    }
    return {page: "\n\n" + "\n".join(lines) for page, lines in parts.items()}


def _describe_commands() -> Iterator[str]:
    import typer

    from tidefold.cli.app import app

    root: Any = typer.main.get_command(app)
    yield "## Help of every command\n"
    yield "What `tidefold COMMAND --help` prints.\n"
    for name, command in sorted(_walk("tidefold", root)):
        yield f"### {name}\n"
        yield f"{inspect.cleandoc(command.help or '')}\n"
        rows = [_describe_parameter(one) for one in command.params]
        if rows:
            yield "| parameter | meaning |\n|---|---|"
            yield from rows
            yield ""


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if not children:
        yield name, command
    for word, child in (children or {}).items():
        yield from _walk(f"{name} {word}", child)


def _describe_parameter(one: Any) -> str:
    names = (
        ", ".join(f"`{name}`" for name in one.opts) if one.opts[0].startswith("-") else f"`{one.metavar or one.name}`"
    )
    text = " ".join((getattr(one, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {text} |"


def _describe_operators() -> Iterator[str]:
    from tidefold_airflow import operators

    yield "## Operators\n"
    yield "All of them are in `tidefold_airflow.operators`.\n"
    for name in sorted(operators.__all__):
        kind = getattr(operators, name)
        yield f"### {name}\n"
        yield f"{_as_markdown(inspect.cleandoc(kind.__doc__ or ''))}\n"
        fields = ", ".join(f"`{field}`" for field in kind.template_fields)
        yield f"Templated: {fields}.\n"


def _as_markdown(text: str) -> str:
    """A docstring in Airflow's style: each parameter becomes an entry of a list."""
    return re.sub(r"^:param ([^:]+):", r"- **\1**:", text.replace("``", "`"), flags=re.MULTILINE)


def _schema() -> dict[str, Any]:
    from tidefold.config import json_schema

    return json_schema()


def _describe_schema() -> Iterator[str]:
    yield "## Configuration as JSON Schema\n"
    yield "[tidefold.schema.json](tidefold.schema.json) is the schema of `tidefold.yaml`, as `tidefold validate"
    yield "--schema` prints it. An editor with the YAML language server checks the file while you write it, if its"
    yield "first line names the schema:\n"
    yield "```yaml\n# yaml-language-server: $schema=tidefold.schema.json\nversion: 1\n```\n"
    yield "`tidefold validate` checks more than a schema can, such as names that refer to other keys.\n"
    schema = _schema()
    for name, part in [("The file", schema), *sorted(schema.get("$defs", {}).items())]:
        if part.get("properties"):
            yield f"### {name}\n"
            yield f"{' '.join((part.get('description') or '').split())}\n" if name != "The file" else ""
            yield "| key | type | default | meaning |\n|---|---|---|---|"
            yield from (_describe_key(key, value) for key, value in part["properties"].items())
            yield ""


def _describe_key(key: str, value: dict[str, Any]) -> str:
    allowed = value.get("anyOf") or [value]
    kinds = " or ".join(dict.fromkeys(_kind_of(one) for one in allowed))
    default = "" if "default" not in value or value["default"] is None else f"`{json.dumps(value['default'])}`"
    meaning = " ".join((value.get("description") or "").split())
    return f"| `{key}` | {kinds} | {default} | {meaning} |".replace("\n", " ")


def _kind_of(one: dict[str, Any]) -> str:
    if "$ref" in one:
        return str(one["$ref"]).rpartition("/")[2]
    if "enum" in one:
        return ", ".join(f"`{value}`" for value in one["enum"])
    return str(one.get("const", one.get("type", "any")))
