"""Checks the addresses of a configuration, folders that overlap, and the sets.

tidefold would read the files of one overlapping folder as input of the other, or delete them there.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from tidefold.config.models.log import LogConfig
from tidefold.config.models.sections import SetConfig, find_set_mistakes
from tidefold.config.models.sources import FILESYSTEM, LANDING_SCHEMES
from tidefold.config.models.spark import check_spark
from tidefold.domain.paths import check_log_id
from tidefold.domain.table.table_spec_validation import Mistake
from tidefold.errors import InvalidInputError
from tidefold.storage.addresses import find_schemes, is_filesystem
from tidefold.storage.azure.address import ACCOUNT_VARIABLE, AzureAddress
from tidefold.storage.azure.address import SCHEMES as AZURE_SCHEMES
from tidefold.storage.gcs.address import SCHEME as GCS_SCHEME
from tidefold.storage.gcs.address import GcsAddress
from tidefold.storage.s3.address import S3Address
from tidefold.yaml_files.document import ConfigProblem, YamlDocument, YamlPath, format_place

_STORE_SCHEMES = ("", "file", "s3", "gs", "abfss", "abfs")
_SCHEME_EXAMPLES = {
    "": "a path",
    "file": "file:///absolute/path",
    "s3": "s3://bucket/folder",
    "gs": "gs://bucket/folder",
    "abfss": "abfss://container@account.dfs.core.windows.net/folder",
    "abfs": "abfs://container/folder",
    FILESYSTEM: "sftp://host/folder",
}
_CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
_Folder = tuple[YamlPath, PurePath]


def path_mistake(address: str, schemes: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Describes what is wrong with an address, without repeating it: it may contain a secret."""
    scheme = urlsplit(address).scheme if ":/" in address else ""
    # `abfss://container@account...` names a container before the `@`, and no user.
    secret = r"://[^/]*:[^/]*@" if scheme in _CONTAINER_SCHEMES else r"://[^/]*@"
    if re.search(secret, address):
        hint = "Remove it. Change the password, because it was in a file."
        return "CONFIG_SECRET", "contains a user name or password.", hint
    if scheme not in schemes and not (FILESYSTEM in schemes and is_filesystem(scheme)):
        named = [_SCHEME_EXAMPLES.get(example, f"{example}://...") for example in schemes]
        allowed = " or ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
        return "NOT_IN_THIS_VERSION", f"cannot be a `{scheme}:` address in this version.", f"Use {allowed}."
    if scheme and "://" not in address:
        example = _SCHEME_EXAMPLES.get(scheme, f"{scheme}://...")
        return "CONFIG_PATH", f"has one slash after `{scheme}:`.", f"Write it as `{example}`."
    if scheme in _PARSERS:
        return _parse_mistake(address, *_PARSERS[scheme])
    if scheme not in _STORE_SCHEMES:
        return None  # The package that brings the store knows what its addresses look like.
    rest = address.removeprefix(f"{scheme}://") if scheme else address
    if scheme == "file" and not rest.startswith("/"):
        return "CONFIG_PATH", "must have three slashes after `file:`.", "For example `file:///data/store`."
    if rest.startswith("~") or "::" in rest or "\0" in rest or ".." in Path(rest).parts or not rest.strip():
        message = "must be a plain path without `~`, `..`, `::`."
        return "CONFIG_PATH", message, "Write an absolute path, or one below the folder of this file."
    if "%" in rest:
        return "CONFIG_PATH", "must not contain `%`, which Delta readers decode.", "Choose another folder."
    return None


def _parse_azure(address: str) -> AzureAddress:
    return AzureAddress.parse(address, {ACCOUNT_VARIABLE: "any"})  # Only who opens the store needs the account.


# By scheme: what parses an address, and the message about one that it refuses.
_PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "s3": (S3Address.parse, "is not an S3 address: `s3://bucket/folder`."),
    GCS_SCHEME: (GcsAddress.parse, "is not an address in Google Cloud Storage: `gs://bucket/folder`."),
    **dict.fromkeys(AZURE_SCHEMES, (_parse_azure, "is not an address of a folder in Azure.")),
}


