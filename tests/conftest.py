"""For all tests: no property depends on how fast the machine is; and an S3 for those that want one, one server for all
of them, one bucket for each.
"""

from __future__ import annotations

import functools
import uuid
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer.testing
from hypothesis import settings

from support import effort
from support.azure_server import AzureContainer, AzureServer, find_azurite
from support.gcs_server import GcsBucketOfTest, GcsServer, find_testbench
from support.landing_places import DiskBucket
from support.s3_server import ENVIRONMENT, FOREIGN, S3Bucket, S3Server
from support.sftp_server import SftpBucket, SftpServer, find_sshd

settings.register_profile("tidefold", deadline=None)
settings.load_profile("tidefold")

# A process builds its command line once; a runner would for each call, in 30 ms.
typer.testing._get_command = functools.cache(typer.testing._get_command)


_SERVERS = {"s3_server", "azure_server", "gcs_server", "sftp_server"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-servers", action="store_true", help="leave out tests that start a server of a store")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rotates(parts, whole=False): a commit plays one of so many parts of the cases, `make test-thorough` all; "
        "whole: all cases of the module, or none",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    others = set[pytest.Item]()
    if config.getoption("--without-servers"):
        others |= {item for item in items if _SERVERS & set(getattr(item, "fixturenames", ()))}
    # Who names one test gets it.
    if not effort.THOROUGH and not any("::" in argument for argument in config.args):
        others |= set(list_other_parts(items))
    config.hook.pytest_deselected(items=list(others))
    items[:] = [item for item in items if item not in others]


def list_other_parts(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yields the cases of rotating tests that another commit plays."""
    cases: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("rotates"):
            is_whole = mark.kwargs.get("whole", False)
            test = item.nodeid.partition("::" if is_whole else "[")[0]
            if (cases[test] + effort.rotate(mark.args[0], zlib.crc32(test.encode()))) % mark.args[0]:
                yield item
            cases[test] += not is_whole


@pytest.fixture
def disk(tmp_path: Path) -> DiskBucket:
    """An empty folder, with the verbs of a bucket."""
    return DiskBucket(tmp_path)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Bucket]:
    """An empty bucket, and the environment by which every library of this and of started processes finds it."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": s3_server.url}.items():
        monkeypatch.setenv(name, value)
    bucket = S3Bucket(s3_server, f"test-{uuid.uuid4().hex[:12]}")
    bucket.client.create_bucket(Bucket=bucket.name)
    s3_server.heal()
    yield bucket
    s3_server.heal()


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    program = find_azurite()
    if program is None:
        pytest.skip("There is no Azurite: `npm install azurite`, then name its `azurite-blob` in AZURITE.")
    server = AzureServer(program)
    yield server
    server.stop()


@pytest.fixture
def azure_landing(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> AzureContainer:
    """A new container, and the environment by which obstore and deltalake find it."""
    for name, value in azure_server.environment.items():
        monkeypatch.setenv(name, value)
    return azure_server.make_container()


@pytest.fixture
def azure(azure_landing: AzureContainer) -> str:
    """The address of a folder in a new container, and the environment by which obstore and deltalake find it."""
    return azure_landing.address


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    python = find_testbench()
    if python is None:
        pytest.skip("There is no storage-testbench: name the Python that has Google's in GCS_TESTBENCH.")
    server = GcsServer(python)
    yield server
    server.stop()


@pytest.fixture
def gcs(gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch) -> GcsBucketOfTest:
    """A new bucket, and the environment by which tidefold finds it."""
    for name, value in gcs_server.environment.items():
        monkeypatch.setenv(name, value)
    return gcs_server.make_bucket()


@pytest.fixture(scope="session")
def sftp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SftpServer]:
    pytest.importorskip("paramiko", reason="There is no paramiko.")
    if not find_sshd():
        pytest.skip("There is no sshd: install Debian's openssh-server.")
    server = SftpServer.make(tmp_path_factory.mktemp("sftp"))
    yield server
    server.cut()


@pytest.fixture
def sftp(sftp_server: SftpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SftpBucket:
    """An empty folder of the server, and the settings by which fsspec reads it."""
    fsspec_folder = pytest.importorskip("tidefold.sources.landing.fsspec_folder")
    monkeypatch.setenv("HOME", str(sftp_server.folder))
    monkeypatch.setitem(fsspec_folder.conf, "sftp", sftp_server.options)
    return SftpBucket(tmp_path, sftp_server.port)
