"""`barnabas up` as a user meets it: readiness, refusals, crashes, and the way it ends."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families
from raw_client import API_VERSIONS, RawConnection
from running_cluster import Cluster, free_ports
from scraped_metrics import Scrape, scrape_until

from barnabas.gateway.limits import KEPT_UNSERVED_SECONDS_MAX

SERVICES = ("controller", "broker-1")
SEPARATE = ("controller", "storage-1", "coordinator-1", "gateway-1")


def up(*flags: str) -> subprocess.CompletedProcess[str]:
    """A start that is expected to be refused."""
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "up", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_the_ready_line_names_the_bootstrap_address(cluster: Cluster) -> None:
    port = cluster.port
    assert re.fullmatch(
        rf"barnabas is ready: bootstrap localhost:{port} \(1 node, port {port}\), {cluster.http}, "
        rf"data in {cluster.data_dir}, \d+\.\d s",
        cluster.ready_line(),
    )


def test_a_broker_is_one_process_and_the_controller_another(cluster: Cluster) -> None:
    services = cluster.services()
    assert {service.name for service in services.values()} == set(SERVICES)
    assert len({service.pid for service in services.values()}) == len(SERVICES)
    assert all(service.ready for service in services.values())
    for hosted in ("storage-1", "gateway-1", "coordinator-1"):
        assert cluster.service(hosted) == services["broker-1"]


def test_a_coordinator_beyond_those_of_the_brokers_is_a_process(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(flags=("--coordinators", "2"))
    assert set(cluster.services()) == {*SERVICES, "coordinator-2"}
    cluster.produce("shared", ["value"])
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    offset = TopicPartition("shared", 0, 1)
    group.commit(offsets=[offset], asynchronous=False)  # from now on there are groups to share

    def loaded(page: Scrape, instance: str) -> float:
        return page.value("barnabas_coordinator_loaded_partitions", instance=instance)

    scrape_until(
        cluster.http, lambda page: min(loaded(page, name) for name in ("broker-1", "coordinator-2")) > 0
    )
    cluster.kill_and_wait("coordinator-2")
    assert group.committed([offset], 60)[0].offset == 1
    group.close()
    log = cluster.log()
    assert "barnabas: coordinator-2 was killed by SIGKILL; starting it again in 0.1 s\n" in log
    assert "broker-1 was" not in log


def test_separate_services_are_processes_of_their_own(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(flags=("--separate",))
    services = cluster.services()
    assert set(services) == set(SEPARATE)
    assert len({service.pid for service in services.values()}) == len(SEPARATE)
    cluster.produce("apart", ["before"])
    for name in ("storage-1", "gateway-1", "coordinator-1"):
        cluster.kill_and_wait(name)
        assert f"barnabas: {name} was killed by SIGKILL; starting it again in 0.1 s\n" in cluster.log()
    cluster.produce("apart", ["after"])
    assert [record.value for record in cluster.records("apart")] == [b"before", b"after"]


def test_the_metrics_of_all_services_are_on_one_page(cluster: Cluster) -> None:
    families = {family.name: family for family in text_string_to_metric_families(cluster.metrics())}
    instances = {sample.labels["instance"] for sample in families["barnabas_event_loop_tasks"].samples}
    assert instances >= set(SERVICES)


def test_healthz_answers(cluster: Cluster) -> None:
    with urllib.request.urlopen(f"{cluster.http}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok\n"


def test_a_held_data_dir_is_refused(cluster: Cluster) -> None:
    free = free_ports(2)
    refused = up("--data-dir", str(cluster.data_dir), "--port", str(free), "--http-port", str(free + 1))
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert f"data dir {cluster.data_dir} is in use by another" in refused.stderr
    cluster.wait_ready()


def test_a_taken_port_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    refused = up("--data-dir", str(tmp_path), "--port", str(cluster.port), "--http-port", str(free_ports(1)))
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert f"port {cluster.port} on 127.0.0.1 is taken" in refused.stderr
    cluster.wait_ready()


def test_ports_are_taken_while_none_of_the_gateways_that_share_them_listens(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """A second cluster would share them, and each have a part of the other's clients."""
    cluster = make_cluster(flags=("--separate", "--gateways", "2"))
    for gateway in ("gateway-1", "gateway-2"):
        cluster.stop_service(gateway)
    shared = ("--separate", "--gateways", "2", "--port", str(cluster.port), "--http-port", str(free_ports(1)))
    refused = up("--data-dir", str(tmp_path / "new"), *shared)
    assert refused.returncode != 0
    assert refused.stderr == (
        f"barnabas: port {cluster.port} on 127.0.0.1 is taken by another `barnabas up`: "
        "stop that, or choose another --port\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", SERVICES)
