"""Dashboards are what the generator writes, are sound, and each of their queries has data of a running cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import generate
import plot
import pytest
from dashboard_queries import dashboards, panel_queries, panels, variable_queries, variables
from generator.slos import SLOS, WINDOWS
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_server import prometheus_server
from running_cluster import Cluster
from watched_cluster import Watched, watched_cluster

pytestmark = [pytest.mark.integration, pytest.mark.alone]

RATE: Final = "15s"
WAIT_SECONDS: Final = 60
NAMES: Final = ("controller", "gateway", "groups", "overview", "slo", "storage", "topic", "transactions")
ROOT: Final = Path(__file__).resolve().parents[2]


# --- the files


def test_dashboards_are_what_the_generator_writes() -> None:
    written = generate.dashboard_files()
    folder = Path(generate.__file__).parent
    assert sorted(written) == [f"grafana/dashboards/{name}.json" for name in NAMES]
    for name, text in written.items():
        assert (folder / name).read_text() == text, (
            f"{name} is stale: run python deploy/observability/generate.py"
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_dashboard_is_sound(name: str) -> None:
    document = dashboards()[name]
    assert Dashboard.from_json(document).to_json(), "Grafana's schema, as its SDK has it"
    assert document["uid"] == f"barnabas-{name}"
    assert not {"id", "version", "iteration"} & {key for key, value in document.items() if value}
    everything = panels(document)
    identities = [panel["id"] for panel in document["panels"]]
    assert identities == list(range(1, len(identities) + 1))
    titles = [panel["title"] for panel in everything]
    assert len(set(titles)) == len(titles)
    for panel in everything:
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"]
        assert defaults["thresholds"]["steps"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF"[: len(panel["targets"])])
        for target in panel["targets"]:
            assert target["legendFormat"]
    known = {"datasource", "__rate_interval", *variables(document)}
    used = set(re.findall(r"\$\{?(\w+)", str(document)))
    assert used - {"__all"} <= known, "a variable that is not there"
    assert known - used <= {"__rate_interval"}, "a variable that no panel uses"


@pytest.mark.parametrize("name", NAMES)
def test_panels_lie_beside_one_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboards()[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


# --- with data


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_cluster(tmp_path_factory.mktemp("watched")) as running:
        yield running


def has_data(series: list[dict[str, Any]]) -> bool:
    """Whether there is a number among the values."""
    return any(each["value"][1] != "NaN" for each in series)


def wait_for_data(asked: dict[str, Callable[[], bool]]) -> None:
    """Until every question was answered with data once."""
    deadline = time.monotonic() + WAIT_SECONDS
    while asked := {what: holds for what, holds in asked.items() if not holds()}:
        assert time.monotonic() < deadline, "no data:\n" + "\n".join(asked)
        time.sleep(1)


def test_every_query_of_every_panel_has_data(watched: Watched) -> None:
    queries = panel_queries(RATE)
    assert len(queries) > 100
    wait_for_data(
        {
            f"{each.dashboard}, {each.panel}: {each.expression}": (
                lambda each=each: has_data(watched.prometheus.query(each.expression))
            )
            for each in queries
        }
    )


def test_every_variable_offers_something(watched: Watched) -> None:
    wait_for_data(
        {
            f"{dashboard}: {metric} {label}": (
                lambda metric=metric, label=label: bool(watched.prometheus.label_values(metric, label))
            )
            for dashboard, metric, label in variable_queries()
        }
    )
    jobs = {"gateway-1", "gateway-2"}
    assert (
        set(watched.prometheus.label_values("kafka_network_requestmetrics_requests_total", "instance"))
        == jobs
    )
    assert watched.prometheus.label_values("up", "cluster") == ["barnabas"]


def test_every_recording_rule_has_data(watched: Watched) -> None:
    records = [
        "slo:total:rate5m",
        "slo:errors:rate5m",
        "slo:objective:ratio",
        "slo:error_budget_remaining:ratio",
    ]
    records += [f"slo:error_ratio:{window}" for window in WINDOWS]
    expressions = [f'{record}{{slo="{slo.name}"}}' for record in records for slo in SLOS]
    wait_for_data({each: lambda each=each: has_data(watched.prometheus.query(each)) for each in expressions})
    for group in watched.prometheus.ask("rules")["groups"]:
        for rule in group["rules"]:
            assert rule["health"] == "ok", f"{rule['name']}: {rule.get('lastError')}"


def test_what_alerts_look_at_is_there(watched: Watched) -> None:
    """A rule on a metric that does not exist is silent for ever."""
    expressions = {
        rule["query"]
        for group in watched.prometheus.ask("rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "alerting"
    }
    metrics = {
        name for each in expressions for name in re.findall(r"\b(?:kafka|barnabas|process|up)\w*\b", each)
    }
    metrics -= {"barnabas_service_ready"}  # of `barnabas up` alone
    assert len(metrics) > 20
    wait_for_data({name: lambda name=name: has_data(watched.prometheus.query(name)) for name in metrics})


def test_nobody_is_alarmed_without_cause(watched: Watched) -> None:
    """But for latency and the disk: how quick and how full a test machine is says nothing of the rules."""
    others = 'slo!~".*_latency", alertname!="DiskNearlyFull"'
    assert watched.prometheus.query(f'ALERTS{{severity="page", {others}}}') == []
    assert watched.prometheus.query(f'ALERTS{{alertstate="firing", {others}}}') == []


def test_queries_of_runbooks_can_be_asked(watched: Watched) -> None:
    pages = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
    queries = [query for page in pages for query in re.findall(r"^q '(.+)'$", page.read_text(), re.MULTILINE)]
    assert len(queries) > 50
    for query in queries:
        watched.prometheus.query(query)
    metrics = {name for each in queries for name in re.findall(r"\b(?:kafka|barnabas|process)_\w+", each)}
    metrics -= {"barnabas_service_ready", "barnabas_service_restarts"}  # of `barnabas up` alone
    # One that is in a runbook and nowhere else never comes.
    wait_for_data({name: lambda name=name: bool(watched.prometheus.query(name)) for name in metrics})


def test_the_main_panels_can_be_drawn(watched: Watched, tmp_path: Path) -> None:
    picture = tmp_path / "dashboards.png"
    plot.draw(watched.prometheus.url, picture, minutes=1, rate_interval=RATE)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 20_000


def test_a_cluster_of_barnabas_up_is_watched_by_one_page(cluster: Cluster, tmp_path: Path) -> None:
    cluster.produce("watched", ["one"])
    assert cluster.records("watched")
    targets = {"up": {"up": cluster.http.removeprefix("http://")}}
    with prometheus_server(tmp_path, targets, name="prometheus-up.yaml") as prometheus:
        expressions = [each.expression for each in panel_queries(RATE, ("overview", "controller"))]
        expressions += [
            f'barnabas_service_ready{{job="{job}", instance="{job}-1", cluster="up"}} == 1'
            for job in ("gateway", "storage", "coordinator")
        ]
        # Nothing failed in it yet: only of requests that were made is there a count.
        wait_for_data({each: lambda each=each: has_data(prometheus.query(each)) for each in expressions})
        assert prometheus.label_values("barnabas_build_info", "job") == ["broker", "controller"]
        assert prometheus.query('ALERTS{alertname!~"Canary.*|DiskNearlyFull"}') == []
