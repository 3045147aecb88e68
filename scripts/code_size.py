"""Lines of code and imports by package: not blank, no comment, no docstring. Values whose names say nothing of them.

`accept` writes both into tests/data: size.json and names.json.
"""

from __future__ import annotations

import ast
import json
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "tests/data/size.json"
_PYTHON = ("include", "plugins", "dags", "jobs")
ACCEPTED_NAMES = ROOT / "tests/data/names.json"
_PARTICIPLES = frozenset(("found", "known", "said", "given", "there"))
# Run-time files that are no Python; their lines that are not blank count.
_OTHERS = (".j2", ".html", ".css", ".js", ".sql", ".toml")
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def count_code(file: Path) -> int:
    """Returns the lines that hold code."""
    text = file.read_text()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    with tokenize.open(file) as stream:
        lines = {
            line
            for token in tokenize.generate_tokens(stream.readline)
            if token.type not in _LAYOUT
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(lines - docstrings)


def count_participles(file: Path) -> int:
    """Returns how often a variable, a parameter or a field is called `found`, `known`, `said`, `given` or `there`."""
    bound = 0
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound += name in _PARTICIPLES
    return bound


def measure_names(root: Path = ROOT) -> dict[str, int]:
    """Returns the count of `count_participles` by package, and in all."""
    counts: Counter[str] = Counter()
    for top in _PYTHON:
        for file in sorted((root / top).rglob("*.py")):
            counts[_package_of(file.relative_to(root / top), top)] += count_participles(file)
    return {**{package: count for package, count in sorted(counts.items()) if count}, "total": counts.total()}


def measure(root: Path = ROOT) -> dict[str, int]:
    """Returns the lines by package, of templates and the like, and in all."""
    sizes: Counter[str] = Counter()
    for top in _PYTHON:
        for file in sorted((root / top).rglob("*")):
            if file.suffix == ".py":
                sizes[_package_of(file.relative_to(root / top), top)] += count_code(file)
            elif file.suffix in _OTHERS:
                sizes["templates and data"] += sum(bool(line.strip()) for line in file.read_text().splitlines())
    return {**dict(sorted(sizes.items())), "total": sizes.total()}


def _package_of(path: Path, top: str) -> str:
    packages = path.parts[:-1][:2]
    return ".".join(packages) or top


def main(words: list[str]) -> None:
    root = Path(words[1]).resolve() if len(words) > 1 else ROOT
    sizes, names = measure(root), measure_names(root)
    if words[:1] == ["accept"]:
        ACCEPTED.write_text(json.dumps(sizes, indent=1) + "\n")
        ACCEPTED_NAMES.write_text(json.dumps(names, indent=1) + "\n")
    print("\n".join(f"{lines:7,} {names.get(package, 0):5,} {package}" for package, lines in sizes.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
