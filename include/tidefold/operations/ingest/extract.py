"""Turns a full extract into changes: the log gets the differences from its rows, or nothing at all.

The files of the extract are parsed like any others. Their change sets are not appended. Tasks compare them with the
rows of the log, bucket by bucket, and one commit appends the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tidefold.changelog.segment import WrittenChangeSet
from tidefold.changelog.write_intents import Intent, begin
from tidefold.compute.runners import Runner
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.paths import CHANGELOG
from tidefold.domain.uploads import NO_UPLOADS
from tidefold.errors import RefusedError, TidefoldError, from_wire
from tidefold.operations.ingest.extract_task import ExtractDifference, ExtractTask, find_difference
from tidefold.operations.ingest.log_ingest import TASK_BYTES, ExtractTaken, LogIngest
from tidefold.operations.ingest.parse_round import IngestRun
from tidefold.operations.inspect.read import ReadRequest, What, plan_from
from tidefold.operations.local_copies.quota import without_room
from tidefold.operations.pipeline import Pipeline, now
from tidefold.read.plan import ReadPlan, ReadTask
from tidefold.sources.extract.names import Extract, group_extracts, time_of
from tidefold.sources.extract.options import ExtractOptions
from tidefold.sources.extract.source import ROW_RANK, find_newest, read_row_count
from tidefold.typed_json import convert_value, decode_json

# The format whose extracts are versions of a table.
DELTA = "delta"


def apply_extract(pipeline: Pipeline, run: IngestRun, intake: LogIngest, runner: Runner) -> LogIngest:
    """Returns the ingest of a log of full extracts with differences instead of rows; any other one unchanged."""
    options = find_options(intake)
    if options is None or intake.error or not intake.arrivals:
        return intake
    one = _find_taken(intake, options)
    if len(intake.arrivals) < len(one.files) or any(not a.landed.complete for a in intake.arrivals):
        # A file that cannot be ingested blocks its extract.
        return _without_arrivals(intake)
    try:
        _check_rows(intake, one, options)
        return _apply(pipeline, run, intake, one, options, runner)
    except TidefoldError as error:
        return _without_arrivals(intake).with_error(error)


def find_options(intake: LogIngest) -> ExtractOptions | None:
    """Returns the options of a log of full extracts; None: its source delivers changes."""
    given = intake.feed.options.get("extract") if intake.feed else None
    return convert_value(given, ExtractOptions) if given else None


def _without_arrivals(intake: LogIngest) -> LogIngest:
    return replace(intake, arrivals=(), state=intake.begun)


def _find_taken(intake: LogIngest, options: ExtractOptions) -> Extract:
    """Returns the extract that this run ingests."""
    if intake.feed and intake.feed.format == DELTA:
        [version] = intake.files
        return Extract(f"version {version.start}", version.start, "", intake.files)
    newest = find_newest(intake.begun)
    extracts, _ = group_extracts(intake.files, options.date_format)
    return next(one for one in extracts if newest is None or one.instant > newest)


def _check_rows(intake: LogIngest, one: Extract, options: ExtractOptions) -> None:
    """Raises RefusedError if the extract has fewer rows than it must have."""
    rows = sum(arrival.landed.records for arrival in intake.arrivals)
    wanted = read_row_count(intake.feed.path, one, options) if intake.feed else None
    if wanted is not None and wanted != rows:
        raise RefusedError(
            "EXTRACT_ROWS",
            f"Extract {one.name} of log `{intake.log}` has {rows:,} rows, and its row count says {wanted:,}. "
            "The run ingested nothing of it.",
            hint="Land the complete extract again, or remove it if there is a newer one.",
        )
    if rows < options.min_rows and one.name not in options.accept:
        raise RefusedError(
            "EXTRACT_ROWS",
            f"Extract {one.name} of log `{intake.log}` has {rows:,} rows, fewer than `min_rows` "
            f"({options.min_rows:,}). The run ingested nothing of it.",
            hint=f'Land the complete extract again. If it is complete, set `extract: {{accept: ["{one.name}"]}}`.',
        )


def _apply(
    pipeline: Pipeline, run: IngestRun, intake: LogIngest, one: Extract, options: ExtractOptions, runner: Runner
) -> LogIngest:
    refused = sum(arrival.landed.quarantined for arrival in intake.arrivals)
    tasks = _plan_tasks(pipeline, run, intake, one, keeps_missing=refused > 0)
    segments = {task.segments for task in tasks}
    begin(pipeline.store, Intent(run.id, run.rounds, now(), (intake.intent,), folders=tuple(segments)))
    run.rounds += 1
    run.folders |= segments
    found: list[ExtractDifference] = []
    for answer in runner(find_difference, [msgspec.json.encode(task).decode() for task in tasks]):
        if isinstance(answer, TidefoldError):
            raise answer
        found.append(decode_json(answer, ExtractDifference))
        if error := found[-1].error:
            raise from_wire(error)
    missing, before = sum(result.missing for result in found), sum(result.before for result in found)
    _check_keys(intake, one, found)
    if not refused:
        _check_deletes(intake, one, options, missing, before)
    arrivals = tuple(_make_arrivals(intake, one, found))
    unchanged = sum(a.landed.ignored for a in arrivals) - sum(a.landed.ignored for a in intake.arrivals)
    taken = ExtractTaken(one.name, unchanged, 0 if refused else missing, missing if refused else 0)
    no_copies = (*intake.no_copies, *filter(None, (result.no_copy for result in found)))
    state = append(intake.begun, arrivals)
    # The segments of the rows are compared and deleted; those of the differences stay.
    uploads = sum((result.uploads for result in found), NO_UPLOADS)
    return replace(intake, arrivals=arrivals, state=state, extract=taken, no_copies=no_copies, uploads=uploads)


def _plan_tasks(
    pipeline: Pipeline, run: IngestRun, intake: LogIngest, one: Extract, *, keeps_missing: bool
) -> list[ExtractTask]:
    """Plans one task for neighbouring buckets, up to about TASK_BYTES to read."""
    plan = plan_from(pipeline, intake.begun, ReadRequest(What.LIVE))
    rows = tuple(arrival.change_set for arrival in intake.arrivals)
    size = sum(change_set.location.length for change_set in rows if change_set)
    buckets = plan.every_bucket
    groups: list[list[ReadTask]] = []
    weight = 0
    for bucket in buckets:
        own = bucket.weight + size // len(buckets)
        if not groups or weight + own > TASK_BYTES:
            groups.append([])
            weight = 0
        groups[-1].append(bucket)
        weight += own
    segments = f"{CHANGELOG}/{now()[:10]}/{run.id}"
    no_copy = without_room(pipeline)
    local = pipeline.local.root_of(segments) if pipeline.local and not no_copy else None
    return [
        ExtractTask(
            _only(plan),
            tuple(group),
            rows,
            one.instant,
            time_of(one.files[0]) if intake.feed and intake.feed.format == DELTA else one.instant,
            keeps_missing,
            segments,
            local,
            no_copy,
            pipeline.config.uploads.policy,
        )
        for group in groups
    ]


def _only(plan: ReadPlan) -> ReadPlan:
    """Returns the plan without the files, because its tasks name them."""
    return replace(plan, files=())


def _check_keys(intake: LogIngest, one: Extract, found: Sequence[ExtractDifference]) -> None:
    twice = sum(result.twice for result in found)
    if not twice:
        return
    example = next(result.example for result in found if result.example)
    raise RefusedError(
        "EXTRACT_KEYS",
        f"Extract {one.name} of log `{intake.log}` has {twice:,} keys with different rows, as {example}. "
        "tidefold cannot tell which row is right. The run ingested nothing of it.",
        hint="Correct `key` of the log, or export the table in one transaction, so that no row comes twice.",
    )


def _check_deletes(intake: LogIngest, one: Extract, options: ExtractOptions, missing: int, before: int) -> None:
    if missing <= options.max_deletes * before or one.name in options.accept:
        return
    raise RefusedError(
        "EXTRACT_DELETES",
        f"Extract {one.name} of log `{intake.log}` lacks {missing:,} of {before:,} keys ({missing / before:.0%}), "
        f"more than `max_deletes` ({options.max_deletes:.0%}). The run ingested nothing of it.",
        hint=f"If the extract is incomplete, land it again or remove it. If the source has deleted these rows, "
        f'set `extract: {{accept: ["{one.name}"]}}` and run ingest again.',
    )


def _make_arrivals(intake: LogIngest, one: Extract, found: Sequence[ExtractDifference]) -> list[IngestedFile]:
    """Returns the records of the files, then of the deletes, which no file contains. Both get the change sets."""
    high = (one.instant, ROW_RANK)
    upserts = [result.upserts for result in found if result.upserts]
    deletes = [result.deletes for result in found if result.deletes]
    files: list[IngestedFile] = []
    for number, arrival in enumerate(intake.arrivals):
        changed = sum(result.changed[number] for result in found if result.changed)
        landed = arrival.landed
        landed = replace(landed, changes=changed, ignored=landed.ignored + landed.changes - changed)
        files.append(IngestedFile(landed, None, arrival.position))
    last = files[-1]
    gone = [_describe_deletes(last, one, number, written.rows) for number, written in enumerate(deletes)]
    return [*_attach(gone, deletes, high), *_attach(files, upserts, high)]


def _describe_deletes(last: IngestedFile, one: Extract, number: int, rows: int) -> IngestedFile:
    """Returns the record of the keys that an extract lacks. It is no real file; its name describes it."""
    name = f"{one.name} lacks these keys" + (f" ({number + 1})" if number else "")
    landed = replace(
        last.landed, name=name, length=0, checksum="", records=rows, changes=rows, ignored=0, quarantined=0,
        repeated=0, quarantine=None, changed=0.0, next_offset=last.landed.first_offset,
    )  # fmt: skip
    return IngestedFile(landed, None, replace(last.position, next_offset=landed.next_offset))


def _attach(
    arrivals: Sequence[IngestedFile], written: Sequence[WrittenChangeSet], high: tuple[int, ...]
) -> list[IngestedFile]:
    """Gives each record one change set as far as there are any. More change sets get records without counts."""
    attached = []
    for number in range(max(len(arrivals), len(written))):
        base = arrivals[min(number, len(arrivals) - 1)]
        if number >= len(arrivals):
            base = _without_counts(base, number)
        change_set = written[number].change_set(high) if number < len(written) else None
        attached.append(replace(base, change_set=change_set))
    return attached


def _without_counts(base: IngestedFile, number: int) -> IngestedFile:
    landed = replace(
        base.landed, name=f"{base.landed.name} ({number + 1})", length=0, checksum="", records=0, changes=0,
        ignored=0, quarantined=0, quarantine=None, changed=0.0, first_offset=base.landed.next_offset,
    )  # fmt: skip
    return IngestedFile(landed, None, base.position)
