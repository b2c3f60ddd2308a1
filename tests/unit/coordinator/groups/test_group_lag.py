"""Lag in records and in seconds, from what was committed and what storage nodes say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.lag import LagMeasurement
from barnabas.coordinator.groups.partition_ends import Ends, PartitionId, StorageEnds
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.links.storage_link import StorageLink
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from barnabas.messages.storage_pb2 import ListOffsetsResponse, ListOffsetsResult
from barnabas.metadata.image import MetadataImage, partition_key, topic_key
from barnabas.records.record import encode_batch

TOPIC_ID = b"t" * 16
NOW_MS = 1_700_000_000_000
PARTITIONS = 4


def cluster(topic: str = "t") -> MetadataImage:
    partitions = [
        MetadataRecord(
            key=partition_key(TOPIC_ID, index),
            partition=PartitionRecord(topic_id=TOPIC_ID, partition=index, leader=index % 2),
        )
        for index in range(PARTITIONS)
    ]
    known = TopicRecord(name=topic, topic_id=TOPIC_ID, partition_count=PARTITIONS)
    return MetadataImage().apply([*partitions, MetadataRecord(key=topic_key(topic), topic=known)], 1)


class FakeEnds:
    """Storage nodes as a table: partition -> ends; every batch was written `offset` seconds after NOW_MS - 1000 s."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.table = {int(name[1:]): Ends(*values) for name, values in ends.items()}
        self.asked = 0
        self.read: list[tuple[int, int]] = []
        self.timestamps: dict[int, int | None] = {}

    async def ends(self, partitions: Iterable[PartitionId]) -> Mapping[PartitionId, Ends]:
        self.asked += 1
        return {each: self.table[each.partition] for each in partitions if each.partition in self.table}

    async def timestamp_at(self, partition: PartitionId, offset: int) -> tuple[int | None, int]:
        self.read.append((partition.partition, offset))
        return self.timestamps.get(partition.partition, NOW_MS - 1_000_000 + offset * 1000), 100


