"""Where the files of this installation are: those of a package in an environment, or those of a clone."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

# The folder of this package, and the folder from which Python imports it.
PACKAGE = Path(__file__).resolve().parent
CODE = PACKAGE.parent
# Among the programs of this Python's packages. With Debian's own Python they are in another folder than it.
SPARK_SUBMIT = str(Path(sysconfig.get_path("scripts"), "spark-submit"))
_SITE = ("site-packages", "dist-packages")


def find_clone(code: Path) -> Path | None:
    """The root of the clone that has the package; None: the package is installed."""
    root = code.parent
    return root if code.name == "include" and (root / "pyproject.toml").is_file() else None


CLONE = find_clone(CODE)


def job_folder() -> Path:
    """The scripts that spark-submit runs, one for each step."""
    return CLONE / "jobs" if CLONE else PACKAGE / "spark" / "jobs"


def sample_folder() -> Path:
    """Landed files of a sample database, in phases."""
    return CLONE / "tests" / "data" / "bank" / "landing" if CLONE else PACKAGE / "sample_data"


def error_table() -> Path:
    """What each error code means, and what to do."""
    return CLONE / "docs" / "error-codes.toml" if CLONE else PACKAGE / "error-codes.toml"


def find_python_path() -> str | None:
    """What a new Python process needs as PYTHONPATH to import this package; None: it is installed there.

    A folder of installed packages is never on PYTHONPATH: it would precede Python's own library.
    """
    return None if CODE.name in _SITE else str(CODE)


def jar_folder() -> Path:
    """Where `tidefold spark jars` keeps the jars: TIDEFOLD_JARS, else `.jars` of the clone, else the user's cache."""
    folder = os.environ.get("TIDEFOLD_JARS")
    if folder:
        return Path(folder)
    if CLONE:
        return CLONE / ".jars"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "tidefold" / "jars"


def default_config() -> Path:
    """The configuration that tasks of Airflow read if nothing names one: of the clone, or in AIRFLOW_HOME."""
    if CLONE:
        return CLONE / "tidefold.yaml"
    return Path(os.environ.get("AIRFLOW_HOME") or Path.home() / "airflow") / "tidefold.yaml"
