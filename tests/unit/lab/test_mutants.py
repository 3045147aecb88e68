"""Each behaviour that `make mutants` takes out is still where the list says, and so is the test that must fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutations.__main__ import ROOT, Mutant, read_mutants

MUTANTS = read_mutants()


def list_tests(path: str) -> Iterator[str]:
    """Yields the tests of a file as pytest names them, without their cases."""
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.FunctionDef(name=name):
                yield f"{path}::{name}"
            case ast.ClassDef(name=name, body=body):
                yield from (f"{path}::{name}::{one.name}" for one in body if isinstance(one, ast.FunctionDef))


def test_what_is_taken_out_is_there_once() -> None:
    texts = {mutant.file: (ROOT / mutant.file).read_text() for mutant in MUTANTS}
    counts = {(mutant.file, mutant.old): texts[mutant.file].count(mutant.old) for mutant in MUTANTS}
    assert {place: count for place, count in counts.items() if count != 1} == {}
    assert [mutant.old for mutant in MUTANTS if mutant.old == mutant.new] == []


def test_every_test_that_must_fail_exists() -> None:
    def is_missing(mutant: Mutant) -> bool:
        path, _, name = mutant.test.partition("::")
        return not (ROOT / path).exists() or (bool(name) and mutant.test.partition("[")[0] not in list_tests(path))

    assert [mutant.test for mutant in MUTANTS if is_missing(mutant)] == []