class Measured:
    """A coordinator with one shard, its clock, and what it shows."""

    def __init__(self, ends: FakeEnds) -> None:
        self.ends = ends
        self.clock = ManualClock(NOW_MS)
        self.shard = GroupShard(CoordinatorConfig())
        self.image = cluster()
        self.lag = LagMeasurement(lambda: [self.shard], lambda: self.image, ends, self.clock)
        self._registry = CollectorRegistry()
        self._registry.register(self.lag)

    def commit(
        self, partition: int, offset: int, group: str = "g", topic: str = "t", topic_id: bytes = b""
    ) -> None:
        value = OffsetAndMetadata(offset, topic_id=topic_id)
        self.shard.replay(OffsetRecord(group, topic, partition, value))

    async def measure(self, after_ms: int = 2_000) -> None:
        self.clock.advance(after_ms)
        await self.lag.measure()

    def value(self, name: str, partition: int = 0, group: str = "g") -> float | None:
        labels = {"consumergroup": group, "topic": "t", "partition": str(partition)}
        return self._registry.get_sample_value(name, labels)

    def total(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(name, labels)


async def test_what_was_committed_for_a_former_topic_of_the_name_is_no_lag_of_this_one() -> None:
    measured = Measured(FakeEnds(p0=(0, 100), p1=(0, 50)))
    measured.commit(0, 4_000, topic_id=b"o" * 16)
    measured.commit(1, 40, topic_id=TOPIC_ID)
    await measured.measure()
    assert measured.value("kafka_consumergroup_lag") is None
    assert measured.value("kafka_consumergroup_lag", 1) == 10
    assert measured.lag.left_out == 0


async def test_lag_in_records_and_seconds() -> None:
    measured = Measured(FakeEnds(p0=(0, 100), p1=(0, 50)))
    measured.commit(0, 40)
    measured.commit(1, 50)
    await measured.measure()
    assert measured.value("kafka_consumergroup_current_offset") == 40
    assert measured.value("kafka_consumergroup_lag") == 60
    assert measured.value("barnabas_consumergroup_lag_seconds") == 1000 - 40 + 2
    assert measured.value("kafka_consumergroup_lag", 1) == 0
    assert measured.value("barnabas_consumergroup_lag_seconds", 1) == 0
    assert measured.total("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 60
    assert measured.total("kafka_consumergroup_members", consumergroup="g") == 0
    assert measured.ends.read == [(0, 40)], "nothing is read where there is no lag"


async def test_a_group_that_stands_still_is_read_once_and_grows_older() -> None:
    measured = Measured(FakeEnds(p0=(0, 100)))
    measured.commit(0, 40)
    for _ in range(3):
        await measured.measure()
    assert (measured.ends.asked, measured.ends.read) == (3, [(0, 40)])
    assert measured.value("barnabas_consumergroup_lag_seconds") == 1000 - 40 + 6
    measured.commit(0, 60)
    await measured.measure()
    assert measured.ends.read == [(0, 40), (0, 60)]
    assert measured.value("barnabas_consumergroup_lag_seconds") == 1000 - 60 + 8


async def test_asked_too_often_it_tells_what_it_knows() -> None:
    measured = Measured(FakeEnds(p0=(0, 100)))
    measured.commit(0, 40)
    await measured.measure()
    await measured.measure(after_ms=500)
    assert measured.ends.asked == 1
    await measured.measure(after_ms=600)
    assert measured.ends.asked == 2


async def test_deleted_records_are_not_waited_for() -> None:
    measured = Measured(FakeEnds(p0=(70, 100)))
    measured.commit(0, 40)
    await measured.measure()
    assert measured.value("kafka_consumergroup_lag") == 60, "as Kafka's tool says it"
    assert measured.ends.read == [(0, 70)]


async def test_what_is_not_known_is_not_shown() -> None:
    measured = Measured(FakeEnds(p0=(0, 100), p1=(0, 100), p2=(0, 100)))
    measured.ends.timestamps = {1: None, 2: -1}
    for partition in range(4):
        measured.commit(partition, 10)
    measured.commit(0, 10, topic="deleted")
    await measured.measure()
    assert measured.value("barnabas_consumergroup_lag_seconds", 1) is None
    assert measured.value("barnabas_consumergroup_lag_seconds", 2) is None, "records without timestamps"
    assert measured.value("kafka_consumergroup_lag", 1) == 90
    assert measured.value("kafka_consumergroup_lag", 3) is None, "its leader gave no answer"
    assert measured.total("barnabas_coordinator_lag_left_out_partitions") == 1


async def test_reads_are_bounded_and_taken_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_READS_MAX", 2)
    measured = Measured(FakeEnds(p0=(0, 100), p1=(0, 100), p2=(0, 100), p3=(0, 100)))
    for offset in (10, 20, 30):
        for partition in range(PARTITIONS):
            measured.commit(partition, offset)
        await measured.measure()
    assert [partition for partition, _ in measured.ends.read] == [0, 1, 2, 3, 0, 1]
    assert measured.value("barnabas_consumergroup_lag_seconds", 0) == 1000 - 30 + 6
    assert measured.value("barnabas_consumergroup_lag_seconds", 3) == 1000 - 20 + 6, "by what was read last"


async def test_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_PARTITIONS_MAX", 3)
    measured = Measured(FakeEnds(p0=(0, 9), p1=(0, 9), p2=(0, 9), p3=(0, 9)))
    for group in ("g", "h"):
        for partition in range(PARTITIONS):
            measured.commit(partition, 9, group)
    await measured.measure()
    assert len(measured.lag.lags) == 3
    assert measured.total("barnabas_coordinator_lag_left_out_partitions") == 5


# --- asking storage nodes


class FakeNode:
    """A storage node that leads partitions whose logs go from 5 to 100 + their index."""

    def __init__(self, records: bytes = b"") -> None:
        self.asked: list[int] = []
        self.records = records
        self.ListOffsets = self._list_offsets
        self.fetches = SimpleNamespace(send=self._fetch)

    async def _list_offsets(self, request: Any, timeout: float) -> ListOffsetsResponse:
        self.asked.append(len(request.partitions))
        assert timeout > 0
        return ListOffsetsResponse(
            results=[
                ListOffsetsResult(
                    offset=5 if item.timestamp_ms == -2 else 100 + item.partition,
                    error_code=ErrorCode.not_leader_or_follower if item.partition == 2 else 0,
                )
                for item in request.partitions
            ]
        )

    async def _fetch(self, request: Any) -> Any:
        if not self.records:
            raise Unreachable("away")
        assert (request.max_wait_ms, request.min_bytes) == (0, 0)
        return SimpleNamespace(partitions=[SimpleNamespace(records=memoryview(self.records))])


def ends_of(*nodes: FakeNode | None) -> StorageEnds:
    return StorageEnds(cluster, lambda node_id: cast(StorageLink | None, nodes[node_id]))


async def test_leaders_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_LOOK_UP_PARTITIONS", 1)
    even, odd = FakeNode(), FakeNode()
    ends = ends_of(even, odd)
    partitions = [PartitionId(TOPIC_ID, index) for index in range(PARTITIONS)]
    found = await ends.ends([*partitions, PartitionId(b"gone".ljust(16), 0)])
    assert found == {each: Ends(5, 100 + each.partition) for each in partitions if each.partition != 2}
    assert (even.asked, odd.asked) == ([2, 2], [2, 2]), "both ends of one partition at a time"
    assert await ends_of(even, None).ends(partitions[1:2]) == {}


async def test_timestamps_come_from_the_batch_at_an_offset() -> None:
    batch = encode_batch([(7_000, None, b"a", ()), (9_000, None, b"b", ())])
    partition = PartitionId(TOPIC_ID, 0)
    assert await ends_of(FakeNode(batch)).timestamp_at(partition, 0) == (7_000, len(batch))
    assert await ends_of(FakeNode(b"cut")).timestamp_at(partition, 0) == (None, 3)
    assert await ends_of(FakeNode()).timestamp_at(partition, 0) == (None, 0)
    assert await ends_of(None).timestamp_at(partition, 0) == (None, 0)
