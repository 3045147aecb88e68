"""The landing folder: what was captured arrives in it in pieces."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

_DECODER = json.JSONDecoder()


class Landing:
    """The landing folder: what was captured arrives there in pieces, also in the middle of a line."""

    def __init__(self, captured: Path, folder: Path, topics: dict[str, str], landed: str = "whole") -> None:
        self.captured, self.folder, self.topics, self.landed = captured, folder, topics, landed
        self._arrived: dict[Path, int] = {}

    def withdraw(self) -> None:
        """Takes back what was captured and has arrived: it was a sample."""
        for topic in self.topics.values():
            if (self.captured / topic).exists():
                shutil.rmtree(self.folder / topic, ignore_errors=True)
                (self.folder / topic).mkdir(parents=True)
        self._arrived.clear()

    def arrive(self, rnd: random.Random, share: float) -> None:
        """Of each topic so much of what has not arrived, in order; 1: everything."""
        for topic in self.topics.values():
            files = sorted((self.captured / topic).glob("*.jsonl"))
            written = {file: shown for file in files if (shown := self._write(file))[1]}
            left = sum(len(data) - self._arrived.get(file, 0) for file, (_, data) in written.items())
            budget = left if share >= 1 else int(left * min(1.0, share * rnd.uniform(0, 2)))
            for file, (name, data) in written.items():
                packed = share >= 1 and rnd.random() < 0.3 and file != files[-1]
                budget -= self._grow(file, file.with_name(name), data, budget, packed)

    def _write(self, file: Path) -> tuple[str, bytes]:
        """The name and the text of a captured file as its sink would have written it."""
        data = file.read_bytes()
        if self.landed == "whole":
            return file.name, data
        records = [_split(line) for line in data[: data.rfind(b"\n") + 1].decode().split("\n")[:-1]]
        if self.landed == "values":
            # A sink of values writes no tombstones, and names a file by the first record in it.
            records = [one for one in records if one[2] != "null"]
        start = records[0][1] if records else 0
        text = "".join((value if self.landed == "values" else f"{head}}}") + "\n" for head, _, value in records)
        return f"{file.name.rpartition('+')[0]}+{start:010d}.jsonl", text.encode()

    def _grow(self, file: Path, shown: Path, data: bytes, budget: int, packed: bool) -> int:
        begun = self._arrived.get(file, 0)
        piece = data[begun : begun + max(budget, 0)]
        if not piece:
            return 0
        target = self.folder / file.parent.name / shown.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not begun and len(piece) == len(data) and packed:
            Path(f"{target}.gz").write_bytes(gzip.compress(data, 1))
        else:
            with target.open("ab") as growing:
                growing.write(piece)
        self._arrived[file] = begun + len(piece)
        return len(piece)

    def lines(self, table: str) -> int:
        """How many whole records have arrived."""
        total = 0
        for file in (self.folder / self.topics[table]).glob("*.jsonl*"):
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            total += data.count(b"\n")
        return total


def _split(line: str) -> tuple[str, int, str]:
    """A captured record without its headers, its offset, and its value; each as it was written."""
    begin = line.index('"offset":') + len('"offset":')
    offset, end = _DECODER.raw_decode(line, begin)
    _, end = _DECODER.raw_decode(line, end + len(',"key":'))
    begin = end + len(',"value":')
    _, end = _DECODER.raw_decode(line, begin)
    return line[:end], offset, line[begin:end]
