"""The options of a source as its plugin takes them, and those by which values are read, which a log stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tidefold.config.models.sources import JsonEntry, SourceEntry
from tidefold.sources.profiles.profile import load_profile

# These decide files, their ends, the order, the time of a change; what a package does with its own is not known.
_READS_NO_VALUE = {"format", "path", "table", "from_version", "names", "files", "extract", "name", "options"}
_READS_NO_VALUE |= {"kafka", "leave_out", "replaced", "connector", "state", "partitions", "metadata", "commit_time"}
# What only `init` and messages have of a profile.
_SAID_OF_PROFILES = {"title", "has", "lacks", "unsent", "key", "orders"}


def list_options(source: SourceEntry, folder: Path = Path()) -> dict[str, Any]:
    """Returns the options that only this format has, as plain values. folder: of the configuration."""
    options: dict[str, Any] = source.model_dump(mode="json", exclude={"format", "kafka", source.place_key})
    if options.get("extract") is None:
        options.pop("extract", None)
    elif "record" in options:
        options["record"] = "value"  # A line of an extract is a row.
    if options.get("profile"):
        options["profile"] = msgspec.to_builtins(load_profile(options["profile"], folder))
    return options


def list_reading(source: SourceEntry, folder: Path = Path()) -> dict[str, str]:
    """Returns the options that decide how values are read, as JSON, where they are not the defaults."""
    options: dict[str, Any] = source.model_dump(mode="json", exclude=_READS_NO_VALUE, exclude_defaults=True)
    if options.pop("op", None):
        # What came after the first stores is left out at its default: their logs have no word of it.
        op, new = source.model_dump(mode="json")["op"], {"missing": "refuse"}
        options |= {f"op.{name}": value for name, value in op.items() if (name, value) not in new.items()}
    if options.get("time_zone") == "UTC":
        del options["time_zone"]
    if isinstance(source, JsonEntry) and options.pop("profile", ""):
        told = list_options(source, folder)["profile"]
        options |= {f"profile.{name}": told[name] for name in told.keys() - _SAID_OF_PROFILES if told[name]}
        options |= {"table": source.table} if source.table else {}
    return {name: json.dumps(value, sort_keys=True) for name, value in options.items()}
