"""Reads the state of this machine: Python packages, Java, Spark, jars, memory and disks. Changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_CONNECT_SECONDS = 5.0
# Of Spark Connect; the address of a standalone master always has one.
_PORT = 15002


@dataclass(frozen=True, slots=True)
class PackageVersion:
    """A package that tidefold is built on.

    wanted: the version of the lock, or the range of versions that the package tidefold declares.
    found: None: it is not installed.
    """

    name: str
    wanted: str
    found: str | None

    @property
    def fits(self) -> bool:
        """Whether the installed version is one of those wanted."""
        return self.found is not None and SpecifierSet(self.wanted).contains(self.found, prereleases=True)


@dataclass(frozen=True, slots=True)
class InstalledPackages:
    """The version of Python, and of each package that tidefold is built on; none if no list names them."""

    python: tuple[int, int]
    packages: tuple[PackageVersion, ...] = ()


def find_packages(project: Path | None) -> InstalledPackages:
    """Compares what is installed with the lock of a clone, or with the ranges that the installed package declares."""
    python = (sys.version_info.major, sys.version_info.minor)
    if project is None:
        return InstalledPackages(python, tuple(_find_declared()))
    try:
        listed = (project / "requirements.in").read_text(encoding="utf-8")
        locked = dict(_PIN.findall((project / "requirements.txt").read_text(encoding="utf-8")))
    except OSError:
        return InstalledPackages(python)
    names = [found[0] for line in listed.splitlines() if (found := _NAME.match(line))]
    packages = [PackageVersion(name, f"=={locked[name]}", _find_version(name)) for name in names if name in locked]
    return InstalledPackages(python, tuple(packages))


def _find_declared() -> Iterator[PackageVersion]:
    """The packages that tidefold needs. One of an extra counts only if it is installed."""
    for line in requires("tidefold") or ():
        needed = Requirement(line)
        found = _find_version(needed.name)
        if found or needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield PackageVersion(needed.name, str(needed.specifier), found)


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """The Java that Spark would use.

    path: the program; empty: there is none.
    major: its major version; None: unknown.
    home: JAVA_HOME; empty: it is not set.
    """

    path: str
    major: int | None = None
    home: str = ""


def find_java() -> JavaInstallation:
    """Returns the Java of JAVA_HOME, or the first on the PATH."""
    home = os.environ.get("JAVA_HOME", "")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not path or not os.access(path, os.X_OK):
        return JavaInstallation("", home=home)
    said = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if not found:
        return JavaInstallation(path, home=home)
    # Java 8 and older report a version such as 1.8.
    return JavaInstallation(path, int(found[2] or 0) if found[1] == "1" else int(found[1]), home)


@dataclass(frozen=True, slots=True)
class SparkSetup:
    """How Spark is started, and where it runs.

    submit: the program that starts it. `has_submit`: whether it exists.
    master: the configured master; None: there is no valid configuration.
    error: why the master or the Spark Connect server cannot be reached; empty: it can, or Spark runs on this machine.
    """

    submit: str
    has_submit: bool
    master: str | None = None
    error: str = ""


def find_spark(master: str | None) -> SparkSetup:
    """Looks for spark-submit beside this Python, and connects to a standalone master or a Spark Connect server."""
    submit = Path(sys.executable).with_name("spark-submit")
    places = re.match(r"(?:spark|sc)://([^/;]+)", master or "")
    error = try_connect(places[1]) if places else ""
    return SparkSetup(str(submit), os.access(submit, os.X_OK), master, error)


def try_connect(places: str) -> str:
    """Connects to one of the places `HOST:PORT,...`. Returns why the last one cannot be reached; empty: one can."""
    said = ""
    for place in places.split(","):
        address = urlsplit(f"//{place}")
        try:
            with socket.create_connection((address.hostname or "", address.port or _PORT), _CONNECT_SECONDS):
                return ""
        except OSError as error:
            said = error.strerror or str(error)
    return said


@dataclass(frozen=True, slots=True)
class JarFile:
    """A jar that Spark needs. `harm`: what is wrong with it; empty: nothing."""

    name: str
    harm: str = ""


def find_jars(jars: Sequence[Path]) -> list[JarFile]:
    """Checks that each jar exists and can be opened."""
    return [JarFile(jar.name, "" if zipfile.is_zipfile(jar) else _describe_harm(jar)) for jar in jars]


def _describe_harm(jar: Path) -> str:
    return "is not a jar file" if jar.exists() else "is missing"


@dataclass(frozen=True, slots=True)
class MemorySize:
    """Bytes of memory.

    total: of the machine, or of the container if that is less.
    available: free now.
    driver: of the Spark driver, as configured.
    """

    total: int
    available: int
    driver: int


def find_memory(driver_memory: str) -> MemorySize:
    """Returns the memory of this machine or container. `driver_memory`: such as `512m` or `2g`."""
    import psutil

    memory = psutil.virtual_memory()
    total = min(memory.total, _read_limit())
    driver = int(driver_memory[:-1]) * (1 << 30 if driver_memory.endswith("g") else 1 << 20)
    return MemorySize(total, min(memory.available, total), driver)


def _read_limit() -> int:
    """Returns the memory limit of the container; a huge number if there is none."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return sys.maxsize


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A disk and its use. `inodes` is 0 for a file system without a fixed number of inodes."""

    use: str
    path: str
    free: int
    total: int
    free_inodes: int = 0
    inodes: int = 0


def find_disks(folders: Sequence[tuple[str, Path]]) -> list[DiskUsage]:
    """Returns the disks of these folders, each once. A missing folder counts for the disk of the folder above it.

    folders: the use and the path of each folder.
    """
    uses: dict[int, list[str]] = {}
    places: dict[int, Path] = {}
    for use, folder in folders:
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        device = place.stat().st_dev
        uses.setdefault(device, []).append(use)
        places.setdefault(device, place)
    return [_measure(", ".join(dict.fromkeys(uses[device])), place) for device, place in places.items()]


def _measure(use: str, place: Path) -> DiskUsage:
    found = os.statvfs(place)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return DiskUsage(use, str(place), free, total, found.f_favail, found.f_files)
