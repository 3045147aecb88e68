"""The protocol of a Delta table, as the specification of Delta has it for deletion vectors and change data feeds."""

from __future__ import annotations

import pytest

from tidefold.delta.raw_commit import TableProtocol


@pytest.mark.parametrize(
    ("protocol", "versions", "readers", "writers"),
    [
        (TableProtocol(), (1, 2), [], []),
        (TableProtocol(feed=True), (1, 7), [], ["changeDataFeed", "appendOnly", "invariants"]),
        (TableProtocol(vectors=True), (3, 7), ["deletionVectors"], ["deletionVectors", "appendOnly", "invariants"]),
        (
            TableProtocol(vectors=True, feed=True),
            (3, 7),
            ["deletionVectors"],
            ["deletionVectors", "changeDataFeed", "appendOnly", "invariants"],
        ),
    ],
)
def test_features_are_listed_from_writer_version_7_on(
    protocol: TableProtocol, versions: tuple[int, int], readers: list[str], writers: list[str]
) -> None:
    assert (protocol.versions, protocol.reader_features, protocol.writer_features) == (versions, readers, writers)
    lists = {"readerFeatures": readers, "writerFeatures": writers}
    stored = {name: features for name, features in lists.items() if features}
    assert protocol.action == {"minReaderVersion": versions[0], "minWriterVersion": versions[1], **stored}
