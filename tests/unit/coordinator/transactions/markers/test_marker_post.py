"""Markers as appends and calls: what is sent, and what becomes of a link that fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from transaction_node import World, a_world

from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.markers.marker import Marker
from barnabas.coordinator.transactions.markers.places import NoPlace, Place, Places
from barnabas.coordinator.transactions.markers.post import LinkPost
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import ConnectionRefused, DeadlinePassed, LinkError, OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.coordinator_pb2 import CompleteTransactionRequest, CompleteTransactionResponse
from barnabas.messages.metadata_pb2 import MetadataRecord
from barnabas.messages.storage_pb2 import AppendResult, CoordinatorIdentity, PartitionAppendResult
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage, coordinator_key
from barnabas.records.batch import parse_header
from barnabas.records.control import EndTransactionMarker, decode_marker

MARKER = Marker(7, 3, True, 9, 2)
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 0)
NODE_1 = Place(False, "1", "node-1:1")


class FakeStorage:
    """A storage node's link that answers at once."""

    here: Any = None

    def __init__(self) -> None:
        self.appends = self
        self.sent: list[tuple[AppendBatches, int, float | None]] = []
        self.codes: list[int] = []
        self.error: LinkError | None = None

    def send(
        self, request: AppendBatches, size_bytes: int, timeout_seconds: float | None
    ) -> asyncio.Future[Any]:
        self.sent.append((request, size_bytes, timeout_seconds))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        codes = self.codes or [0] * len(request.partitions)
        future.set_result(AppendResult(partitions=[PartitionAppendResult(error_code=each) for each in codes]))
        return future


class FakeOwner:
    """An owner of offsets, in this process or behind a link."""

    def __init__(self) -> None:
        self.asked: list[CompleteTransactionRequest] = []
        self.code = ErrorCode.none
        self.error: Exception | None = None
        self.is_closed = False

    async def CompleteTransaction(
        self, request: CompleteTransactionRequest, *, timeout: float | None = None
    ) -> CompleteTransactionResponse:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return CompleteTransactionResponse(error_code=self.code)

    async def close(self) -> None:
        self.is_closed = True


