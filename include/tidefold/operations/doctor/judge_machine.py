"""Turns the state of the machine into findings: one pure function for each check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidefold.config.models.spark import is_connect
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.operations.doctor.machine import (
    DiskUsage,
    InstalledPackages,
    JarFile,
    JavaInstallation,
    MemorySize,
    SparkSetup,
)

OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
EXPECTED_JAVA = (17, 21)
JAVA_HINT = "Install Java 17 or 21 (Debian, Ubuntu: `apt install openjdk-17-jre-headless`) or set JAVA_HOME to one."
_INSTALL = "Install tidefold again: `pip install tidefold` with its extras, or `make install` in a clone."
_GIB = 1 << 30
# Below the first limit a disk counts as full; below the second it is a warning.
_FREE_BYTES = (500_000_000, 5_000_000_000)
_FREE_SHARE = (0.01, 0.05)
_DRIVER_SHARE = 0.8


def judge_packages(found: InstalledPackages) -> Iterator[DoctorFinding]:
    """Checks Python, and finds packages that are missing or differ from the locked version."""
    python = ".".join(map(str, found.python))
    if found.python < OLDEST_PYTHON:
        yield DoctorFinding(
            "versions", FAIL, f"Python {python} is too old.", "Use Python 3.11 or newer, and install tidefold there."
        )
    missing = [package for package in found.packages if package.found is None]
    other = [package for package in found.packages if package.found and not package.fits]
    if missing:
        names = ", ".join(package.name for package in missing)
        yield DoctorFinding("versions", FAIL, f"Not installed: {names}.", _INSTALL)
    if other:
        names = ", ".join(
            f"{package.name} {package.found} (wanted: {package.wanted.removeprefix('==')})" for package in other
        )
        yield DoctorFinding("versions", WARN, f"Other versions than tidefold wants: {names}.", _INSTALL)
    if not missing and not other and found.python >= OLDEST_PYTHON:
        compared = f"{len(found.packages)} packages as wanted" if found.packages else "no list of versions to compare"
        yield DoctorFinding("versions", OK, f"Python {python}, {compared}.")


def judge_java(found: JavaInstallation) -> Iterator[DoctorFinding]:
    """Checks that Java is one of the expected versions."""
    if not found.path:
        where = f"JAVA_HOME ({found.home}) does not contain it" if found.home else "there is none on the PATH"
        yield DoctorFinding("java", FAIL, f"Spark needs Java, and {where}.", JAVA_HINT)
    elif found.major is None or found.major < OLDEST_JAVA:
        shown = f"is Java {found.major}" if found.major else "does not report its version"
        yield DoctorFinding("java", FAIL, f"Spark needs Java 17 or newer, and {found.path} {shown}.", JAVA_HINT)
    elif found.major not in EXPECTED_JAVA:
        message = f"{found.path} is Java {found.major}; tidefold expects Java 17 or 21, and was run with 17."
        yield DoctorFinding("java", WARN, message, JAVA_HINT)
    else:
        yield DoctorFinding("java", OK, f"Java {found.major}: {found.path}.")


def judge_spark(found: SparkSetup) -> Iterator[DoctorFinding]:
    """Checks the program that starts Spark, and the standalone master; or the Spark Connect server alone."""
    connects = is_connect(found.master or "")
    if not found.has_submit and not connects:
        yield DoctorFinding("spark", FAIL, f"{found.submit} is missing.", _INSTALL)
    elif found.error:
        what = "server" if connects else "master"
        hint = f"Start the {what}, or correct `spark.master`. `spark: {{above: 10GB}}` runs most work without Spark."
        yield DoctorFinding("spark", FAIL, f"{found.master} cannot be reached: {found.error}.", hint)
    else:
        if connects:
            yield DoctorFinding("spark", OK, f"The Spark Connect server {found.master} can be reached.")
            return
        where = f", master {found.master}" if found.master else ""
        yield DoctorFinding("spark", OK, f"{found.submit}{where}.")


def judge_jars(found: Sequence[JarFile]) -> Iterator[DoctorFinding]:
    """Checks the jars of Delta."""
    bad = [jar for jar in found if jar.harm]
    for jar in bad:
        yield DoctorFinding("jars", FAIL, f"{jar.name} {jar.harm}.", "Run `tidefold jars`, which fetches it.")
    if not bad:
        yield DoctorFinding("jars", OK, f"{', '.join(jar.name for jar in found)}.")


def judge_memory(found: MemorySize) -> Iterator[DoctorFinding]:
    """Compares the memory of the Spark driver with that of the machine."""
    driver, total, available = (f"{size / _GIB:.1f} GiB" for size in (found.driver, found.total, found.available))
    hint = "Set `spark.driver_memory` to less, or give the machine more memory."
    if found.driver > found.total:
        message = f"`spark.driver_memory` is {driver}, and the machine has {total}."
        yield DoctorFinding("memory", FAIL, message, hint)
    elif found.driver > _DRIVER_SHARE * found.total:
        message = f"`spark.driver_memory` is {driver} of {total}, which leaves little to Python and the system."
        yield DoctorFinding("memory", WARN, message, hint)
    elif found.driver > found.available:
        message = f"`spark.driver_memory` is {driver}, and {available} of {total} are free now."
        yield DoctorFinding("memory", WARN, message, f"End other programs. {hint}")
    else:
        message = f"`spark.driver_memory` is {driver}; {available} of {total} are free."
        yield DoctorFinding("memory", OK, message)


def judge_disks(found: Iterable[DiskUsage]) -> Iterator[DoctorFinding]:
    """Checks the free bytes and inodes of each disk."""
    for disk in found:
        hint = f"Make room on the disk of {disk.path}: `tidefold subsume`, `truncate` and `clean`, or a larger disk."
        share = disk.free / disk.total if disk.total else 1.0
        inodes = disk.free_inodes / disk.inodes if disk.inodes else 1.0
        level = _find_level(disk.free, share)
        message = f"{disk.use}: {disk.free / 1e9:,.1f} GB ({share:.0%}) free at {disk.path}."
        yield DoctorFinding("disk", level, message, "" if level is OK else hint)
        if inodes < _FREE_SHARE[1]:
            message = f"{disk.use}: {disk.free_inodes:,} inodes ({inodes:.0%}) are left at {disk.path}."
            yield DoctorFinding("disk", FAIL if inodes < _FREE_SHARE[0] else WARN, message, hint)


def _find_level(free: int, share: float) -> FindingLevel:
    if free < _FREE_BYTES[0]:
        return FAIL
    return WARN if free < _FREE_BYTES[1] or share < _FREE_SHARE[0] else OK
