"""What the chart tells the services is what they understand, and leads them to one another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from chart_matrix import MATRIX, name_of
from rendered_chart import (
    DOMAIN,
    ROOT,
    Object,
    Rendered,
    container_of,
    container_ports,
    environment_of,
    render,
    texts,
)

from barnabas.canary.config import CanaryConfig
from barnabas.controller.config import ControllerConfig
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.gateway.clients.listeners import parse_listeners
from barnabas.gateway.config import GatewayConfig
from barnabas.host.config import BrokerConfig
from barnabas.kernel.config import load_config, unknown_variables
from barnabas.storage.config import StorageConfig

CONFIGS: Mapping[str, type[Any]] = {
    "gateway": GatewayConfig,
    "storage": StorageConfig,
    "controller": ControllerConfig,
    "coordinator": CoordinatorConfig,
    "canary": CanaryConfig,
}
SERVICES = ("gateway", "storage", "controller", "coordinator")

CLIENT_PORTS = {"INTERNAL": 9092, "EXTERNAL": 10092, "DIRECT": 11092}


def image_variables() -> dict[str, str]:
    """The settings that the images bring along: ENV in docker/Dockerfile."""
    return dict(re.findall(r"\b(BARNABAS_\w+)=(\S+)", (ROOT / "docker" / "Dockerfile").read_text()))


def fields_of_pod(workload: Object, ordinal: int, ip: str) -> dict[str, str]:
    """What the downward API says to a workload's pod."""
    return {
        "metadata.name": f"{workload['metadata']['name']}-{ordinal}",
        "status.podIP": ip,
        "metadata.labels['apps.kubernetes.io/pod-index']": str(ordinal),
        "metadata.labels['topology.kubernetes.io/zone']": "zone-b",
    }


def load(
    rendered: Rendered, component: str, tmp_path: Path, *, ordinal: int = 0, ip: str = "10.1.2.3"
) -> Any:
    """The config that a service has in its pod, as it reads it itself; in a broker's, that part of the broker's."""
    pod = rendered.front if component == "gateway" else component
    workload = rendered.workload(pod)
    file = tmp_path / f"{pod}.properties"
    file.write_text(rendered.properties(pod))
    assert container_of(workload)["args"] == ["--config", f"/etc/barnabas/config/{file.name}"]
    environment = environment_of(workload, fields_of_pod(workload, ordinal, ip))
    is_broker = pod == rendered.front == "storage"
    config_type = BrokerConfig if is_broker else CONFIGS[component]
    variables = {**image_variables(), **environment}
    config = load_config(config_type, ["--config", str(file)], variables)
    assert unknown_variables(config_type, variables) == []
    return getattr(config, component) if is_broker else config


@pytest.mark.parametrize("component", SERVICES)
@pytest.mark.parametrize("values", MATRIX, ids=name_of)
def test_services_understand_their_settings(values: tuple[str, ...], component: str, tmp_path: Path) -> None:
    ip = "[2001:db8::1]" if "ipFamily=IPv6" in values else "10.1.2.3"
    config = load(render(*values), component, tmp_path, ip=ip.strip("[]"))
    anywhere = "[::]" if "ipFamily=IPv6" in values else "0.0.0.0"
    assert config.http_address == f"{anywhere}:8080"
    if component != "gateway":
        assert config.listen_address == f"{anywhere}:19090"
    if component in ("storage", "coordinator"):
        assert config.advertised_address == f"{ip}:19090"


def test_storage_nodes_are_brokers_by_their_ordinal(tmp_path: Path) -> None:
    config = load(render(), "storage", tmp_path, ordinal=2)
    assert (config.node_id, config.position, config.broker_rack) == (2, 2, "zone-b")
    assert config.advertised_address == "10.1.2.3:19090"


@pytest.mark.parametrize("broker", ["false", "true"])
@pytest.mark.parametrize(
    ("values", "replicas", "needed"),
    [
        ((), 3, "2"),
        (("storage.replicas=5",), 3, "2"),
        (("storage.replicas=2",), 1, None),
        (("storage.replicas=1",), 1, None),
        (
            (
                "storage.config.default\\.replication\\.factor=2",
                "controller.config.default\\.replication\\.factor=2",
                "storage.config.min\\.insync\\.replicas=1",
            ),
            2,
            "1",
        ),
    ],
)
def test_three_nodes_replicate_unless_the_values_say_otherwise(
    values: tuple[str, ...], replicas: int, needed: str | None, broker: str, tmp_path: Path
) -> None:
    rendered = render(f"broker.enabled={broker}", *values)
    assert load(rendered, "controller", tmp_path).default_replication_factor == replicas
    shown = load(rendered, "storage", tmp_path).static_settings
    assert shown.get("min.insync.replicas") == needed
    assert int(shown.get("default.replication.factor", "1")) == replicas


