"""The chart's objects fit together: names, selectors, ports, budgets, probes, what a pod may do."""

from __future__ import annotations

from typing import Any

import pytest
from chart_matrix import MATRIX, name_of
from rendered_chart import (
    NAMESPACE,
    RELEASE,
    Object,
    Rendered,
    component_of,
    container_of,
    container_ports,
    pod_labels,
    pod_spec,
    render,
)

every_case = pytest.mark.parametrize("values", MATRIX, ids=name_of)
SERVICES = ("gateway", "storage", "controller", "coordinator")


@every_case
def test_names_are_unique_and_short_enough(values: tuple[str, ...]) -> None:
    objects = render(*values).objects
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))
    assert {item["metadata"]["namespace"] for item in objects} == {NAMESPACE}


def test_a_long_release_name_leaves_room_for_what_is_put_behind_it() -> None:
    rendered = render(f"fullnameOverride={'a' * 60}", "canary.enabled=true")
    assert all(len(item["metadata"]["name"]) <= 63 for item in rendered.objects)
    # A label of a StatefulSet's pods has its name with a hash of ten characters behind it.
    assert all(len(item["metadata"]["name"]) <= 63 - 11 for item in rendered.of_kind("StatefulSet"))


@every_case
def test_selectors_are_part_of_the_labels_of_the_pods_they_are_for(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    for workload in rendered.of_kind("Deployment", "StatefulSet"):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert rendered.selected(selector) == [workload]
    for budget in rendered.of_kind("PodDisruptionBudget"):
        assert len(rendered.selected(budget["spec"]["selector"]["matchLabels"])) == 1
    for service in rendered.of_kind("Service"):
        assert len(rendered.selected(service["spec"]["selector"])) == 1, service["metadata"]["name"]


@every_case
def test_services_lead_to_ports_that_containers_have(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    for service in rendered.of_kind("Service"):
        (workload,) = rendered.selected(service["spec"]["selector"])
        ports = container_ports(workload)
        assert len(set(ports.values())) == len(ports)
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports, service["metadata"]["name"]
            if service["spec"].get("clusterIP") == "None":
                # Nothing translates ports behind a headless Service.
                assert port["port"] == ports[port["targetPort"]]


@every_case
def test_stateful_sets_have_their_service_and_deployments_their_autoscaler(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    services = {item["metadata"]["name"]: item for item in rendered.of_kind("Service")}
    for workload in rendered.of_kind("StatefulSet"):
        assert services[workload["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"
    for scaler in rendered.of_kind("HorizontalPodAutoscaler"):
        (target,) = (
            item
            for item in rendered.of_kind("Deployment")
            if item["metadata"]["name"] == scaler["spec"]["scaleTargetRef"]["name"]
        )
        # With a number in the Deployment, each upgrade would undo what the autoscaler did.
        assert "replicas" not in target["spec"]


@every_case
def test_volumes_and_accounts_that_pods_name_are_there(values: tuple[str, ...]) -> None:
    rendered = render(*values)
    accounts = {item["metadata"]["name"] for item in rendered.of_kind("ServiceAccount")} | {"given"}
    maps = {item["metadata"]["name"] for item in rendered.of_kind("ConfigMap")}
    for workload in rendered.workloads:
        spec = pod_spec(workload)
        assert spec["serviceAccountName"] in accounts
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        claims = workload["spec"].get("volumeClaimTemplates", ())
        volumes |= {claim["metadata"]["name"] for claim in claims}
        mounts = container_of(workload)["volumeMounts"]
        assert {mount["name"] for mount in mounts} == volumes
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        for volume in spec.get("volumes", ()):
            assert volume.get("configMap", {}).get("name", next(iter(maps))) in maps


@every_case
def test_pods_get_no_token_no_variables_of_services_and_no_more_than_they_need(
    values: tuple[str, ...],
) -> None:
    for workload in render(*values).workloads:
        spec, container = pod_spec(workload), container_of(workload)
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


def test_services_are_asked_for_their_health_at_the_port_that_they_serve_it() -> None:
    rendered = render("canary.enabled=true")
    for component in (*SERVICES, "canary"):
        container = container_of(rendered.workload(component))
        paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
        assert {name: get["path"] for name, get in paths.items()} == {
            "startup": "/healthz",
            "liveness": "/healthz",
            "readiness": "/readyz",
        }
        assert {get["port"] for get in paths.values()} == {"http"}


def test_rolling_updates_keep_gateways_and_gateways_say_goodbye() -> None:
    gateway = render().workload("gateway")
    assert gateway["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    drain = container_of(gateway)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < drain < pod_spec(gateway)["terminationGracePeriodSeconds"] - 10


def test_brokers_are_on_the_volumes_of_storage_nodes_and_say_goodbye_to_clients() -> None:
    separate, brokers = (render(*values).workload("storage") for values in ((), ("brokers",)))
    # What Kubernetes lets nobody change, so that an upgrade can change the layout and find its data.
    for fixed in ("serviceName", "selector", "volumeClaimTemplates", "podManagementPolicy", "replicas"):
        assert separate["spec"][fixed] == brokers["spec"][fixed]
    assert separate["metadata"]["name"] == brokers["metadata"]["name"]
    mounts = {mount["mountPath"] for mount in container_of(separate)["volumeMounts"]}
    assert mounts == {mount["mountPath"] for mount in container_of(brokers)["volumeMounts"]}
    drain = container_of(brokers)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert 0 < drain < pod_spec(brokers)["terminationGracePeriodSeconds"] - 60
    assert "lifecycle" not in container_of(separate)


def test_of_brokers_there_is_one_kind_of_pod() -> None:
    rendered = render("brokers", "canary.enabled=true")
    assert rendered.front == "storage"
    names = [item["metadata"]["name"] for item in rendered.objects if item["kind"] != "Service"]
    assert not [name for name in names if "gateway" in name]
    container = container_of(rendered.workload("storage"))
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert container["image"] == "barnabas/broker:0.1.0"
    budget = rendered.one("PodDisruptionBudget", "storage")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_old_pods_do_not_keep_new_ones_from_their_nodes() -> None:
    spec = pod_spec(render("gateway.podAntiAffinity=hard").workload("gateway"))
    (term,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["matchLabelKeys"] == ["pod-template-hash"]
    assert spec["topologySpreadConstraints"][0]["matchLabelKeys"] == ["pod-template-hash"]


@pytest.mark.parametrize("component", [*SERVICES, "etcd"])
def test_a_drain_takes_one_pod_at_a_time_and_never_waits_for_ever(component: str) -> None:
    budget = render().one("PodDisruptionBudget", component)["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@pytest.mark.parametrize("component", SERVICES)
def test_another_setting_restarts_the_pods_and_another_chart_version_does_not(component: str) -> None:
    def checksum(rendered: Rendered) -> Any:
        return rendered.workload(component)["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert checksum(render()) != checksum(render(f"{component}.config.some\\.setting=1"))
    assert checksum(render()) == checksum(render("log.level=DEBUG"))
    labels = pod_labels(render().workload(component))
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(labels)


def test_volumes_outlive_their_pods() -> None:
    rendered = render("storage.persistence.disks=2")
    storage = rendered.workload("storage")["spec"]
    assert storage["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain",
        "whenScaled": "Retain",
    }
    assert [claim["metadata"]["name"] for claim in storage["volumeClaimTemplates"]] == ["disk-0", "disk-1"]


def test_without_etcd_the_only_controller_has_a_volume() -> None:
    rendered = render("minimal")
    controller = rendered.workload("controller")["spec"]
    assert controller["replicas"] == 1
    assert len(controller["volumeClaimTemplates"]) == 1
    assert all(component_of(item) != "etcd" for item in rendered.objects)


def ports_of(service: Object) -> list[int]:
    return [port["port"] for port in service["spec"]["ports"]]


def test_clients_get_a_port_for_each_storage_node() -> None:
    rendered = render(
        "storage.replicas=4", "gateway.external.type=LoadBalancer", "gateway.external.host=k.example.com"
    )
    assert ports_of(rendered.one("Service", "gateway")) == [9092, 9093, 9094, 9095]
    assert ports_of(rendered.one("Service", "gateway-external")) == [9092, 9093, 9094, 9095]


def test_clients_get_one_port_in_one_mode() -> None:
    rendered = render("one-port")
    assert ports_of(rendered.one("Service", "gateway")) == [9092]
    assert ports_of(rendered.one("Service", "gateway-external")) == [9092]


def test_node_ports_follow_one_another() -> None:
    service = render("node-port").one("Service", "gateway-external")["spec"]
    assert service["type"] == "NodePort"
    assert [port["nodePort"] for port in service["ports"]] == [30092, 30093, 30094]


def test_nobody_outside_gets_in_unless_asked_for() -> None:
    services = render().of_kind("Service")
    assert {service["spec"].get("type", "ClusterIP") for service in services} == {"ClusterIP"}
    assert f"{RELEASE}-gateway-external" not in {service["metadata"]["name"] for service in services}


def test_images_come_from_the_registry_with_tag_or_digest() -> None:
    digest = f"sha256:{'a' * 64}"
    rendered = render(
        "image.registry=r.example.com:5000/x", "image.tag=1.2", f"storage.image.digest={digest}"
    )
    images = {component_of(item): container_of(item)["image"] for item in rendered.workloads}
    assert images["gateway"] == "r.example.com:5000/x/barnabas/gateway:1.2"
    assert images["storage"] == f"r.example.com:5000/x/barnabas/storage@{digest}"
    assert images["test"] == "r.example.com:5000/x/barnabas/barnabas:1.2"
    assert images["etcd"].startswith("quay.io/coreos/etcd:")
