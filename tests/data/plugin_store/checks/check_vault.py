"""What the third party runs to prove its store."""

import pytest

from tidefold.testing import SnapshotStorageContract


class TestVault(SnapshotStorageContract):
    @pytest.fixture
    def address(self, tmp_path):
        return f"vault://{tmp_path / 'vault'}"
