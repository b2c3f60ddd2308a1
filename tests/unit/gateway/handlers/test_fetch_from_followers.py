"""Which node a gateway reads a partition from (KIP-392), and that an error of a follower's is its leader's to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import (
    LISTENER,
    ONE_BROKER_LISTENER,
    FakeStream,
    Gateway,
    node_record,
    topic_id,
    topic_records,
)
from test_produce_and_fetch import fetch_all, fetch_body, fetched

from barnabas.gateway.clients.listeners import Listener
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord, TopicRecord
from barnabas.messages.storage_pb2 import EpochEndOffset, FetchRequest, PartitionFetchResult
from barnabas.metadata.image import partition_key, topic_key
from barnabas.metadata.settings.replication import RACK_AWARE

FETCH = 1
LEADER, FOLLOWER, LAGGARD, STRANGER = 1, 2, 3, 4
RACKS = {LEADER: "west", FOLLOWER: "east", LAGGARD: "east", STRANGER: "east"}


class Cluster:
    """A topic that node 1 leads, 2 follows in sync and 3 out of sync; node 4 has nothing of it."""

    def __init__(
        self, listener: Listener = LISTENER, *, gateway_rack: str = "", selector: str = RACK_AWARE
    ) -> None:
        records = [node_record(each, rack=rack) for each, rack in RACKS.items()]
        for record in records:
            if selector:
                record.node.configs["replica.selector.class"] = selector
        (partition, topic) = topic_records("events", [LEADER])
        partition.partition.replicas[:] = [LEADER, FOLLOWER, LAGGARD]
        partition.partition.isr[:] = [LEADER, FOLLOWER]
        self.gateway = Gateway([*records, partition, topic], listener)
        parts = self.gateway.parts
        object.__setattr__(parts, "config", replace(parts.config, broker_rack=gateway_rack))
        self.streams = {each: FakeStream(fetch_all) for each in RACKS}
        for each, stream in self.streams.items():
            self.gateway.node(each, fetches=stream)

    async def fetch(self, asked: int = LEADER, rack: str = "east", version: int = 11, **values: Any) -> Any:
        """The answer to a client that believes to talk to the node `asked`."""
        self.gateway.client = replace(self.gateway.client, position=asked - 1)
        body = fetch_body({"events": [0]}, **values)
        if version >= 11:
            body["rack_id"] = rack
        return await self.gateway.ask(FETCH, version, body)

    def requests(self) -> list[tuple[int, str, bool]]:
        """(node, the rack that it is told, whether it may read as a follower) of all that were asked."""
        return [
            (node, request.rack_id, request.from_follower)
            for node, stream in self.streams.items()
            for request in stream.requests
        ]


@pytest.mark.parametrize(
    ("asked", "rack", "version", "request_"),
    [
        (LEADER, "", 11, (LEADER, "", False)),
        (FOLLOWER, "", 11, (LEADER, "", False)),
        (FOLLOWER, "east", 10, (LEADER, "", False)),
        (LEADER, "east", 11, (LEADER, "east", True)),
        (LEADER, "east", 12, (LEADER, "east", True)),
        (FOLLOWER, "east", 11, (FOLLOWER, "east", True)),
        (FOLLOWER, "elsewhere", 11, (FOLLOWER, "elsewhere", True)),
        (LAGGARD, "east", 11, (LEADER, "", False)),
        (STRANGER, "east", 11, (LEADER, "", False)),
        (9, "east", 11, (LEADER, "", False)),
    ],
)
async def test_who_is_asked(asked: int, rack: str, version: int, request_: tuple[int, str, bool]) -> None:
    cluster = Cluster()
    answer = await cluster.fetch(asked, rack, version)
    assert cluster.requests() == [request_]
    assert fetched(answer) == [(0, 0, 9, b"r")]


@pytest.mark.parametrize("version", [4, 14, 15, 18])
@pytest.mark.parametrize("asked", [LEADER, FOLLOWER, LAGGARD])
async def test_who_compares_replicas_hears_the_one_that_it_asks(asked: int, version: int) -> None:
    cluster = Cluster()
    cluster.streams[asked].answer = failing(ErrorCode.offset_out_of_range)
    values = (
        {"replica_state": {"replica_id": -2, "replica_epoch": -1}} if version >= 15 else {"replica_id": -2}
    )
    by_id = {cluster.gateway.metadata.image.topics["events"].topic_id: [0]}
    cluster.gateway.client = replace(cluster.gateway.client, position=asked - 1)
    body = fetch_body(by_id if version >= 13 else {"events": [0]}, **values)
    answer = await cluster.gateway.ask(FETCH, version, body)
    assert cluster.requests() == [(asked, "", True)]
    assert [code for _, code, _, _ in fetched(answer)] == [ErrorCode.offset_out_of_range]


async def test_who_compares_replicas_hears_nothing_of_one_that_is_away() -> None:
    """Others serve the port of its broker: the leader's records would be taken for its own."""
    cluster = Cluster()
    del cluster.gateway.links.nodes[FOLLOWER]
    answer = await cluster.fetch(FOLLOWER, "", replica_id=-2)
    assert cluster.requests() == []
    assert [(code, records) for _, code, _, records in fetched(answer)] == [
        (ErrorCode.not_leader_or_follower, b"")
    ]


