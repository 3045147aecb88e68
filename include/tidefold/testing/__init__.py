"""The behaviour suites of tidefold's storage, for packages that bring a store of their own. They need pytest.

A package derives a test class from a contract, and pytest runs the tests of the contract against its store.
"""

import pytest

pytest.register_assert_rewrite("tidefold.testing.storage_contracts")

from tidefold.testing.storage_contracts import (  # noqa: E402 (asserts must be rewritten first)
    ChangelogStorageContract,
    SnapshotStorageContract,
    StoreContract,
)

__all__ = ["ChangelogStorageContract", "SnapshotStorageContract", "StoreContract"]
