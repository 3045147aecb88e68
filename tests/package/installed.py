"""An environment of its own, outside the clone, with the wheel and the packages of the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_airflow.settings import PROJECT

# What leads a process to the clone, or to another Airflow, Spark or store.
_FOREIGN = ("AIRFLOW", "SPARK_", "PYSPARK_", "HADOOP_", "AWS_", "TIDEFOLD_", "PYTHON", "VIRTUAL_ENV", "XDG_")


@dataclass(frozen=True)
class Installed:
    """The environment: `root` is its folder, and the working folder of every program in it."""

    root: Path

    @property
    def programs(self) -> Path:
        return self.root / "venv" / "bin"

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a user who has activated it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        own = {
            "HOME": str(self.root / "home"),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "AIRFLOW_HOME": str(self.root / "airflow"),
            # Tasks work without what a scheduler may load for them.
            "TIDEFOLD_PRELOAD": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        return {**kept, **own, **(more or {})}

    def run(self, program: str, *words: str, more: Mapping[str, str] | None = None) -> str:
        """What a program prints on stdout. Raises AssertionError with its whole output if it fails."""
        call = [str(self.programs / program), *words]
        done = subprocess.run(call, cwd=self.root, env=self.env(more), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        return done.stdout


def build_wheel(folder: Path) -> Path:
    """Returns the wheel that `make release` has built, or builds that of the clone."""
    if built := os.environ.get("TIDEFOLD_WHEEL"):
        return Path(built)
    call = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(PROJECT)]
    subprocess.run(call, check=True, capture_output=True)
    [wheel] = folder.glob("tidefold-*.whl")
    return wheel


def install(root: Path, wheel: Path) -> Installed:
    """Makes the environment. The lock is complete, so nothing is resolved."""
    python = root / "venv" / "bin" / "python"
    (root / "home").mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", str(root / "venv")], check=True)
    uv = Path(sys.executable).with_name("uv")
    call = [str(uv), "pip", "install", "--quiet", "--no-deps", "--python", str(python)]
    lock = ["--require-hashes", "-r", str(PROJECT / "requirements.txt")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    for what in (lock, [str(wheel)]):
        subprocess.run([*call, *what], check=True, env=env)
    return Installed(root)
