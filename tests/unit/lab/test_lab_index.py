"""lab/README.md names each folder of the lab, with a command that exists, and when each command last ran."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_index_has_every_folder_and_every_command() -> None:
    text = (ROOT / "lab/README.md").read_text()
    folders = {path.name for path in (ROOT / "lab").iterdir() if path.is_dir() and path.name != "__pycache__"}
    first, second = text.split("## When each last ran")
    assert set(re.findall(r"^\| `(\w+)` \|", first, re.MULTILINE)) == folders - {"data"}
    commands = set(re.findall(r"`make ([\w-]+)` \|", first))
    assert commands == set(re.findall(r"^\| `make ([\w-]+)` \|", second, re.MULTILINE))
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert commands <= targets
