"""`make release` builds sdist and wheel, and checks what a user gets of them, step by step.

    STEPS="build contents" make release     # only these
    PYTHONS="3.12" make release             # only these Pythons

Environments are made below `var/release` (RELEASE: another folder). The packages come from the index, tidefold from
`dist/` alone.
"""

from __future__ import annotations

import email.message
import email.parser
import hashlib
import importlib.metadata
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tutorial_page

PROJECT = Path(__file__).resolve().parents[1]
DIST = PROJECT / "dist"
FOLDER = Path(os.environ.get("RELEASE", PROJECT / "var/release")).absolute()
UV = str(PROJECT / ".venv/bin/uv")
_TWINE = "twine==7.0.0"
# A user's processes know nothing of the clone.
_FOREIGN = ("PYTHON", "VIRTUAL_ENV", "TIDEFOLD_", "AIRFLOW", "SPARK_")
# Licences whose packages may be required: they ask for their notice alone.
_FREE = re.compile(r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|MPL|Mozilla|Unlicense|Zope|CC0|0BSD|Zlib")
_FOREIGN_NOTICE = re.compile(r"^.*(?:Copyright \(|SPDX-License-Identifier|All rights reserved).*$", re.M)
# Imports each module of the installed package; prints the packages that some need, and that are not there.
_IMPORT = """
import collections, importlib, importlib.util, pkgutil
absent, names = collections.Counter(), []
for top in ("tidefold", "tidefold_airflow", "pyspark_tidefold"):
    places = importlib.util.find_spec(top).submodule_search_locations
    names += [top, *(one.name for one in pkgutil.walk_packages(places, top + ".", onerror=lambda name: None))]
names = [one for one in names if not one.endswith("__main__") and ".jobs." not in one and ".example_dags." not in one]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        absent[(error.name or "").partition(".")[0]] += 1
print(len(names), *absent)
"""


class ReleaseError(Exception):
    """What is wrong with the release."""


def call(*words: str, cwd: Path = PROJECT, env: Mapping[str, str] | None = None) -> str:
    """Runs a program, and returns its stdout. Raises ReleaseError with its last words."""
    try:
        done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ReleaseError(f"{words[0]} cannot be started: {error}") from error
    if done.returncode:
        raise ReleaseError(f"{' '.join(words)[:300]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def read_project() -> dict[str, Any]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def find_built(ending: str) -> Path:
    """Returns the one built file with this ending."""
    built = list(DIST.glob(f"tidefold-*{ending}"))
    if len(built) != 1:
        raise ReleaseError(f"dist/ has {len(built)} files *{ending}: run the step `build`")
    return built[0]


def list_tracked(*folders: str) -> list[str]:
    return call("git", "ls-files", "-z", "--", *folders).split("\0")[:-1]


def find_pythons() -> list[str]:
    """Returns the versions that the classifiers of the package name, or those of PYTHONS."""
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(read_project()["project"]["classifiers"]))
    return os.environ.get("PYTHONS", "").split() or named


def build() -> str:
    """builds the sdist, and the wheel from the sdist"""
    for old in DIST.glob("tidefold-*"):
        old.unlink()
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(PROJECT))
    files = (find_built(".tar.gz"), find_built(".whl"))
    sums = [f"{one.name} {one.stat().st_size:,} bytes {hashlib.sha256(one.read_bytes()).hexdigest()}" for one in files]
    return "\n  ".join(["", *sums])


def describe() -> str:
    """lets twine check the description and the metadata"""
    files = [str(find_built(".tar.gz")), str(find_built(".whl"))]
    call(UV, "tool", "run", "--python", sys.executable, _TWINE, "check", "--strict", *files)
    return "twine has no warning"


def contents() -> str:
    """compares the files in both with those that git tracks"""
    targets = read_project()["tool"]["hatch"]["build"]["targets"]
    wheel = _expect_in_wheel(targets["wheel"])
    sdist = set(list_tracked(*(one.lstrip("/") for one in targets["sdist"]["include"])))
    # hatchling adds them.
    sdist |= {"pyproject.toml", ".gitignore", "PKG-INFO"}
    with zipfile.ZipFile(find_built(".whl")) as packed:
        _compare("wheel", {name for name in packed.namelist() if ".dist-info/" not in name}, wheel)
    with tarfile.open(find_built(".tar.gz")) as archive:
        files = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    _compare("sdist", files, sdist)
    kinds = Counter(Path(name).suffix for name in wheel)
    return f"{len(wheel)} files in the wheel ({', '.join(f'{n} {kind}' for kind, n in kinds.most_common())})"


