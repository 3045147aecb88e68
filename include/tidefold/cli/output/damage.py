"""Prints the damage that a verification found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidefold.cli.terminal import Terminal
from tidefold.operations.outcome import Outcome

if TYPE_CHECKING:
    from tidefold.domain.verify.expected_files import Damage


def print_damage(terminal: Terminal, outcome: Outcome) -> None:
    """Prints each damaged file of a log, its copies and the next step."""
    from tidefold.operations.verify.result import VerifyDetails

    for damage in outcome.details.damage if isinstance(outcome.details, VerifyDetails) else ():
        terminal.line(f"  {outcome.log}: {_describe_damage(damage)}")
        for place in damage.places[1:]:
            terminal.line(f"    the same file: {place}")
        for place in damage.good:
            terminal.line(f"    good: {place}")
        if damage.repaired:
            terminal.line(f"    repaired from {damage.repaired}")
            continue
        if damage.why:
            terminal.line(f"    not repaired: {damage.why}")
        terminal.line(f"    next: {damage.hint}")


def _describe_damage(damage: Damage) -> str:
    ids = ", ".join(map(str, damage.snapshots))
    of = f"snapshot{'s' if len(damage.snapshots) > 1 else ''} {ids}: " if ids else ""
    return f"{of}{damage.part} {damage.harm}: {damage.places[0]}"