def test_log_directories_are_on_the_volumes(tmp_path: Path) -> None:
    rendered = render("storage.persistence.disks=3")
    mounts = {mount["mountPath"] for mount in container_of(rendered.workload("storage"))["volumeMounts"]}
    directories = load(rendered, "storage", tmp_path).log_dirs
    assert len(directories) == 3
    assert all(directory.rpartition("/")[0] in mounts for directory in directories)


def test_the_embedded_store_is_on_the_volume(tmp_path: Path) -> None:
    rendered = render("minimal")
    mounts = {mount["mountPath"] for mount in container_of(rendered.workload("controller"))["volumeMounts"]}
    config = load(rendered, "controller", tmp_path)
    assert config.data_dir.rpartition("/")[0] in mounts
    assert config.etcd_endpoints == ()


def test_gateways_and_coordinators_are_called_as_their_pods(tmp_path: Path) -> None:
    assert load(render(), "gateway", tmp_path).gateway_id == "barnabas-gateway-0"
    assert load(render(), "coordinator", tmp_path).coordinator_id == "barnabas-coordinator-0"


def test_without_racks_nobody_has_one(tmp_path: Path) -> None:
    assert load(render("rack.enabled=false"), "storage", tmp_path).broker_rack == ""


def test_values_reach_the_services_and_whole_numbers_stay_whole(tmp_path: Path) -> None:
    rendered = render(
        "storage.config.log\\.retention\\.ms=604800000",
        "storage.config.log\\.cleaner\\.enable=false",
        "gateway.config.max\\.connections=20000000",
        "gateway.config.broker\\.rack=ignored",
        "log.level=DEBUG",
    )
    storage = load(rendered, "storage", tmp_path)
    assert storage.static_settings["log.retention.ms"] == "604800000"
    assert storage.log_cleaner_enable is False
    gateway = load(rendered, "gateway", tmp_path)
    assert gateway.max_connections == 20_000_000
    assert gateway.broker_rack == "zone-b"  # what a pod knows of itself wins
    assert gateway.log_level == "DEBUG"


@pytest.mark.parametrize("values", MATRIX, ids=name_of)
def test_listeners_are_where_the_container_has_its_ports(values: tuple[str, ...], tmp_path: Path) -> None:
    rendered = render(*values)
    config = load(rendered, "gateway", tmp_path)
    listeners = parse_listeners(config.listeners, config.advertised_listeners, config.advertise)
    nodes = rendered.workload("storage")["spec"]["replicas"]
    count = nodes if config.advertise == "port" else 1
    assert config.ports_per_listener == count
    expected = {
        f"{listener.name.lower()}-{position}": listener.port + position
        for listener in listeners
        for position in range(count)
    }
    own = {"http": 8080} if rendered.front == "gateway" else {"http": 8080, "grpc": 19090}
    assert container_ports(rendered.workload(rendered.front)) == {**own, **expected}
    assert {listener.name: listener.port for listener in listeners}.items() <= CLIENT_PORTS.items()


def advertised(rendered: Rendered, tmp_path: Path, ordinal: int = 0) -> dict[str, tuple[str, int]]:
    """Host and first port that clients of each listener are told."""
    config = load(rendered, "gateway", tmp_path, ordinal=ordinal)
    listeners = parse_listeners(config.listeners, config.advertised_listeners, config.advertise)
    return {listener.name: (listener.advertised_host, listener.advertised_port) for listener in listeners}


def test_clients_are_told_the_address_that_they_came_to(tmp_path: Path) -> None:
    inside = (f"barnabas-gateway.{DOMAIN}", 9092)

    def told(*values: str) -> dict[str, tuple[str, int]]:
        return advertised(render(*values), tmp_path)

    assert told() == {"INTERNAL": inside}
    assert told("node-port") == {"INTERNAL": inside, "EXTERNAL": ("node1.example.com", 30092)}
    assert told("one-port") == {"INTERNAL": inside, "EXTERNAL": ("localhost", 9092)}
    assert told("production") == {"INTERNAL": inside, "EXTERNAL": ("kafka.example.com", 9092)}
    # The canary must stay with the gateway that it came to.
    assert told("canary.enabled=true")["DIRECT"] == ("", 11092)
    bracketed = told("gateway.external.type=ClusterIP", "gateway.external.host=2001:db8::7", "ipFamily=IPv6")
    assert bracketed["EXTERNAL"] == ("2001:db8::7", 9092)