def _expect_in_wheel(target: dict[str, Any]) -> set[str]:
    """Returns what the wheel must have: the packages, and what stands beside them in the clone."""
    expected = set[str]()
    for package in target["packages"]:
        expected |= {name.removeprefix(f"{Path(package).parent}/") for name in list_tracked(package)}
    for source, place in target["force-include"].items():
        expected |= {f"{place}{name.removeprefix(source)}" for name in list_tracked(source)}
    return expected


def _compare(what: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        lacks, extra = sorted(expected - found), sorted(found - expected)
        raise ReleaseError(f"the {what} lacks {lacks[:20]}, and has {extra[:20]} that git does not track there")


def notices() -> str:
    """looks for notices of others in the wheel, and for its own licence"""
    with zipfile.ZipFile(find_built(".whl")) as packed:
        names = packed.namelist()
        texts = {name: packed.read(name).decode(errors="replace") for name in names if ".dist-info/" not in name}
        metadata = packed.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
        licences = [name for name in names if "/licenses/" in name]
    found = {name: match[0].strip()[:100] for name, text in texts.items() if (match := _FOREIGN_NOTICE.search(text))}
    if found:
        raise ReleaseError(f"files have notices of their own: {found}")
    told = email.parser.HeaderParser().parsestr(metadata)
    if told["License-Expression"] != read_project()["project"]["license"] or not licences:
        raise ReleaseError("the wheel does not name its licence, or does not bring its text")
    return f"{told['License-Expression']}, and no file under another licence"


def pythons() -> str:
    """installs `tidefold` by name from dist/ with each Python, and imports each module"""
    told = []
    extras = _find_extras()
    for version in find_pythons():
        begun, python = time.monotonic(), _make_environment(version)
        count, *absent = call(str(python), "-c", _IMPORT, cwd=FOLDER, env=environment(python)).split()
        if unknown := [name for name in absent if not extras & {one.lower() for one in _distributions().get(name, ())}]:
            raise ReleaseError(f"with Python {version} modules need {unknown}, which no extra brings")
        told.append(f"{version}: {count} modules, {time.monotonic() - begun:.0f} s ({', '.join(absent)}: extras)")
    return "\n  ".join(["", *told])


def _make_environment(version: str) -> Path:
    home = FOLDER / f"python{version}"
    shutil.rmtree(home, ignore_errors=True)
    python = home / "bin/python"
    call(UV, "venv", "--quiet", "--python", version, str(home))
    # A wheel of an earlier build has the same name and version, and may be in uv's cache.
    fresh = ("--find-links", str(DIST), "--refresh-package", "tidefold")
    install = (UV, "pip", "install", "--quiet", "--python", str(python), *fresh)
    # By its name, and from the folder alone; then what it requires.
    call(*install, "--no-index", "--no-deps", "tidefold")
    call(*install, "tidefold")
    call(UV, "pip", "check", "--quiet", "--python", str(python))
    return python


def _find_extras() -> set[str]:
    """Returns the packages of all extras, with those that they require, as the clone has them."""
    extras = read_project()["project"]["optional-dependencies"].values()
    waiting, found = {_name_package(one) for requirements in extras for one in requirements}, set[str]()
    while waiting:
        found.add(name := waiting.pop())
        with suppress(importlib.metadata.PackageNotFoundError):
            required = importlib.metadata.requires(name) or ()
            waiting |= {_name_package(one) for one in required if "extra ==" not in one} - found
    return found


def _name_package(requirement: str) -> str:
    return re.split(r"[\[<>=~!;( ]", requirement)[0].lower()


def _distributions() -> Mapping[str, list[str]]:
    """The packages of the clone, which has those of the extras, by the names under which they are imported."""
    return importlib.metadata.packages_distributions()


def environment(python: Path) -> dict[str, str]:
    """Returns the environment of a user whose programs are beside this Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{kept['PATH']}", "COLUMNS": "160"}


def find_python() -> Path:
    """Returns the Python of the newest environment."""
    python = FOLDER / f"python{find_pythons()[-1]}" / "bin/python"
    if not python.exists():
        raise ReleaseError("there is no environment: run the step `pythons`")
    return python


def licences() -> str:
    """reads the licences of all packages that the wheel brings"""
    [site] = find_python().parents[1].glob("lib/python*/site-packages")
    by_licence: dict[str, list[str]] = {}
    for one in importlib.metadata.distributions(path=[str(site)]):
        by_licence.setdefault(_find_licence(one.metadata), []).append(one.name)  # type: ignore[arg-type]
    if bad := {text: names for text, names in by_licence.items() if not _FREE.search(text)}:
        raise ReleaseError(f"packages have a licence that is not known to be free of duties: {bad}")
    shown = sorted(by_licence.items(), key=lambda one: -len(one[1]))
    return f"{sum(map(len, by_licence.values()))} packages\n  " + "\n  ".join(
        f"{text}: {', '.join(sorted(names))}" for text, names in shown
    )


def _find_licence(metadata: email.message.Message) -> str:
    classified = [one for one in metadata.get_all("Classifier") or () if one.startswith("License ::")]
    free = (metadata["License"] or "").strip().split("\n")[0][:60]
    return metadata["License-Expression"] or ", ".join(one.split(" :: ")[-1] for one in classified) or free or "none"


def tutorial() -> str:
    """runs the commands of the tutorial as a user of the wheel"""
    python, folder = find_python(), FOLDER / "tutorial"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def run(words: list[str]) -> tuple[int, str]:
        command = [str(python.with_name("tidefold")), *words]
        done = subprocess.run(
            command, cwd=folder, env=environment(python), text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout

    try:
        return f"{tutorial_page.play(folder, run)} commands print what the page shows"
    except AssertionError as error:
        raise ReleaseError(str(error)) from error


def golden() -> str:
    """makes the golden stores with the wheel, and reads them"""
    python, folder, makers = find_python(), FOLDER / "golden", FOLDER / "makers"
    shutil.rmtree(folder, ignore_errors=True)
    # Other folders of the tests have the names of packages, such as `airflow`.
    makers.mkdir(exist_ok=True)
    if not (makers / "golden").is_symlink():
        (makers / "golden").symlink_to(PROJECT / "tests/golden")
    made = environment(python) | {"PYTHONPATH": str(makers)}
    told = call(str(python), "-m", "golden", str(folder), cwd=FOLDER, env=made)
    # The wheel makes no archive that needs a broker or a database.
    tests = [str(PROJECT / f"tests/contract/operations/test_golden{one}.py") for one in ("", "_set", "_kinds")]
    read = call(sys.executable, "-m", "pytest", "-q", *tests, env={**os.environ, "TIDEFOLD_GOLDEN": str(folder)})
    lines = [line for line in told.splitlines() if ".tar.gz" in line]
    return "\n  ".join(["", *lines, _read_closing(read)])


def _read_closing(told: str) -> str:
    """Returns the last line of pytest. Raises ReleaseError if a test was skipped."""
    closing = told.strip().splitlines()[-1]
    if "skipped" in closing:
        raise ReleaseError(f"tests were skipped: {closing}")
    return closing


def airflow() -> str:
    """runs the wheel in an Airflow of its own, with a cluster and S3: `make test-package`"""
    env = {**os.environ, "TIDEFOLD_WHEEL": str(find_built(".whl"))}
    return _read_closing(call(sys.executable, "-m", "pytest", "-q", "tests/package", env=env))


STEPS: tuple[Callable[[], str], ...] = (
    build, describe, contents, notices, pythons, licences, tutorial, golden, airflow,
)  # fmt: skip


def take(step: Callable[[], str]) -> bool:
    """Runs a step, and prints what it does, what came of it, and its seconds. Returns whether it passed."""
    print(f"{step.__name__}: {step.__doc__}", flush=True)
    begun, used = time.monotonic(), _measure_cpu()
    try:
        told, passed = step(), True
    except ReleaseError as error:
        told, passed = f"FAILED: {error}", False
    seconds, cpu = time.monotonic() - begun, _measure_cpu() - used
    print(f"  {told.strip()}\n  {seconds:.0f} s, {cpu:.0f} CPU s", flush=True)
    return passed


def _measure_cpu() -> float:
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> int:
    """Takes the steps in order. The first that fails ends it."""
    wanted = os.environ.get("STEPS", "").split()
    if unknown := set(wanted) - {step.__name__ for step in STEPS}:
        print(f"There is no step {', '.join(unknown)}. Steps: {', '.join(step.__name__ for step in STEPS)}")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    return int(not all(take(step) for step in STEPS if not wanted or step.__name__ in wanted))


if __name__ == "__main__":
    sys.exit(main())