def test_a_killed_service_comes_back(make_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = make_cluster()
    cluster.kill_and_wait(name)
    assert cluster.service(name).restarts == 1
    assert f"barnabas: {name} was killed by SIGKILL; starting it again in 0.1 s\n" in cluster.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_client_is_refused_while_a_broker_is_started_again(
    make_cluster: Callable[..., Cluster], number: signal.Signals
) -> None:
    """librdkafka waits up to ten seconds before it tries an address again that refused."""
    cluster = make_cluster()
    pid = cluster.service("broker-1").pid
    assert pid is not None
    os.kill(pid, number)
    while is_running(pid):
        socket.create_connection(("127.0.0.1", cluster.port)).close()
        time.sleep(0.005)
    with RawConnection(cluster.port) as client:
        answer = client.ask(API_VERSIONS, 0, {})
    assert answer.error_code == 0
    assert cluster.service("broker-1").pid != pid


def wait_until_refused(port: int) -> None:
    """From the moment on in which its process runs, a gateway has so long; a busy machine takes some to get there."""
    until = time.monotonic() + KEPT_UNSERVED_SECONDS_MAX + 60.0
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.1)
    pytest.fail(f"port {port} is still open")


def test_clients_are_served_again_after_gateways_that_heard_of_no_node_for_long(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The port refuses meanwhile, whether a process has listened at it before or not."""
    cluster = make_cluster(flags=("--separate",))
    with cluster.down("controller"):
        for _ in range(2):
            killed = cluster.kill("gateway-1")
            while cluster.service("gateway-1").pid in (killed, None):
                time.sleep(0.02)
            wait_until_refused(cluster.port)
    with RawConnection(cluster.port) as client:
        assert client.ask(API_VERSIONS, 0, {}).error_code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stops_cleanly_and_starts_again(
    make_cluster: Callable[..., Cluster], number: signal.Signals
) -> None:
    cluster = make_cluster()
    pids = [service.pid for service in cluster.services().values()]
    assert cluster.stop(number) == 0
    assert not any(is_running(pid) for pid in pids if pid)
    assert "killing it" not in cluster.log()
    socket.create_server(("127.0.0.1", cluster.port)).close()
    cluster.start()


def test_nothing_outlives_a_killed_supervisor(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    watched = [os.pidfd_open(service.pid) for service in cluster.services().values() if service.pid]
    cluster.kill_supervisor()
    cluster.start()  # waits for the lock that the last of them holds
    for descriptor in watched:
        # Readable once the process has ended, whether or not its new parent has taken notice of that.
        assert select.select([descriptor], [], [], 0)[0], "a service outlived its supervisor"
        os.close(descriptor)


def test_a_corrupt_metadata_store_is_refused_and_left_alone(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.stop()
    store = cluster.data_dir / "controller" / "metadata.db"
    garbage = b"not a database" * 1000
    store.write_bytes(garbage)
    for leftover in store.parent.glob("metadata.db-*"):
        leftover.unlink()
    refused = up(
        "--data-dir",
        str(cluster.data_dir),
        "--port",
        str(cluster.port),
        "--http-port",
        str(cluster.http_port),
    )
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert "metadata.db" in refused.stderr
    assert store.read_bytes() == garbage


def test_fewer_nodes_than_before_are_refused(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=2)
    cluster.stop()
    refused = up("--data-dir", str(cluster.data_dir), "--port", str(cluster.port))
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert "start it with --nodes 2" in refused.stderr
