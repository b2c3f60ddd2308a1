"""Wrong values are refused with a line that says what to change; what is written about values is true."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from chart_matrix import EXAMPLES
from rendered_chart import CHART, ROOT, component_of, program, render, run, template

SCHEMA: Any = json.loads((CHART / "values.schema.json").read_text())
VALUES: Any = yaml.safe_load((CHART / "values.yaml").read_text())

KUBERNETES_OWN = {"startup", "liveness", "readiness", "resources", "podSecurityContext"}
"""Values that have Kubernetes' names below them, of which the chart sets some."""

REFUSED = [
    ("gateway.replica=3", "at '/gateway': additional properties 'replica' not allowed"),
    ("gatway.replicas=3", "additional properties 'gatway' not allowed"),
    ("gateway.advertise=both", "at '/gateway/advertise': value must be one of 'port', 'one'"),
    ("gateway.replicas=0", "at '/gateway/replicas': minimum: got 0, want 1"),
    ("gateway.external.type=Ingress", "at '/gateway/external/type'"),
    ("storage.replicas=three", "at '/storage/replicas': got string, want integer"),
    ("storage.persistence.size=20Gb", "at '/storage/persistence/size'"),
    ("storage.persistence.disks=0", "at '/storage/persistence/disks'"),
    ("storage.podAntiAffinity=sometimes", "at '/storage/podAntiAffinity'"),
    ("storage.config.log.retention.ms=5", "at '/storage/config/log'"),
    ("etcd.replicas=2", "at '/etcd/replicas': value must be one of 1, 3, 5"),
    ("etcd.endpoints={http://etcd:2379}", "at '/etcd/endpoints/0'"),
    ("podSecurityContext.runAsUser=0", "at '/podSecurityContext/runAsUser': minimum: got 0, want 1"),
    ("image.pullPolicy=Sometimes", "at '/image/pullPolicy'"),
    ("gateway.image.digest=sha256:1", "at '/gateway/image/digest'"),
    ("log.level=LOUD", "at '/log/level'"),
    ("networkPolicy.clientsFrom[0].cidr=10.0.0.0/8", "at '/networkPolicy/clientsFrom/0'"),
    ("monitoring.serviceMonitor.interval=15", "at '/monitoring/serviceMonitor/interval'"),
]

CONTRADICTIONS = [
    (["gateway.external.type=LoadBalancer"], "gateway.external.host is empty"),
    (
        ["gateway.external.type=NodePort", "gateway.external.host=h", "gateway.external.nodePort=32766"],
        "goes over 32767",
    ),
    (["controller.store=embedded", "etcd.enabled=false"], "controller.replicas=2"),
    (["controller.store=embedded", "controller.replicas=1"], "set etcd.enabled to false"),
    (["etcd.enabled=false"], "etcd.endpoints is empty"),
    (["etcd.endpoints={etcd:2379}"], "choose one of them"),
    (["redis.enabled=true", "redis.address=r:6379"], "choose one of them"),
    (["gateway.autoscaling.enabled=true", "gateway.autoscaling.maxReplicas=1"], "is above maxReplicas=1"),
    (["gateway.autoscaling.enabled=true", "broker.enabled=true"], "as many gateways as brokers"),
    (
        ["gateway.autoscaling.enabled=true", "gateway.resources.requests.cpu=null"],
        "gateway.resources.requests.cpu is not set",
    ),
]


@pytest.mark.parametrize(("value", "message"), REFUSED)
def test_the_schema_refuses_wrong_values_by_name(value: str, message: str) -> None:
    done = template(value)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(("values", "message"), CONTRADICTIONS)
def test_contradictions_are_refused_with_what_to_change(values: list[str], message: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if message in line)
    assert line.startswith("Error: execution error at (barnabas/templates/NOTES.txt")


def schema_of(path: tuple[str, ...]) -> Any:
    """What the schema says of the value at a path, with references followed."""
    found = SCHEMA
    for name in path:
        found = found["properties"][name]
        if "$ref" in found:
            found = SCHEMA["definitions"][found["$ref"].rpartition("/")[2]]
    return found


