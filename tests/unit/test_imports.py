"""Modules do not import each other in a circle: also not for a type alone, and not inside a function.

import-linter's `acyclic_siblings` compares folders, and some folders of `domain` and `sources` share values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_imports(*roots: Path) -> dict[str, set[str]]:
    """Returns which modules each module below these folders imports."""
    files = {_name(file, root): file for root in roots for file in root.rglob("*.py")}
    return {name: {*_find_imports(file, files)} - {name} for name, file in files.items()}


def _name(file: Path, root: Path) -> str:
    return ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _find_imports(file: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in modules)
            case ast.ImportFrom(module=str(module), names=names):
                found = {f"{module}.{one.name}" for one in names} & modules.keys()
                yield from found or {module} & modules.keys()


def find_circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Returns modules of which each is imported by the next, and the first is the last; none: there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    imports = read_imports(ROOT / "include", ROOT / "plugins")
    assert len(imports) > 300
    assert find_circle(imports) == []


def test_a_circle_is_found_where_only_a_type_closes_it(tmp_path: Path) -> None:
    package = tmp_path / "one"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "low.py").write_text("if TYPE_CHECKING:\n    from one.high import High\n")
    (package / "high.py").write_text("def act():\n    from one import low\n")
    assert sorted(set(find_circle(read_imports(tmp_path)))) == ["one.high", "one.low"]
