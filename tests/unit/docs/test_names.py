"""Names that a reader can rely on: a function says what it does, a class name means one thing in the whole product."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def _list_modules(*folders: str) -> tuple[Path, ...]:
    return tuple(path for folder in folders for path in sorted((_ROOT / folder).rglob("*.py")))


_PRODUCT = _list_modules("include", "plugins", "jobs", "dags")
_TOOLS = _list_modules("benchmarks", "scripts", "docker")
# Participles that do not end in -ed. Those that are also an imperative (read, run, put, cut, set, split) are verbs.
_IRREGULAR = re.compile(
    "begun|bound|broken|brought|built|caught|chosen|done|drawn|driven|fallen|forgotten|found|frozen|given|gone|grown|"
    "held|hidden|kept|known|laid|led|left|lost|made|meant|met|paid|risen|said|seen|sent|shown|spent|spoken|stolen|"
    "stood|taken|thrown|told|understood|woken|worn|written"
)
# As names of values they say nothing of what the value holds. So many are left: fields of stored and printed forms, and
# parameters that several modules pass by name.
_EMPTY = frozenset(("found", "known", "said", "given", "there"))
_EMPTY_MOST = 36
_VERBS_IN_ED = frozenset(("bleed", "embed", "exceed", "feed", "need", "proceed", "seed", "speed", "succeed"))


def _definitions(modules: tuple[Path, ...], *kinds: type[ast.AST]) -> Iterator[tuple[Path, ast.AST]]:
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, kinds):
                yield path.relative_to(_ROOT), node


def is_participle(name: str) -> bool:
    first = name.strip("_").split("_")[0]
    return _IRREGULAR.fullmatch(first) is not None or (
        first.endswith("ed") and len(first) > 4 and first not in _VERBS_IN_ED
    )


def _is_attribute(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def test_a_function_is_named_by_a_verb_and_not_by_a_participle() -> None:
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, node in _definitions(_PRODUCT + _TOOLS, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and is_participle(node.name)
        and not _is_attribute(node)
    ]
    assert found == []


def count_empty_names(tree: ast.AST) -> int:
    """Returns how often a variable, a parameter or a field has an empty name."""
    count = 0
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                count += name in _EMPTY
    return count


def test_no_more_values_have_a_name_that_says_nothing() -> None:
    """Name what the value holds: `failure`, `missing`, `stat`. Are there fewer? Lower the limit."""
    counts = {str(path.relative_to(_ROOT)): count_empty_names(ast.parse(path.read_text("utf-8"))) for path in _PRODUCT}
    assert sum(counts.values()) <= _EMPTY_MOST, {path: count for path, count in counts.items() if count}


def test_each_binding_of_an_empty_name_counts() -> None:
    code = "def find(known, *, is_known):\n    if (found := known):\n        there, what = found\n    said: int = 1\n"
    assert count_empty_names(ast.parse(code)) == 4


def _name_type(node: ast.AST) -> str:
    """Returns the name of a class or of a type alias."""
    match node:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() | ast.BinOp()):
            return name if name[0].isupper() and not name.isupper() else ""
    return ""


def test_the_name_of_a_class_or_a_type_alias_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in _definitions(_PRODUCT, ast.ClassDef, ast.Assign):
        if name := _name_type(node):
            places[name].append(f"{path}:{node.lineno}")  # type: ignore[attr-defined]
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_rule_knows_participles_from_verbs_and_nouns() -> None:
    assert all(map(is_participle, ("_told", "counted", "_kept_files", "written", "rejected_rows")))
    assert not any(map(is_participle, ("tell", "count_rows", "_feed", "read", "seed", "exceed_limit", "keep")))
