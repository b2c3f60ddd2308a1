"""Consumers with a rack read from the follower there (KIP-392), and from the leader while it is away or behind.

Three brokers in three racks; clients of Kafka's own Java library and of librdkafka choose by what the leader says.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tools import command_of
from running_cluster import free_ports
from running_services import LooseCluster, ServiceProcess, loose_cluster
from test_brokers_alone import start_broker

from barnabas.metadata.settings.replication import RACK_AWARE
from barnabas.testing.process import wait_until_stopped

pytestmark = [pytest.mark.integration, pytest.mark.alone]

WAIT_SECONDS: Final = 30
RACKS: Final = {1: "west", 2: "east", 3: "north"}
LEADER, FOLLOWER = 1, 2
TOPIC: Final = "nearby"


class Racks:
    """A topic that node 1 leads and the others follow, and what is written to it."""

    def __init__(self, cluster: LooseCluster, bootstrap: str, *, prefix: str) -> None:
        """The nodes' processes are named `prefix` and their ids."""
        self.cluster = cluster
        self.bootstrap = bootstrap
        self._prefix = prefix
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.wait_for(self._is_made)
        self.wait_for(lambda: self.in_sync() == {1, 2, 3})
        self.numbers = 0

    def _is_made(self) -> bool:
        """False while not all nodes have registered."""
        topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "2"})
        try:
            self.admin.create_topics([topic])[TOPIC].result(WAIT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICA_ASSIGNMENT:
                raise
            return False
        return True

    def broker(self, node: int) -> ServiceProcess:
        return self.cluster.services[f"{self._prefix}-{node}"]

    @staticmethod
    def wait_for(holds: object, seconds: float = WAIT_SECONDS) -> None:
        assert callable(holds)
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def in_sync(self) -> set[int]:
        return set(self.admin.list_topics(TOPIC, timeout=WAIT_SECONDS).topics[TOPIC].partitions[0].isrs)

    def produce(self, count: int) -> None:
        """The next numbers, acknowledged by all who are in sync."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(self.numbers, self.numbers + count):
            producer.produce(TOPIC, str(number), partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
        self.numbers += count

    def bytes_out(self, node: int) -> float:
        """What clients were given of the topic by the node."""
        _, page = self.broker(node).get("/metrics")
        found = re.search(
            rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{TOPIC}"}} (\S+)$', page, re.MULTILINE
        )
        return float(found[1]) if found else 0.0


def start_brokers(cluster: LooseCluster) -> int:
    """A broker in each rack; returns the port of the first."""
    ports = free_ports(9)
    cluster.start("controller", "coordinator")
    for node, rack in RACKS.items():
        start_broker(
            cluster,
            f"broker-{node}",
            node_id=str(node),
            position=str(node - 1),
            own_position_only=str(node - 1),
            gateway_id=f"broker-{node}",
            broker_rack=rack,
            replica_selector_class=RACK_AWARE,
            log_dirs=str(cluster.folder / f"log-{node}"),
            listen_address=f"127.0.0.1:{ports + 3 + node - 1}",
            http_address=f"127.0.0.1:{ports + 6 + node - 1}",
            listeners=f"PLAINTEXT://127.0.0.1:{ports}",
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{ports}",
        )
    cluster.wait_ready()
    return ports


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[Racks]:
    with loose_cluster(tmp_path) as cluster:
        port = start_brokers(cluster)
        yield Racks(cluster, f"127.0.0.1:{port}", prefix="broker")


class Reader:
    """A consumer of librdkafka in one rack; `seen` are the numbers in the order in which they came."""

    def __init__(self, racks: Racks, rack: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": racks.bootstrap,
                "group.id": f"readers-in-{rack}",
                "auto.offset.reset": "earliest",
                "client.rack": rack,
                "socket.timeout.ms": 5_000,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self.seen: list[int] = []

    def read_up_to(self, end: int, seconds: float = WAIT_SECONDS) -> float:
        """Read until `end` numbers were seen; returns how long that took."""
        began = time.monotonic()
        while len(self.seen) < end and time.monotonic() < began + seconds:
            messages = self._consumer.consume(1_000, 0.1)
            self.seen += [int(message.value() or -1) for message in messages if not message.error()]
        assert self.seen == list(range(end)), f"{len(self.seen)} of {end}"
        return time.monotonic() - began

    def close(self) -> None:
        self._consumer.close()


@contextlib.contextmanager
def reading(racks: Racks, rack: str) -> Iterator[Reader]:
    reader = Reader(racks, rack)
    try:
        yield reader
    finally:
        reader.close()


def frozen(process: ServiceProcess) -> contextlib.AbstractContextManager[None]:
    @contextlib.contextmanager
    def while_stopped() -> Iterator[None]:
        process.process.send_signal(signal.SIGSTOP)
        try:
            wait_until_stopped(process.process.pid)
            yield
        finally:
            process.process.send_signal(signal.SIGCONT)

    return while_stopped()


@pytest.mark.parametrize("ending", ["killed", "frozen"])
def test_librdkafka_reads_in_its_rack_and_from_the_leader_while_the_follower_is_away(
    racks: Racks, ending: str
) -> None:
    racks.produce(1_000)
    with reading(racks, RACKS[FOLLOWER]) as reader:
        reader.read_up_to(1_000)
        at_leader = racks.bytes_out(LEADER)
        racks.produce(1_000)
        reader.read_up_to(2_000)
        assert racks.bytes_out(FOLLOWER) > 10_000
        assert racks.bytes_out(LEADER) == at_leader, "nothing comes from the leader any more"
        with contextlib.ExitStack() as away:
            if ending == "killed":
                racks.broker(FOLLOWER).kill()
            else:
                away.enter_context(frozen(racks.broker(FOLLOWER)))
            racks.produce(1_000)
            # Of a frozen one the client itself has to find out: after socket.timeout.ms.
            reader.read_up_to(3_000)
            assert racks.bytes_out(LEADER) > at_leader
        racks.produce(100)
        reader.read_up_to(3_100)


def test_consumers_of_other_racks_read_from_the_leader(racks: Racks) -> None:
    racks.produce(1_000)
    for rack in ("", RACKS[LEADER], "nowhere"):
        with reading(racks, rack) as reader:
            reader.read_up_to(1_000)
    assert [racks.bytes_out(node) > 0 for node in RACKS] == [True, False, False]


@contextlib.contextmanager
def java_reading(racks: Racks, count: int, rack: str) -> Iterator[subprocess.Popen[str]]:
    """Kafka's console consumer; without a group, which would begin anew when racks change (KIP-881)."""
    command = command_of(
        "console-consumer",
        *(
            "--bootstrap-server",
            racks.bootstrap,
            "--topic",
            TOPIC,
            "--partition",
            "0",
            "--offset",
            "earliest",
        ),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
        *(("--command-property", f"client.rack={rack}") if rack else ()),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as java:
        try:
            yield java
        finally:
            java.kill()


def all_of(java: subprocess.Popen[str]) -> list[int]:
    output, _ = java.communicate(timeout=60)
    return [int(line) for line in output.split()]


@pytest.mark.parametrize("rack", [RACKS[FOLLOWER], ""])
def test_the_java_consumer_reads_in_its_rack(racks: Racks, rack: str) -> None:
    racks.produce(2_000)
    with java_reading(racks, 3_000, rack) as java:
        racks.wait_for(lambda: racks.bytes_out(FOLLOWER if rack else LEADER) > 0)
        racks.produce(1_000)
        assert all_of(java) == list(range(3_000))
    assert (racks.bytes_out(LEADER) > 0, racks.bytes_out(FOLLOWER) > 0) == (not rack, bool(rack))


def test_the_java_consumer_goes_on_at_the_leader_when_its_follower_dies(racks: Racks) -> None:
    racks.produce(1_000)
    with java_reading(racks, 2_000, RACKS[FOLLOWER]) as java:
        racks.wait_for(lambda: racks.bytes_out(FOLLOWER) > 8_000)
        racks.broker(FOLLOWER).kill()
        racks.produce(1_000)
        assert all_of(java) == list(range(2_000))
    assert racks.bytes_out(LEADER) > 0


# -- one broker that stands for all -------------------------------------------------------------------------------


def start_separately(cluster: LooseCluster) -> int:
    """Three storage nodes in racks and a gateway in that of node 2, which shows one broker; returns its port."""
    cluster.start("controller", "coordinator")
    ports = free_ports(8)
    settings = {
        f"storage-{node}": cluster.settings["storage"]
        | {
            "node.id": str(node),
            "broker.rack": rack,
            "replica.selector.class": RACK_AWARE,
            "log.dirs": str(cluster.folder / f"log-{node}"),
            "listen.address": f"127.0.0.1:{ports + node}",
            "http.address": f"127.0.0.1:{ports + 3 + node}",
        }
        for node, rack in RACKS.items()
    }
    gateway = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports}",
        "advertise": "one",
        "broker.rack": RACKS[FOLLOWER],
    }
    settings["gateway"] = cluster.settings["gateway"] | gateway
    for name, own in settings.items():
        folder = cluster.folder / name
        folder.mkdir()
        cluster.services[name] = ServiceProcess(name.partition("-")[0], folder, own)
    cluster.wait_ready()
    return ports


def test_a_gateway_reads_in_its_rack_and_from_the_leader_while_the_follower_is_frozen(tmp_path: Path) -> None:
    """Nobody sees a record twice, or one less, as its reads go from one log to the other and back."""
    with loose_cluster(tmp_path) as cluster:
        port = start_separately(cluster)
        racks = Racks(cluster, f"127.0.0.1:{port}", prefix="storage")
        racks.produce(1_000)
        with reading(racks, "") as reader:
            reader.read_up_to(1_000)
            assert racks.bytes_out(FOLLOWER) > 8_000
            assert racks.bytes_out(LEADER) == 0
            with frozen(racks.broker(FOLLOWER)):
                racks.wait_for(lambda: FOLLOWER not in racks.in_sync())
                racks.produce(1_000)
                assert reader.read_up_to(2_000) < 10
                assert racks.bytes_out(LEADER) > 8_000
            # It lacks what was written meanwhile, and is not read from before it has it.
            racks.produce(1_000)
            reader.read_up_to(3_000)
            racks.wait_for(lambda: FOLLOWER in racks.in_sync())
            at_leader = racks.bytes_out(LEADER)
            racks.produce(1_000)
            reader.read_up_to(4_000)
            assert racks.bytes_out(LEADER) == at_leader
