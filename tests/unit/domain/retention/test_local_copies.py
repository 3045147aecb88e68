"""Names of local copies and which of them stay; requirements L3, L4, C7, promise I18."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.builders import appended, manifest_of, new_log, verdict_for
from tidefold.domain.log_state import LogState, SnapshotKind
from tidefold.domain.retention.local_copies import CopyName, segment_of, segments_needed, stays
from tidefold.domain.snapshot import claim, transitions
from tidefold.storage.local_copies.copies import open_local


def claimed(state: LogState, run: str) -> LogState:
    return claim.claim(appended(state), claim.Claim(run, "r", SnapshotKind.FULL, "2026"))


def completed(state: LogState, run: str) -> LogState:
    state = claimed(state, run)
    attempt = state.open_attempt
    assert attempt
    state = transitions.stage(state, manifest_of(state, attempt), f"digest-{attempt.id}")
    assert state.open_attempt
    state = transitions.record_verdict(state, attempt.id, verdict_for(state.open_attempt))
    return transitions.record_publication(transitions.confirm(state, attempt.id), attempt.id, attempt.id)


@pytest.mark.parametrize("ongoing", [False, True])
def test_a_name_is_built_and_parsed_by_one_type(ongoing: bool) -> None:
    name = CopyName("accounts", 12, ongoing)
    for file in ("manifest", "_data/k00000-00007.parquet", "_delta_log/0.json", "manifest.0f.part"):
        assert CopyName.of(f"{name}/{file}") == name
    assert (str(name) == str(CopyName("accounts", 12))) is not ongoing


@pytest.mark.parametrize(
    "path",
    [
        "accounts/0000000012",
        "accounts/12/manifest",
        "accounts/0000000012.old/manifest",
        "accounts/0000000012.ongoing2/manifest",
        "Accounts/0000000012/manifest",
        "notes.txt",
        "accounts/notes.txt",
        "changelog/2026-11-21/0a.seg",
        "accounts/../0000000012/manifest",
    ],
)
def test_what_is_no_copy_has_no_name(path: str) -> None:
    assert CopyName.of(path) is None


@pytest.mark.parametrize(
    ("path", "segment"),
    [
        ("changelog/2026-11-21/0a.seg", "changelog/2026-11-21/0a.seg"),
        ("changelog/2026-11-21/0a.seg.9f.part", "changelog/2026-11-21/0a.seg"),
        ("changelog/2026-11-21/0a.txt", None),
        ("accounts/0000000012/0a.seg", None),
        # A log may have that name; its copies are no segments.
        ("changelog/0000000012/_data/0a.seg", None),
        ("changelog/0000000012/manifest", None),
    ],
)
def test_a_segment_s_copy_has_the_segment_s_name(path: str, segment: str | None) -> None:
    assert segment_of(path) == segment


def kept(state: LogState | None, ongoing: bool = False) -> list[int]:
    return [i for i in range(1, 9) if stays(state, CopyName("accounts", i, ongoing))]


def test_the_newest_completed_one_stays_and_nothing_else() -> None:
    """I18."""
    state = completed(completed(completed(new_log(), "a"), "b"), "c")
    assert (kept(state), kept(state, ongoing=True)) == ([3], [])
    assert kept(None) == kept(new_log()) == []


def test_an_open_one_stays_beside_it_until_it_is_decided() -> None:
    """L4: complete or still being written; an aborted one goes."""
    state = claimed(completed(new_log(), "a"), "b")
    assert (kept(state), kept(state, ongoing=True)) == ([1, 2], [2])
    aborted = transitions.abort(state, 2, "made to")
    assert (kept(aborted), kept(aborted, ongoing=True)) == ([1], [])


def test_segments_are_needed_until_they_are_folded() -> None:
    state = appended(new_log())
    first = state.change_sets[0].location.segment
    assert segments_needed(state) == {first}
    state = completed(new_log(), "a")
    assert segments_needed(state) == frozenset()
    state = appended(state)
    assert segments_needed(state) == {state.change_sets[-1].location.segment}
    # What an open attempt folds is not folded before it is completed.
    assert segments_needed(claimed(state, "b")) >= {state.change_sets[-1].location.segment}


def test_pipelines_of_like_named_stores_have_folders_of_their_own(tmp_path: Path) -> None:
    """L3."""
    addresses = ["/a/store", "/b/store", "s3://bucket/store", "s3://store", f"/{'x' * 240}"]
    roots = {open_local(tmp_path, address).root for address in addresses}
    assert len(roots) == len(addresses)
    assert all(root.parent == tmp_path.resolve() and len(root.name) < 120 for root in roots)
    assert all(root.name.split("-")[0] in ("store", "x" * 100) for root in roots)