def sections(values: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of values that have values below them for which the schema has names."""
    if not isinstance(values, dict) or "properties" not in schema_of(path):
        return []
    return [path, *(below for name in values for below in sections(values[name], (*path, name)))]


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [("v1.29.15", False), ("v1.30.0", True), ("v1.37.1-gke.100", True), ("v1.20.0", True)],
)
def test_the_kubernetes_versions_that_are_taken(version: str, is_taken: bool) -> None:
    """v1.20.0 is what a Helm 3 from `go install` says when it is not told."""
    done = run([program("helm"), "template", "x", str(CHART), "--kube-version", version])
    assert (done.returncode == 0) == is_taken, done.stderr
    assert is_taken or f"Kubernetes {version} is too old" in done.stderr


@pytest.mark.parametrize("path", sections(VALUES), ids=".".join)
def test_the_schema_has_the_values_that_the_chart_has_and_no_others(path: tuple[str, ...]) -> None:
    schema = schema_of(path)
    assert schema["additionalProperties"] is False
    here = VALUES
    for name in path:
        here = here[name]
    optional = {"global"} if not path else set()
    if path and path[-1] in KUBERNETES_OWN:
        assert set(here) <= set(schema["properties"])
    else:
        assert set(schema["properties"]) - optional == set(here)


def test_every_value_is_used_by_a_template() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    names = {name for path in sections(VALUES) for name in path}
    unused = {name for name in names if not re.search(rf"\b{name}\b", text)}
    assert unused == set()


@pytest.mark.parametrize("script", ["values_table.py", "copy_files.py"])
def test_what_is_made_from_other_files_is_fresh(script: str) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "chart-checks" / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_names_every_example() -> None:
    readme = (CHART / "README.md").read_text()
    assert sorted(re.findall(r"\(examples/([a-z-]+)\.yaml\)", readme)) == EXAMPLES


def test_versions_are_those_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (version,) = re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert chart["appVersion"] == version


def test_dashboards_and_rules_are_in_the_objects_word_for_word() -> None:
    rendered = render("monitoring.prometheusRule.enabled=true", "monitoring.dashboards.enabled=true")
    maps = [item for item in rendered.of_kind("ConfigMap") if component_of(item) == "monitoring"]
    assert all(item["metadata"]["labels"]["grafana_dashboard"] == "1" for item in maps)
    found = {name: json.loads(text) for item in maps for name, text in item["data"].items()}
    assert found == {
        path.name: json.loads(path.read_text()) for path in (CHART / "files/dashboards").glob("*.json")
    }
    groups = [item["spec"]["groups"] for item in rendered.of_kind("PrometheusRule")]
    written = [
        yaml.safe_load(path.read_text())["groups"] for path in sorted((CHART / "files/rules").glob("*.yaml"))
    ]
    assert groups == written


@pytest.mark.parametrize(
    ("values", "jobs"),
    [((), ["gateway", "storage"]), (("brokers",), ["broker"])],
    ids=["separate", "brokers"],
)
def test_the_service_monitor_finds_the_metrics_of_every_service(
    values: tuple[str, ...], jobs: list[str]
) -> None:
    """Once, by one Service: what is scraped twice counts twice."""
    rendered = render(
        *values, "monitoring.serviceMonitor.enabled=true", "canary.enabled=true", "redis.enabled=true"
    )
    (monitor,) = rendered.of_kind("ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    found = []
    for service in rendered.of_kind("Service"):
        if wanted.items() <= service["metadata"]["labels"].items():
            assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
            found.append(service["metadata"]["labels"][monitor["spec"]["jobLabel"]])
    assert sorted(found) == sorted(["canary", "controller", "coordinator", "etcd", *jobs])


def notes(*values: str) -> str:
    """What `helm install` prints, without anything installed."""
    command = [
        program("helm"),
        "install",
        "barnabas",
        str(CHART),
        "--dry-run=client",
        "--namespace",
        "streaming",
    ]
    for value in values:
        command += ["--set", value]
    done = run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2]


def test_notes_say_how_to_connect_and_what_is_not_promised() -> None:
    text = notes("gateway.external.type=LoadBalancer", "gateway.external.host=kafka.example.com")
    assert "barnabas-gateway.streaming.svc.cluster.local:9092\n" in text
    assert "    kafka.example.com:9092\n" in text
    assert "at the ports 9092 to 9094" in text
    assert "New topics have three replicas and min.insync.replicas=2" in text
    assert "a volume that is lost" in notes("storage.replicas=2")


def test_notes_count_brokers() -> None:
    assert notes("broker.enabled=true").startswith("Barnabas 0.1.0: 3 brokers.\n")
    assert "3 storage nodes, 2 gateways.\n" in notes()


def test_notes_of_one_port_and_of_none() -> None:
    one = notes("gateway.external.type=ClusterIP", "gateway.external.host=localhost", "gateway.advertise=one")
    assert "port-forward service/barnabas-gateway-external 9092\n" in one
    assert "Connections from outside are off" in notes()
