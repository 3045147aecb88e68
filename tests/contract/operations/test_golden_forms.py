"""Every stored form, field and kind is in a golden store, or is named here with its reason: I27, decision 0013."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from local_airflow.settings import PROJECT
from tidefold.changelog import schema
from tidefold.changelog.write_intents import Intent, Taking
from tidefold.domain.alarms import AlarmRecord
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import STORED_FORMAT
from tidefold.domain.plan import PlanRecord
from tidefold.domain.sets.set_state import SetState
from tidefold.domain.snapshot.manifest import Manifest, Savepoint
from tidefold.domain.source_progress import StreamPosition
from tidefold.domain.table import types
from tidefold.domain.table.table_spec import ORDER_WIDTH
from tidefold.domain.table.table_spec_validation import FUNCTIONS
from tidefold.domain.verify.proof_record import ProofRecord
from tidefold.quality.report.verdict_store import VerdictFile
from tidefold.sources.debezium.loaded_rows import LoadMark
from tidefold.storage.identity import StoreIdentity

ARCHIVES = sorted((PROJECT / "tests/data/golden").glob("*.tar.gz"))


@dataclasses.dataclass(frozen=True)
class Form:
    """What is stored below a path. kind: of its JSON; None: no JSON. within: the key of the value in it."""

    path: str
    kind: Any = None
    within: str = ""


_LEDGER = r"ledger/\d{10}\.json"
FORMS = {
    "store": Form(r"store/store\.json", StoreIdentity),
    "ledger": Form(rf"store/logs/\w+/{_LEDGER}", LogState, "state"),
    "ledger of a set": Form(rf"store/sets/\w+/{_LEDGER}", SetState, "state"),
    "page": Form(r"store/(logs|sets)/\w+/pages/.*\.json"),
    "manifest": Form(r"store/logs/\w+/snapshots/\d+/manifest", Manifest),
    "completion": Form(r"store/logs/\w+/snapshots/\d+/completed"),
    "verdict": Form(r"store/logs/\w+/quality/\d+/verdict-.*\.json", VerdictFile),
    "audit": Form(r"store/logs/\w+/quality/\d+/audit-.*\.json", VerdictFile),
    "report": Form(r"store/logs/\w+/quality/\d+/report-.*\.html"),
    "failed runs": Form(r"store/logs/\w+/alarms/\d+\.json", AlarmRecord),
    "proof": Form(r"store/logs/\w+/proofs/\d+\.json", ProofRecord),
    "groups of a comparison": Form(r"store/logs/\w+/proofs/source-\w+\.csv\.gz"),
    "refused records": Form(r"store/logs/\w+/quarantine/.*\.jsonl"),
    "plan": Form(r"store/plans/\w+/\w+/records/\d+\.json", PlanRecord),
    "segment": Form(r"store/changelog/\d.*\.seg"),
    "intent": Form(r"store/changelog/intents/\w+/\d+\.json", Intent),
    "arrivals": Form(r"store/changelog/intents/\w+/arrivals-\w+\.json", tuple[Taking, ...]),
    "commit": Form(r"store/tables/\w+/_delta_log/\d+\.json"),
    "deletion vector": Form(r"store/tables/\w+/_data/deletion_vector_.*\.bin"),
    "data file": Form(r"store/tables/\w+/_data/k.*\.parquet"),
    "mark of a ledger": Form(r"store/tables/\w+/_delta_log/_tidefold/.*"),
    "savepoint": Form(r"saved/\w+/savepoint\.json", Savepoint),
    "savepoint's table": Form(r"saved/\w+/_delta_log/0{20}\.json"),
    "landed records of a topic": Form(r"store/landed/\w+/.*\.jsonl\.zst"),
    "rows of a load": Form(r"store/landed/\w+/_load/\w{32}/\d+\.parquet"),
    "load": Form(r"store/landed/\w+/_load/\d+\.json", LoadMark),
    "load that began": Form(r"store/landed/\w+/_load/begun-\w+\.json", LoadMark),
    **{
        f"mark of a topic: {kind}": Form(rf"store/landed/\w+/_topic/{kind}\b.*\.json")
        for kind in ("id", "compacted", "first", "empty", "given-up", "hole")
    },
    "local copy": Form(r"local/[\w-]+/\w+/\d+/manifest"),
}
_MARKS = tuple(name for name in FORMS if name.startswith("mark of a topic"))
# The functions that store something, and what: forms, or in one text why no later version must read it.
WRITERS: Mapping[str, tuple[str, ...] | str] = {
    "changelog/write_intents.begin": ("intent",),
    "changelog/write_intents.bring": ("arrivals",),
    "delta/publish._write_vectors": ("deletion vector",),
    "delta/publish.put": ("deletion vector",),
    "delta/raw_commit._put": ("commit",),
    "fold/link_files._copy_from_store": ("data file",),
    "ledger/evidence.record_high_water_mark": ("mark of a ledger",),
    "ledger/ledger._mark": ("mark of a ledger",),
    "ledger/serialization._put": ("page",),
    "ledger/serialization.write_description": ("savepoint",),
    "ledger/serialization.write_manifest": ("manifest",),
    "ledger/state_ledger._put": ("ledger", "ledger of a set"),
    "operations/attest/proof._write_groups": ("groups of a comparison",),
    "operations/ground/heartbeat._write": "a hint while an attempt works; what cannot be read counts as no heartbeat",
    "operations/ground/numbered_record.write_record": ("failed runs", "plan", "proof"),
    "operations/ground/originals._check_ownable": "a probe, deleted at once",
    "operations/ingest/land_topic._land_partition": ("landed records of a topic",),
    "operations/ingest/land_topic._mark_begin": _MARKS,
    "operations/ingest/land_topic.accept_gaps": _MARKS,
    "operations/ingest/land_topic.land": _MARKS,
    "operations/ingest/load_files.finish": ("load",),
    "operations/ingest/load_files.note": ("load that began",),
    "operations/ingest/load_files.write": ("rows of a load",),
    "operations/ingest/parse._write_segment_on_host": ("segment",),
    "operations/publish/publish_log._describe_point": ("commit",),
    "operations/publish/publish_log.note_completion": ("completion",),
    "operations/quarantine/commit.commit_resolved": ("refused records",),
    "operations/restore/export._finish": "beside an exported table; no command reads it",
    "operations/restore/target_location.claim_location": "the mark of an export under way, which its end deletes",
    "operations/savepoint/take._write_savepoint": ("savepoint's table",),
    "operations/savepoint/take.begin": "the mark of a savepoint under way; `--overwrite-unfinished` needs no content",
    "quality/report/verdict_store.store_judgement": ("verdict", "audit"),
    "quality/report/verdict_store.store_report": ("report",),
    "quality/run/count_memory.keep": "only Spark writes counts; without readable ones the gate reads all rows",
    "sources/kafka/landed.put_empty": _MARKS,
    "sources/kafka/landed.put_mark": _MARKS,
    "sources/quarantine/writer.store": ("refused records",),
    "storage/identity._steps": "a probe, deleted at once",
    "storage/identity.ensure_identity": ("store",),
    "storage/identity.measure_skew": "a probe, deleted at once",
    "storage/local_copies/copies._copy_file": ("local copy",),
    "storage/local_copies/copies._write": ("local copy",),
    "storage/local_copies/host_copies._visit": "an empty mark on a host of a cluster; without it copies are made again",
    "storage/local_copies/host_copies.write_host": "a hint of a cluster's host; what cannot be read is left out",
    "storage/local_copies/roots.create": ("local copy",),
    "storage/local_copies/roots.link": ("local copy",),
    "storage/local_copies/roots.put_if_absent": ("local copy",),
}
# Fields that are empty in all golden stores, and kinds that none has, by the reason.
EMPTY = {
    "only a job of Spark writes it": "ProofRecord.readers ReaderProof.snapshot ReaderProof.instant ReaderProof.rows "
    "ReaderProof.files ReaderProof.hashed ReaderProof.error ReaderProof.hint CheckResult.taken_over CostPart.jobs "
    "ValidationResult.taken_over ValidationResult.counted_by",
    "only an object store has it, and makers write to a disk": "LandedFileRecord.etag Manifest.bytes_copied",
    "only a failing upload, or a damaged file, brings it": "UploadTotals.failures ProofRecord.damaged",
    "only a process that is killed between two commits leaves it": "DeletionState.going",
    "an alarm is sent to an address outside": "AlarmRecord.sent",
    "the default, which is stored as nothing": "RedistributionMode.split",
    "another word of an enumeration of which golden stores have words": "Deletes.ignore NameReading.kafka-dash "
    "Ownership.claim",
    "a plan of another edit; a plan that cannot be read is made again": "ColumnEdits.new ColumnEdits.dropped "
    "ColumnEdits.retyped Plan.gone Plan.lost Plan.refused Cut.late",
    "needs more than the one partition of the makers' topics": "ExpectedPosition.partition TopicReach.partition "
    "SetPoint.rank",
    "a plain value of a comparison that found other differences": "SourceProof.apart SourceProof.differ "
    "SourceProof.left_out SourceProof.moving SourceProof.not_there",
    "a plain count, flag, name or position of a record, beside others that golden stores have": "ChangeSet.floor "
    "ChangeSet.rows_before ColumnStatistics.categories ColumnStatistics.nulls Drill.bytes_local IngestedFile.more "
    "Intent.number LandedFileRecord.forgotten LandedFileRecord.key_changes LandedFileRecord.repeated "
    "LandedFileRecord.resent LandedFileRecord.unproved LandingProblem.fails LoadMark.start SavedFile.hidden "
    "Schema.found Schema.run Snapshot.unresolved Snapshot.unresolved_keys SourceProgress.followed_ttl "
    "StreamPosition.columns StreamPosition.connector_run StreamPosition.records_at_max "
    "StreamPosition.replayed_at_max TopicReach.left",
    "a retry of records that a restore had left out": "Taking.left_out",
}
# The words that stored values of this form have, and lists whose items have no names. `order` has its numbers, too.
WORDS = {
    "order": "arrival 1 mariadb 3 mongodb 2 mysql 3 oracle 1 position 0 postgresql 2 sqlserver 5 version 2",
    "type": "boolean int long float double string date timestamp binary decimal(p,s) array<type>",
    "function": "bool_and bool_or count first last list max min product sum",
    "_op": "0 1 2 3",
    "_column": " + = ?",
    "StreamPosition": "max_order records_at_max replayed_at_max max_commit_time connector_run columns signalled begun "
    "ended early replaced since",
    "Deletes": "apply ignore quarantine",
    "DeletionState": "no going gone",
    "Engine": "last first partial aggregate history append",
    "Layout": "native canonical",
    "NameReading": "kafka kafka-dash any dated",
    "Ownership": "no-claim claim legacy",
    "RedistributionMode": "split union broadcast",
    "SnapshotKind": "full incremental tail",
    "State": "ONGOING STAGED COMPLETED SUBSUMED DELETED ABORTED",
}
_WRITES = {"encode_form", "put_if_absent", "put_mark", "create"}


def list_writers() -> Iterator[str]:
    """Yields the functions of the package that store something, without the stores themselves."""
    package = PROJECT / "include/tidefold"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).with_suffix("").as_posix()
        is_store = name.startswith("storage/") and not name.startswith(("storage/identity", "storage/local_copies/"))
        for function in ast.walk(ast.parse(path.read_text())) if not is_store and "testing/" not in name else ():
            if isinstance(function, ast.FunctionDef) and any(map(_is_write, ast.walk(function))):
                yield f"{name}.{function.name}"


def _is_write(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not node.args:
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in _WRITES


def test_whatever_is_stored_has_a_form_or_a_reason() -> None:
    assert sorted(WRITERS) == sorted(set(list_writers()))
    named = {name for forms in WRITERS.values() if not isinstance(forms, str) for name in forms}
    assert named == set(FORMS)


def read_archives(pattern: str = "*") -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yields the files of all golden stores, each with what reads it."""
    for archive in (one for one in ARCHIVES if one.match(pattern)):
        with tarfile.open(archive) as packed:
            for member in packed:
                if member.isfile() or member.islnk():
                    yield member.name, lambda packed=packed, member=member: packed.extractfile(member).read()  # type: ignore


