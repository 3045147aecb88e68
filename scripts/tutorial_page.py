"""The commands of docs/tutorials/first-table.md, with the files that it lands and the output that it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "first-table.md"
_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"  # exit code (\d)$")


def play(folder: Path, run: Callable[[list[str]], tuple[int, str]]) -> int:
    """Writes the files of the page below a folder, and runs its commands in order. Returns how many there are.

    run: runs `tidefold` there with these words, and returns its exit code and its output.
    Raises AssertionError for a command that does not do what the page shows.
    """
    commands = 0
    for language, title, block in _FENCE.findall(PAGE.read_text()):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(block)
        for command, shown in _split_commands(block) if language == "console" else ():
            wanted = _EXIT.search(command)
            program, *words = shlex.split(_EXIT.sub("", command))
            assert program == "tidefold"
            code, output = run(words)
            assert code == (int(wanted[1]) if wanted else 0), f"{command}\n{output}"
            for line in shown:
                assert line in output, f"{command}\n{output}"
            commands += 1
    return commands


def _split_commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command, with the lines that the page shows of its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown
