"""Reads the state of this machine, and judges it: packages, Java, Spark, jars, memory, disks. Changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tidefold.compute import spark_versions
from tidefold.config.models.spark import is_connect
from tidefold.installation import SPARK_SUBMIT
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel

_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^ ;\\]+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_CONNECT_SECONDS = 5.0
# Of Spark Connect; the address of a standalone master always has one.
_PORT = 15002
OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
# Accepted, and never run.
UNTRIED_JAVA = 21
JAVA_HINT = "Install Java 17 (Debian, Ubuntu: `apt install openjdk-17-jre-headless`) or set JAVA_HOME to it."
_SMALL_STEPS = "only steps that read less than `spark.above` run."
_INSTALL = "Install tidefold again: `pip install tidefold` with its extras, or `make install` in a clone."
_GIB = 1 << 30
# Below the first limit a disk counts as full; below the second it is a warning.
_FREE_BYTES = (500_000_000, 5_000_000_000)
_FREE_SHARE = (0.01, 0.05)
_DRIVER_SHARE = 0.8


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
        return InstalledPackages(python, tuple(dict.fromkeys(_find_declared())))
    try:
        listed = (project / "requirements.in").read_text(encoding="utf-8")
        locked = dict(_PIN.findall((project / "requirements.txt").read_text(encoding="utf-8")))
    except OSError:
        return InstalledPackages(python)
    names = [match[0] for line in listed.splitlines() if (match := _NAME.match(line))]
    packages = [PackageVersion(name, f"=={locked[name]}", _find_version(name)) for name in names if name in locked]
    return InstalledPackages(python, tuple(packages))


def _find_declared() -> Iterator[PackageVersion]:
    """The packages that tidefold needs. One of an extra counts if it is installed, and of no other Spark."""
    declared = metadata("tidefold")
    needed = [Requirement(line) for line in declared.get_all("Requires-Dist", [])]
    # Any patch of the minor version: `spark41` is the extra of each 4.1.
    spark = f"{spark_versions.minor_of(spark_versions.find_spark() or '0')}.99"
    others = [line for line in needed if line.name == "pyspark" and not line.specifier.contains(spark)]
    extras = declared.get_all("Provides-Extra", [])
    fitting = [extra for extra in extras if not any(_is_of(extra, line) for line in others)]
    for line in needed:
        installed = _find_version(line.name)
        if _is_of("", line) or (installed and any(_is_of(extra, line) for extra in fitting)):
            yield PackageVersion(line.name, str(line.specifier), installed)


def _is_of(extra: str, line: Requirement) -> bool:
    return line.marker is None or line.marker.evaluate({"extra": extra})


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
    tried: the versions of Java that the installed Spark was run with.
    breaks_on: the oldest Java that the installed Spark was seen to fail with; None: none.
    """

    path: str
    major: int | None = None
    home: str = ""
    tried: tuple[int, ...] = (17,)
    breaks_on: int | None = None


def find_java() -> JavaInstallation:
    """Returns the Java of JAVA_HOME, or the first on the PATH."""
    home = os.environ.get("JAVA_HOME", "")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not path or not os.access(path, os.X_OK):
        return JavaInstallation("", home=home)
    output = subprocess.run([path, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output)
    if not match:
        return JavaInstallation(path, home=home)
    # Java 8 and older report a version such as 1.8.
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])
    spark = spark_versions.find_version(spark_versions.find_spark()) or spark_versions.SPARKS[spark_versions.NEWEST]
    return JavaInstallation(path, major, home, spark.java, spark.breaks_on)


@dataclass(frozen=True, slots=True)
class SparkSetup:
    """How Spark is started, and where it runs.

    submit: the program that starts it. `has_submit`: whether it exists.
    master: the configured master; None: there is no valid configuration.
    error: why the master or the Spark Connect server cannot be reached; empty: it can, or Spark runs on this machine.
    version: of pyspark or of its client; empty: none is installed.
    client: of pyspark-client, which owns the same files; empty: it is not installed.
    """

    submit: str
    has_submit: bool
    master: str | None = None
    error: str = ""
    version: str = ""
    client: str = ""


def find_spark(master: str | None) -> SparkSetup:
    """Looks for spark-submit, and connects to a standalone master or a Spark Connect server."""
    places = re.match(r"(?:spark|sc)://([^/;]+)", master or "")
    error = try_connect(places[1]) if places else ""
    client = _find_version("pyspark-client") or ""
    spark = spark_versions.find_spark()
    return SparkSetup(SPARK_SUBMIT, os.access(SPARK_SUBMIT, os.X_OK), master, error, spark, client)


def try_connect(places: str) -> str:
    """Connects to one of the places `HOST:PORT,...`. Returns why the last one cannot be reached; empty: one can."""
    failure = ""
    for place in places.split(","):
        address = urlsplit(f"//{place}")
        try:
            with socket.create_connection((address.hostname or "", address.port or _PORT), _CONNECT_SECONDS):
                return ""
        except OSError as error:
            failure = error.strerror or str(error)
    return failure


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
    stat = os.statvfs(place)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    return DiskUsage(use, str(place), free, total, stat.f_favail, stat.f_files)


def check_packages(setup: InstalledPackages) -> Iterator[DoctorFinding]:
    """Checks Python, and finds packages that are missing or differ from the locked version."""
    python = ".".join(map(str, setup.python))
    if setup.python < OLDEST_PYTHON:
        yield DoctorFinding(
            "versions", FAIL, f"Python {python} is too old.", "Use Python 3.11 or newer, and install tidefold there."
        )
    missing = [package for package in setup.packages if package.found is None]
    other = [package for package in setup.packages if package.found and not package.fits]
    if missing:
        names = ", ".join(package.name for package in missing)
        yield DoctorFinding("versions", FAIL, f"Not installed: {names}.", _INSTALL)
    if other:
        names = ", ".join(
            f"{package.name} {package.found} (wanted: {package.wanted.removeprefix('==')})" for package in other
        )
        yield DoctorFinding("versions", WARN, f"Other versions than tidefold wants: {names}.", _INSTALL)
    if not missing and not other and setup.python >= OLDEST_PYTHON:
        compared = f"{len(setup.packages)} packages as wanted" if setup.packages else "no list of versions to compare"
        yield DoctorFinding("versions", OK, f"Python {python}, {compared}.")


def check_java(java: JavaInstallation) -> Iterator[DoctorFinding]:
    """Checks that Java is one of the expected versions."""
    if not java.path:
        where = f"JAVA_HOME ({java.home}) does not contain it" if java.home else "there is none on the PATH"
        yield DoctorFinding("java", FAIL, f"Spark needs Java, and {where}.", JAVA_HINT)
    elif java.major is None or java.major < OLDEST_JAVA:
        shown = f"is Java {java.major}" if java.major else "does not report its version"
        yield DoctorFinding("java", FAIL, f"Spark needs Java 17 or newer, and {java.path} {shown}.", JAVA_HINT)
    elif java.breaks_on and java.major >= java.breaks_on:
        message = f"The installed Spark does not run on Java {java.major} ({java.path})."
        yield DoctorFinding("java", FAIL, message, JAVA_HINT)
    elif java.major == UNTRIED_JAVA:
        yield DoctorFinding(
            "java", OK, f"Java {java.major}: {java.path}. It is accepted, and tidefold never ran with it."
        )
    elif java.major not in java.tried:
        tried = " and ".join(map(str, java.tried))
        message = f"{java.path} is Java {java.major}; tidefold was run with {tried} under this Spark."
        yield DoctorFinding("java", WARN, message, JAVA_HINT)
    else:
        yield DoctorFinding("java", OK, f"Java {java.major}: {java.path}.")


def check_spark(setup: SparkSetup, find_need: Callable[[], str] = str) -> Iterator[DoctorFinding]:
    """Checks Spark's version, the program that starts it and the standalone master, or the Spark Connect server.

    find_need: finds out why the pipeline cannot do without Spark; empty: small steps can.
    """
    connects, feature = is_connect(setup.master or ""), spark_versions.SparkFeature.CONNECT
    spark = spark_versions.find_version(setup.version)
    if spark is None:
        yield DoctorFinding("spark", FAIL, spark_versions.describe_unsupported(setup.version), spark_versions.EXTRAS)
    elif setup.client and spark_versions.minor_of(setup.client) != spark_versions.minor_of(setup.version):
        message = f"pyspark {setup.version} and pyspark-client {setup.client} own the same files."
        yield DoctorFinding("spark", FAIL, message, f"Install both again: `{_describe_repair(setup.version, spark)}`.")
    elif connects and feature in spark.lacks:
        message = f"Spark {setup.version} does not have {feature}, and `spark.master` is {setup.master}."
        yield DoctorFinding("spark", FAIL, message, spark_versions.INSTEAD[feature])
    elif not setup.has_submit and not connects and setup.version in ("", setup.client):
        # A client brings no Spark.
        need = find_need()
        message = f"pyspark is not installed: {need or _SMALL_STEPS}"
        hint = f"{spark_versions.EXTRAS} Or raise `spark.above`." if need else spark_versions.EXTRAS
        yield DoctorFinding("spark", FAIL if need else WARN, message, hint)
    elif not setup.has_submit and not connects:
        yield DoctorFinding("spark", FAIL, f"{setup.submit} is missing.", _INSTALL)
    elif setup.error:
        what = "server" if connects else "master"
        hint = f"Start the {what}, or correct `spark.master`. `spark: {{above: 10GB}}` runs most work without Spark."
        yield DoctorFinding("spark", FAIL, f"{setup.master} cannot be reached: {setup.error}.", hint)
    elif connects:
        yield DoctorFinding("spark", OK, f"The Spark Connect server {setup.master} can be reached.")
    else:
        where = f", master {setup.master}" if setup.master else ""
        lacks = f" Spark {setup.version} does not have {' and '.join(sorted(spark.lacks))}." if spark.lacks else ""
        yield DoctorFinding("spark", OK, f"{setup.submit}{where}.{lacks}")


def _describe_repair(version: str, spark: spark_versions.SparkVersion) -> str:
    """The command after which pyspark is complete again."""
    install = f"pip install --force-reinstall --no-deps 'pyspark=={version}'"
    if spark_versions.SparkFeature.CONNECT in spark.lacks:
        return f"pip uninstall --yes pyspark-client; {install}"
    # A patch may have no client: 4.1.4 has none.
    return f"{install} 'pyspark-client=={spark_versions.minor_of(version)}.*'"


def check_jars(jars: Sequence[Path], find_need: Callable[[], str] = str) -> Iterator[DoctorFinding]:
    """Checks that each jar that Spark needs is there and whole enough to be opened. find_need: as for check_spark."""
    bad = [jar for jar in jars if not zipfile.is_zipfile(jar)]
    need = find_need() if bad else ""
    absent = (FAIL if need else WARN, f"is missing: {need or _SMALL_STEPS}")
    for jar in bad:
        level, harm = (FAIL, "is not a jar file.") if jar.exists() else absent
        yield DoctorFinding("jars", level, f"{jar.name} {harm}", "Run `tidefold spark jars`, which fetches it.")
    if jars and not bad:
        yield DoctorFinding("jars", OK, f"{', '.join(jar.name for jar in jars)}.")


def check_memory(memory: MemorySize) -> Iterator[DoctorFinding]:
    """Compares the memory of the Spark driver with that of the machine."""
    driver, total, available = (f"{size / _GIB:.1f} GiB" for size in (memory.driver, memory.total, memory.available))
    hint = "Set `spark.driver_memory` to less, or give the machine more memory."
    if memory.driver > memory.total:
        message = f"`spark.driver_memory` is {driver}, and the machine has {total}."
        yield DoctorFinding("memory", FAIL, message, hint)
    elif memory.driver > _DRIVER_SHARE * memory.total:
        message = f"`spark.driver_memory` is {driver} of {total}, which leaves little to Python and the system."
        yield DoctorFinding("memory", WARN, message, hint)
    elif memory.driver > memory.available:
        message = f"`spark.driver_memory` is {driver}, and {available} of {total} are free now."
        yield DoctorFinding("memory", WARN, message, f"End other programs. {hint}")
    else:
        message = f"`spark.driver_memory` is {driver}; {available} of {total} are free."
        yield DoctorFinding("memory", OK, message)


def check_disks(disks: Iterable[DiskUsage]) -> Iterator[DoctorFinding]:
    """Checks the free bytes and inodes of each disk."""
    for disk in disks:
        hint = f"Make room on the disk of {disk.path}: `tidefold retain` shows what can go. Or use a larger disk."
        share = disk.free / disk.total if disk.total else 1.0
        inodes = disk.free_inodes / disk.inodes if disk.inodes else 1.0
        is_short = disk.free < _FREE_BYTES[1] or share < _FREE_SHARE[0]
        level = FAIL if disk.free < _FREE_BYTES[0] else WARN if is_short else OK
        message = f"{disk.use}: {disk.free / 1e9:,.1f} GB ({share:.0%}) free at {disk.path}."
        yield DoctorFinding("disk", level, message, "" if level is OK else hint)
        if inodes < _FREE_SHARE[1]:
            message = f"{disk.use}: {disk.free_inodes:,} inodes ({inodes:.0%}) are left at {disk.path}."
            yield DoctorFinding("disk", FAIL if inodes < _FREE_SHARE[0] else WARN, message, hint)
