"""scrub: over enough runs every byte is read; damage is repaired or is an alarm with the command that mends it.

Promises I11, I16, I22; requirement L1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from support.counted import CountedStore
from support.faults import Fault, FaultyStore
from support.local_copies import cycle, disk, grown, land, make, stage, take
from support.pipelines import CONFIG, make_pipeline, put
from support.s3_server import S3Bucket
from tidefold.domain.paths import LogPaths, record_path
from tidefold.domain.verify.proof_record import ProofRecord, ScrubBudget
from tidefold.errors import CorruptError
from tidefold.ledger import read_manifest
from tidefold.operations.ground.outcome import Outcome
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.retention.clean import drop
from tidefold.operations.verify.scope import find_proof, write_proof
from tidefold.operations.verify.scrub import scrub
from tidefold.operations.verify.verify import VerifyRequest, verify
from tidefold.storage.local_store import LocalStore

LOG = "items"
PATHS = LogPaths(LOG)
ONE_FILE = ScrubBudget(bytes=1)
EVERYTHING = ScrubBudget(share=1)


class WatchedStore(LocalStore):
    """Remembers which files were opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        self.opened.append(path)
        with super().open(path) as stream:
            yield stream


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Two snapshots of `items` with local copies; the change sets after the second wait to be folded."""
    made = grown(make(tmp_path), 2)
    land(made, 90, 5)
    take(made)
    return made


def watched(pipeline: Pipeline) -> tuple[Pipeline, WatchedStore]:
    store = WatchedStore(Path(pipeline.store.uri("")))
    return replace(pipeline, store=store), store


def data_files(pipeline: Pipeline) -> set[str]:
    state = pipeline.ledger(LOG).read()
    kept = [s for s in state.snapshots if s.manifest]
    return {f.name for s in kept for f in read_manifest(pipeline.store, LOG, s).files}


def segments(pipeline: Pipeline) -> set[str]:
    return {c.location.segment for c in pipeline.ledger(LOG).read().change_sets}


def to_the_end(pipeline: Pipeline, budget: ScrubBudget = ONE_FILE) -> list[Outcome]:
    """Runs until the round ends."""
    outcomes = [scrub(pipeline, LOG, budget)]
    while not outcomes[-1].facts["round_ended"]:
        outcomes.append(scrub(pipeline, LOG, budget))
    return outcomes


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.unlink()
    path.write_bytes(data)


def local_file(pipeline: Pipeline, name: str) -> Path:
    return next(p for p in Path(disk(pipeline).uri("")).rglob(name))


def test_every_file_and_every_segment_is_read_in_one_round_each_once(pipeline: Pipeline) -> None:
    seen, store = watched(pipeline)
    outcomes = to_the_end(seen)
    expected = data_files(pipeline) | segments(pipeline)
    assert len(outcomes) == len(expected) > 4
    read = [p for p in store.opened if p in segments(pipeline) or p.rpartition("/")[2] in data_files(pipeline)]
    assert {p if p in segments(pipeline) else p.rpartition("/")[2] for p in read} == expected
    assert [o.status for o in outcomes] == ["whole"] * len(outcomes)
    proof = find_proof(pipeline.store, LOG)
    assert proof
    assert (proof.by, proof.share, proof.position, proof.files) == ("scrub", 1.0, "", len(expected))
    assert proof.proved == proof.instant


def test_a_run_reads_its_share_and_continues_where_the_last_one_stopped(pipeline: Pipeline) -> None:
    shares = [outcome.facts["round_share"] for outcome in to_the_end(pipeline, ScrubBudget(share=0.25))]
    assert 2 <= len(shares) <= 4
    assert shares == sorted(set(shares))
    assert shares[-1] == 1


def test_damage_is_found_by_the_end_of_the_round_and_repaired_from_the_other_copy(pipeline: Pipeline) -> None:
    name = sorted(data_files(pipeline))[0]
    spoilt = local_file(pipeline, name)
    right = spoilt.read_bytes()
    flip(spoilt)
    assert {o.status for o in to_the_end(pipeline)} == {"whole", "repaired"}
    assert spoilt.read_bytes() == right
    assert verify(pipeline, LOG).status == "whole"


def test_what_is_missing_is_found_by_the_next_run_whatever_it_reads(pipeline: Pipeline) -> None:
    for path in segments(pipeline):
        disk(pipeline).delete([path])
    lost = sorted(data_files(pipeline))[-1]
    copies = [p for root in (pipeline.store, disk(pipeline)) for p in Path(root.uri("")).rglob(lost)]
    for path in copies:
        path.unlink()
    found = scrub(pipeline, LOG, ONE_FILE)
    assert (found.status, found.error_code, found.error and found.error.exit_code) == ("damaged", "DAMAGED", 5)
    assert {Path(a["file"].removeprefix("local:")).name for a in found.facts["alarms"]} == {lost}


def test_an_alarm_names_the_file_what_it_means_and_the_command_and_lasts_until_it_is_mended(pipeline: Pipeline) -> None:
    """Runs after that one read the damaged file again, whatever their share is."""
    change_set = pipeline.ledger(LOG).read().change_sets[0]
    segment, path = change_set.location.segment, Path(pipeline.store.uri(change_set.location.segment))
    right = path.read_bytes()
    flip(path, change_set.location.offset)
    disk(pipeline).delete([segment])
    while not (found := scrub(pipeline, LOG, ONE_FILE)).error:
        assert not found.facts["round_ended"]
    [alarm] = found.facts["alarms"]
    assert alarm["file"] == segment
    assert alarm["harm"].startswith("segment ")
    assert "cannot read them" in alarm["means"]
    assert "backup" in alarm["command"]
    assert found.message.startswith(f"ALARM, {alarm['harm']}: {segment}. It means: ")
    for _ in range(3):
        assert scrub(pipeline, LOG, ONE_FILE).error_code == "DAMAGED"
    path.write_bytes(right)
    assert scrub(pipeline, LOG, ONE_FILE).error is None
    proof = find_proof(pipeline.store, LOG)
    assert proof
    assert proof.damaged == ()


def test_without_repair_nothing_is_written_but_the_record(pipeline: Pipeline) -> None:
    spoilt = local_file(pipeline, sorted(data_files(pipeline))[0])
    flip(spoilt)
    altered = spoilt.read_bytes()
    found = scrub(pipeline, LOG, EVERYTHING, repair=False)
    assert (found.error_code, spoilt.read_bytes()) == ("DAMAGED", altered)
    [alarm] = found.facts["alarms"]
    assert alarm["means"] == "restores read the store instead of this local copy"
    assert "--repair" in alarm["command"]


@pytest.mark.parametrize("part", ["ledger", "pages"])
def test_a_damaged_ledger_or_page_is_an_alarm_that_names_rebuild(tmp_path: Path, part: str) -> None:
    made = make_pipeline(tmp_path)
    for number in range(40 if part == "pages" else 1):
        put(made, [{"id": number}])
    path = sorted((tmp_path / "store/logs/accounts" / part).rglob("*.json"))[-1]
    flip(path)
    fresh = make_pipeline(tmp_path)
    found = scrub(fresh, "accounts")
    assert (found.status, found.error and found.error.exit_code) == ("damaged", CorruptError.exit_code)
    [alarm] = found.facts["alarms"]
    assert "`tidefold move rebuild accounts`" in alarm["command"]
    assert path.name in found.message


def test_an_idle_run_makes_no_request_for_the_record(pipeline: Pipeline) -> None:
    """It is a file of its own: `run` reads and lists the same whether the log was scrubbed or not."""

    def idle() -> Counter[str]:
        counts: Counter[str] = Counter()
        counted = CountedStore(Path(pipeline.store.uri("")), counts)
        fresh = replace(pipeline, store=counted, pages={}, compared={})
        assert {o.status for o in (*take(fresh, [LOG]), stage(fresh, "idle"))} == {"nothing"}
        return counts

    cycle(pipeline, "last", [LOG])
    before = idle()
    to_the_end(pipeline)
    assert idle() == before


def test_the_record_is_replaced_and_removed_with_the_log(pipeline: Pipeline) -> None:
    for _ in range(3):
        scrub(pipeline, LOG, ONE_FILE)
    assert [e.path for e in pipeline.store.list(PATHS.proofs)] == [record_path(PATHS.proofs, 3)]
    drop(pipeline, LOG, plan=False)
    assert pipeline.store.list(PATHS.proofs) == []
    assert scrub(pipeline, LOG).status == "nothing"
    assert pipeline.store.list(PATHS.proofs) == []


@pytest.mark.parametrize("data", [b"", b"{", b'{"number": "x"}', b'{"number": 7}'])
def test_a_damaged_record_only_begins_the_round_again(pipeline: Pipeline, data: bytes) -> None:
    scrub(pipeline, LOG, ONE_FILE)
    path = Path(pipeline.store.uri(record_path(PATHS.proofs, 1)))
    path.write_bytes(data)
    assert find_proof(pipeline.store, LOG) == ProofRecord(1)
    assert scrub(pipeline, LOG, EVERYTHING).facts["round_ended"]


def test_a_record_with_fields_of_a_newer_program_is_read(pipeline: Pipeline) -> None:
    pipeline.store.put_if_absent(
        record_path(PATHS.proofs, 4), b'{"format": 7, "number": 4, "by": "scrub", "later": {"x": 1}}'
    )
    assert find_proof(pipeline.store, LOG) == ProofRecord(4, by="scrub")


def test_of_two_scrubs_at_once_both_tell_what_they_found_and_one_is_recorded(pipeline: Pipeline) -> None:
    late = find_proof(pipeline.store, LOG) or ProofRecord()
    scrub(pipeline, LOG, ONE_FILE)
    assert "another process" in write_proof(pipeline.store, LOG, lambda newest: replace(late, number=1))
    proof = find_proof(pipeline.store, LOG)
    assert proof
    assert proof.position


def test_a_store_that_cannot_be_written_is_a_warning_and_no_damage(pipeline: Pipeline) -> None:
    broken = FaultyStore(Path(pipeline.store.uri("")), 0, Fault.ERROR_BEFORE, for_ever=True)
    found = scrub(replace(pipeline, store=broken), LOG, ONE_FILE)
    assert (found.status, found.error) == ("whole", None)
    assert "could not be written" in found.facts["warnings"][0]


def test_verify_that_read_everything_is_recorded_if_asked(pipeline: Pipeline) -> None:
    verify(pipeline, LOG, VerifyRequest(deep=False, record=True))
    verify(pipeline, LOG, VerifyRequest(snapshot=1, record=True))
    verify(pipeline, LOG)
    assert find_proof(pipeline.store, LOG) is None
    verify(pipeline, LOG, VerifyRequest(record=True))
    proof = find_proof(pipeline.store, LOG)
    assert proof
    assert (proof.by, proof.share, proof.damaged) == ("verify", 1.0, ())
    assert proof.proved == proof.instant


def test_in_s3_which_replaces_nothing_records_follow_each_other(s3: S3Bucket, tmp_path: Path) -> None:
    made = make_pipeline(tmp_path, CONFIG.replace("store: store\n", f"store: {s3.address}\n"))
    put(made, [{"id": i} for i in range(5)])
    for number in (1, 2, 3):
        outcome = scrub(made, "accounts", ONE_FILE)
        assert (outcome.status, outcome.facts["warnings"]) == ("whole", [])
        assert [e.path for e in made.store.list(LogPaths("accounts").proofs)] == [
            record_path(LogPaths("accounts").proofs, number)
        ]
