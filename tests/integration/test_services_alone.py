"""Each service starts by itself, in any order, from a file or from variables, and says in one line what is wrong."""

from __future__ import annotations

import itertools
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import METADATA, RawConnection
from running_cluster import free_ports
from running_services import LooseCluster, ServiceProcess, loose_cluster

pytestmark = pytest.mark.integration

WAIT_SECONDS = 30
SERVICES = ("controller", "storage", "coordinator", "gateway")
UNKNOWN = {
    **dict.fromkeys(SERVICES, "unknown setting 'no.such.setting'"),
    "storage": "Unknown broker setting no.such.setting",
}
EXIT_USER_ERROR = 78


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LooseCluster]:
    with loose_cluster(tmp_path) as loose:
        yield loose


def produce_and_consume(bootstrap: str, topic: str, count: int = 50) -> None:
    """What is produced comes back through a consumer group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(WAIT_SECONDS) == 0
    assert sorted(consume(bootstrap, topic, count)) == list(range(count))


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    client = Consumer({**settings, "enable.auto.commit": False})
    client.subscribe([topic])
    seen: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(seen) < count and time.monotonic() < deadline:
        seen += [int(message.value()) for message in client.consume(count, 0.2) if not message.error()]
    client.close()
    return seen


ORDERS = [
    SERVICES,
    tuple(reversed(SERVICES)),
    ("gateway", "storage", "controller", "coordinator"),
    ("coordinator", "gateway", "storage", "controller"),
]


@pytest.mark.parametrize("order", ORDERS, ids=["-".join(order) for order in ORDERS])
def test_any_order_of_start(cluster: LooseCluster, order: tuple[str, ...]) -> None:
    by_environment = order[0] in ("gateway", "coordinator")
    for before, name in itertools.pairwise(("", *order)):
        cluster.start(name, by_environment=by_environment)
        if before and name == "controller":
            time.sleep(0.5)  # the others must have met a closed port, more than once
    cluster.wait_ready()
    produce_and_consume(cluster.bootstrap, "any-order")
    statuses = {name: service.stop() for name, service in cluster.services.items()}
    assert statuses == dict.fromkeys(statuses, 0)
    for service in cluster.services.values():
        assert "Traceback" not in service.errors()
        assert " ERROR " not in service.errors()


def test_every_service_may_open_what_the_machine_grants(cluster: LooseCluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        cluster.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    cluster.wait_ready()
    for service in cluster.services.values():
        assert resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_and_started_again_with_the_same_settings(
    cluster: LooseCluster, number: signal.Signals
) -> None:
    cluster.start()
    cluster.wait_ready()
    produce_and_consume(cluster.bootstrap, "kept")
    for name in reversed(SERVICES):
        assert cluster.services[name].stop(number) == 0, cluster.services[name].errors()
    cluster.start()
    cluster.wait_ready()
    client = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "others", "auto.offset.reset": "earliest"}
    )
    client.subscribe(["kept"])
    seen = 0
    deadline = time.monotonic() + WAIT_SECONDS
    while seen < 50 and time.monotonic() < deadline:
        seen += len(client.consume(50, 0.2))
    client.close()
    assert seen == 50


def test_a_client_keeps_its_coordinator_while_the_only_storage_node_is_fenced(cluster: LooseCluster) -> None:
    """A client that is told of no broker closes its connections, and librdkafka opens new ones ten seconds later."""
    cluster.settings["controller"]["broker.session.timeout.ms"] = "200"
    cluster.start()
    cluster.wait_ready()
    produce_and_consume(cluster.bootstrap, "fenced", 10)
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "stays", "auto.offset.reset": "earliest"}
    client = Consumer({**settings, "enable.auto.commit": False})
    client.subscribe(["fenced"])
    assert len(client.consume(10, WAIT_SECONDS)) == 10
    client.commit(asynchronous=False)
    cluster.services["storage"].kill()
    deadline = time.monotonic() + WAIT_SECONDS
    while client.list_topics("fenced", WAIT_SECONDS).topics["fenced"].partitions[0].leader >= 0:
        assert time.monotonic() < deadline, "the storage node was not fenced"
        time.sleep(0.05)
    assert list(client.list_topics("fenced", WAIT_SECONDS).brokers) == [1]
    cluster.start("storage")
    cluster.wait_ready()
    offsets = [TopicPartition("fenced", 0, 1)]
    assert [position.error for position in client.commit(offsets=offsets, asynchronous=False)] == [None]
    client.close()


def test_a_gateway_that_stops_is_told_of_no_more_before_its_clients_lose_it(
    cluster: LooseCluster, tmp_path: Path
) -> None:
    """Who asks where to go is not sent back to where nobody listens any more."""
    cluster.settings["controller"]["gateway.session.timeout.ms"] = "60000"  # its silence alone tells nobody
    cluster.start()
    http = free_ports(2)
    ports = {"gateway": cluster.port, "gateway-2": http + 1}
    second = {
        **cluster.settings["gateway"],
        "gateway.id": "gateway-2",
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['gateway-2']}",
        "http.address": f"127.0.0.1:{http}",
    }
    folder = tmp_path / "second"
    folder.mkdir()
    cluster.services["gateway-2"] = ServiceProcess("gateway", folder, second)
    cluster.wait_ready()
    deadline = time.monotonic() + WAIT_SECONDS
    with (
        RawConnection(ports["gateway"]) as to_first,
        RawConnection(ports["gateway-2"]) as to_second,
    ):
        connections = {"gateway": to_first, "gateway-2": to_second}

        def told(name: str) -> int:
            """The port at which clients find the broker, as this gateway says."""
            (broker,) = connections[name].ask(METADATA, 9, {"topics": []}).brokers
            return int(broker.port)

        while told("gateway") != told("gateway-2"):
            assert time.monotonic() < deadline, "they do not know one another"
        stops, stays = sorted(ports, key=lambda name: ports[name] != told(name))
        cluster.services[stops].process.send_signal(signal.SIGTERM)
        assert connections[stops].is_closed()
        while told(stays) != ports[stays]:
            assert time.monotonic() < deadline, "clients are still sent to the one that stopped"
        assert cluster.services[stops].process.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("name", SERVICES)
def test_one_that_waits_for_the_controller_stops_when_told(cluster: LooseCluster, name: str) -> None:
    cluster.start(name)
    service = cluster.services[name]
    deadline = time.monotonic() + WAIT_SECONDS
    while service.get("/healthz")[0] != 200:
        assert time.monotonic() < deadline, service.errors()
        time.sleep(0.02)
    if name != "controller":
        status, body = service.get("/readyz")
        assert status == 503
        assert body.startswith("not ready: ")
    if name == "coordinator":  # one is enough: they share the code
        while "no controller answers" not in service.errors():
            assert time.monotonic() < deadline, service.errors()
            time.sleep(0.02)
        assert cluster.settings["controller"]["listen.address"] in service.errors()
    assert service.stop() == 0


Refusal = tuple[str, dict[str, str], str]
TAKEN = "taken"
"""Stands for a port on which somebody listens."""

REFUSED: list[Refusal] = [
    ("storage", {"node.id": "-1"}, "node.id=-1"),
    ("storage", {"node.id": "seven"}, "node.id=seven: expected a number"),
    ("storage", {"log.dirs": ""}, "log.dirs is empty"),
    ("storage", {"controllers": ""}, "controllers is empty"),
    ("storage", {"log.dirs": "/dev/null/logs"}, "/dev/null"),
    ("storage", {"num.recovery.threads.per.data.dir": "0"}, "must be at least 1"),
    ("coordinator", {"controllers": ""}, "controllers is empty"),
    ("coordinator", {"group.max.session.timeout.ms": "1"}, "group.max.session.timeout.ms=1"),
    ("gateway", {"controllers": ""}, "controllers is not set"),
    ("gateway", {"listeners": "nonsense"}, "nonsense"),
    ("gateway", {"listeners": "PLAINTEXT://127.0.0.1:port"}, "port"),
    ("gateway", {"listeners": f"PLAINTEXT://127.0.0.1:{TAKEN}"}, "cannot listen at"),
    ("gateway", {"advertise": "sometimes"}, "sometimes"),
    ("controller", {"data.dir": ""}, "data.dir and etcd.endpoints are both empty"),
    ("controller", {"data.dir": "/dev/null/store"}, "/dev/null"),
    ("controller", {"election.lease.ms": "5"}, "election.lease.ms=5"),
    ("controller", {"delete.topic.enable": "perhaps"}, "expected true or false"),
    *((name, {"no.such.setting": "1"}, UNKNOWN[name]) for name in SERVICES),
    *((name, {"log.level": "LOUD"}, "log.level=LOUD") for name in SERVICES),
    *((name, {"log.format": "xml"}, "log.format=xml") for name in SERVICES),
    *((name, {"http.address": "nowhere"}, "http.address=nowhere") for name in SERVICES),
    *((name, {"listen.address": f"127.0.0.1:{TAKEN}"}, "cannot listen at") for name in SERVICES[:3]),
    *((name, {"listen.address": "nowhere"}, "listen.address=nowhere") for name in SERVICES[:3]),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LooseCluster]:
    """A controller for services that only find their mistake after they have met it."""
    with loose_cluster(tmp_path_factory.mktemp("running")) as loose:
        loose.start("controller")
        loose.wait_ready()
        yield loose


@pytest.mark.parametrize(
    ("name", "wrong", "said"), REFUSED, ids=[f"{case[0]}-{case[2].replace(' ', '-')}" for case in REFUSED]
)
def test_wrong_settings_are_one_line_and_status_78(
    tmp_path: Path, running: LooseCluster, name: str, wrong: dict[str, str], said: str
) -> None:
    good = LooseCluster(tmp_path).settings[name]
    if "controllers" in good:
        good["controllers"] = running.settings["gateway"]["controllers"]
    with socket.create_server(("127.0.0.1", free_ports(1))) as taken:
        port = str(taken.getsockname()[1])
        settings = {**good, **{key: text.replace(TAKEN, port) for key, text in wrong.items()}}
        service = ServiceProcess(name, tmp_path, settings)
        try:
            status = service.process.wait(WAIT_SECONDS)
        finally:
            service.kill()
    lines = service.errors().splitlines()
    assert status == EXIT_USER_ERROR, service.errors()
    assert len(lines) == 1, service.errors()
    assert lines[0].startswith(f"barnabas {name}: ")
    assert said in lines[0]


def test_a_taken_http_port_is_refused(tmp_path: Path, running: LooseCluster) -> None:
    settings = LooseCluster(tmp_path).settings["coordinator"]
    settings["controllers"] = running.settings["gateway"]["controllers"]
    settings["http.address"] = running.settings["controller"]["http.address"]
    service = ServiceProcess("coordinator", tmp_path, settings)
    try:
        assert service.process.wait(WAIT_SECONDS) == EXIT_USER_ERROR
    finally:
        service.kill()
    assert f"cannot serve HTTP at {settings['http.address']}" in service.errors().splitlines()[-1]
    assert "Traceback" not in service.errors()


def test_a_config_file_that_is_not_there(tmp_path: Path) -> None:
    service = ServiceProcess("storage", tmp_path, {"no": "thing"}, by_environment=True)
    assert service.process.wait(WAIT_SECONDS) == EXIT_USER_ERROR
    assert len(service.errors().splitlines()) == 1


def test_a_node_of_another_cluster_is_refused(cluster: LooseCluster, running: LooseCluster) -> None:
    cluster.start("controller", "storage")
    cluster.wait_ready()
    assert cluster.services["storage"].stop() == 0
    settings = {
        **cluster.settings["storage"],
        "controllers": running.settings["gateway"]["controllers"],
    }
    stranger = ServiceProcess("storage", cluster.folder, settings)
    try:
        assert stranger.process.wait(WAIT_SECONDS) == EXIT_USER_ERROR
    finally:
        stranger.kill()
    assert "refuses this node" in stranger.errors().splitlines()[-1]
