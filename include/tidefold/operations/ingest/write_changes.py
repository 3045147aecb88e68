"""Writes changes of a program to a log without a source, with the library's writer and the pipeline's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidefold.changelog.writer import Changelog, WriterSettings
from tidefold.changelog.writer.rows_to_arrow import Changes
from tidefold.domain.uploads import UploadTotals
from tidefold.domain.wording import count_noun
from tidefold.errors import RefusedError
from tidefold.operations.ground.outcome import Details, Outcome, Status
from tidefold.operations.ground.pipeline import Pipeline

# Called with the number of changes that the log has of this writer; returns those after them, in order.
ReadChanges = Callable[[int], Iterable[Changes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDetails(Details):
    """What a write appended.

    writer: the name of the writer.
    changes: how many changes were appended.
    offset: how many changes the log has of this writer now.
    uploads: what the uploads cost.
    """

    writer: str
    changes: int
    offset: int
    uploads: UploadTotals


def configure_writer(pipeline: Pipeline, name: str = "writer") -> WriterSettings:
    """Returns the settings of a writer of this name, as `uploads` of the configuration says."""
    uploads, usual = pipeline.config.uploads, WriterSettings()
    in_flight = uploads.in_flight or usual.max_bytes_in_flight
    return WriterSettings(
        name=name,
        compress=uploads.compress,
        log_bytes=uploads.early or usual.log_bytes,
        persist_delay=uploads.delay,
        batch_bytes=min(uploads.batch or usual.batch_bytes, in_flight),
        max_bytes_in_flight=in_flight,
        attempts=uploads.attempts,
        retry_delay=uploads.retry_delay,
        attempt_timeout=usual.attempt_timeout if uploads.attempt_timeout is None else uploads.attempt_timeout,
        threads=uploads.threads,
    )


def write_changes(pipeline: Pipeline, log: str, read: ReadChanges, writer: str = "writer") -> Outcome:
    """Appends what `read` returns, and flushes once. After an error nothing of this call is in the log.

    A repeated call continues where the log is, so that no change is lost or comes twice. Raises RefusedError for a log
    with a source, and the errors of the writer.
    """
    config = pipeline.log(log)
    if config.source is not None:
        raise RefusedError("LOG_HAS_SOURCE", f"Log `{log}` is fed by landed files, so programs cannot write to it.")
    pipeline.before_write()
    before = _find_uploads(pipeline, log)
    local = pipeline.local
    settings = configure_writer(pipeline, writer)
    with Changelog(pipeline.store, settings, local=local, keeps_copies=local is not None) as changelog:
        written = changelog.log(log, config.shape)
        begun = written.offset
        for changes in read(begun):
            written.append(changes)
        written.flush()
        offset = written.offset
    uploads = _find_uploads(pipeline, log) - before
    details = WriteDetails(writer=writer, changes=offset - begun, offset=offset, uploads=uploads)
    if offset == begun:
        return Outcome(log, Status.NOTHING, "nothing new", details=details)
    message = f"{count_noun(offset - begun, 'change')} in {count_noun(uploads.segments, 'upload')}"
    message += f"; {writer} continues at {offset:,}"
    return Outcome(log, Status.TAKEN, message, details=details)


def _find_uploads(pipeline: Pipeline, log: str) -> UploadTotals:
    state = pipeline.ledger(log).find()
    return (state.uploads if state else None) or UploadTotals()
