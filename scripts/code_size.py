"""Prints the lines of code by package: not blank, no comment, no docstring. With a commit, also the change since it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PYTHON = ("include", "plugins", "dags", "jobs")
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


def measure_commit(commit: str) -> dict[str, int]:
    """Returns the lines at a commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit, *_PYTHON], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return measure(Path(folder))


def main(commits: list[str]) -> None:
    now = measure()
    before = measure_commit(commits[0]) if commits else now
    for package in sorted(now.keys() | before.keys(), key=lambda name: (name == "total", name)):
        lines = now.get(package, 0)
        change = f" {lines - before.get(package, 0):+6,}" if commits else ""
        print(f"{lines:7,}{change} {package}")


if __name__ == "__main__":
    main(sys.argv[1:])
