"""Checks the store, the landing folders, the suites, retention and alarms of a configuration.

Writes scratch objects to the store, and deletes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tidefold.config import Config, LogConfig
from tidefold.config.models.kafka import KafkaEntry
from tidefold.domain.log_state import LogState
from tidefold.domain.paths import LedgerPaths
from tidefold.domain.snapshot.select_kind import MARKED_SHARE
from tidefold.domain.wording import count_noun, format_age, in_units
from tidefold.errors import NotFoundError, RefusedError, TidefoldError
from tidefold.ledger import Ledger, SetLedger
from tidefold.operations.doctor.finding import DoctorFinding, FindingLevel
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.land_topic import TopicLanding, list_topics
from tidefold.operations.quality.suites import find_suite_errors
from tidefold.sources.database.connection import Database
from tidefold.sources.database.slot import find_slot
from tidefold.sources.debezium.loaded_rows import read_marks
from tidefold.sources.landing.folders import folder_at
from tidefold.sources.landing.landing_place import Stamp
from tidefold.storage import Store, open_store
from tidefold.storage.identity import measure_skew, probe, read_identity, require_identity

# The most files to check in one folder, so that the doctor ends in time.
MOST_FILES = 20_000
OK, WARN, FAIL = FindingLevel.OK, FindingLevel.WARN, FindingLevel.FAIL
_LISTED = 3
_WAIT_SECONDS = 86_400
# Less than this is not worth a setting.
_REWRITTEN_BYTES = 64 << 20
# With this difference, ages and `ttl` are wrong. S3 refuses requests from 15 minutes on.
_SKEW_SECONDS = (60, 900)


def check_store(config: Config) -> Iterator[DoctorFinding]:
    """Writes, reads, lists, copies and deletes scratch objects. Does not create a missing store."""
    store = open_store(config.store, config.path.parent)
    try:
        if config.store_id:
            require_identity(store, config.store_id)
        elif missing := _find_missing_folder(store.address):
            _require_writable(missing)
            yield DoctorFinding("store", OK, f"{store.address} does not exist yet: the first run creates it.")
            return
        done, store_id = probe(store), read_identity(store)
    except TidefoldError as error:
        hint = error.hint or "Run doctor again. If the error stays, check the store."
        yield DoctorFinding("store", FAIL, f"[{error.code}] {error.message}", hint)
        return
    yield DoctorFinding("store", OK, f"{store.address} passed: {', '.join(done)}.")
    if store.address.startswith(("s3://", "gs://")):
        message = "No listing shows the parts of killed uploads. A rule of the bucket deletes them"
        yield DoctorFinding("store", OK, f"{message} (AbortIncompleteMultipartUpload).")
    if store_id and not config.store_id:
        message = "The configuration has no `store_id`, so tidefold cannot notice an empty store or another one."
        yield DoctorFinding("store", WARN, message, f"Add the line `store_id: {store_id}`.")


def _find_missing_folder(address: str) -> Path | None:
    """Returns the folder of a local store if it does not exist."""
    folder = Path(address)
    return folder if folder.is_absolute() and not folder.exists() else None


def _require_writable(folder: Path) -> None:
    above = next(parent for parent in folder.parents if parent.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        message = f"The store {folder} cannot be created: {above} is not writable."
        raise RefusedError("STORE_NOT_WRITABLE", message, hint=f"Give this user the right to write {above}.")


def check_clock(config: Config) -> Iterator[DoctorFinding]:
    """Writes a scratch object, and compares the time that the store gives it with this machine's."""
    store = open_store(config.store, config.path.parent)
    try:
        skew = None if _find_missing_folder(store.address) else measure_skew(store)
    except TidefoldError as error:
        message = f"The clock of the store could not be read: [{error.code}] {error.message}"
        yield DoctorFinding("clock", WARN, message, error.hint or "Mend the store first.")
        return
    if skew is None:
        yield DoctorFinding("clock", OK, "The store reports no time, or does not exist yet.")
    elif abs(skew) < _SKEW_SECONDS[0]:
        yield DoctorFinding("clock", OK, "The clocks of the store and of this machine agree.")
    else:
        way = "ahead of" if skew > 0 else "behind"
        message = f"The clock of the store is {abs(skew):,.0f} s {way} this machine's."
        level = FAIL if abs(skew) >= _SKEW_SECONDS[1] else WARN
        yield DoctorFinding("clock", level, message, "Synchronize both clocks (`chronyc tracking`, `timedatectl`).")


def check_landing(config: Config) -> Iterator[DoctorFinding]:
    """Lists the landing folder of each log that has one: are all files readable regular files? Reads no file."""
    pipeline, counts = Pipeline(config, open_store(config.store, config.path.parent)), list[int]()
    for paths, topic, _ in list_topics(pipeline, list(config.logs)):
        yield _check_topic(pipeline, paths, topic)
    for log in config.logs.values():
        if log.landing and not log.topic:
            yield from _check_folder(log.id, log.landing, counts)
    if counts:
        partly = " (there are more)" if max(counts) > MOST_FILES else ""
        files = count_noun(sum(min(count, MOST_FILES) for count in counts), "file")
        yield DoctorFinding("landing", OK, f"{count_noun(len(counts), 'folder')}, {files} checked{partly}.")


def check_slots(config: Config) -> Iterator[DoctorFinding]:
    """Finds slots that a load made and no connector reads: the server keeps its log for them."""
    for log in config.logs.values():
        if log.can_load:
            yield from _check_slots(log)


def _check_slots(log: LogConfig) -> Iterator[DoctorFinding]:
    begun, loads = read_marks(log.loaded, begun=True), read_marks(log.loaded)
    for mark in {one.slot: one for one in (*loads, *begun) if one.slot}.values():
        left = f"{log.id}: slot `{mark.slot}` at connection `{mark.connection}`"
        ending = f"--connection {mark.connection} --slot {mark.slot} --drop-slot`"
        hint = f"Start its connector. If the load broke off: `tidefold source load {log.id} {ending}."
        try:
            with Database.find(mark.connection).begin() as reader:
                slot = find_slot(reader, mark.slot)
        except TidefoldError as error:
            if mark in begun:
                yield DoctorFinding("slots", WARN, f"{left} may be left by a load: [{error.code}].", hint)
            continue
        if slot and not slot.active:
            yield DoctorFinding("slots", WARN, f"{left} {slot.told}, and no connector reads it.", hint)


def _check_topic(pipeline: Pipeline, paths: LedgerPaths, entry: KafkaEntry) -> DoctorFinding:
    log = paths.landed.partition("/")[2]
    try:
        reaches = TopicLanding(pipeline, paths, entry).check()
    except TidefoldError as error:
        level, hint = FAIL, error.hint
        if error.code == "KAFKA_TOPIC_MISSING":  # A connector makes its topics with their first records.
            level, hint = WARN, f"Start its connector, if it never ran. {hint}"
        return DoctorFinding("landing", level, f"{log}: [{error.code}] {error.message}", hint)
    held = f"{count_noun(len(reaches), 'partition')} with {sum(one.end - one.first for one in reaches):,} offsets"
    schemas = ", and its registry answers" if entry.registry else ""
    return DoctorFinding("landing", OK, f"{log}: topic `{entry.topic}` answers: {held}{schemas}.")


def _check_folder(log: str, address: str, counts: list[int]) -> Iterator[DoctorFinding]:
    """Adds the number of files if nothing is wrong; of more than MOST_FILES one more."""
    unsafe, files, is_remote = list[str](), 0, "://" in address
    why, hint = "", f"Give this user the right to read and enter {address} and all files below it."
    try:
        for file in islice(folder_at(address).list_files(), MOST_FILES + 1):
            files += 1
            if file.unsafe:
                unsafe.append(f"`{file.name}` is {file.unsafe.kind}")
            elif not is_remote and not os.access(f"{address}/{file.name}", os.R_OK):
                why = f"`{file.name}` is not readable."
                break
    except NotFoundError as error:
        if is_remote or not Path(address).exists():
            hint = error.hint if is_remote else "Create the folder, mount its disk, or correct `path` of the log."
            yield DoctorFinding("landing", WARN, f"{log}: {address} does not exist: nothing can land.", hint)
            return
        why = "it is not a folder."
    except TidefoldError as error:
        why, hint = error.message, error.hint if is_remote else hint
    if why:
        yield DoctorFinding("landing", FAIL, f"{log}: {address} cannot be read: {why}", hint)
    elif unsafe:
        more = f", and {len(unsafe) - _LISTED:,} more" if len(unsafe) > _LISTED else ""
        message = f"{log}: {address}: {', '.join(unsafe[:_LISTED])}{more}; these are not ingested."
        yield DoctorFinding("landing", FAIL, message, "Land the files themselves: tidefold follows no links.")
    else:
        counts.append(files)


def check_waiting_files(config: Config) -> Iterator[DoctorFinding]:
    """Compares the landing folder of each log with its ledger, and the ledger with the table. Writes nothing."""
    store, is_good = open_store(config.store, config.path.parent), True
    for log in () if _find_missing_folder(store.address) else config.logs.values():
        for finding in _check_log(store, config, log) if log.landing else ():
            is_good = is_good and finding.check != "ingest"
            yield finding
    if is_good:
        yield DoctorFinding("ingest", OK, "No landed file waits for more than a day.")


def _check_log(store: Store, config: Config, log: LogConfig) -> Iterator[DoctorFinding]:
    try:
        ledger = Ledger(store, log.id)
        state = ledger.find_current()
        if table := ledger.find_table_problem(state) if state else "":
            yield DoctorFinding("table", FAIL, f"{log.id}: {table}.", f"`tidefold status {log.id}`.")
        waiting = _list_waiting(state, str(log.landing))
        if waiting and (seconds := time.time() - min(stamp.changed for stamp in waiting)) > _WAIT_SECONDS:
            message = f"{log.id}: {count_noun(len(waiting), 'landed file')} not ingested, the oldest for"
            hint = f"Unpause the DAG that ingests it, or call `tidefold run {log.id}`."
            yield DoctorFinding("ingest", WARN, f"{message} {format_age(seconds)}.", hint)
        if of_set := config.set_of(log.id):
            SetLedger(store, of_set.name, of_set.logs).read()
    except NotFoundError:
        return  # The check `landing` reports the folder.
    except TidefoldError as error:
        message = f"{log.id}: [{error.code}] {error.message}"
        yield DoctorFinding("ingest", FAIL, message, error.hint or f"`tidefold status {log.id}`.")


