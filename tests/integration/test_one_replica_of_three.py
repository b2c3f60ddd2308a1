"""Three storage nodes by hand, of which one is not as it should be: it is refused or held up, and harms nobody."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from raw_client import METADATA, RawConnection
from running_cluster import free_ports
from running_services import LooseCluster, ServiceProcess, loose_cluster
from small_disk import SmallDisk

from barnabas.metadata.leaders import LEADER_EPOCH_MAX

pytestmark = [pytest.mark.integration, pytest.mark.alone]

WAIT_SECONDS = 60
LAG_MS = 2_000
REFUSED_SECONDS_MAX = 5.0
"""Far above what it takes a leader to hear that a follower's disk refuses, and to have the controller drop it."""
EPOCH_AT = 12
"""Where a batch has its leader epoch, which its CRC does not cover."""


class ThreeNodes:
    """Owns a controller, a gateway and the storage nodes 1, 2 and 3, each with a folder of its own."""

    def __init__(self, cluster: LooseCluster) -> None:
        self.cluster = cluster
        self.nodes: dict[int, ServiceProcess] = {}
        first = free_ports(6)
        self.settings = {
            node: {
                **cluster.settings["storage"],
                "node.id": str(node),
                "log.dirs": str(cluster.folder / f"node-{node}" / "disk" / "log"),
                "listen.address": f"127.0.0.1:{first + 2 * node - 2}",
                "http.address": f"127.0.0.1:{first + 2 * node - 1}",
                "replica.lag.time.max.ms": str(LAG_MS),
                "replica.fetch.wait.max.ms": "500",
                "min.insync.replicas": "2",
            }
            for node in (1, 2, 3)
        }

    def start(self, *nodes: int, wrappers: Mapping[int, tuple[str, ...]] | None = None) -> None:
        for node in nodes:
            folder = self.cluster.folder / f"node-{node}"
            folder.mkdir(exist_ok=True)
            wrapper = (wrappers or {}).get(node, ())
            self.nodes[node] = ServiceProcess("storage", folder, self.settings[node], wrapper=wrapper)
        for node in nodes:
            self.nodes[node].wait_ready()
        self.cluster.wait_ready()

    def in_sync(self, topic: str) -> list[tuple[int, list[int]]]:
        """(leader, ISR) of each partition."""
        with RawConnection(self.cluster.port) as connection:
            (row,) = connection.ask(METADATA, 9, {"topics": [{"name": topic}]}).topics
        parts = sorted(row.partitions, key=lambda part: part.partition_index)
        return [(part.leader_id, sorted(part.isr_nodes)) for part in parts]

    def until(self, topic: str, wanted: list[tuple[int, list[int]]]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (seen := self.in_sync(topic)) != wanted:
            assert time.monotonic() < deadline, f"{seen}, not {wanted}\n{self.nodes[3].errors()}"
            time.sleep(0.05)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ThreeNodes]:
    with loose_cluster(tmp_path) as cluster:
        # Each node has a port of the gateway, one after the other.
        cluster.port = free_ports(3)
        cluster.bootstrap = f"127.0.0.1:{cluster.port}"
        cluster.settings["gateway"]["listeners"] = f"PLAINTEXT://{cluster.bootstrap}"
        cluster.start("controller", "gateway")
        nodes = ThreeNodes(cluster)
        try:
            yield nodes
        finally:
            for node in nodes.nodes.values():
                node.kill()


