"""The main panels' data as one picture, for places without a Grafana.

`python deploy/observability/plot.py --prometheus http://localhost:9090 --minutes 60 --output dashboards.png`. The
queries, titles and units are those of the dashboards' files.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
POINTS: Final = 200
LINES_MAX: Final = 8
UNITS: Final = {"none": "", "reqps": "requests/s", "cps": "1/s", "Bps": "bytes/s", "percentunit": "share"}
MAIN: Final = (
    ("overview", "Records in"),
    ("overview", "Bytes out"),
    ("overview", "Requests"),
    ("overview", "Produce time"),
    ("gateway", "Where the time goes"),
    ("gateway", "Connections"),
    ("storage", "Append (p99)"),
    ("storage", "Log size"),
    ("groups", "Lag in records"),
    ("groups", "Lag in seconds"),
    ("slo", "Failures"),
    ("slo", "End to end (p99)"),
    ("slo", "Freshness"),
    ("overview", "Event loop lag (p99)"),
    ("overview", "Memory"),
)
"""(dashboard, panel), in the order of the picture."""


class Line(NamedTuple):
    """One series: its name, seconds since the picture's start, values."""

    name: str
    times: list[float]
    values: list[float]


def draw(prometheus: str, output: Path, *, minutes: float, rate_interval: str) -> None:
    """Write the picture of the last `minutes`. Raises OSError when Prometheus does not answer."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    end = time.time()
    columns = 3
    figure, axes = pyplot.subplots(
        len(MAIN) // columns, columns, figsize=(16, 3.1 * len(MAIN) / columns), layout="constrained"
    )
    for axis, (dashboard, title) in zip(axes.flat, MAIN, strict=True):
        panel = _panel(dashboard, title)
        for line in _lines(prometheus, panel, end - minutes * 60, end, rate_interval):
            axis.plot(line.times, line.values, linewidth=1, label=line.name)
        unit = panel["fieldConfig"]["defaults"]["unit"]
        axis.set_title(f"{dashboard}: {title}", fontsize=10)
        axis.set_ylabel(UNITS.get(unit, unit), fontsize=8)
        axis.set_xlim(0, minutes * 60)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=6, loc="upper left")
    for axis in axes[-1]:
        axis.set_xlabel("seconds", fontsize=8)
    figure.savefig(output, dpi=80, metadata={"Software": None})
    pyplot.close(figure)


def _panel(dashboard: str, title: str) -> dict[str, Any]:
    document = json.loads((HERE / "grafana" / "dashboards" / f"{dashboard}.json").read_text())
    (found,) = [panel for panel in document["panels"] if panel["title"] == title and panel["type"] != "row"]
    return dict(found)


def _lines(
    prometheus: str, panel: dict[str, Any], start: float, end: float, rate_interval: str
) -> list[Line]:
    """The panel's series, the largest of them."""
    lines = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", rate_interval)
        for variable in ("cluster", "instance", "request", "group", "topic"):
            expression = expression.replace(f"${variable}", ".*")
        query = {"query": expression, "start": start, "end": end, "step": max(1.0, (end - start) / POINTS)}
        with urllib.request.urlopen(
            f"{prometheus}/api/v1/query_range?{urllib.parse.urlencode(query)}", timeout=30
        ) as answer:
            result = json.load(answer)["data"]["result"]
        for series in result:
            name = target["legendFormat"]
            for label, value in series["metric"].items():
                name = name.replace(f"{{{{{label}}}}}", value)
            times = [float(at) - start for at, _ in series["values"]]
            lines.append(Line(name, times, [float(value) for _, value in series["values"]]))
    return sorted(lines, key=lambda line: -max(line.values))[:LINES_MAX]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", default="http://localhost:9090")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate-interval", default="1m")
    parser.add_argument("--output", type=Path, default=Path("dashboards.png"))
    arguments = parser.parse_args()
    draw(
        arguments.prometheus,
        arguments.output,
        minutes=arguments.minutes,
        rate_interval=arguments.rate_interval,
    )


if __name__ == "__main__":
    main()