class Post:
    """A post of coordinator a, and those to whom it has links."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.storage = FakeStorage()
        self.here, self.there = FakeOwner(), FakeOwner()
        self.connected: list[str] = []
        self.is_linked = True
        self.post = LinkPost(
            lambda: world.image,
            ManualClock(),
            CoordinatorIdentity(coordinator_id="a", incarnation_id="a-1"),
            lambda _: cast(Any, self.storage) if self.is_linked else None,
            cast(Any, self),
            self.here.CompleteTransaction,
        )

    def connect_coordinator(self, address: str) -> FakeOwner:
        self.connected.append(address)
        return self.there

    async def append(self, *indexes: int) -> list[ErrorCode]:
        return await self.post.send(NODE_1, MARKER, [TopicPartition("t", each) for each in indexes])

    async def complete(self, owner: str) -> ErrorCode:
        (code,) = await self.post.send(Place(True, owner, f"{owner}:1"), MARKER, [OFFSETS])
        return code


@pytest.fixture
def post() -> Post:
    return Post(a_world())


async def test_one_append_for_all_partitions_of_a_node(post: Post) -> None:
    post.world.lead("t", 2, 1)
    assert await post.append(0, 2) == [ErrorCode.none] * 2
    ((request, size_bytes, seconds),) = post.storage.sent
    assert seconds is not None
    assert request.head.acks == -1
    assert request.head.timeout_ms < seconds * 1000, "the node answers before it is given up"
    assert (request.head.coordinator.coordinator_id, request.head.coordinator.incarnation_id) == ("a", "a-1")
    topic = post.world.image.topics["t"]
    assert [(each.topic_id, each.partition, each.leader_epoch) for each in request.partitions] == [
        (topic.topic_id, 0, 0),
        (topic.topic_id, 2, 1),
    ]
    assert {each.marker_transaction_version for each in request.partitions} == {2}
    assert not any(each.HasField("expected_log_end") for each in request.partitions)
    assert size_bytes == sum(map(len, request.records))
    header = parse_header(memoryview(request.records[0]))
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert header.is_control
    assert header.is_transactional
    assert decode_marker(request.records[0]) == EndTransactionMarker(True, 9, ManualClock().now_ms())


async def test_each_partition_has_its_code(post: Post) -> None:
    post.storage.codes = [ErrorCode.none, ErrorCode.not_enough_replicas]
    assert await post.append(0, 2) == [ErrorCode.none, ErrorCode.not_enough_replicas]


async def test_a_partition_that_is_not_there_is_not_sent(post: Post) -> None:
    assert await post.append(5, 0) == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]
    assert [each.partition for each in post.storage.sent[0][0].partitions] == [0]
    assert await post.append(5) == [ErrorCode.unknown_topic_or_partition]
    assert len(post.storage.sent) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("gone"), ErrorCode.not_leader_or_follower),
        (ConnectionRefused("gone"), ErrorCode.not_leader_or_follower),
        (OutcomeUnknown("broke"), ErrorCode.request_timed_out),
        (DeadlinePassed("silent"), ErrorCode.request_timed_out),
    ],
)
async def test_links_that_fail(post: Post, error: LinkError, code: ErrorCode) -> None:
    post.storage.error = post.there.error = post.here.error = error
    assert await post.append(0, 1) == [code, code]
    assert await post.complete("a") == code
    assert await post.complete("b") == code


async def test_a_node_without_a_link(post: Post) -> None:
    post.is_linked = False
    assert await post.append(0) == [ErrorCode.not_leader_or_follower]


async def test_offsets_here_are_told_by_a_plain_call(post: Post) -> None:
    assert await post.complete("a") == ErrorCode.none
    assert post.connected == []
    (asked,) = post.here.asked
    assert asked == CompleteTransactionRequest(
        partition=0,
        producer_id=7,
        producer_epoch=3,
        committed=True,
        coordinator_epoch=9,
        transaction_version=2,
    )
    post.here.error = TimeoutError()
    assert await post.complete("a") == ErrorCode.request_timed_out


async def test_offsets_elsewhere_are_told_over_one_link(post: Post) -> None:
    post.there.code = ErrorCode.not_coordinator
    assert [await post.complete("b") for _ in range(2)] == [ErrorCode.not_coordinator] * 2
    assert post.connected == ["b:1"]
    assert not post.here.asked
    await post.post.close()
    assert post.there.is_closed


async def test_the_link_to_who_is_gone_is_closed(post: Post) -> None:
    await post.complete("b")
    old = post.world.image
    post.world.see(MetadataRecord(key=coordinator_key("b")))
    post.post.on_image(old, post.world.image)
    await post.post.close()
    assert post.there.is_closed


def test_places() -> None:
    world = a_world()
    places = Places(lambda: world.image)
    assert places.find(TopicPartition("t", 1)) == Place(False, "2", "node-2:1")
    assert places.find(OFFSETS) == Place(True, "a", "a:1")
    assert places.find(TopicPartition("t", 3)) is NoPlace.UNKNOWN
    assert places.find(TopicPartition("t", -1)) is NoPlace.UNKNOWN
    assert places.find(TopicPartition("nope", 0)) is NoPlace.UNKNOWN
    world.lead("t", 1, -1)
    assert places.find(TopicPartition("t", 1)) is NoPlace.NOBODY
    world.own(GROUP_METADATA_TOPIC, "nobody", 1)
    assert places.find(OFFSETS) is NoPlace.NOBODY
    world.delete("t")
    assert places.find(TopicPartition("t", 1)) is NoPlace.GONE
    world.topic("t", 1)
    assert places.find(TopicPartition("t", 0)) == NODE_1
    assert places.find(TopicPartition("t", 1)) is NoPlace.GONE
    assert Places(MetadataImage).find(OFFSETS) is NoPlace.UNKNOWN
