"""Adds to the documentation site what is not a file below docs/, and references that are made from the program.

mkdocs loads this module as a hook (`mkdocs.yml`). The pages that it adds exist nowhere else, so none can be stale.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metrics_reference import describe_metrics

ROOT = Path(__file__).resolve().parents[1]
# Pages beside docs/, and their names on the site.
_BESIDE = {
    "README.md": "project.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "releases.md",
}
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> Any:
    """Lists benchmarks and decisions in the navigation."""
    for group in config["nav"]:
        for pages in group.values():
            for entry in pages if isinstance(pages, list) else ():
                for title, folder in entry.items():
                    if folder in ("benchmarks", "decisions"):
                        entry[title] = [
                            f"{folder}/{page.name}" for page in sorted((ROOT / "docs" / folder).glob("*.md"))
                        ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the project's root, and the generated ones."""
    from mkdocs.structure.files import File

    for name, target in _BESIDE.items():
        text = (ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, target, content=text))
    for target, content in make_reference().items():
        files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leads links out of docs/ to the pages of the site; a link to a program's file becomes its name."""
    depth = page.file.src_uri.count("/")

    def lead(found: re.Match[str]) -> str:
        path = found[2]
        if path.startswith(("http://", "https://")):
            return found[0]
        if path in ("benchmarks/", "decisions/"):
            return f"{found[1]}{path}{_list_pages(path)[0]}{found[3]}"
        name = path.removeprefix("../" * (depth + 1))
        if name in _BESIDE:
            return f"{found[1]}{'../' * depth}{_BESIDE[name]}{found[3]}"
        if page.file.src_uri in _BESIDE.values() and path in _BESIDE:
            return f"{found[1]}{_BESIDE[path]}{found[3]}"
        return found[0]

    return _unlink_files(_LINK.sub(lead, markdown))


def _unlink_files(markdown: str) -> str:
    """Links to files that only the repository has, such as tests, become text."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:tests|dags|scripts|include)/[^)]*\)", r"\1", markdown)


def _list_pages(folder: str) -> list[str]:
    return sorted(page.name for page in (ROOT / "docs" / folder).glob("*.md"))


def make_reference() -> dict[str, str]:
    """The pages that are made from the program."""
    return {
        "reference/commands.md": "\n".join(_describe_commands()),
        "reference/operators.md": "\n".join(_describe_operators()),
        "reference/metrics.md": "\n".join(describe_metrics()),
        "reference/schema.md": "\n".join(_describe_schema()),
        "reference/tidefold.schema.json": json.dumps(_schema(), indent=2),
    }


def _describe_commands() -> Iterator[str]:
    import typer

    from tidefold.cli.app import app

    root: Any = typer.main.get_command(app)
    yield "# Help of every command\n"
    yield "What `tidefold COMMAND --help` prints. [The command line](../cli.md) has an overview.\n"
    for name, command in sorted(_walk("tidefold", root)):
        yield f"## {name}\n"
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

    yield "# Operators\n"
    yield "All of them are in `tidefold_airflow.operators`. [In Airflow](../airflow.md) shows how DAGs use them.\n"
    for name in sorted(operators.__all__):
        kind = getattr(operators, name)
        yield f"## {name}\n"
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
    yield "# Configuration as JSON Schema\n"
    yield "[tidefold.schema.json](tidefold.schema.json) is the schema of `tidefold.yaml`, as `tidefold validate"
    yield "--schema` prints it. An editor with the YAML language server checks the file while you write it, if its"
    yield "first line names the schema:\n"
    yield "```yaml\n# yaml-language-server: $schema=tidefold.schema.json\nversion: 1\n```\n"
    yield "`tidefold validate` checks more than a schema can, such as names that refer to other keys."
    yield "[Configuration](../config.md) explains every key.\n"
    schema = _schema()
    for name, part in [("The file", schema), *sorted(schema.get("$defs", {}).items())]:
        if part.get("properties"):
            yield f"## {name}\n"
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
