"""Clients outside and inside the project: the same records, through either gateway."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from compose_project import COLLECTOR, GATEWAYS, SERVICES, Project, wait_for
from confluent_kafka.admin import AdminClient
from kcat_client import kcat
from otel_collector import parse_spans
from running_load import Load, read_all
from testcontainers.core.container import DockerContainer

GATEWAY_BYTES_MAX = 200 * 1000 * 1000
"""Of its layers, uncompressed; a recent engine's own figure has what came over the wire in it too."""


def inside(project: Project, script: str) -> str:
    """The output of a shell script in a container beside the cluster, which has the `barnabas` command."""
    container = DockerContainer(f"barnabas/barnabas:{project.version}").with_kwargs(
        entrypoint=["sh", "-ec", script],
        network=f"{project.project_name}_default",
        read_only=True,
        cap_drop=["ALL"],
    )
    with container:
        wrapped = container.get_wrapped_container()
        status = wrapped.wait(timeout=60)["StatusCode"]
        output, errors = container.get_logs()
        assert status == 0, errors.decode()
        return output.decode()


def test_kcat_produces_at_one_gateway_and_consumes_at_the_other(project: Project) -> None:
    first, second = (f"localhost:{port}" for port in (project.port, project.port + 3))
    kcat("-b", first, "-P", "-t", "outside", "-K:", stdin="k1:hello\nk2:world\n")
    found = kcat("-b", second, "-C", "-t", "outside", "-o", "beginning", "-e", "-K:")
    assert sorted(found.splitlines()) == ["k1:hello", "k2:world"]


def test_a_client_inside_reads_what_one_outside_wrote_and_the_other_way_round(project: Project) -> None:
    kcat("-b", project.bootstrap, "-P", "-t", "between", stdin="from outside\n")
    bootstrap = "--bootstrap-server gateway:19092"
    found = inside(
        project,
        f"echo from inside | barnabas produce -t between {bootstrap} >&2; "
        f"barnabas consume -t between {bootstrap} -o beginning -e",
    )
    assert sorted(found.splitlines()) == ["from inside", "from outside"]
    found = kcat("-b", project.bootstrap, "-C", "-t", "between", "-o", "beginning", "-e")
    assert sorted(found.splitlines()) == ["from inside", "from outside"]


def test_clients_learn_both_gateways(project: Project) -> None:
    brokers = AdminClient({"bootstrap.servers": f"localhost:{project.port}"}).list_topics(timeout=30).brokers
    ports = {broker.port for broker in brokers.values()}
    assert len(ports) == len(brokers) == 3
    assert ports & set(range(project.port, project.port + 3)), "nobody is sent to the first gateway"
    assert ports & set(range(project.port + 3, project.port + 6)), "nobody is sent to the second gateway"


def test_what_was_acknowledged_can_be_read_from_the_beginning(project: Project) -> None:
    with Load(project.bootstrap) as load:
        load.wait_progress()
    assert len(read_all(project.bootstrap, load.topic)) > 0


def test_prometheus_scrapes_every_service(project: Project) -> None:
    url = f"http://localhost:{project.port + 6}/api/v1/query?query=" + urllib.parse.quote("up == 1")
    ours = {name for name in SERVICES if name not in ("redis", "prometheus", COLLECTOR)}

    def scraped() -> set[str]:
        found = project.get(url)["data"]["result"]
        return {sample["metric"]["instance"].partition(":")[0] for sample in found}

    wait_for(lambda: scraped() >= ours, lambda: f"not scraped: {ours - scraped()}")


def test_a_produce_is_one_trace_in_the_collectors_output(project: Project) -> None:
    def has_both_ends() -> bool:
        spans = parse_spans(project.container(COLLECTOR).logs().decode(errors="replace"))
        outside = {(span.trace, span.identity) for span in spans if span.name == "gateway.produce"}
        return any(span.name == "storage.append" and (span.trace, span.parent) in outside for span in spans)

    # One in a hundred requests is traced, as the file says: it takes some.
    with Load(project.bootstrap):
        wait_for(has_both_ends, lambda: "no trace has both a gateway and a storage node")


@pytest.mark.parametrize("service", SERVICES)
def test_containers_may_do_as_little_as_possible(project: Project, service: str) -> None:
    attributes = project.container(service).attrs
    host = attributes["HostConfig"]
    assert host["ReadonlyRootfs"], json.dumps(host)
    assert host["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert host["Memory"] > 0
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    if service.partition("-")[0] in ("gateway", "storage", "controller", "coordinator", "canary"):
        assert attributes["Config"]["User"] == "10001:10001"


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_gateways_have_no_tools_to_install_with(project: Project, gateway: str) -> None:
    tools = "pip pip3 gcc cc make apt-get dpkg perl"
    status, output = project.container(gateway).exec_run(
        ["sh", "-c", f"command -v {tools}; python -c 'import pip' 2> /dev/null && echo pip; true"]
    )
    assert (status, output) == (0, b"")


def test_the_gateway_image_is_small_and_says_what_it_is(project: Project) -> None:
    image = project.engine.images.get(f"barnabas/gateway:{project.version}")
    assert sum(layer["Size"] for layer in image.history()) < GATEWAY_BYTES_MAX
    assert image.labels["org.opencontainers.image.version"] == project.version
    assert image.labels["org.opencontainers.image.title"] == "barnabas gateway"


def test_the_compose_file_is_valid_with_every_profile(project: Project) -> None:
    text = project.compose("--profile", "spark", "config")
    for service in (*SERVICES, "grafana", "otel-collector", "spark"):
        assert f"  {service}:\n" in text
