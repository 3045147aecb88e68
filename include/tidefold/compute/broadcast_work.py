"""Work on its way to Spark's processes, which refuse it if their packages are not those of the driver."""

from __future__ import annotations

import pickle
import platform
import socket
from collections.abc import Callable
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
        here = find_versions()
        different = sorted(name for name, version in self.versions.items() if here.get(name) != version)
        if different:
            named = (f"{name} {here.get(name, 'is missing')} (driver: {self.versions[name]})" for name in different)
            message = f"Spark's executor on {socket.gethostname()} has other versions than the driver: "
            raise RefusedError("VERSION_MISMATCH", f"{message}{', '.join(named)}.")
        work: TaskWork = pickle.loads(self.pickled)
        return work


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