def _parse_mistake(address: str, parse: Callable[[str], object], message: str) -> tuple[str, str, str] | None:
    try:
        parse(address)
    except InvalidInputError as error:
        if error.code == "STORE_SECRET":
            return "CONFIG_SECRET", "contains credentials.", error.hint
        return "CONFIG_PATH", message, error.hint
    return None


def check_all(document: YamlDocument, base: Path, logs: Mapping[str, LogConfig]) -> Iterator[ConfigProblem]:
    """Checks the store, the local copies, the options of Spark, and folders that overlap."""
    folders: list[tuple[YamlPath, PurePath]] = []
    for place, address, schemes in _roots(document):
        mistake = path_mistake(address, schemes)
        if mistake:
            code, message, hint = mistake
            yield ConfigProblem(code, document.line(place), format_place(place), message, hint)
        else:
            folders.append((place, _locate(address, base)))
    yield from _copies_somewhere(document)
    yield from check_spark(document)
    for log, entry in logs.items():
        # Several logs may read one Delta table, but only one may read a landing folder, or a table of its profile.
        source = entry.source
        if entry.topic and _scheme_of(document.data.get("store")) not in (*LANDING_SCHEMES, "file"):
            place = ("logs", log, "source", "kafka")
            message, hint = "needs a store from which landed files can be read.", "Use a disk, S3, Azure or Google."
            yield ConfigProblem("KAFKA_STORE", document.line(place), format_place(place), message, hint)
        if source and source.place_key == "path" and not path_mistake(source.place, source.schemes):
            folders.append((("logs", log, "source", "path"), _locate(source.place, base)))
    for (place, folder), (other_place, other) in _find_overlaps(folders):
        readers = [logs[str(at[1])].source for at in (place, other_place) if at[0] == "logs"]
        if folder == other and len({*map(_name_table, readers)} - {""}) == 2:
            continue
        same = "is the same folder as" if folder == other else "is inside, or contains,"
        message = f"{same} `{format_place(other_place)}` (line {document.line(other_place)})."
        hint = "Give each log, the store and each root of local copies its own folder."
        yield ConfigProblem("FOLDERS_OVERLAP", document.line(place), format_place(place), message, hint)


def _name_table(source: Any) -> str:
    """Returns the table whose records a log takes from a stream of several; empty: all."""
    return (getattr(source, "profile", None) and source.table) or ""


def _find_overlaps(folders: Sequence[_Folder]) -> Iterator[tuple[_Folder, _Folder]]:
    """Yields each folder with each earlier one that it equals, contains or lies in. Thousands of logs take no longer
    than their folders' names are long.
    """
    named: defaultdict[PurePath, list[int]] = defaultdict(list)
    inside: defaultdict[PurePath, list[int]] = defaultdict(list)
    for number, (_, folder) in enumerate(folders):
        around = [at for parent in (folder, *folder.parents) for at in named.get(parent, ())]
        for at in sorted({*around, *inside.get(folder, ())}):
            yield folders[number], folders[at]
        named[folder].append(number)
        for parent in folder.parents:
            inside[parent].append(number)


def check_sets(
    document: YamlDocument, base: Path, sets: Mapping[str, SetConfig], logs: Mapping[str, LogConfig]
) -> Iterator[ConfigProblem]:
    """Checks each set, that no log is in two sets, and that each transaction topic has a folder of its own."""
    if not sets:
        return
    owners: dict[str, str] = {}
    listed = document.data.get("logs")
    unreadable = [log for log in listed if log not in logs] if isinstance(listed, dict) else []
    for name, entry in sets.items():
        problems = [
            *find_set_mistakes(entry, logs, unreadable),
            *_find_set_names(name),
            *_find_set_folders(entry, base, logs),
        ]
        for i, log in enumerate(entry.logs):
            if (owner := owners.setdefault(log, name)) != name:
                message = f"is `{log}`, which is in set `{owner}`."
                problems.append(("SET_LOG_TWICE", ("logs", i), message, "Put each log into one set."))
        for code, below, message, hint in problems:
            place: YamlPath = ("sets", name, *below)
            yield ConfigProblem(code, document.line(place), format_place(place), message, hint)


def _find_set_names(name: str) -> Iterator[Mistake]:
    try:
        check_log_id(name)
    except InvalidInputError as error:
        yield "SET_NAME", (), "cannot be the name of a set.", error.hint


def _find_set_folders(entry: SetConfig, base: Path, logs: Mapping[str, LogConfig]) -> Iterator[Mistake]:
    if not entry.transactions:
        return
    if wrong := path_mistake(entry.transactions, (*LANDING_SCHEMES, "file")):
        code, message, hint = wrong
        yield code, ("transactions",), message, hint
        return
    folder = _locate(entry.transactions, base)
    for log, one in logs.items():
        if one.source and one.source.place_key == "path" and one.source.place:
            other = _locate(one.source.place, base)
            if folder == other or folder in other.parents or other in folder.parents:
                message = f"is the same folder as, is inside, or contains `logs.{log}.source.path`."
                hint = "Land the transaction topic in a folder of its own."
                yield "FOLDERS_OVERLAP", ("transactions",), message, hint


def _locate(address: str, base: Path) -> PurePath:
    """Returns a form of an address that compares paths with paths and buckets with buckets."""
    if address.startswith(tuple(f"{scheme}://" for scheme in AZURE_SCHEMES)):
        place = AzureAddress.parse(address, {ACCOUNT_VARIABLE: os.environ.get(ACCOUNT_VARIABLE, "any")})
        return PurePosixPath(place.uri(place.prefix))
    if "://" in address and not address.startswith("file://"):
        return PurePosixPath(address)
    return (base / address.removeprefix("file://")).resolve()


def _roots(document: YamlDocument) -> Iterator[tuple[YamlPath, str, tuple[str, ...]]]:
    """Yields the addresses where tidefold itself stores files, each with its allowed schemes."""
    store = document.data.get("store")
    roots: list[tuple[YamlPath, Any, tuple[str, ...]]] = [(("store",), store, _find_store_schemes(store))]
    local = document.data.get("local")
    if isinstance(local, dict):
        paths = local.get("paths")
        roots.append((("local", "path"), local.get("path"), ("",)))
        listed = paths if isinstance(paths, list) else []
        roots += [(("local", "paths", i), path, ("",)) for i, path in enumerate(listed)]
    for place, address, schemes in roots:
        if isinstance(address, str) and address:
            yield place, address, schemes


def _find_store_schemes(address: Any) -> tuple[str, ...]:
    """Returns the schemes that a store may have. Looks for installed packages only if the address needs one."""
    scheme = _scheme_of(address)
    return _STORE_SCHEMES if scheme in _STORE_SCHEMES else (*_STORE_SCHEMES, *find_schemes())


def _scheme_of(address: Any) -> str:
    return urlsplit(address).scheme if isinstance(address, str) else ""


def _copies_somewhere(document: YamlDocument) -> Iterator[ConfigProblem]:
    """Checks that the folders of local copies are given, and in one way only."""
    local = document.data.get("local")
    keys = [key for key in ("path", "paths") if isinstance(local, dict) and key in local]
    if isinstance(local, dict) and local.get("mode") == "files" and not keys:
        hint = "Name a folder on a disk of this machine: `local: {mode: files, path: var/local}`."
        yield ConfigProblem("CONFIG_MISSING_KEY", document.line(("local",)), "local.path", "is missing.", hint)
    if len(keys) > 1:
        hint = "Move that folder into the list, and remove `path`."
        line = document.line(("local", "paths"))
        yield ConfigProblem("LOCAL_PATHS", line, "local.paths", "cannot be used together with `local.path`.", hint)