def test_clients_inside_are_told_each_broker_by_the_name_of_its_pod(tmp_path: Path) -> None:
    inside = (f"barnabas-storage-2.barnabas-storage.{DOMAIN}", 9092)
    assert advertised(render("brokers"), tmp_path, 2) == {"INTERNAL": inside}
    both = advertised(render("brokers", "node-port", "canary.enabled=true"), tmp_path, 2)
    assert both == {"INTERNAL": inside, "EXTERNAL": ("node1.example.com", 30092), "DIRECT": ("", 11092)}
    # One address for all is one that leads to all.
    one = advertised(render("brokers", "one-port"), tmp_path, 2)
    assert one == {"INTERNAL": (f"barnabas-gateway.{DOMAIN}", 9092), "EXTERNAL": ("localhost", 9092)}


def test_a_broker_has_the_settings_of_both_its_parts(tmp_path: Path) -> None:
    rendered = render(
        "brokers", "storage.config.log\\.retention\\.ms=604800000", "gateway.config.max\\.connections=77"
    )
    assert load(rendered, "gateway", tmp_path, ordinal=1).max_connections == 77
    storage = load(rendered, "storage", tmp_path, ordinal=1)
    shown = {"log.retention.ms": "604800000", "max.connections": "77"}
    assert shown.items() <= storage.broker_settings.items()
    assert (storage.node_id, storage.position) == (1, 1)


@pytest.mark.parametrize("values", MATRIX, ids=name_of)
def test_every_name_leads_to_a_service_of_the_chart(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    services = {item["metadata"]["name"]: item["spec"] for item in rendered.of_kind("Service")}
    sets = {item["metadata"]["name"]: item["spec"] for item in rendered.of_kind("StatefulSet")}
    found = 0
    for item in rendered.objects:
        for text in texts(item):
            for host, port in re.findall(rf"([\w$().-]+)\.{re.escape(DOMAIN)}(?::(\d+))?", text):
                pod, _, name = host.rpartition(".")
                assert name in services, text
                found += 1
                if port:
                    assert int(port) in [entry["port"] for entry in services[name]["ports"]], text
                if pod and not pod.startswith("$("):
                    owner, _, ordinal = pod.rpartition("-")
                    assert sets[owner]["serviceName"] == name
                    assert int(ordinal) < sets[owner]["replicas"]
    assert found > 3


@pytest.mark.parametrize("values", [(), ("minimal",), ("production",), ("brokers",)], ids=name_of)
def test_everybody_knows_all_controllers(values: tuple[str, ...], tmp_path: Path) -> None:
    rendered = render(*values)
    count = rendered.workload("controller")["spec"]["replicas"]
    names = [f"barnabas-controller-{ordinal}.barnabas-controller.{DOMAIN}:19090" for ordinal in range(count)]
    for component in ("gateway", "storage", "coordinator"):
        assert load(rendered, component, tmp_path).controllers == tuple(names)


def test_controllers_advertise_the_names_that_others_know_them_by(tmp_path: Path) -> None:
    config = load(render(), "controller", tmp_path, ordinal=1)
    assert config.advertised_address == f"barnabas-controller-1.barnabas-controller.{DOMAIN}:19090"
    assert len(config.etcd_endpoints) == 3
    assert config.etcd_namespace == "streaming/barnabas/"


def test_the_canary_asks_every_gateway_by_itself(tmp_path: Path) -> None:
    rendered = render("canary.enabled=true", "canary.config.interval\\.ms=500")
    config = load(rendered, "canary", tmp_path)
    assert config.bootstrap_servers == (f"barnabas-gateway-pods.{DOMAIN}:11092",)
    assert config.interval_ms == 500
    assert rendered.one("Service", "gateway-pods")["spec"]["clusterIP"] == "None"


def test_members_of_etcd_know_one_another() -> None:
    etcd = render().workload("etcd")
    environment = environment_of(etcd, fields_of_pod(etcd, 1, "10.1.2.3"))
    members = dict(member.split("=") for member in environment["ETCD_INITIAL_CLUSTER"].split(","))
    assert members[environment["ETCD_NAME"]] == environment["ETCD_INITIAL_ADVERTISE_PEER_URLS"]
    assert len(members) == etcd["spec"]["replicas"]


def test_images_are_those_that_the_project_builds_and_run_as_their_user() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    build = (ROOT / "docker" / "build.sh").read_text()
    assert '"barnabas/$service:$version"' in build
    workloads = [*render("canary.enabled=true").workloads, render("brokers").workload("storage")]
    for workload in workloads:
        image = container_of(workload)["image"]
        if image.startswith("barnabas/"):
            name, tag = image.removeprefix("barnabas/").split(":")
            assert re.search(rf"^images=\(.*\b{name}\b", build, re.MULTILINE), image
            assert f'version = "{tag}"' in (ROOT / "pyproject.toml").read_text()
            assert container_of(workload)["name"] in (name, "round-trip", "canary")
    assert "\nUSER 10001:10001\n" in dockerfile
