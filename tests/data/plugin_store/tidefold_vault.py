"""A store of a third party: files below a folder, under addresses such as `vault:///srv/vault`.

It uses nothing of tidefold but the errors and the value that the port names. It is an example, not for production: it
syncs files, but no folders.
"""

import io
import os
import uuid
from contextlib import contextmanager
from pathlib import Path

from tidefold.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tidefold.storage import StoredObject

SCHEME, PART = "vault://", ".vault-part"


class VaultStore:
    def __init__(self, address):
        self._root = Path(address.removeprefix(SCHEME))

    @property
    def address(self):
        return f"{SCHEME}{self._root}"

    def uri(self, path):
        """deltalake and Spark read the folder itself."""
        return str(self._full(path))

    def options(self):
        return {}

    def read(self, path, start=0, length=None):
        with self.open(path) as stream:
            stream.seek(start)
            return stream.read() if length is None else stream.read(length)

    @contextmanager
    def open(self, path):
        full = self._full(path)
        if not full.is_file():
            raise NotFoundError("NOT_FOUND", f"`{path}` does not exist.")
        with full.open("rb") as stream:
            yield stream

    def put_if_absent(self, path, data):
        with self.create(path) as stream:
            stream.write(data)

    @contextmanager
    def create(self, path):
        full = self._full(path)
        with self._written(full) as (part, stream):
            yield stream
            self._sync(stream)
            self._publish(part, full, path)

    @property
    def links(self):
        return False

    def link(self, source, target, copy=False):
        data = self.read(source)
        try:
            self.put_if_absent(target, data)
        except AlreadyExistsError:
            if self.read(target) != data:
                raise
            return "kept"
        return "copy"

    @contextmanager
    def replace(self, paths):
        fulls = [self._full(path) for path in paths]
        with io.BytesIO() as content:
            yield content
            for full in fulls:
                with self._written(full) as (part, stream):
                    stream.write(content.getvalue())
                    self._sync(stream)
                    os.replace(part, full)

    def identity(self, path):
        found = self._full(path).stat()
        return f"{found.st_dev}:{found.st_ino}"

    def list(self, folder, unfinished=False):
        top = self._full(folder)
        files = [file for file in top.rglob("*") if file.is_file() and (unfinished or PART not in file.name)]
        found = [StoredObject(str(file.relative_to(self._root)), file.stat().st_size) for file in files]
        return sorted(found, key=lambda entry: entry.path)

    def delete(self, paths):
        for path in paths:
            self._full(path).unlink(missing_ok=True)

    def sync(self, path):
        return None

    def _full(self, path):
        if path.startswith("/") or ".." in path.split("/"):
            raise InvalidInputError("PATH_OUTSIDE_ROOT", f"`{path}` is outside the store.")
        return self._root / path

    @contextmanager
    def _written(self, full):
        full.parent.mkdir(parents=True, exist_ok=True)
        part = full.with_name(f"{full.name}.{uuid.uuid4().hex}{PART}")
        try:
            with part.open("xb") as stream:
                yield part, stream
        finally:
            part.unlink(missing_ok=True)

    def _sync(self, stream):
        stream.flush()
        os.fsync(stream.fileno())

    def _publish(self, part, full, path):
        try:
            os.link(part, full)
        except FileExistsError as error:
            raise AlreadyExistsError("NAME_TAKEN", f"`{path}` already exists.") from error
