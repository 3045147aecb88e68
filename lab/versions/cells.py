"""The cells: versions of Python, Spark and Airflow that are tried together, and how their environments are made."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from local_airflow.settings import PROJECT

UV = PROJECT / ".venv" / "bin" / "uv"
# What these tests need beside the package.
_TOOLS = ("pytest", "hypothesis", "moto[server]", "polars")
# Airflow imports none of them: an environment may have older ones than tidefold needs, and they are lifted.
_LIFTED = ("deltalake", "duckdb", "great-expectations")
_PROVIDER = "apache-airflow-providers-apache-spark"


@dataclass(frozen=True)
class Cell:
    """One combination.

    extras: of the package.
    day: packages are those of this day, as an Airflow was released with; empty: today's.
    airflow: its version; empty: no Airflow, and steps run on Spark.
    beside: packages of that day that are there before tidefold, beside Airflow.
    lowest: the package gets the lowest versions that it declares.
    """

    name: str
    python: str
    extras: str
    day: str = ""
    airflow: str = ""
    beside: tuple[str, ...] = ()
    lowest: bool = False


CELLS = {
    cell.name: cell
    for cell in (
        Cell("spark35", "3.11", "spark35,s3"),
        Cell("spark40", "3.12", "spark40,s3"),
        Cell("spark41", "3.13", "spark41,s3"),
        # With the Spark provider of its day, which brings a Spark.
        Cell("airflow31", "3.12", "airflow", "2026-03-12", "3.1.8", (_PROVIDER,)),
        # Without: tidefold brings a newer one, that must fit.
        Cell("airflow32", "3.12", "airflow,spark41", "2026-05-30", "3.2.2"),
        # With what a managed image of Airflow 3.0.6 has.
        Cell(
            "floors",
            "3.11",
            "airflow",
            "2025-08-30",
            "3.0.6",
            (_PROVIDER, "deltalake==1.1.4", "duckdb==1.3.2"),
            lowest=True,
        ),
        # Beside the six: the newest patch, which the lock does not have yet.
        Cell("spark42", "3.13", "spark42,s3"),
    )
}


def install(cell: Cell, folder: Path) -> str:
    """Makes the environment of a cell, as install.md says. Returns packages of Airflow that were changed."""
    python = folder / "bin" / "python"
    if not python.exists():
        _uv("venv", "--python", cell.python, str(folder))
    lowest = ["--resolution", "lowest-direct"] if cell.lowest else []
    kept, before = folder.parent / "airflow.txt", dict[str, str]()
    constraint: list[str] = []
    if cell.airflow:
        if not kept.exists():
            _pip(python, f"apache-airflow=={cell.airflow}", *cell.beside, day=cell.day)
            lines = [f"{name}=={version}" for name, version in freeze(python).items() if name not in _LIFTED]
            kept.write_text("\n".join(lines))
        before = dict(line.split("==") for line in kept.read_text().splitlines())
        constraint = ["--constraint", str(kept)]
    package = f"tidefold[{cell.extras}] @ file://{PROJECT}"
    _pip(python, package, *lowest, *constraint, "--reinstall-package", "tidefold")
    after = freeze(python)
    changed = [f"{name} {old} -> {after.get(name)}" for name, old in before.items() if after.get(name) != old]
    _pip(python, *_TOOLS, *constraint)
    return ", ".join(changed)


def freeze(python: Path) -> dict[str, str]:
    """The installed packages and their versions."""
    listed = _uv("pip", "freeze", "--python", str(python)).splitlines()
    return dict(line.split("==") for line in listed if "==" in line)


def _pip(python: Path, *packages: str, day: str = "") -> None:
    _uv("pip", "install", "--python", str(python), *packages, *(["--exclude-newer", day] if day else []))


def _uv(*arguments: str) -> str:
    done = subprocess.run([str(UV), "--quiet", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"uv {' '.join(arguments[:2])}: {done.stderr.strip()[-600:]}")
    return done.stdout
