"""A captured bank: the landed files of its topics, and parts of them landed again."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidefold.operations.ground.pipeline import Pipeline
from tidefold.wiring import open_pipeline


@dataclass(frozen=True)
class CapturedBank:
    """A bank whose changes a real Debezium captured.

    data: the folder with `topics`.
    topics: by log, and that of the transactions.
    """

    data: Path
    topics: Mapping[str, str]

    @cached_property
    def files(self) -> Mapping[str, tuple[tuple[str, tuple[bytes, ...]], ...]]:
        """The landed files of each topic: name and lines."""
        return {
            name: tuple(map(_read, sorted((self.data / "topics" / t).iterdir()))) for name, t in self.topics.items()
        }

    def make(self, folder: Path, text: str) -> Pipeline:
        """Returns a pipeline of the configuration `text` whose landing folders are empty."""
        for topic in self.topics.values():
            (folder / "landing" / topic).mkdir(parents=True, exist_ok=True)
        (folder / "tidefold.yaml").write_text(text)
        return open_pipeline(folder / "tidefold.yaml")

    def count_records(self, name: str) -> int:
        return sum(len(lines) for _, lines in self.files[name])

    def list_lines(self, name: str) -> list[bytes]:
        """Returns the records of a topic in the order of its files."""
        return [line for _, lines in self.files[name] for line in lines]

    def land(self, folder: Path, upto: Mapping[str, int]) -> None:
        """Lands the first records of each topic, in the captured files; the last one may be cut and grow later."""
        for name, most in upto.items():
            before = 0
            for file, lines in self.files[name]:
                take = lines[: max(0, most - before)]
                before += len(lines)
                if take:
                    (folder / "landing" / self.topics[name] / file).write_bytes(b"\n".join(take) + b"\n")


def _read(file: Path) -> tuple[str, tuple[bytes, ...]]:
    return file.name.removesuffix(".gz"), tuple(gzip.decompress(file.read_bytes()).splitlines())
