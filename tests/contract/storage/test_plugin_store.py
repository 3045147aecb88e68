"""A store of an installed package: found by its identifier, proved by `tidefold.testing`, used by a pipeline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tidefold.config import ConfigError, load_config
from tidefold.errors import InvalidInputError
from tidefold.storage import open_store
from tidefold.storage.addresses import find_schemes, open_plugin

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "tests/data/plugin_store"
CONFIG = "version: 1\nstore: {store}\nlogs: {{a: {{order: arrival, key: [id], columns: {{id: int}}}}}}\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution of the third party, built and unpacked as an installer does."""
    built, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for file in PACKAGE.glob("*.*"):
        (source / file.name).write_bytes(file.read_bytes())
    call = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(source)]
    subprocess.run(call, check=True, capture_output=True)
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def vault(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(installed))
    return installed


def check(site: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Runs the checks of the third party in a process of its own, with nothing of tidefold's tests."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT / "include")])}
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    call += ["--basetemp", str(folder / "base"), str(PACKAGE / "checks/check_vault.py"), *words]
    done = subprocess.run(call, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.rotates(3)
def test_the_package_of_a_third_party_passes_the_suite(installed: Path, tmp_path: Path) -> None:
    code, said = check(installed, tmp_path)
    assert code == 0, said
    assert " passed" in said


def test_a_store_without_a_conditional_put_fails_the_suite(installed: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(installed, broken)
    code = broken / "tidefold_vault.py"
    code.write_text(code.read_text().replace("os.link(part, full)", "os.replace(part, full)"))
    _, said = check(broken, tmp_path, "-k", "taken_name or writers")
    assert "FAILED" in said
    for name in ("a_taken_name_is_refused_and_keeps_its_bytes", "of_many_writers_of_a_name_exactly_one_wins"):
        assert f"test_{name}" in said


def test_a_configuration_names_the_store_by_its_identifier(vault: Path, tmp_path: Path) -> None:
    assert find_schemes() == ("vault",)
    store = open_store(f"vault://{tmp_path}/v", Path("/"))
    assert type(store).__module__ == "tidefold_vault"
    (tmp_path / "tidefold.yaml").write_text(CONFIG.format(store=f"vault://{tmp_path}/v"))
    assert load_config(tmp_path / "tidefold.yaml").store == f"vault://{tmp_path}/v"


def test_an_unknown_identifier_names_the_known_ones(vault: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as refused:
        open_store("valut:///x", tmp_path)
    assert refused.value.code == "STORE_SCHEME"
    assert all(known in refused.value.hint for known in ("a path", "s3://", "`vault://...`"))
    (tmp_path / "tidefold.yaml").write_text(CONFIG.format(store="valut:///x"))
    with pytest.raises(ConfigError) as wrong:
        load_config(tmp_path / "tidefold.yaml")
    assert "vault://..." in str(wrong.value.problems[0].hint)


def test_two_packages_of_one_identifier_are_refused(
    vault: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "other_vault-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-vault\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text("[tidefold.stores]\nvault = absent:Store\nbroken = absent:Store\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidInputError, match="other-vault, tidefold-vault") as refused:
        open_plugin("vault", "vault:///x")
    assert refused.value.code == "STORE_PLUGIN"
    with pytest.raises(InvalidInputError, match="other-vault cannot be loaded") as refused:
        open_plugin("broken", "broken:///x")
    assert refused.value.code == "STORE_PLUGIN"


def test_a_package_cannot_replace_a_built_in_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "thief-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: thief\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tidefold.stores]\ns3 = absent_module:Store\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_schemes() == ()
    assert type(open_store("s3://bucket/x", tmp_path)).__name__ == "CloudStore"
