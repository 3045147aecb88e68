"""The settings of make's targets count from the environment and as arguments: the benchmark pages show both."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
SETTINGS = {
    "bench": ("ROWS", "ROUNDS"),
    "bench-long": ("ROWS", "ROUNDS"),
    "bench-quality": ("ROWS", "ROUNDS"),
    "bench-run": ("ROWS", "ROUNDS", "SIZES", "WAYS"),
    "soak": ("MINUTES", "STORES"),
    "fault-matrix": ("POSITIONS", "OPERATIONS"),
    "two-coordinators": ("TWO",),
    "torture": ("SEEDS", "FIRST", "DATABASES"),
}
VALUE = "7654321"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def recipe(target: str, *arguments: str, **environment: str) -> str:
    """What make would run for a target itself, without the targets before it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES")}
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target, *arguments],
        cwd=PROJECT, env={**kept, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(("target", "setting"), [(t, s) for t, names in SETTINGS.items() for s in names])
def test_a_setting_counts_wherever_it_is_given(target: str, setting: str) -> None:
    assert VALUE not in recipe(target)
    assert VALUE in recipe(target, f"{setting}={VALUE}")
    assert VALUE in recipe(target, **{setting: VALUE})
