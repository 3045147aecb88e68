"""Turns a full extract into changes: the log gets the differences from its rows, or nothing at all.

The files of the extract are parsed like any others. Their change sets are not appended. Tasks compare them with the
rows of the log, bucket by bucket, and one commit appends the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tidefold.changelog.segment import WrittenChangeSet
from tidefold.compute.runners import Runner
from tidefold.domain.ingest.append import IngestedFile, append
from tidefold.domain.uploads import NO_UPLOADS
from tidefold.errors import RefusedError, TidefoldError, from_wire
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.operations.ingest.extract_task import ExtractDifference, ExtractTask, find_difference
from tidefold.operations.ingest.parse import TASK_BYTES, IngestRun
from tidefold.operations.ingest.stages import Accounted, ExtractTaken, plan_own_rows
from tidefold.read.plan import ReadTask
from tidefold.sources.extract.source import (
    ROW_RANK,
    Extract,
    ExtractOptions,
    find_newest,
    group_extracts,
    read_row_count,
    time_of,
)
from tidefold.typed_json import convert_value, decode_json

# The format whose extracts are versions of a table.
DELTA = "delta"


def apply_extract(pipeline: Pipeline, run: IngestRun, runner: Runner, accounted: Accounted) -> Accounted:
    """Returns the ingest of a log of full extracts with differences instead of rows; any other one unchanged."""
    options = find_options(accounted)
    if options is None or not accounted.arrivals:
        return accounted
    extract = _find_taken(accounted, options)
    if len(accounted.arrivals) < len(extract.files) or any(not a.landed.complete for a in accounted.arrivals):
        # A file that cannot be ingested blocks its extract.
        return replace(accounted, arrivals=(), state=accounted.listed.begun)
    _check_rows(accounted, extract, options)
    return _apply(pipeline, run, accounted, extract, options, runner)


def find_options(accounted: Accounted) -> ExtractOptions | None:
    """Returns the options of a log of full extracts; None: its source delivers changes."""
    value = accounted.listed.feed.options.get("extract") if accounted.listed.feed else None
    return convert_value(value, ExtractOptions) if value else None


def _find_taken(accounted: Accounted, options: ExtractOptions) -> Extract:
    """Returns the extract that this run ingests."""
    if accounted.listed.feed and accounted.listed.feed.format == DELTA:
        [version] = accounted.listed.files
        return Extract(f"version {version.start}", version.start, "", accounted.listed.files)
    newest = find_newest(accounted.listed.begun)
    extracts, _ = group_extracts(accounted.listed.files, options.date_format)
    return next(one for one in extracts if newest is None or one.instant > newest)


def _check_rows(accounted: Accounted, extract: Extract, options: ExtractOptions) -> None:
    """Raises RefusedError if the extract has fewer rows than it must have."""
    rows = sum(arrival.landed.records for arrival in accounted.arrivals)
    wanted = read_row_count(accounted.listed.feed.path, extract, options) if accounted.listed.feed else None
    if wanted is not None and wanted != rows:
        raise RefusedError(
            "EXTRACT_ROWS",
            f"Extract {extract.name} of log `{accounted.log}` has {rows:,} rows, and its row count says {wanted:,}. "
            "The run ingested nothing of it.",
            hint="Land the complete extract again, or remove it if there is a newer one.",
        )
    if rows < options.min_rows and extract.name not in options.accept:
        raise RefusedError(
            "EXTRACT_ROWS",
            f"Extract {extract.name} of log `{accounted.log}` has {rows:,} rows, fewer than `min_rows` "
            f"({options.min_rows:,}). The run ingested nothing of it.",
            hint=f'Land the complete extract again. If it is complete, set `extract: {{accept: ["{extract.name}"]}}`.',
        )


def _apply(
    pipeline: Pipeline, run: IngestRun, accounted: Accounted, extract: Extract, options: ExtractOptions, runner: Runner
) -> Accounted:
    refused = sum(arrival.landed.quarantined for arrival in accounted.arrivals)
    tasks = _plan_tasks(pipeline, run, accounted, extract, keeps_missing=refused > 0)
    segments = {task.segments for task in tasks}
    run.announce(pipeline.store, [accounted.listed.intent], *segments)
    run.folders |= segments
    differences: list[ExtractDifference] = []
    for answer in runner(find_difference, [msgspec.json.encode(task).decode() for task in tasks]):
        if isinstance(answer, TidefoldError):
            raise answer
        differences.append(decode_json(answer, ExtractDifference))
        if error := differences[-1].error:
            raise from_wire(error)
    missing, before = sum(result.missing for result in differences), sum(result.before for result in differences)
    _check_keys(accounted, extract, differences)
    if not refused:
        _check_deletes(accounted, extract, options, missing, before)
    arrivals = tuple(_make_arrivals(accounted, extract, differences))
    unchanged = sum(a.landed.ignored for a in arrivals) - sum(a.landed.ignored for a in accounted.arrivals)
    taken = ExtractTaken(extract.name, unchanged, 0 if refused else missing, missing if refused else 0)
    no_copies = (*accounted.no_copies, *filter(None, (result.no_copy for result in differences)))
    state = append(accounted.listed.begun, arrivals)
    # The segments of the rows are compared and deleted; those of the differences stay.
    uploads = sum((result.uploads for result in differences), NO_UPLOADS)
    return replace(accounted, arrivals=arrivals, state=state, extract=taken, no_copies=no_copies, uploads=uploads)


def _plan_tasks(
    pipeline: Pipeline, run: IngestRun, accounted: Accounted, extract: Extract, *, keeps_missing: bool
) -> list[ExtractTask]:
    """Plans one task for neighbouring buckets, up to about TASK_BYTES to read."""
    feed, plan = accounted.listed.feed, plan_own_rows(pipeline, accounted)
    rows = tuple(arrival.change_sets for arrival in accounted.arrivals)
    size = sum(change_set.location.length for some in rows for change_set in some)
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
    segments, local, no_copy = run.segment_folder(pipeline)
    return [
        ExtractTask(
            replace(plan, files=()),  # The tasks name them.
            tuple(group),
            rows,
            extract.instant,
            time_of(extract.files[0]) if feed and feed.format == DELTA else extract.instant,
            keeps_missing,
            segments,
            local,
            no_copy,
            pipeline.config.uploads.policy,
        )
        for group in groups
    ]


def _check_keys(accounted: Accounted, extract: Extract, differences: Sequence[ExtractDifference]) -> None:
    twice = sum(result.twice for result in differences)
    if not twice:
        return
    example = next(result.example for result in differences if result.example)
    raise RefusedError(
        "EXTRACT_KEYS",
        f"Extract {extract.name} of log `{accounted.log}` has {twice:,} keys with different rows, as {example}. "
        "tidefold cannot tell which row is right. The run ingested nothing of it.",
    )


def _check_deletes(accounted: Accounted, extract: Extract, options: ExtractOptions, missing: int, before: int) -> None:
    if missing <= options.max_deletes * before or extract.name in options.accept:
        return
    raise RefusedError(
        "EXTRACT_DELETES",
        f"Extract {extract.name} of log `{accounted.log}` lacks {missing:,} of {before:,} keys "
        f"({missing / before:.0%}), more than `max_deletes` ({options.max_deletes:.0%}). "
        "The run ingested nothing of it.",
        hint=f"If the extract is incomplete, land it again or remove it. If the source has deleted these rows, "
        f'set `extract: {{accept: ["{extract.name}"]}}` and run ingest again.',
    )


def _make_arrivals(
    accounted: Accounted, extract: Extract, differences: Sequence[ExtractDifference]
) -> list[IngestedFile]:
    """Returns the records of the files, then of the deletes, which no file contains. Both get the change sets."""
    high = (extract.instant, ROW_RANK)
    upserts = [result.upserts for result in differences if result.upserts]
    deletes = [result.deletes for result in differences if result.deletes]
    files: list[IngestedFile] = []
    for number, arrival in enumerate(accounted.arrivals):
        changed = sum(result.changed[number] for result in differences if result.changed)
        landed = arrival.landed
        landed = replace(landed, changes=changed, ignored=landed.ignored + landed.changes - changed)
        files.append(IngestedFile(landed, None, arrival.position))
    last = files[-1]
    gone = [_describe_deletes(last, extract, number, written.rows) for number, written in enumerate(deletes)]
    return [*_attach(gone, deletes, high), *_attach(files, upserts, high)]


def _describe_deletes(last: IngestedFile, extract: Extract, number: int, rows: int) -> IngestedFile:
    """Returns the record of the keys that an extract lacks. It is no real file; its name describes it."""
    name = f"{extract.name} lacks these keys" + (f" ({number + 1})" if number else "")
    landed = replace(
        last.landed, name=name, length=0, checksum="", records=rows, changes=rows, ignored=0, quarantined=0,
        repeated=0, quarantine=None, changed=0.0, next_offset=last.landed.first_offset
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
        ignored=0, quarantined=0, quarantine=None, changed=0.0, first_offset=base.landed.next_offset
    )  # fmt: skip
    return IngestedFile(landed, None, base.position)
