"""Brokers started by hand (`python -m barnabas.host`): where clients are sent, and the same data without brokers."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from running_cluster import free_ports
from running_services import LooseCluster, ServiceProcess, loose_cluster

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30
PARTITIONS = 4


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LooseCluster]:
    with loose_cluster(tmp_path) as loose:
        yield loose


def start_broker(cluster: LooseCluster, name: str, **other: str) -> ServiceProcess:
    """A broker with the settings of the cluster's storage node and gateway, but for `other`."""
    folder = cluster.folder / name
    folder.mkdir(exist_ok=True)
    settings = {**cluster.settings["storage"], **cluster.settings["gateway"]}
    settings |= {setting.replace("_", "."): value for setting, value in other.items()}
    cluster.services[name] = ServiceProcess("host", folder, settings)
    return cluster.services[name]


def start_two_brokers(cluster: LooseCluster) -> int:
    """Brokers 1 and 2, each told at an address of its own; returns their listeners' port."""
    cluster.start("controller", "coordinator")
    first = free_ports(6)
    for node_id in (1, 2):
        start_broker(
            cluster,
            f"broker-{node_id}",
            node_id=str(node_id),
            position=str(node_id - 1),
            gateway_id=f"broker-{node_id}",
            log_dirs=str(cluster.folder / f"log-{node_id}"),
            listen_address=f"127.0.0.1:{first + 1 + node_id}",
            http_address=f"127.0.0.1:{first + 3 + node_id}",
            listeners=f"PLAINTEXT://127.0.0.{node_id}:{first}",
            advertised_listeners=f"PLAINTEXT://127.0.0.{node_id}:{first}",
            ports_per_listener="2",
        )
    cluster.wait_ready()
    return first


def brokers_told(bootstrap: str) -> dict[int, str]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_SECONDS).brokers
    return {broker.id: f"{broker.host}:{broker.port}" for broker in found.values()}


def test_a_broker_id_is_told_at_the_address_of_its_own_process(cluster: LooseCluster) -> None:
    port = start_two_brokers(cluster)
    own = {1: f"127.0.0.1:{port}", 2: f"127.0.0.2:{port + 1}"}
    for bootstrap in (f"127.0.0.1:{port}", f"127.0.0.2:{port + 1}", f"127.0.0.1:{port + 1}"):
        deadline = time.monotonic() + WAIT_SECONDS
        while (told := brokers_told(bootstrap)) != own:  # until the metadata reached both
            assert time.monotonic() < deadline, told
            time.sleep(0.05)


@pytest.mark.parametrize("is_coordinator", [False, True])
def test_a_broker_shows_the_metrics_of_all_its_parts_and_none_twice(
    cluster: LooseCluster, is_coordinator: bool
) -> None:
    cluster.start("controller")
    broker = start_broker(cluster, "broker", **({"coordinator_id": "c"} if is_coordinator else {}))
    cluster.wait_ready()
    _, page = broker.get("/metrics")
    series = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))
    names = {name.partition("{")[0] for name in series}
    assert {
        "barnabas_gateway_unanswered_request_bytes",
        "kafka_server_replicamanager_partitioncount",
        "process_start_time_seconds",
    } <= names
    assert ("barnabas_coordinator_loaded_partitions" in names) == is_coordinator


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("kept", str(number), partition=number % PARTITIONS)
    assert producer.flush(WAIT_SECONDS) == 0


def read(bootstrap: str, count: int) -> list[int]:
    """What a group that goes on where it stopped reads, and commits."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["kept"])
    seen: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        seen += [int(message.value()) for message in consumer.consume(count, 0.2) if not message.error()]
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(seen)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_separate_services_become_a_broker_on_the_same_data_and_separate_again(
    cluster: LooseCluster, number: signal.Signals
) -> None:
    def end(*names: str) -> None:
        for name in names:
            cluster.services.pop(name).stop(number)

    cluster.start()
    cluster.wait_ready()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("kept", PARTITIONS, 1)])["kept"].result(WAIT_SECONDS)
    produce(cluster.bootstrap, range(100))
    assert read(cluster.bootstrap, 100) == list(range(100))
    end("gateway", "storage")

    start_broker(cluster, "broker")
    cluster.wait_ready()
    produce(cluster.bootstrap, range(100, 200))
    assert read(cluster.bootstrap, 100) == list(range(100, 200))
    end("broker")

    cluster.start("storage", "gateway")
    cluster.wait_ready()
    produce(cluster.bootstrap, range(200, 300))
    assert read(cluster.bootstrap, 100) == list(range(200, 300))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_consumer_groups(["readers"])["readers"].result(WAIT_SECONDS)
    assert read(cluster.bootstrap, 300) == list(range(300))
