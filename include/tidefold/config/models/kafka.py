"""The `kafka` of a source: a topic in place of a landing folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from tidefold.yaml_files.messages import StrictModel, Text, mistake, mistakes_below

if TYPE_CHECKING:
    from tidefold.sources.kafka.registry import Registry

# A topic becomes lines with the offset of each record.
_FORMATS = ("debezium-json", "json", "state-json")
_OF_FILES = {"extract", "files", "folder_columns", "names", "record", "record_path"}


class KafkaEntry(StrictModel):
    """A topic whose records each run lands in the store before it ingests them."""

    servers: Annotated[Text, Field(pattern=r"^[^\s/@]+:\d+(,[^\s/@]+:\d+)*$")] = Field(
        description="brokers to ask first, as host:port,host:port"
    )
    topic: Text = Field(description="name of the topic")
    connection: Annotated[Text, Field(pattern=r"^\w+$")] | None = Field(
        default=None,
        description="Airflow connection of type kafka whose extra has settings of the client, with secrets; without "
        'Airflow, AIRFLOW_CONN_NAME=\'{"conn_type": "kafka", "extra": {...}}\' in the environment',
    )
    registry: Annotated[Text, Field(pattern=r"^(https?://[^\s@]+|[^:@]+)$")] | None = Field(
        default=None,
        description="address of the registry that has the schemas of the records (Confluent's API), or a folder with "
        "its schemas as ID.avsc; user and password: `schema.registry.basic.auth.user.info` of the connection",
    )
    max_records: int = Field(default=10_000_000, ge=1, description="offsets that one run reads at most")
    mismatches: ClassVar[Mapping[str, tuple[str, str, str]]] = {
        "servers": ("CONFIG_PATH", "must be host:port, or several of them with commas.", "Leave user names out."),
        "registry": ("CONFIG_PATH", "must be an address as https://host:port, or a folder.", "Leave user names out."),
        "connection": ("CONFIG_UNKNOWN_VALUE", "is not the name of a connection.", "Use letters, digits and `_`."),
    }

    def open_registry(self, folder: Path, settings: Mapping[str, Any]) -> Registry | None:
        """Returns the schemas of its records. folder: of the configuration. settings: of the connection."""
        from tidefold.sources.kafka.registry import Registry

        return Registry(self.registry, folder, settings) if self.registry else None


def check_place(value: Any) -> Any:
    """Requires `path` or `kafka`, and `kafka` only where records can be lines. Raises ValidationError."""
    if not isinstance(value, dict) or ("path" in value and "kafka" not in value):
        return value
    if "kafka" not in value:
        raise mistakes_below({("path",): "missing"}, value)
    if "path" in value:
        wrong = "cannot be used together with `path`.", "Remove one of them. The log goes on at its offsets."
    elif value.get("format") not in _FORMATS or _OF_FILES & value.keys():
        hint = f"Use it with {', '.join(_FORMATS)}, without {', '.join(sorted(_OF_FILES))}."
        wrong = "has no effect with this format or one of its keys.", hint
    elif _lands_schemas(value["kafka"]) and value.get("row") != "payload" and value["format"] != "debezium-json":
        wrong = "has a `registry`, so rows land in the field `payload`.", "Use `format: json` with `row: payload`."
    else:
        return value
    raise mistakes_below({("kafka",): mistake("CONFIG_KAFKA", *wrong)}, value)


def _lands_schemas(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("registry"))