@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "fenced"])
async def test_a_follower_that_is_away_is_not_asked(is_silent: bool) -> None:
    cluster = Cluster()
    if is_silent:
        cluster.streams[FOLLOWER].is_silent = True
    else:
        del cluster.gateway.links.nodes[FOLLOWER]
    assert fetched(await cluster.fetch(FOLLOWER)) == [(0, 0, 9, b"r")]
    assert cluster.requests() == [(LEADER, "", False)]


def nearer(request: FetchRequest) -> FetchedResult:
    fields = PartitionFetchResult(
        high_watermark=9, last_stable_offset=9, log_start_offset=0, preferred_read_replica=FOLLOWER
    )
    return FetchedResult(0, [PartitionFetched(fields) for _ in request.partitions])


@pytest.mark.parametrize("version", [11, 12, 18])
async def test_a_leader_names_a_nearer_replica(version: int) -> None:
    cluster = Cluster()
    cluster.streams[LEADER].answer = nearer
    by_id = {cluster.gateway.metadata.image.topics["events"].topic_id: [0]}
    body = fetch_body(by_id if version >= 13 else {"events": [0]}, rack_id="east", session_epoch=0)
    answer = await cluster.gateway.ask(FETCH, version, body)
    part = answer.responses[0].partitions[0]
    assert (part.preferred_read_replica, part.records, int(part.error_code)) == (FOLLOWER, b"", 0)
    # A session tells it again and again, although nothing else is new.
    body = fetch_body({}, rack_id="east", session_id=answer.session_id, session_epoch=1)
    again = await cluster.gateway.ask(FETCH, version, body)
    assert again.responses[0].partitions[0].preferred_read_replica == FOLLOWER


def failing(code: ErrorCode) -> Any:
    def answer(request: FetchRequest) -> FetchedResult:
        fields = PartitionFetchResult(
            error_code=code, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1
        )
        return FetchedResult(0, [PartitionFetched(fields) for _ in request.partitions])

    return answer


def parting(request: FetchRequest) -> FetchedResult:
    fields = PartitionFetchResult(high_watermark=3, diverging=EpochEndOffset(leader_epoch=1, end_offset=2))
    return FetchedResult(0, [PartitionFetched(fields) for _ in request.partitions])


@pytest.mark.parametrize(
    "answer",
    [
        failing(ErrorCode.offset_out_of_range),
        failing(ErrorCode.unknown_leader_epoch),
        failing(ErrorCode.not_leader_or_follower),
        failing(ErrorCode.kafka_storage_error),
        parting,
        lambda _: Unreachable("gone"),
        lambda _: OutcomeUnknown("gone"),
    ],
    ids=["range", "epoch", "role", "disk", "parting", "unreachable", "broken"],
)
async def test_what_a_follower_cannot_tell_its_leader_is_asked(answer: Any) -> None:
    """A log that does not reach that far yet would have the client start again at the beginning."""
    cluster = Cluster()
    cluster.streams[FOLLOWER].answer = answer
    assert fetched(await cluster.fetch(FOLLOWER, max_wait=30_000)) == [(0, 0, 9, b"r")]
    assert cluster.requests() == [(LEADER, "", False), (FOLLOWER, "east", True)]
    # Nobody has anything to tell yet: were the leader not waited for, a consumer at the end would ask in a tight loop.
    assert 29_000 <= cluster.streams[LEADER].requests[0].max_wait_ms <= 30_000


