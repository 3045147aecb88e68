"""Our words for what is wrong with the types of a `tidefold.yaml`: code, message, and the next step."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidefold.config.models.base import Entry
from tidefold.config.models.columns import ColumnEntry
from tidefold.config.models.file import (
    FileEntry,
    LocalConfig,
    LogEntry,
    QualityEntry,
    RetentionConfig,
    SnapshotsConfig,
    SparkConfig,
    TtlEntry,
)
from tidefold.config.models.merge import GroupEntry, LateEntry, MergeEntry
from tidefold.config.models.schema_policy import SchemaEntry
from tidefold.config.models.sources import SOURCE_ENTRIES, entry_at
from tidefold.config.yaml_document import Place, Problem, dotted

# Words that a later version will know: refused by name, so that nobody takes them for a typing mistake.
_LATER: dict[str, tuple[str, ...]] = {
    "connector": ("mongodb", "sqlserver", "oracle", "db2", "vitess", "spanner", "informix"),
    "format": ("canal-json", "maxwell-json", "avro"),
}
_MODELS: dict[str, type[Entry]] = {
    "spark": SparkConfig, "local": LocalConfig, "retention": RetentionConfig,
    "quality": QualityEntry, "snapshots": SnapshotsConfig, "ttl": TtlEntry, "merge": MergeEntry, "late": LateEntry,
    "schema": SchemaEntry,
}  # fmt: skip


# Mistakes that our own validators find, each with its code and the next step.
_OWN_KINDS = {
    "retained": ("CONFIG_OUT_OF_RANGE", "Readers of the version before the newest need one more."),
    "schema": ("CONFIG_UNKNOWN_VALUE", "As an example `schema: {add: quarantine}`."),
    "size": ("CONFIG_WRONG_TYPE", "As an example `500MB`, `20GB` (units of 1000) or `20GiB`."),
    "encoding": (
        "CONFIG_UNKNOWN_VALUE",
        "As an example `utf-8`, `latin-1` or `cp1252`; convert files in UTF-16 before they land.",
    ),
    "format": (
        "CONFIG_UNKNOWN_VALUE",
        'As an example "%d.%m.%Y %H:%M:%S": %Y year, %m month, %d day, %H hour, %M minute, %S second, %f parts.',
    ),
}


def problems_of(error: ValidationError, place: Place, lines: Any) -> Iterator[Problem]:
    """Our words for what pydantic found below a place. `lines`: place -> line."""
    for detail in error.errors(include_url=False):
        here, model = _place_of(detail, place)
        code, message, hint = _NO_LOGS if _has_no_logs(detail, here) else _explain(detail, here, model)
        yield Problem(code, lines(here), dotted(here), message, hint)


_NO_LOGS = (
    "CONFIG_EMPTY_VALUE",
    "names no log.",
    "If `tidefold init` wrote the file: answer each QUESTION in it, and remove the `# ` before the lines of the log.",
)


def _has_no_logs(detail: ErrorDetails, place: Place) -> bool:
    return place == ("logs",) and not detail["input"]


def _place_of(detail: ErrorDetails, place: Place) -> tuple[Place, type[Entry]]:
    """Where a mistake lies in the file, and the entry that it lies in. Pydantic also names the format of a source."""
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    at = loc.index("source") + 1 if "source" in loc else len(loc)
    of = SOURCE_ENTRIES.get(str(loc[at])) if at < len(loc) else None
    if of is None:
        missing = ("format",) if detail["type"].startswith("union_tag") else ()
        here = (*place, *loc, *missing)
        return here, _model_at(here)
    here = (*place, *loc[:at], *loc[at + 1 :])
    return here, entry_at(of, loc[at + 1 : -1])


def _explain(detail: ErrorDetails, place: Place, model: type[Entry]) -> tuple[str, str, str]:
    kind, name, context = detail["type"], str(place[-1]) if place else "", detail.get("ctx", {})
    if kind in ("missing", "union_tag_not_found"):
        return "CONFIG_MISSING_KEY", "is missing.", _purpose(place, model)
    if kind == "extra_forbidden":
        return _unknown_key(place, model)
    if kind in ("literal_error", "union_tag_invalid", "column_type", "enum"):
        given, expected = context.get("tag", detail["input"]), context.get("expected") or context["expected_tags"]
        return _unknown_value(name, given, expected)
    if kind in ("greater_than_equal", "less_than_equal", "finite_number"):
        return "CONFIG_OUT_OF_RANGE", f"is out of range: {_sentence(detail['msg'])}", ""
    if kind in _OWN_KINDS:
        code, hint = _OWN_KINDS[kind]
        return code, f"{detail['msg']}.", hint
    if kind in ("too_short", "string_too_short"):
        return "CONFIG_EMPTY_VALUE", "must not be empty.", ""
    if kind == "string_pattern_mismatch":
        return _pattern_mismatch(name)
    return "CONFIG_WRONG_TYPE", f"has the wrong type: {_sentence(detail['msg'])}", _type_hint(kind, detail["input"])


def _sentence(said: str) -> str:
    lowered = said[0].lower() + said[1:]
    for theirs, ours in (
        ("a valid dictionary or instance of ", "a mapping like "),
        (" or object to extract fields from", ""),
        ("dictionary", "mapping"),
        ("input", "it"),
    ):
        lowered = lowered.replace(theirs, ours)
    return f"{lowered}."


def _model_at(place: Place) -> type[Entry]:
    """The entry that a place lies in directly."""
    if len(place) == 1:
        return FileEntry
    if len(place) == 5 and place[2] == "columns":
        return ColumnEntry
    if len(place) == 6 and place[3] == "groups":
        return GroupEntry
    parent = str(place[-2])
    return LogEntry if len(place) == 3 and place[0] == "logs" else _MODELS.get(parent, FileEntry)


def _unknown_key(place: Place, model: type[Entry]) -> tuple[str, str, str]:
    allowed = [field.alias or name for name, field in model.model_fields.items()]
    near = get_close_matches(str(place[-1]).lower(), allowed, n=1)
    hint = f"Did you mean `{near[0]}`?" if near else "Remove it; docs/config.md explains every key."
    return "CONFIG_UNKNOWN_KEY", f"is not a known key. Allowed here: {', '.join(allowed)}.", hint


def _unknown_value(name: str, given: Any, expected: str) -> tuple[str, str, str]:
    shown = f"`{given}`" if isinstance(given, str | int | float) and len(str(given)) <= 40 else "what is given"
    allowed = expected.replace("'", "").replace(" or ", ", ")
    later = _LATER.get(name)
    if later is not None and (not later or given in later):
        return "NOT_IN_THIS_VERSION", f"cannot be {shown} in this version. Allowed: {allowed}.", f"Set it to {allowed}."
    near = get_close_matches(str(given).lower(), allowed.split(", "), n=1, cutoff=0.5)
    hint = f"Did you mean `{near[0]}`?" if near else ""
    return "CONFIG_UNKNOWN_VALUE", f"does not know {shown}. Allowed: {allowed}.", hint


def _pattern_mismatch(name: str) -> tuple[str, str, str]:
    if name == "master":
        hint = "Set `local[*]` (all cores), `local[4]` as an example, or the address of a standalone cluster."
        return "NOT_IN_THIS_VERSION", "must be local, local[N], local[*] or spark://host:port.", hint
    if name == "store_id":
        hint = "Copy it from `id` in the store's `store.json`, or remove the line: the next run prints it."
        return "CONFIG_WRONG_TYPE", "must be 32 hexadecimal digits.", hint
    return "CONFIG_WRONG_TYPE", "must be a whole number followed by m or g.", "As an example `2g`."


def _type_hint(kind: str, given: Any) -> str:
    if given is None:
        return "Give it a value, or remove the line."
    if kind == "list_type":
        return f"Write it as a list: `[{given}]`." if isinstance(given, str) else "Write it as a list: `[a, b]`."
    if kind == "string_type":
        return "Put it in quotes."
    return ""


def _purpose(place: Place, model: type[Entry]) -> str:
    known = model.model_fields.get(str(place[-1]))
    return f"It means: {known.description}." if known and known.description else "docs/config.md shows an example."
