"""The place where files land: tests that use it run on a disk and in S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.landing_places import DISK_ONLY, PLACES, mirror_landing


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "s3":
        mirror_landing(tmp_path, request.getfixturevalue("s3"), monkeypatch)
    return str(request.param)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{DISK_ONLY}: about links, folders or times of a disk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are about a disk have nothing to show in S3."""
    items[:] = [
        item
        for item in items
        if not (
            item.get_closest_marker(DISK_ONLY)
            and getattr(item, "callspec", None)
            and item.callspec.params.get("place") == "s3"  # type: ignore[attr-defined]
        )
    ]
