"""The place where files land: tests that use it run on a disk and in each object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.landing_places import DISK_ONLY, OBJECT_STORES, PLACES, mirror_landing


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param in OBJECT_STORES:
        mirror_landing(tmp_path, request.getfixturevalue(request.param), monkeypatch)
    return str(request.param)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{DISK_ONLY}: about links, folders or times of a disk")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are about a disk have nothing to show in an object store."""
    items[:] = [
        item
        for item in items
        if not (
            item.get_closest_marker(DISK_ONLY)
            and getattr(item, "callspec", None)
            and item.callspec.params.get("place") in OBJECT_STORES  # type: ignore[attr-defined]
        )
    ]
