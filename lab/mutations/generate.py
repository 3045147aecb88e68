"""Mutants by a seed: mutmut's operators and a few more, over the bodies of functions. Text is no behaviour."""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import NEVER_MUTATE_FUNCTION_CALLS, MutationVisitor
from mutmut.mutation.mutators import mutation_operators, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode

PACKAGES = ("domain", "ledger", "fold", "delta", "sources", "quality", "operations")
LEAST = 10
_TEXT_FILES = re.compile(r"domain/explain/|domain/wording\.py|/__init__\.py$")
_TEXT_FUNCTIONS = re.compile(r"^__(str|repr)__$|^_?(describe|explain|hint|render|texts?|words)(_|$)|(^|_)(error|hint)$")
_TEXT_ARGUMENTS = {"hint", "message", "because", "description"}
_TEXT_CHANGE = re.compile(r"^\s*(hint|message|described) = ", re.MULTILINE)
_LOGS = m.Call(func=m.Attribute(value=m.Name("_log") | m.Name("_messages")) | m.Attribute(attr=m.Name("log")))


@dataclass(frozen=True)
class Generated:
    """A change of one function. `old` occurs once in the text of the function; `operator` made `new` of it."""

    file: str
    function: str
    operator: str
    old: str
    new: str


def find_functions(source: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of each function of a module and method of a class, by qualified name."""

    def walk(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, tuple[int, int]]]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name, (node.lineno, node.end_lineno or node.lineno)

    return dict(walk(ast.parse(source).body, ""))


def find_place(source: str, mutant: Generated) -> int | None:
    """The line of a module where the old text begins; None: it is not once in the function."""
    lines = source.splitlines(keepends=True)
    first, last = find_functions(source).get(mutant.function, (1, 0))
    within = "".join(lines[first - 1 : last])
    if within.count(mutant.old) != 1:
        return None
    return first + within[: within.index(mutant.old)].count("\n")


def mutate(source: str, mutant: Generated) -> str:
    lines = source.splitlines(keepends=True)
    place = find_place(source, mutant)
    assert place
    return "".join(lines[: place - 1]) + "".join(lines[place - 1 :]).replace(mutant.old, mutant.new, 1)


def _remove_statement(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    kept = m.Expr(value=m.SimpleString() | m.ConcatenatedString() | _LOGS) | m.Raise(exc=m.Name("NotImplementedError"))
    if m.matches(node.body[0], m.Expr() | m.Raise() | m.AugAssign() | m.Del()) and not m.matches(node.body[0], kept):
        yield node.with_changes(body=[cst.Pass()])


def _force_if(node: cst.If) -> Iterator[cst.CSTNode]:
    for value in ("True", "False"):
        yield node.with_changes(test=cst.Name(value), whitespace_before_test=cst.SimpleWhitespace(" "))


def _return_none(node: cst.Return) -> Iterator[cst.CSTNode]:
    if node.value is not None and not m.matches(node.value, m.Name("None")):
        yield node.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))


def _swap_arguments(node: cst.Call) -> Iterator[cst.CSTNode]:
    args = list(node.args)
    if m.matches(node.func, m.Name("max") | m.Name("min")):
        return
    for i in range(len(args) - 1):
        if all(not arg.keyword and not arg.star for arg in args[i : i + 2]):
            one, two = args[i].with_changes(value=args[i + 1].value), args[i + 1].with_changes(value=args[i].value)
            yield node.with_changes(args=[*args[:i], one, two, *args[i + 2 :]])


def _change_name(node: cst.SimpleString) -> Iterator[cst.CSTNode]:
    """A string without a space is a key, a name or a path."""
    if re.fullmatch(r"""["'][\w./:=-]+["']""", node.value):
        yield next(iter(operator_string(node)))


_OPERATORS = (
    *((kind, operator) for kind, operator in mutation_operators if operator is not operator_string),
    (cst.SimpleString, _change_name),
    (cst.SimpleStatementLine, _remove_statement),
    (cst.If, _force_if),
    (cst.Return, _return_none),
    (cst.Call, _swap_arguments),
)


class _Visitor(MutationVisitor):
    """Collects the changes of a module by line and operator."""

    def __init__(self) -> None:
        super().__init__(_OPERATORS, IgnoredCode(set(), set(), set()))
        self.changes: dict[int, dict[str, list[tuple[cst.CSTNode, cst.CSTNode]]]] = defaultdict(dict)
        self._line = 0

    def _create_mutations(self, node: cst.CSTNode) -> None:
        position = self.get_metadata(PositionProvider, node, None)
        self._line = position.start.line if position else self._line
        for kind, operator in self._operators:
            made = [(node, new) for new in operator(node)] if isinstance(node, kind) else []
            if made:
                name = operator.__name__.removeprefix("operator_").strip("_")
                self.changes[self._line].setdefault(name, []).extend(made)

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        match node:
            case cst.FunctionDef():
                return bool(_TEXT_FUNCTIONS.search(node.name.value))
            case cst.Arg():
                return node.keyword is not None and node.keyword.value in _TEXT_ARGUMENTS
            case cst.FormattedString():
                parts = [part.value for part in node.parts if isinstance(part, cst.FormattedStringText)]
                return any(" " in part for part in parts)
            case cst.Call():
                called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
                name = called.value if isinstance(called, cst.Name) else ""
                text = name.endswith("Error") or bool(_TEXT_FUNCTIONS.search(name)) or m.matches(node, _LOGS)
                return text or name in NEVER_MUTATE_FUNCTION_CALLS
        return isinstance(node, cst.Raise | cst.Annotation | cst.Parameters | cst.Decorator | cst.Assert)


def _record(file: str, source: str, operator: str, changed: str) -> Generated | None:
    """The lines that differ, with as many before and after them as make them unique in their function."""
    old, new = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    same = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    same = min(same, len(old) - first - 1, len(new) - first - 1)
    last, shift = len(old) - same, len(new) - len(old)
    around = ((name, *span) for name, span in find_functions(source).items() if span[0] <= first and last <= span[1])
    function, begin, end = next(around, ("", 0, 0))
    if not function:
        return None
    within = "".join(old[begin - 1 : end])
    while within.count("".join(old[first:last])) > 1:
        first, last = max(first - 1, begin - 1), last + (first == begin - 1)
    return Generated(file, function, operator, "".join(old[first:last]), "".join(new[first : last + shift]))


def generate(root: Path, package: str, seed: int) -> Iterator[Generated]:
    """Yields mutants without end: a line, an operator that fits it, and one of its changes, each by chance."""
    chance = random.Random(f"{seed} {package}")
    folder = root / "include/tidefold" / package
    files = [file for file in sorted(folder.rglob("*.py")) if not _TEXT_FILES.search(str(file))]
    sizes = [count_code(file) for file in files]
    made: dict[Path, tuple[cst.Module, _Visitor]] = {}
    seen: set[Generated] = set()
    while True:
        [path] = chance.choices(files, sizes)
        source = path.read_text()
        if path not in made:
            wrapper = MetadataWrapper(cst.parse_module(source))
            made[path] = (wrapper.module, _Visitor())
            wrapper.visit(made[path][1])
        module, visitor = made[path]
        if not visitor.changes:
            continue
        changes = visitor.changes[chance.choice(sorted(visitor.changes))]
        operator = chance.choice(sorted(changes))
        node, new = chance.choice(changes[operator])
        changed = module.deep_replace(node, new).code
        try:
            compile(changed, path, "exec")
        except SyntaxError:
            continue
        mutant = _record(str(path.relative_to(root)), source, operator, changed)
        if not mutant or _TEXT_CHANGE.match(mutant.old):
            continue
        if mutant not in seen and mutate(source, mutant) == changed:
            seen.add(mutant)
            yield mutant


def count_code(path: Path) -> int:
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def share_out(root: Path, number: int) -> dict[str, int]:
    """How many mutants each package gets: by its lines, and at least ten."""
    lines = {package: sum(map(count_code, (root / "include/tidefold" / package).rglob("*.py"))) for package in PACKAGES}
    shares: dict[str, int] = {}
    for package in sorted(lines, key=lambda one: lines[one]):
        left = sum(lines[one] for one in PACKAGES if one not in shares)
        shares[package] = max(LEAST, round((number - sum(shares.values())) * lines[package] / left))
    return shares