async def test_a_leader_is_not_waited_for_where_others_have_something_to_tell() -> None:
    cluster = Cluster(ONE_BROKER_LISTENER, gateway_rack="east")
    record = PartitionRecord(topic_id=topic_id("near"), leader=FOLLOWER, replicas=[FOLLOWER], isr=[FOLLOWER])
    near = MetadataRecord(key=partition_key(topic_id("near"), 0), partition=record)
    topic = TopicRecord(name="near", topic_id=topic_id("near"), partition_count=1)
    cluster.gateway.metadata.apply(near, MetadataRecord(key=topic_key("near"), topic=topic))
    other, refusing = fetch_all, failing(ErrorCode.offset_out_of_range)

    def answer(request: Any) -> Any:
        read, refused = other(request), refusing(request)
        parts = [
            got if each.topic_id == topic_id("near") else no
            for each, got, no in zip(request.partitions, read.partitions, refused.partitions, strict=True)
        ]
        return type(read)(0, parts)

    cluster.streams[FOLLOWER].answer = answer
    body = fetch_body({"near": [0], "events": [0]}, max_wait=30_000)
    assert fetched(await cluster.gateway.ask(FETCH, 11, body)) == [(0, 0, 9, b"r")] * 2
    assert cluster.streams[LEADER].requests[0].max_wait_ms == 0


async def test_what_is_held_while_others_are_waited_for_is_given_back_once() -> None:
    """Two partitions from two nodes each time: from the followers, and then from the leaders."""
    cluster = Cluster(ONE_BROKER_LISTENER, gateway_rack="east")
    more = []
    for index, (leader, follower) in enumerate([(LEADER, FOLLOWER), (5, STRANGER), (LEADER, LEADER)]):
        record = PartitionRecord(
            topic_id=topic_id("many"), partition=index, leader=leader, replicas=[leader], isr=[leader]
        )
        if follower != leader:
            record.replicas.append(follower)
            record.isr.append(follower)
        more.append(MetadataRecord(key=partition_key(topic_id("many"), index), partition=record))
    topic = TopicRecord(name="many", topic_id=topic_id("many"), partition_count=3)
    fifth = node_record(5, rack="west")
    fifth.node.configs["replica.selector.class"] = RACK_AWARE
    cluster.gateway.metadata.apply(fifth, *more, MetadataRecord(key=topic_key("many"), topic=topic))
    cluster.streams[5] = FakeStream(fetch_all)
    cluster.gateway.node(5, fetches=cluster.streams[5])
    for node in (FOLLOWER, STRANGER):
        cluster.streams[node].answer = failing(ErrorCode.offset_out_of_range)
    answer = await cluster.gateway.ask(FETCH, 11, fetch_body({"many": [0, 1, 2]}))
    assert fetched(answer) == [(index, 0, 9, b"r") for index in range(3)]
    assert cluster.gateway.parts.unread_answers.used_bytes == 0


async def test_what_the_leader_refuses_too_is_told() -> None:
    cluster = Cluster()
    for node in (LEADER, FOLLOWER):
        cluster.streams[node].answer = failing(ErrorCode.offset_out_of_range)
    assert fetched(await cluster.fetch(FOLLOWER)) == [(0, ErrorCode.offset_out_of_range, -1, b"")]


# -- one broker that stands for all: the gateway chooses ----------------------------------------------------------


@pytest.mark.parametrize(
    ("gateway_rack", "selector", "asked"),
    [
        ("east", RACK_AWARE, (FOLLOWER, "", True)),
        ("west", RACK_AWARE, (LEADER, "", False)),
        ("", RACK_AWARE, (LEADER, "", False)),
        ("elsewhere", RACK_AWARE, (LEADER, "", False)),
        ("east", "", (LEADER, "", False)),
    ],
)
@pytest.mark.parametrize("rack", ["", "west"])
async def test_one_broker_reads_from_its_own_rack(
    gateway_rack: str, selector: str, asked: tuple[int, str, bool], rack: str
) -> None:
    cluster = Cluster(ONE_BROKER_LISTENER, gateway_rack=gateway_rack, selector=selector)
    assert fetched(await cluster.fetch(rack=rack)) == [(0, 0, 9, b"r")]
    assert cluster.requests() == [asked]


async def test_one_broker_asks_the_leader_where_its_follower_is_behind() -> None:
    cluster = Cluster(ONE_BROKER_LISTENER, gateway_rack="east")
    cluster.streams[FOLLOWER].answer = failing(ErrorCode.offset_out_of_range)
    assert fetched(await cluster.fetch(rack="")) == [(0, 0, 9, b"r")]
