"""Work on its way to Spark's processes, which refuse it if their packages are not those of the driver."""

from __future__ import annotations

import pickle
import platform
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version

from tidefold import __version__
from tidefold.errors import RefusedError

# Takes a JSON text, gives a JSON text. It is a function or an object with what all tasks share; each process of Spark's
# loads it once, by pickle.
TaskWork = Callable[[str], str]

_SAME_VERSION = ("pyarrow", "duckdb", "deltalake", "msgspec")


class BroadcastWork:
    """Work on its way to Spark's processes: unpickled once by each, also if it is a function that has no name."""

    def __init__(self, work: TaskWork) -> None:
        self.work = work

    def __reduce__(self) -> tuple[type[ReceivedWork], tuple[bytes, dict[str, str]]]:
        from pyspark import cloudpickle

        return ReceivedWork, (cloudpickle.dumps(self.work), find_versions())


@dataclass
class ReceivedWork:
    """Work that one of Spark's processes got.

    pickled: the work.
    versions: those of the driver's packages.
    """

    pickled: bytes
    versions: dict[str, str]

    @cached_property
    def work(self) -> TaskWork:
        """The work. Raises RefusedError (VERSION_MISMATCH) if this process has other packages than the driver."""
        require_versions(self.versions, "executor", "driver")
        work: TaskWork = pickle.loads(self.pickled)
        return work


def require_versions(wanted: Mapping[str, str], this: str, other: str) -> None:
    """Raises RefusedError (VERSION_MISMATCH) if this process has other packages than the one that it works for.

    this, other: what the two are to Spark.
    """
    here = find_versions()
    different = sorted(name for name, version in wanted.items() if here.get(name) != version)
    if different:
        told = (f"{name} {here.get(name, 'is missing')} ({other}: {wanted[name]})" for name in different)
        message = f"Spark's {this} on {socket.gethostname()} has other versions than the {other}: {', '.join(told)}."
        hint = "Install the same versions on all workers, or set `spark.python` to an environment that has them."
        raise RefusedError("VERSION_MISMATCH", message, hint=hint)


@cache
def find_versions() -> dict[str, str]:
    """The versions that must be the same in all processes of a job: of Python and of the packages that tasks use."""
    from pyspark.version import __version__ as spark

    # That of the code, not of a package: an executor has it from its Spark, and a driver may have the client alone.
    versions = {"tidefold": __version__, "Python": ".".join(platform.python_version_tuple()[:2]), "pyspark": str(spark)}
    for package in _SAME_VERSION:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions
