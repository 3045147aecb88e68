"""What statsd_exporter makes of StatsD names by our mapping file, and what the dashboard asks Prometheus for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import yaml

from local_airflow.settings import PROJECT

_FOLDER = PROJECT / "plugins" / "tidefold_airflow" / "observability"
# A series: its name and its labels.
Series = tuple[str, frozenset[str]]


def map_names(names: Iterable[str]) -> set[Series]:
    """Returns the series of these names: of each by the first rule that matches."""
    rules = yaml.safe_load((_FOLDER / "statsd_mapping.yml").read_text())["mappings"]
    found = set()
    for name in names:
        matched = ((rule, re.search(rule["match"], name)) for rule in rules)
        rule, match = next((one for one in matched if one[1]), (None, None))
        assert rule, name
        assert match, name
        made = re.sub(r"\$\{(\d)\}", lambda part, match=match: match[int(part[1])], rule["name"])
        found.add((made, frozenset(rule["labels"])))
    return found


def list_queries() -> dict[str, str]:
    """Returns the queries of each panel of the dashboard, and that of its variable, by the title."""
    board = json.loads((_FOLDER / "grafana_dashboard.json").read_text())
    variables = {one["name"]: one["query"] for one in board["templating"]["list"] if one["type"] == "query"}
    panels = {f"{p['title']} {one['refId']}": one["expr"] for p in board["panels"] for one in p["targets"]}
    return {**variables, **panels}


def read_query(query: str) -> Series:
    """Returns the series that a query reads, with the labels that it names. Each query of ours reads one."""
    [name] = set(re.findall(r"\btidefold_\w+", query))
    labels = set(re.findall(r"(\w+)=~", query)) | set(re.findall(r"\bby \((\w+)\)", query))
    return name, frozenset(labels | set(re.findall(r"label_values\(\w+, (\w+)\)", query)))
