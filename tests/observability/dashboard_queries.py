"""The queries in dashboards' files, as Grafana would send them when everything is chosen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parents[2] / "deploy" / "observability" / "grafana" / "dashboards"
_VARIABLE: Final = re.compile(r"\$(\w+)|\$\{(\w+)\}")


class PanelQuery(NamedTuple):
    """One query of one panel."""

    dashboard: str
    panel: str
    expression: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Name to document."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something, those in folded rows too."""
    found = []
    for panel in document["panels"]:
        found += panel.get("panels") or []
        if panel["type"] != "row":
            found.append(panel)
    return found


def variables(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["templating"]["list"]}


def panel_queries(rate_interval: str, names: tuple[str, ...] = ()) -> list[PanelQuery]:
    """Every query of every panel (of the dashboards `names`), with its variables at `All`."""
    found = []
    for name, document in dashboards().items():
        if names and name not in names:
            continue
        values = {"__rate_interval": rate_interval}
        values |= {name: each["allValue"] for name, each in variables(document).items() if "allValue" in each}

        def value(match: re.Match[str], values: dict[str, str] = values) -> str:
            return values[match[1] or match[2]]

        for panel in panels(document):
            for target in panel["targets"]:
                found.append(PanelQuery(name, panel["title"], _VARIABLE.sub(value, target["expr"])))
    return found


def variable_queries() -> list[tuple[str, str, str]]:
    """(dashboard, metric, label) of every variable that offers a label's values."""
    found = []
    for name, document in dashboards().items():
        for variable in variables(document).values():
            if variable["type"] == "query":
                match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert match, variable["query"]
                found.append((name, match[1], match[2]))
    return found
