"""What dashboards are made of: panels, variables and the dashboard around them, through Grafana's own SDK.

The SDK's types come from Grafana's schema of the release that it is named for, so what it writes is valid there. Ids
are counted, everything is sorted, nothing has a time: the same code writes the same text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from grafana_foundation_sdk.builders import common as shared
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"
ALL: Final = ".*"
"""What `All` stands for in a query: it matches series without the label too."""

Thresholds = Sequence[tuple[float | None, str]]
"""From which value on which colour; the first has no value."""

CALM: Final[Thresholds] = ((None, GREEN),)
ANY_IS_BAD: Final[Thresholds] = ((None, GREEN), (1, RED))


class Query(NamedTuple):
    """PromQL and what its series are called, with labels in double braces."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Variable:
    """A choice at the top of a dashboard: the values of `label` in `metric`."""

    name: str
    metric: str
    label: str
    title: str

    @property
    def query(self) -> str:
        return f"label_values({self.metric}, {self.label})"


CLUSTER: Final = Variable(
    "cluster", "kafka_controller_kafkacontroller_activecontrollercount", "cluster", "Cluster"
)

Panel = timeseries.Panel | stat.Panel


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    thresholds: Thresholds = CALM,
    stacked: bool = False,
    width: int = 8,
    maximum: float | None = None,
) -> timeseries.Panel:
    """A line for each series over time; `unit` is one of Grafana's. Thresholds are drawn as lines."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(SOURCE)
        .span(width)
        .height(8)
        .min(0)
        .line_width(1)
        .fill_opacity(15 if stacked else 5)
        .show_points(common.VisibilityMode.NEVER)
        .thresholds(_thresholds(thresholds))
        .legend(
            shared.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            shared.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
    )
    if maximum is not None:
        panel.max(maximum)
    if stacked:
        panel.stacking(shared.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if len(thresholds) > 1:
        panel.thresholds_style(
            shared.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        )
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number).range())
    return panel


def number(
    title: str,
    description: str,
    unit: str,
    expression: str,
    *,
    thresholds: Thresholds = CALM,
    width: int = 4,
    legend: str = "",
    decimals: int | None = None,
) -> stat.Panel:
    """The newest value, large, with its course behind it; one for each series."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(SOURCE)
        .span(width)
        .height(4)
        .thresholds(_thresholds(thresholds))
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(shared.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )
    if decimals is not None:
        panel.decimals(decimals)
    return panel.with_target(_target(Query(expression, legend or title), 0).range())


@dataclass(frozen=True)
class Row:
    """A line of the dashboard that names what follows."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """`name` is the file's and, after `barnabas-`, the uid."""

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """The text that Grafana is given."""
        builder = (
            board.Dashboard(f"Barnabas / {self.title}")
            .uid(f"barnabas-{self.name}")
            .description(self.description)
            .tags(["barnabas"])
            .readonly()
            .timezone("browser")
            .time("now-1h", "now")
            .refresh("30s")
            .tooltip(model.DashboardCursorSync.CROSSHAIR)
            .with_variable(board.DatasourceVariable("datasource").label("Data source").type("prometheus"))
            .link(
                board.DashboardLink("Barnabas")
                .type(model.DashboardLinkType.DASHBOARDS)
                .tags(["barnabas"])
                .as_dropdown(True)
                .include_vars(True)
                .keep_time(True)
            )
        )
        for variable in (CLUSTER, *self.variables):
            builder.with_variable(_variable(variable))
        identity = 0
        for row in self.rows:
            identity += 1
            builder.with_row(board.Row(row.title).id(identity))
            for panel in row.panels:
                identity += 1
                builder.with_panel(panel.id(identity))
        document: dict[str, Any] = json.loads(JSONEncoder().encode(builder.build()))
        for each in document["templating"]["list"]:
            # What the SDK adds to every variable, for another kind than ours; Grafana's own schema has none of it.
            for name in ("auto", "auto_count", "auto_min"):
                del each[name]
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _variable(variable: Variable) -> board.QueryVariable:
    return (
        board.QueryVariable(variable.name)
        .label(variable.title)
        .query({"query": variable.query, "refId": variable.name})
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .include_all(True)
        .all_value(ALL)
        .multi(True)
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def _target(query: Query, number: int) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .expr(query.expression)
        .legend_format(query.legend)
        .ref_id(chr(ord("A") + number))
        .datasource(SOURCE)
    )


def _thresholds(steps: Thresholds) -> board.ThresholdsConfig:
    return (
        board.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value, colour) for value, colour in steps])
    )
