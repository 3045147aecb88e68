"""Snapshots outside of the store: finds and checks an original before its import, and deletes an owned one."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidefold.domain.external_snapshot import External, Layout, Ownership, StorageTier
from tidefold.domain.ingest.append import differences
from tidefold.domain.log_state import LogState, Snapshot, SnapshotKind, State, TableSpec
from tidefold.domain.snapshot import claim, transitions
from tidefold.domain.snapshot.manifest import DELTA_LOG, DESCRIPTION, SavedFile, Savepoint
from tidefold.domain.source_progress_history import progress_at
from tidefold.errors import CorruptError, InvalidInputError, NotFoundError, RefusedError, TidefoldError
from tidefold.ledger import Ledger, read_description, read_manifest
from tidefold.operations.ground.pipeline import Pipeline
from tidefold.storage import Store, open_store
from tidefold.storage.addresses import find_schemes, require_apart, require_within

if TYPE_CHECKING:
    from tidefold.fold.inputs import SourcePlaces
    from tidefold.fold.plan import Address

_log = logging.getLogger(__name__)
_KNOWN = ("s3://", "abfs://", "abfss://", "gs://", "file:///")
_OF_STORE = re.compile(r"(?P<root>.+)/snapshots/(?P<log>[a-z][a-z0-9_]{0,62})/(?P<snapshot>\d{10})")


@dataclass(frozen=True, slots=True)
class Original:
    """A snapshot outside of the store, from its description. `of_store`: it belongs to another store of tidefold."""

    store: Store
    savepoint: Savepoint
    digest: str
    of_store: bool = False

    @property
    def address(self) -> str:
        return self.store.address

    def external(self, ownership: Ownership) -> External:
        """Returns the origin that the ledger stores."""
        s = self.savepoint
        return External(self.address, ownership, s.kind, self.digest, s.log, s.snapshot, s.sqn, s.progress)

    def place(self, file: SavedFile) -> Address:
        from tidefold.fold.plan import Address

        return Address(StorageTier.EXTERNAL, self.address, file.path)


def require_target(pipeline: Pipeline, store: Store) -> None:
    """Raises RefusedError if the pipeline may only use configured targets, and the address is not below one of them."""
    if not pipeline.any_target:
        base = pipeline.config.path.parent
        allowed = [*pipeline.config.targets, str(base / "var" / "drill")]
        require_within(store.address, [open_store(target, base).address for target in allowed])


def open_address(address: str) -> Store:
    """Opens the folder at an address. A path is relative to the working folder. Raises InvalidInputError."""
    scheme = address.partition("://")[0]
    is_known = "://" not in address or address.startswith(_KNOWN) or scheme in find_schemes()
    if not is_known:
        forms = ["a path", "`file:///absolute/path`", "`s3://bucket/folder`", "`abfss://...`", "`gs://bucket/folder`"]
        forms += [f"`{name}://...`" for name in find_schemes()]
        raise InvalidInputError(
            "ADDRESS_SCHEME",
            "The address is neither a folder nor an address of a known store.",
            hint=f"Known are: {', '.join(forms)}.",
        )
    return open_store(address, Path.cwd())


def original_at(address: str) -> Original:
    """Reads a savepoint, or a full snapshot in another store. Raises NotFoundError, CorruptError, RefusedError."""
    store = open_address(address)
    try:
        savepoint, digest = read_description(store)
    except NotFoundError:
        match = _OF_STORE.fullmatch(store.address)
        other = open_store(match["root"], Path("/")) if match else store
        # Only the ledger of that store knows whether the snapshot was confirmed; others are never a base (I14).
        state = Ledger(other, match["log"]).find() if match else None
        if match is None or state is None:
            raise
        return _of_store(store, other, state, int(match["snapshot"]))
    return Original(store, savepoint, digest)


def _of_store(store: Store, other: Store, state: LogState, wanted: int) -> Original:
    snapshot = transitions.require_readable(state, wanted)
    if snapshot.state is not State.COMPLETED or snapshot.kind is not SnapshotKind.FULL:
        raise RefusedError(
            "WRONG_STATE",
            f"Snapshot {snapshot.id} of `{state.log}` in that store is {snapshot.state} and {snapshot.kind}.",
            hint="Import a completed full snapshot. Or run `tidefold move savepoint` there, and import the savepoint.",
        )
    manifest = read_manifest(other, state.log, snapshot)
    files = tuple(SavedFile.of("_data", f) for f in manifest.files)
    savepoint = Savepoint(
        kind=Layout.NATIVE,
        log=state.log,
        snapshot=snapshot.id,
        sqn=snapshot.to_sqn,
        instant=snapshot.started_at,
        rows=manifest.rows,
        shape=manifest.shape,
        progress=progress_at(state, snapshot.to_sqn),
        files=files,
        delta_log=(DELTA_LOG,),
        cleared=manifest.cleared,
        redistribution=manifest.redistribution,
    )
    return Original(store, savepoint, snapshot.manifest or "", of_store=True)


def check_original(pipeline: Pipeline, log: str, address: str, ownership: Ownership, *, own: bool = False) -> Original:
    """Returns the original if the log may begin or continue with it. Changes nothing. Raises TidefoldError.

    own: it is a plan, which lies in the store.
    """
    original = original_at(address)
    if not own:
        require_target(pipeline, original.store)
        require_apart(original.address, {"store": pipeline.store.address})
    _check_shape(original.savepoint, pipeline.log(log).shape)
    _check_files(original)
    if ownership is Ownership.CLAIM:
        _check_ownable(pipeline, log, original)
    return original


def _check_shape(savepoint: Savepoint, configured: TableSpec) -> None:
    theirs = savepoint.shape
    if savepoint.kind is Layout.CANONICAL:
        theirs = replace(theirs, key_groups=configured.key_groups)
    changed = differences(theirs, configured, "there", "configured")
    if changed:
        raise RefusedError(
            "SHAPE_DIFFERS",
            f"The snapshot has another table definition than the configured log ({'; '.join(changed)}).",
        )


def _check_files(original: Original) -> None:
    folders = {f.path.split("/", 1)[0] for f in original.savepoint.files}
    sizes = {e.path: e.bytes for folder in sorted(folders) for e in original.store.list(folder)}
    for file in original.savepoint.files:
        if sizes.get(file.path) != file.bytes:
            how = "is gone" if file.path not in sizes else f"has {sizes[file.path]} bytes instead of {file.bytes}"
            raise CorruptError("SAVEPOINT_DAMAGED", f"`{file.path}` of the snapshot at {original.address} {how}.")


def _check_ownable(pipeline: Pipeline, log: str, original: Original) -> None:
    if original.of_store:
        raise RefusedError(
            "ORIGINAL_OF_STORE", "The snapshot belongs to another store, and only that store may delete it."
        )
    for other in pipeline.config.logs:
        state = pipeline.ledger(other).find() if other != log else None
        for owner in claim.find_owners(state) if state else ():
            if owner.external and owner.external.address == original.address:
                raise claim.build_owned_error(other, owner.id)
    probe = f"savepoint.claim.{uuid.uuid4().hex}"
    try:
        original.store.put_if_absent(probe, b"")
        original.store.delete([probe])
    except TidefoldError as error:
        raise RefusedError(
            "CANNOT_CLAIM", f"tidefold cannot delete files at {original.address} ({error.message})."
        ) from error


def find_owned_originals(retired: Iterable[Snapshot]) -> tuple[External, ...]:
    """Returns the originals that these retired snapshots own."""
    originals = (s.external for s in retired if s.external)
    return tuple(external for external in originals if external.ownership is Ownership.CLAIM)


def find_owned_original(external: External) -> Original | None:
    """Returns the original of a snapshot that owns it, if it still exists unchanged."""
    try:
        original = original_at(external.address)
    except (NotFoundError, CorruptError):
        return None
    return original if original.digest == external.description else None


def files_of(original: Original) -> tuple[str, ...]:
    """Returns the files of a savepoint in the order of deletion.

    Readers lose the table first. The description, which lists what else to delete, comes last.
    """
    return (*original.savepoint.delta_log, *(f.path for f in original.savepoint.files), DESCRIPTION)


def delete_originals(externals: Iterable[External], plan: bool = False) -> tuple[str, ...]:
    """Deletes owned originals: exactly the files in their descriptions. Returns the addresses of the files.

    Ignores an original that is gone or has another description. The next call finishes an interrupted one.
    """
    gone: list[str] = []
    for external in externals:
        original = find_owned_original(external)
        if original is None:
            continue
        files = files_of(original)
        gone += [f"{original.address}/{path}" for path in files]
        if not plan:
            # The description is deleted in a second call, because a store promises no order within one call.
            original.store.delete(files[:-1])
            original.store.delete(files[-1:])
    return tuple(gone)


def with_originals(state: LogState, places: SourcePlaces) -> SourcePlaces:
    """Adds the places of the originals of imported snapshots: they are more copies of their files."""
    addresses: dict[str, Address] = {}
    for snapshot in state.snapshots:
        external = snapshot.external
        if external and external.ownership is not Ownership.NO_CLAIM and snapshot.state is State.COMPLETED:
            addresses |= _find_copies(external)
    return replace(places, external=addresses)


def _find_copies(external: External) -> dict[str, Address]:
    """Returns the files of an original by their sha256; none if it is gone or changed."""
    try:
        original = original_at(external.address)
    except TidefoldError as error:
        _log.warning("the original at %s cannot be read: %s", external.address, error)
        return {}
    if original.digest != external.description:
        return {}
    return {file.sha256: original.place(file) for file in original.savepoint.files}