def _list_waiting(state: LogState | None, address: str) -> list[Stamp]:
    """Returns the landed files that are newer than all ingested ones. The ledger may have forgotten older names."""
    names = {entry.name for entry in state.landed} | {p.file for p in state.landing.listed} if state else set[str]()
    newest = max((entry.changed for entry in state.landed), default=0.0) if state else 0.0
    listed = islice(folder_at(address).list_files(), MOST_FILES)
    return [file.stamp for file in listed if file.name not in names and file.stamp.changed > newest]


def find_need_of_spark(config: Config) -> str:
    """Returns why the next run cannot do without Spark; empty: it can, or that is not known."""
    if not (above := config.spark.above):
        return "`spark.above` is 0B, so every step with rows needs Spark."
    store = open_store(config.store, config.path.parent)
    for log in config.logs.values():
        with suppress(TidefoldError):
            waiting = _list_waiting(Ledger(store, log.id).peek(log.shape), log.landing) if log.landing else []
            if (size := sum(stamp.size for stamp in waiting)) > above:
                return f"{log.id} has {in_units(size)} to ingest, more than {in_units(above)} (`spark.above`)."
    return ""


def check_suites(config: Config) -> Iterator[DoctorFinding]:
    """Checks that the checks of each log can be read."""
    errors = find_suite_errors(config)
    for log, error in errors.items():
        if error:
            yield DoctorFinding("suites", FAIL, f"{log}: [{error.code}] {error.message}", error.hint)
    if not any(errors.values()):
        yield DoctorFinding("suites", OK, f"The checks of {count_noun(len(errors), 'log')} are valid.")


def check_retention(config: Config) -> Iterator[DoctorFinding]:
    """Finds settings that let data grow without limit."""
    growing = False
    if config.retention.keep is None:
        growing = True
        message = "`retention.snapshots` is `all`: snapshots and their log are kept for ever."
        hint = "Set it to a number, such as 10; `tidefold retain subsume --dry-run` shows what would be deleted."
        yield DoctorFinding("retention", WARN, message, hint)
    if config.local.folders and config.local.quota is None:
        growing = True
        message = "`local` has no `quota`: local copies may fill the disk."
        yield DoctorFinding("retention", WARN, message, "Set `local.quota`, such as 20GB.")
    if not growing:
        yield DoctorFinding("retention", OK, f"The newest {config.retention.keep} snapshots are kept.")


def check_rewritten_rows(config: Config) -> Iterator[DoctorFinding]:
    """Finds newest snapshots whose few changes deletion vectors would mark. Leaves out unreadable ledgers."""
    store, is_costly = open_store(config.store, config.path.parent), False
    for log in () if _find_missing_folder(store.address) else config.logs.values():
        with suppress(TidefoldError):
            if not log.deletion_vectors and log.shape.marks_rows and (text := _explain_rewriting(store, log.id)):
                is_costly = True
                yield DoctorFinding("snapshots", OK, text)
    if not is_costly:
        yield DoctorFinding("snapshots", OK, "No snapshot wrote much for few changes.")


def _explain_rewriting(store: Store, log: str) -> str:
    state = Ledger(store, log).find_current()
    latest = state.latest if state else None
    if not state or not latest or latest.parent is None or state.truncated_to > latest.from_sqn:
        return ""
    changes = sum(one.rows for one in state.change_sets_in(latest.from_sqn, latest.folds_to))
    # About so many bytes it would have written with deletion vectors.
    expected, written = latest.bytes_full * changes // max(latest.rows, 1), latest.bytes_written
    if changes > latest.rows * MARKED_SHARE or written < max(_REWRITTEN_BYTES, 2 * expected):
        return ""
    return (
        f"{log}: its newest snapshot wrote {in_units(written)} for {changes:,} changes of {latest.rows:,} rows. With "
        f"`deletion_vectors: true` and `snapshots: {{kind: auto}}` the next one would write about "
        f"{in_units(expected)}, and later ones more. Files are written again when 15 % of their rows are marked, or "
        "`snapshots.full_every` asks for it. docs/how-to/read.md lists readers that can."
    )


def check_alarms(config: Config) -> Iterator[DoctorFinding]:
    """Finds logs without alarms."""
    silent = [log.id for log in config.logs.values() if config.alarms_of(log.id) is None]
    if silent:
        hint = "Add `alarms: {}` to the configuration: these are the defaults (docs/how-to/watch.md)."
        yield DoctorFinding("alarms", WARN, f"No alarms: {', '.join(silent)}.", hint)
    else:
        yield DoctorFinding("alarms", OK, f"{count_noun(len(config.logs), 'log')} with alarms.")
