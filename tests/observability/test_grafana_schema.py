"""Dashboards fit the types that Grafana itself publishes: a field that it does not know, or of a wrong kind, fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from dashboard_queries import dashboards, panels
from running_cluster import require_program

pytestmark = pytest.mark.integration

SCHEMA: Final = Path(__file__).resolve().parent / "grafana_schema"
KINDS: Final = {"timeseries": "TimeSeriesPanel", "stat": "StatPanel", "row": "Row"}


def complaints(folder: Path, documents: dict[str, dict[str, Any]]) -> str:
    """What the TypeScript compiler says of the dashboards as values of Grafana's types; empty when they fit."""
    require_program("node")
    types = json.dumps(str(SCHEMA / "dashboard_types"))
    lines = [f"import type {{ Rest, Row, StatPanel, TimeSeriesPanel }} from {types};"]
    for name, document in documents.items():
        rest = {key: value for key, value in document.items() if key != "panels"}
        lines.append(f"export const {name}: Rest = {json.dumps(rest)};")
        rows = [panel | {"panels": []} for panel in document["panels"] if panel["type"] == "row"]
        for panel in [*rows, *panels(document)]:
            fields = {key: value for key, value in panel.items() if key != "panels"}
            kind = KINDS[panel["type"]]
            lines.append(f"export const {name}_{panel['id']}: {kind} = {json.dumps(fields)};")
    source = folder / "dashboards.ts"
    source.write_text("\n".join(lines))
    compiler = SCHEMA / "node_modules" / "typescript" / "bin" / "tsc"
    settings = [
        "--noEmit",
        "--strict",
        "--module",
        "esnext",
        "--moduleResolution",
        "bundler",
        "--target",
        "es2022",
    ]
    done = subprocess.run(
        ["node", str(compiler), *settings, "--skipLibCheck", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (done.stdout == ""), done.stderr
    return done.stdout


def test_dashboards_fit_grafanas_types(tmp_path: Path) -> None:
    assert complaints(tmp_path, dashboards()) == ""


def test_what_grafana_does_not_know_is_found(tmp_path: Path) -> None:
    """Each of these was no complaint if the types were lost on the way."""
    document = dashboards()["overview"]
    first = next(panel for panel in panels(document) if panel["type"] == "timeseries")
    first["fieldConfig"]["defaults"]["custom"]["lineWidht"] = 1
    first["options"]["legend"]["placement"] = "nowhere"
    document["refresh"] = 30
    found = complaints(tmp_path, {"overview": document})
    for word in ("lineWidht", "nowhere", "number"):
        assert word in found, found