def make_topic(three: ThreeNodes, name: str, *replicas: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": three.cluster.bootstrap})
    topic = NewTopic(name, len(replicas), replica_assignment=[list(each) for each in replicas])
    admin.create_topics([topic])[name].result(WAIT_SECONDS)
    three.until(name, [(each[0], sorted(each)) for each in replicas])


def produce(three: ThreeNodes, topic: str, partition: int, count: int, size: int = 100) -> None:
    """Records under acks=all, all of which are taken."""
    producer = Producer(
        {"bootstrap.servers": three.cluster.bootstrap, "acks": "all", "enable.idempotence": True}
    )
    failures: list[object] = []
    for _ in range(count):
        producer.produce(
            topic,
            bytes(size),
            partition=partition,
            on_delivery=lambda error, _: error and failures.append(error),
        )
    assert producer.flush(WAIT_SECONDS) == 0
    assert failures == []


def test_a_second_node_of_the_same_id_is_refused_and_the_first_goes_on(three: ThreeNodes) -> None:
    three.start(1, 2, 3)
    make_topic(three, "events", [1, 2, 3], [3, 1, 2])
    produce(three, "events", 1, 10)
    first = free_ports(2)
    folder = three.cluster.folder / "second"
    folder.mkdir()
    settings = {
        **three.settings[3],
        "log.dirs": str(folder / "log"),
        "listen.address": f"127.0.0.1:{first}",
        "http.address": f"127.0.0.1:{first + 1}",
    }
    second = ServiceProcess("storage", folder, settings)
    reason = "another process is registered as storage node 3: stop it, or take another id"
    try:
        # It asks again until the first has gone: that is what a quick restart comes to.
        _wait_until(lambda: reason in second.errors())
        assert second.get("/readyz")[0] == 503
        assert three.in_sync("events") == [(1, [1, 2, 3]), (3, [1, 2, 3])]
        produce(three, "events", 1, 10)
        assert three.nodes[3].process.poll() is None
        assert second.stop() == 0
    finally:
        second.kill()
    assert second.errors().count(reason) == 1
    assert "Traceback" not in second.errors()


def _wait_until(is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_there():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("epoch", [1_000, 2**30 + 7])
def test_a_log_with_an_epoch_from_the_future_harms_nobody(three: ThreeNodes, epoch: int) -> None:
    """One that an election may have given is the leader's to correct; one that none can give is told in one line."""
    three.start(1, 2, 3)
    make_topic(three, "events", [1, 2, 3])
    make_topic(three, "others", [2, 3, 1])
    produce(three, "events", 0, 10)
    three.nodes[3].kill()
    three.until("events", [(1, [1, 2])])
    _patch_last_epoch(_log_of(three, 3), epoch)
    produce(three, "events", 0, 10)
    three.start(3)
    three.until("others", [(2, [1, 2, 3])])
    cannot_be = epoch > LEADER_EPOCH_MAX
    three.until("events", [(1, [1, 2] if cannot_be else [1, 2, 3])])
    assert three.nodes[3].errors().count("a log has a leader epoch that cannot be right") == cannot_be
    produce(three, "events", 0, 10)
    produce(three, "others", 0, 10)
    for node in (1, 2, 3):
        assert "Traceback" not in three.nodes[node].errors()
        assert three.nodes[node].stop() == 0
    kept, *others = (_log_of(three, node).read_bytes() for node in (1, 2, 3))
    assert others[0] == kept
    assert (others[1] == kept) is not cannot_be


def _log_of(three: ThreeNodes, node: int) -> Path:
    (path,) = (three.cluster.folder / f"node-{node}" / "disk" / "log" / "events-0").glob("*.log")
    return path


def _patch_last_epoch(path: Path, epoch: int) -> None:
    """Give the last batch of a log another leader epoch; its CRC stays right."""
    data = bytearray(path.read_bytes())
    at = last = 0
    while at + 12 <= len(data):
        last = at
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
    struct.pack_into(">i", data, last + EPOCH_AT, epoch)
    path.write_bytes(data)


def _refusal(three: ThreeNodes, topic: str, partition: int) -> KafkaError:
    """What a producer that tries again for nobody hears; what is left of the log's last page takes a few records."""
    settings = {"bootstrap.servers": three.cluster.bootstrap, "acks": "all", "retries": 0}
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    outcomes: list[KafkaError | None] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        producer.produce(
            topic, bytes(1_000), partition=partition, on_delivery=lambda error, _: outcomes.append(error)
        )
        producer.flush(WAIT_SECONDS)
        if outcomes[-1] is not None:
            return outcomes[-1]
    pytest.fail(f"{len(outcomes)} records to a full disk")


def test_a_disk_that_fills_up_on_one_of_three(three: ThreeNodes, tmp_path: Path) -> None:
    """Nobody waits until its node has lagged for long enough: it says itself that it cannot go on."""
    for settings in three.settings.values():
        settings["replica.lag.time.max.ms"] = str(2_000 * WAIT_SECONDS)
    disk = SmallDisk(tmp_path / "node-3" / "disk", size="64m")
    three.start(1, 2)
    three.start(3, wrappers={3: disk.wrapper})
    make_topic(three, "events", [1, 2, 3], [3, 1, 2])
    make_topic(three, "elsewhere", [1, 2], [2, 1])
    for partition in (0, 1):
        produce(three, "events", partition, 10)
    disk.fill(three.nodes[3].process.pid)
    assert _refusal(three, "events", 1).code() == KafkaError.KAFKA_STORAGE_ERROR
    begun = time.monotonic()
    produce(three, "events", 0, 200, size=1_000)  # its leader has room, and one follower
    produce(three, "events", 1, 200, size=1_000)  # the next one leads by then, or soon
    assert time.monotonic() - begun < REFUSED_SECONDS_MAX
    three.until("events", [(1, [1, 2]), (1, [1, 2])])
    for partition in (0, 1):
        produce(three, "elsewhere", partition, 10)
    assert three.nodes[3].process.poll() is None

    disk.free()
    three.until("events", [(1, [1, 2, 3]), (1, [1, 2, 3])])
    for partition in (0, 1):
        produce(three, "events", partition, 10)
    assert "Traceback" not in three.nodes[3].errors()


def test_of_two_directories_the_one_that_fills_up_is_led_by_others(three: ThreeNodes, tmp_path: Path) -> None:
    disk, other = SmallDisk(tmp_path / "node-3" / "disk", size="64m"), tmp_path / "other"
    three.settings[3]["log.dirs"] += f",{other}"
    three.start(1, 2)
    three.start(3, wrappers={3: disk.wrapper})
    make_topic(three, "events", *([[3, 1, 2]] * 4))
    for partition in range(4):
        produce(three, "events", partition, 10)
    well = sorted(int(each.name.rpartition("-")[2]) for each in other.glob("events-*"))
    assert len(well) == 2
    disk.fill(three.nodes[3].process.pid)
    (first, second) = sorted({*range(4)} - {*well})
    assert _refusal(three, "events", first).code() == KafkaError.KAFKA_STORAGE_ERROR
    for partition in range(4):
        if partition != second:  # what nobody writes to moves as well
            produce(three, "events", partition, 200, size=1_000)
    three.until("events", [(3, [1, 2, 3]) if each in well else (1, [1, 2]) for each in range(4)])
    disk.free()
    three.until("events", [(3 if each in well else 1, [1, 2, 3]) for each in range(4)])
    for partition in range(4):
        produce(three, "events", partition, 10)
