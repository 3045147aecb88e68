"""Threads that decode the first values of a class at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from local_airflow.settings import PROJECT
from tidefold.typed_json import decode_json

# New classes each round, each with many classes inside; all threads begin at once.
THREADS = """
import sys, threading
from dataclasses import make_dataclass
import msgspec
from tidefold.typed_json import convert_value, decode_json
sys.setswitchinterval(1e-6)
for _ in range(40):
    leaves = [make_dataclass(f"Leaf{i}", [(f"f{j}", int | None) for j in range(30)]) for i in range(10)]
    middle = make_dataclass("Middle", [(f"l{i}", leaves[i]) for i in range(10)])
    whole = make_dataclass("Whole", [(f"m{i}", tuple[middle, ...]) for i in range(5)])
    value = {f"m{i}": [{f"l{i}": {f"f{j}": 1 for j in range(30)} for i in range(10)}] for i in range(5)}
    document, barrier = msgspec.json.encode(value), threading.Barrier(6)
    def work(number):
        barrier.wait()
        decode_json(document, whole) if number % 2 else convert_value(value, whole)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("whole")
"""


def test_the_first_use_of_a_class_by_many_threads() -> None:
    """With msgspec's own functions this process ends with SIGSEGV."""
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decode_json(b'["a"]', list[int])


def test_typed_values_are_decoded_by_this_door_alone() -> None:
    other = re.compile(r"msgspec\.(json\.Decoder\(|convert\(|json\.decode\([^\n]*\btype=)")
    sources = [path for room in ("include", "plugins", "jobs") for path in (PROJECT / room).rglob("*.py")]
    found = [path for path in sources if other.search(path.read_text()) and path.name != "typed_json.py"]
    assert found == list[Path]()