def test_each_form_is_in_a_golden_store() -> None:
    names = [name for name, _ in read_archives()]
    lacking = [form for form, one in FORMS.items() if not any(re.fullmatch(one.path, name) for name in names)]
    assert lacking == []


Members = dict[type, set[str]]


def list_fields(kind: Any) -> list[str]:
    """Returns the fields of a stored value, or the values of an enumeration."""
    if dataclasses.is_dataclass(kind):
        return [one.name for one in dataclasses.fields(kind)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [one.name for one in msgspec.structs.fields(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(one.value) for one in kind]
    return list(getattr(kind, "_fields", ()))


def list_kinds(kind: Any, kinds: set[type]) -> set[type]:
    """Adds all kinds of values that a kind is made of."""
    if kind in kinds:
        return kinds
    if list_fields(kind):
        kinds.add(kind)
        inner = [] if issubclass(kind, Enum) else [get_type_hints(kind)[name] for name in list_fields(kind)]
    else:
        inner = list(get_args(kind))
    for one in inner:
        list_kinds(one, kinds)
    return kinds


def collect(kind: Any, document: Any, members: Members) -> None:
    """Adds the fields that have something in a document: a field that is always empty shows nothing.

    Names that the program does not know are those of `object`, names that a document lacks those of `type`.
    """
    names = list_fields(kind)
    if names and issubclass(kind, Enum):
        members[kind].add(str(document))
    elif names and document is not None:
        hints = get_type_hints(kind)
        left = document[len(names) :] if isinstance(document, list) else document.keys() - names
        members[object] |= {f"{kind.__name__}.{one}" for one in left}
        lacking = names[len(document) :] if isinstance(document, list) else set(names) - document.keys()
        members[type] |= {f"{kind.__name__}.{one}" for one in lacking}
        pairs = zip(names, document, strict=False) if isinstance(document, list) else document.items()
        for name, value in pairs:
            if name in names and (value or list_fields(hints[name])):
                members[kind] |= {name} if value else set()
                collect(hints[name], value, members)
    elif document is not None:
        for inner, value in _list_items(kind, document):
            collect(inner, value, members)


def _list_items(kind: Any, document: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what a list, a mapping or a union has, each with its kind."""
    inner = [one for one in get_args(kind) if one not in (..., type(None))]
    if get_origin(kind) in (Union, UnionType):
        yield from ((one, document) for one in inner)
    elif isinstance(document, list) and inner:
        is_fixed = get_origin(kind) is tuple and ... not in get_args(kind)
        yield from zip(inner if is_fixed else inner[:1] * len(document), document, strict=True)
    elif isinstance(document, dict) and inner:
        yield from ((inner[-1], value) for value in document.values())


@pytest.fixture(scope="module")
def stored() -> Members:
    return collect_archives()


def collect_archives(pattern: str = "*") -> Members:
    """Returns what the golden stores have of each kind of value."""
    members: Members = defaultdict(set)
    for name, read in read_archives(pattern):
        for form in FORMS.values():
            if form.kind and re.fullmatch(form.path, name):
                document = json.loads(read())
                collect(form.kind, document[form.within] if form.within else document, members)
    return members


def test_each_stored_field_and_kind_has_something_in_a_golden_store(stored: Members) -> None:
    """If this fails, let a maker in `tests/golden` hold it, or name it in EMPTY with its reason (decision 0013)."""
    kinds = set[type]()
    for form in FORMS.values():
        list_kinds(form.kind, kinds)
    lacking = {f"{kind.__name__}.{name}" for kind in kinds for name in list_fields(kind) if name not in stored[kind]}
    excused = {name for names in EMPTY.values() for name in names.split()}
    assert sorted(lacking - excused) == []
    assert sorted(excused - lacking) == [], "a golden store has it now: take its name out"


def test_no_field_of_a_golden_store_is_passed_over(stored: Members) -> None:
    """A name that changed, or left the program, is read as if it had nothing, without an error. Keep the old one."""
    assert [one for one in stored[object] if one.partition(".")[2] not in ("format", "version", "checksum")] == []


def test_golden_stores_of_this_number_have_every_name() -> None:
    """A whole value is written with all its names. If one lacks some, raise STORED_FORMAT: its form is another one."""
    assert collect_archives(f"v{STORED_FORMAT}-*")[type] == set()


def test_stored_words_change_only_with_the_number_of_the_form() -> None:
    """If this fails, raise STORED_FORMAT (decision 0013): an older program does not refuse all of them by name."""
    kinds = set[type]()
    for form in FORMS.values():
        list_kinds(form.kind, kinds)
    words: dict[str, Iterable[object]] = {
        "order": (f"{name} {width}" for name, width in sorted(ORDER_WIDTH.items())),
        "type": types.DESCRIBED.split(", "),
        "function": sorted(FUNCTIONS),
        "_op": (schema.UPSERT, schema.DELETE, schema.CLEAR, schema.MERGE),
        "_column": (schema.GONE, schema.THERE, schema.SAME, schema.LEFT_OUT),
        "StreamPosition": StreamPosition._fields,
    }
    words |= {kind.__name__: list_fields(kind) for kind in kinds if issubclass(kind, Enum)}
    assert (7, {name: " ".join(map(str, listed)) for name, listed in words.items()}) == (STORED_FORMAT, WORDS)
