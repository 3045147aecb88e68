"""The behaviour suites of tidefold's storage and sources, for packages that bring one of their own. They need pytest.

A package derives a test class from a contract, and pytest runs the tests of the contract against its own.
"""

import pytest

pytest.register_assert_rewrite("tidefold.testing.storage_contracts", "tidefold.testing.source_contract")

from tidefold.testing.source_contract import SourceContract  # noqa: E402 (asserts must be rewritten first)
from tidefold.testing.storage_contracts import (  # noqa: E402 (asserts must be rewritten first)
    ChangelogStorageContract,
    SnapshotStorageContract,
    StoreContract,
)

__all__ = ["ChangelogStorageContract", "SnapshotStorageContract", "SourceContract", "StoreContract"]
