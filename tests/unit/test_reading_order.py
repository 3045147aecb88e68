"""A module is read from the top: constants and its one logger first, and a helper below what uses it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("include", "plugins", "dags", "jobs")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def _reads(node: ast.AST) -> frozenset[str]:
    return frozenset(name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _reads_when_loaded(node: ast.stmt) -> Set[str]:
    """The names that a statement reads while its module is imported; the body of a function reads none then."""
    if isinstance(node, FUNCTIONS):
        arguments = (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults))
        return set().union(*map(_reads, arguments))
    if isinstance(node, ast.ClassDef):
        above = (*node.decorator_list, *node.bases, *node.keywords)
        return set().union(*map(_reads, above), *map(_reads_when_loaded, node.body))
    return _reads(node)


def _binds(node: ast.stmt) -> set[str]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def find_low_constants(tree: ast.Module) -> Iterator[str]:
    """Yields the constants below the first definition that need none of the definitions above them."""
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and defined and not _reads(node) & defined:
            yield from _binds(node)
        elif defined or isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            defined |= _binds(node)


def find_loggers(tree: ast.Module) -> list[str]:
    """Returns the loggers of a module."""
    return [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "getLogger" in ast.unparse(node)
    ]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")  # Python itself calls `__getattr__`.


def _reach(name: str, uses: Mapping[str, Set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = uses.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def find_high_helpers(tree: ast.Module) -> Iterator[str]:
    """Yields the private functions above all that use them, unless the import of the module needs them there."""
    private = {n.name for n in tree.body if isinstance(n, FUNCTIONS) and _is_private(n.name)}
    uses = {n.name: _reads(n) & private for n in tree.body if isinstance(n, FUNCTIONS)}
    needed = set().union(*map(_reads_when_loaded, tree.body)) & private
    needed = needed.union(*(_reach(name, uses) for name in needed))
    for i, node in enumerate(tree.body):
        if not isinstance(node, FUNCTIONS) or node.name not in private - needed:
            continue
        # Two that call each other have no order.
        mutual = {name for name in _reach(node.name, uses) if node.name in _reach(name, uses)} | {node.name}
        users = [(j, _binds(n)) for j, n in enumerate(tree.body) if j != i and node.name in _reads(n)]
        dead = not users and not node.decorator_list  # A decorator may register it.
        if dead or min((j for j, names in users if not names & mutual), default=i) > i:
            yield node.name


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    files = (str(file.relative_to(ROOT)) for part in PRODUCT for file in sorted((ROOT / part).rglob("*.py")))
    return {file: ast.parse((ROOT / file).read_text()) for file in files}


@pytest.mark.parametrize("find", [find_low_constants, find_high_helpers])
def test_the_modules_are_read_from_the_top(modules, find):
    assert {file: names for file, tree in modules.items() if (names := list(find(tree)))} == {}


def test_a_module_has_one_logger(modules):
    assert [file for file, tree in modules.items() if len(find_loggers(tree)) > 1] == []


def test_the_rules_find_what_they_forbid():
    tree = ast.parse(
        "A = 1\n"
        "def _high(): return _deep()\n"
        "def _dead(): ...\n"
        "def public(): return _high(), _both()\n"
        "def _deep(): ...\n"
        "def _both(): return _other()\n"
        "def _other(): return _both()\n"
        "def _made(): ...\n"
        "LOW = 2\n"
        "TABLE = {'a': _made}\n"
        "_log = getLogger(__name__)\n"
        "log = getLogger('b')\n"
    )
    assert list(find_low_constants(tree)) == ["LOW", "_log", "log"]
    assert list(find_high_helpers(tree)) == ["_high", "_dead"]
    assert len(find_loggers(tree)) == 2
