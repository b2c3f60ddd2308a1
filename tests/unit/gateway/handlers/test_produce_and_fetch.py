"""Produce and Fetch over fake streams: mixed partitions, unknown topics, leaders that are gone, sessions."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any

import pytest
from gateway_harness import (
    LISTENER,
    ONE_BROKER_LISTENER,
    FakeStream,
    Gateway,
    request_frame,
    small_cluster,
    topic_id,
    topic_records,
)

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.listeners import Listener
from barnabas.gateway.clients.throttling import THROTTLE_TIME_MS
from barnabas.gateway.request import Software, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import FetchedResult, PartitionFetched
from barnabas.messages.metadata_pb2 import AdvertisedListener, GatewayRecord, MetadataRecord
from barnabas.messages.storage_pb2 import (
    AppendResult,
    PartitionAppendResult,
    PartitionFetchResult,
)
from barnabas.metadata.image import gateway_key, node_key
from barnabas.records.record import encode_batch
from jumping_time import jumping_time

PRODUCE, FETCH, METADATA = 0, 1, 3
UNKNOWN_ID = uuid.UUID(int=9).bytes


def append_all(request: Any) -> AppendResult:
    return AppendResult(
        partitions=[PartitionAppendResult(base_offset=70 + p.partition) for p in request.partitions]
    )


def produce_body(topics: dict[str | bytes, list[int]], **values: Any) -> dict[str, Any]:
    return {
        "acks": -1,
        "timeout": 1_500,
        "transactional_id": None,
        "topic_data": [
            {
                "name": topic if isinstance(topic, str) else "",
                "topic_id": topic if isinstance(topic, bytes) else b"",
                "partition_data": [{"index": index, "records": b"batch"} for index in partitions],
            }
            for topic, partitions in topics.items()
        ],
        **values,
    }


def produced(answer: Any) -> list[list[tuple[int, int, int]]]:
    return [
        [(part.index, int(part.error_code), part.base_offset) for part in topic.partition_responses]
        for topic in answer.responses
    ]


@pytest.mark.parametrize("version", [3, 7, 9, 12])
async def test_produce_to_mixed_partitions(version: int) -> None:
    gateway = Gateway()
    first, second = FakeStream(append_all), FakeStream(append_all)
    gateway.node(1, first)
    gateway.node(2, second)
    body = produce_body({"orders": [1, 0, 2, 7], "none": [0], "bills": [0]})
    answer = await gateway.ask(PRODUCE, version, body)
    assert produced(answer) == [
        [(1, 0, 71), (0, 0, 70), (2, ErrorCode.not_leader_or_follower, -1), (7, 3, -1)],
        [(0, ErrorCode.unknown_topic_or_partition, -1)],
        [(0, 0, 70)],
    ]
    (sent,) = first.requests
    assert [
        (p.topic_id, p.partition, records) for p, records in zip(sent.partitions, sent.records, strict=True)
    ] == [
        (topic_id("orders"), 0, b"batch"),
        (topic_id("bills"), 0, b"batch"),
    ]
    assert (sent.head.acks, sent.head.timeout_ms, len(second.requests)) == (-1, 1_500, 1)


@pytest.mark.parametrize(
    ("attributes", "version", "code"),
    [
        (4, 6, ErrorCode.unsupported_compression_type),
        (4, 7, 0),
        (3, 6, 0),
        (0x10, 7, ErrorCode.transactional_id_authorization_failed),
        (0x20, 7, 0),  # control batches are for the leader to refuse
    ],
)
async def test_flags_of_a_batch_that_the_gateway_refuses(attributes: int, version: int, code: int) -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(append_all))
    body = produce_body({"bills": [0]})
    body["topic_data"][0]["partition_data"][0]["records"] = bytes(22) + bytes([attributes]) + bytes(38)
    ((result,),) = produced(await gateway.ask(PRODUCE, version, body))
    assert result == (0, code, -1 if code else 70)


async def test_produce_by_topic_id() -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(append_all))
    answer = await gateway.ask(PRODUCE, 13, produce_body({topic_id("bills"): [0], UNKNOWN_ID: [0]}))
    assert produced(answer) == [[(0, 0, 70)], [(0, ErrorCode.unknown_topic_id, -1)]]
    assert answer.responses[1].topic_id.bytes == UNKNOWN_ID


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OutcomeUnknown("perhaps written"), ErrorCode.request_timed_out),
        (Unreachable("never sent"), ErrorCode.not_leader_or_follower),
    ],
)
async def test_produce_to_a_leader_that_is_lost(failure: Exception, code: ErrorCode) -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(lambda _: failure))
    gateway.node(2, FakeStream(append_all))
    answer = await gateway.ask(PRODUCE, 9, produce_body({"orders": [0, 1]}))
    assert produced(answer) == [[(0, code, -1), (1, 0, 71)]]


def sequenced(index: int, sequence: int) -> dict[str, Any]:
    body = produce_body({"orders": [index]})
    records = encode_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
    body["topic_data"][0]["partition_data"][0]["records"] = records
    return body


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OutcomeUnknown("perhaps written"), ErrorCode.request_timed_out),
        (Unreachable("never sent"), ErrorCode.not_leader_or_follower),
        (None, ErrorCode.not_leader_or_follower),
    ],
    ids=["perhaps written", "never sent", "no room"],
)
async def test_what_is_behind_a_failed_batch_waits_for_it(
    failure: Exception | None, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()
    failing, taken = [True], []

    def append(request: Any) -> AppendResult | Exception:
        if failing[0] and failure is not None:
            return failure
        taken.append(request)
        return append_all(request)

    stream = FakeStream(append)
    gateway.node(1, stream)
    monkeypatch.setattr(stream, "has_room", lambda _: failure is not None or not failing[0])
    assert produced(await gateway.ask(PRODUCE, 9, sequenced(0, 3))) == [[(0, code, -1)]]
    failing[0] = False
    assert produced(await gateway.ask(PRODUCE, 9, sequenced(0, 4))) == [[(0, code, -1)]]
    assert not taken
    for sequence in (3, 4):
        assert produced(await gateway.ask(PRODUCE, 9, sequenced(0, sequence))) == [[(0, 0, 70)]]


async def test_produce_to_a_fenced_leader() -> None:
    answer = await Gateway().ask(PRODUCE, 9, produce_body({"bills": [0]}))
    assert produced(answer) == [[(0, ErrorCode.not_leader_or_follower, -1)]]


async def test_produce_tells_the_new_leader() -> None:
    gateway = Gateway()
    refused = PartitionAppendResult(error_code=ErrorCode.not_leader_or_follower, base_offset=-1)
    gateway.node(2, FakeStream(lambda _: AppendResult(partitions=[refused])))
    answer = await gateway.ask(PRODUCE, 10, produce_body({"orders": [1]}))
    leader = answer.responses[0].partition_responses[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 5)
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(2, 9093)]


@pytest.mark.parametrize(
    ("listener", "partition", "is_sent_away"),
    [(LISTENER, 1, True), (LISTENER, 0, False), (ONE_BROKER_LISTENER, 1, False)],
    ids=["led elsewhere by now", "led here still", "one broker stands for all"],
)
async def test_a_broker_that_has_handed_over_sends_producers_to_who_leads(
    listener: Listener, partition: int, is_sent_away: bool
) -> None:
    gateway = Gateway(listener=listener)
    for node in (1, 2):
        gateway.node(node, FakeStream(append_all))
    gateway.parts.sending_away.begin()
    answer = await gateway.ask(PRODUCE, 10, produce_body({"orders": [partition]}))
    gateway.parts.sending_away.on_asked(("10.1.2.3", "test"))
    with jumping_time():
        await asyncio.sleep(limits.GOING_SECONDS * 1.1)
        assert gateway.parts.sending_away.has_had_time_to_go(gateway.client.connection_id) == is_sent_away
    told = answer.responses[0].partition_responses[0]
    if not is_sent_away:
        assert (told.error_code, told.base_offset) == (0, 70 + partition)
        return
    assert (told.error_code, told.current_leader.leader_id) == (ErrorCode.not_leader_or_follower, 2)
    assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(2, 9093)]


@pytest.mark.parametrize(("host", "is_sent_away"), [("elsewhere.test", True), ("broker.test", False)])
async def test_a_gateway_that_goes_sends_producers_to_where_their_leader_is_reached_from_now_on(
    host: str, is_sent_away: bool
) -> None:
    """Where gateways share an address, whom this one refuses would come again to the same place."""
    listeners = [AdvertisedListener(name="PLAINTEXT", host=host, port=9092, port_per_node=True)]
    other = GatewayRecord(gateway_id="gateway-2", listeners=listeners)
    gateway = Gateway([*small_cluster(), MetadataRecord(key=gateway_key("gateway-2"), gateway=other)])
    stream = FakeStream(append_all)
    gateway.node(1, stream)
    gateway.parts.sending_away.begin()
    with jumping_time():
        for _ in range(3):
            first = await gateway.ask(PRODUCE, 10, produce_body({"orders": [0]}))
            assert not gateway.client.held.is_muted, "it is to ask"
        unheard = request_frame(PRODUCE, 10, produce_body({"orders": [0]}, acks=0))
        assert await gateway.dispatcher.serve(unheard, gateway.client) is None
        await asyncio.sleep(limits.TELLING_SECONDS * 0.9)
        first = await gateway.ask(PRODUCE, 10, produce_body({"orders": [0]}))
        await asyncio.sleep(limits.TELLING_SECONDS * 0.2)
        later = await gateway.ask(PRODUCE, 10, produce_body({"orders": [0]}))
        await gateway.ask(METADATA, 12, {"topics": []})
        await asyncio.sleep(limits.GOING_SECONDS * 1.1)
        went = gateway.parts.sending_away.has_had_time_to_go(gateway.client.connection_id)
    assert went == is_sent_away
    told = first.responses[0].partition_responses[0]
    if is_sent_away:
        assert told.error_code is ErrorCode.not_leader_or_follower
        assert [(node.node_id, node.host) for node in first.node_endpoints] == [(1, host)]
    assert produced(later) == [[(0, 0, 70)]]
    assert len(stream.requests) == (2 if is_sent_away else 6)


def of_java(gateway: Gateway, connection_id: int = 1) -> None:
    """The gateway's client is Java's, on that connection."""
    software = Software("apache-kafka-java", "4.3.1")
    gateway.client = replace(gateway.client, connection_id=connection_id, software=software)


def gateway_beside(host: str, *records: MetadataRecord) -> Gateway:
    """A gateway that is shown no more: clients are told of another one at `host`."""
    listeners = [AdvertisedListener(name="PLAINTEXT", host=host, port=9092, port_per_node=True)]
    other = GatewayRecord(gateway_id="gateway-2", listeners=listeners)
    records = records or tuple(small_cluster())
    gateway = Gateway([*records, MetadataRecord(key=gateway_key("gateway-2"), gateway=other)])
    for node in (1, 2):
        gateway.node(node, FakeStream(append_all))
    return gateway


@pytest.mark.parametrize(("version", "acks"), [(10, -1), (13, 1)])
async def test_javas_client_is_throttled_instead_where_only_the_gateway_goes(version: int, acks: int) -> None:
    gateway = gateway_beside("elsewhere.test")
    of_java(gateway)
    topic = topic_id("orders") if version >= 13 else "orders"
    before = await gateway.ask(PRODUCE, version, produce_body({topic: [0]}, acks=acks))
    with jumping_time():
        gateway.parts.sending_away.begin()
        gateway.parts.throttling.begin([1, 2])
        told = await gateway.ask(PRODUCE, version, produce_body({topic: [0]}, acks=acks))
        moved = await gateway.ask(PRODUCE, version, produce_body({topic: [1]}, acks=acks))
        await asyncio.sleep(limits.SILENT_SECONDS * 1.1)
        assert gateway.parts.throttling.is_silent(1)
        of_java(gateway, connection_id=2)
        beside = await gateway.ask(PRODUCE, version, produce_body({topic: [0]}, acks=acks))
        of_java(gateway, connection_id=3)
        late = await gateway.ask(PRODUCE, version, produce_body({topic: [0]}, acks=acks))
    assert produced(before) == produced(told) == produced(beside) == [[(0, 0, 70)]]
    assert [milliseconds(each.throttle_time) for each in (before, told, beside)] == [0, THROTTLE_TIME_MS, 0]
    for refused in (moved, late):  # by another leader, and on a connection that was not there in time
        told = refused.responses[0].partition_responses[0]
        assert told.error_code is ErrorCode.not_leader_or_follower


async def test_in_a_transaction_or_without_another_broker_to_ask_it_is_refused() -> None:
    one_node = [each for each in small_cluster() if each.key not in (node_key(2), node_key(3))]
    for gateway, transactional_id in (
        (gateway_beside("elsewhere.test"), "t"),
        (gateway_beside("elsewhere.test", *one_node), None),
    ):
        of_java(gateway)
        gateway.parts.sending_away.begin()
        gateway.parts.throttling.begin([1])
        body = produce_body({"orders": [0]}, transactional_id=transactional_id)
        answer = await gateway.ask(PRODUCE, 10, body)
        told = answer.responses[0].partition_responses[0]
        assert told.error_code is ErrorCode.not_leader_or_follower
        assert milliseconds(answer.throttle_time) == 0


async def test_who_leads_is_nobody() -> None:
    gateway = Gateway([*small_cluster(), *topic_records("zoo", [-1])])
    answer = await gateway.ask(PRODUCE, 10, produce_body({"zoo": [0]}))
    told = answer.responses[0].partition_responses[0]
    assert told.error_code is ErrorCode.not_leader_or_follower
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (-1, 5)
    assert answer.node_endpoints == ()


@pytest.mark.parametrize(("version", "leader"), [(15, -1), (16, 1)])
async def test_fetch_tells_who_leads_from_the_version_on_that_kafka_does(version: int, leader: int) -> None:
    gateway = Gateway()
    gateway.node(1, fetches=FakeStream(lambda _: Unreachable("refused")))
    answer = await gateway.ask(FETCH, version, fetch_body({topic_id("bills"): [0]}))
    assert answer.responses[0].partitions[0].current_leader.leader_id == leader


async def test_produce_without_acknowledgement() -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(append_all))
    frame = request_frame(PRODUCE, 9, produce_body({"bills": [0]}, acks=0))
    assert await gateway.dispatcher.serve(frame, gateway.client) is None
    frame = request_frame(PRODUCE, 9, produce_body({"bills": [0], "none": [0]}, acks=0))
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await gateway.dispatcher.serve(frame, gateway.client)


async def test_produce_with_acks_that_there_are_not() -> None:
    gateway = Gateway()
    stream = FakeStream(append_all)
    gateway.node(1, stream)
    answer = await gateway.ask(PRODUCE, 9, produce_body({"bills": [0], "none": [1]}, acks=2))
    code = ErrorCode.invalid_required_acks
    assert produced(answer) == [[(0, code, -1)], [(1, code, -1)]]
    assert stream.requests == []


def fetch_all(request: Any) -> FetchedResult:
    results = [
        PartitionFetchResult(
            high_watermark=9,
            last_stable_offset=9,
            log_start_offset=0,
            records=b"r" if p.fetch_offset < 9 else b"",
        )
        for p in request.partitions
    ]
    return FetchedResult(0, [PartitionFetched(result, result.records) for result in results])


def fetch_body(
    topics: dict[str | bytes, list[int]], *, fetch_offset: int = 0, **values: Any
) -> dict[str, Any]:
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": topic if isinstance(topic, str) else "",
                "topic_id": topic if isinstance(topic, bytes) else b"",
                "partitions": [
                    {"partition": index, "fetch_offset": fetch_offset, "partition_max_bytes": 1_000}
                    for index in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
        **values,
    }


def fetched(answer: Any) -> list[tuple[int, int, int, bytes]]:
    return [
        (part.partition_index, int(part.error_code), part.high_watermark, part.records or b"")
        for topic in answer.responses
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", [4, 7, 11, 12])
async def test_fetch_of_mixed_partitions(version: int) -> None:
    gateway = Gateway()
    stream = FakeStream(fetch_all)
    gateway.node(1, fetches=stream)
    gateway.node(2, fetches=FakeStream(lambda _: OutcomeUnknown("gone")))
    body = fetch_body({"orders": [0, 1, 2, 8], "none": [0]}, max_wait=500)
    assert fetched(await gateway.ask(FETCH, version, body)) == [
        (0, 0, 9, b"r"),
        (1, ErrorCode.not_leader_or_follower, -1, b""),
        (2, ErrorCode.not_leader_or_follower, -1, b""),
        (8, ErrorCode.unknown_topic_or_partition, -1, b""),
        (0, ErrorCode.unknown_topic_or_partition, -1, b""),
    ]
    # What is wrong is told at once, so nobody waits for more records.
    assert stream.requests[0].max_wait_ms == 0


async def test_fetch_by_topic_id() -> None:
    gateway = Gateway()
    gateway.node(1, fetches=FakeStream(fetch_all))
    answer = await gateway.ask(FETCH, 13, fetch_body({topic_id("bills"): [0], UNKNOWN_ID: [0]}))
    assert fetched(answer) == [(0, 0, 9, b"r"), (0, ErrorCode.unknown_topic_id, -1, b"")]


async def test_fetch_from_a_leader_that_cannot_be_reached() -> None:
    gateway = Gateway()
    gateway.node(1, fetches=FakeStream(lambda _: Unreachable("refused")))
    answer = await gateway.ask(FETCH, 16, fetch_body({topic_id("bills"): [0]}))
    assert fetched(answer) == [(0, ErrorCode.not_leader_or_follower, -1, b"")]
    assert answer.responses[0].partitions[0].current_leader.leader_id == 1


async def test_fetch_tells_the_new_leader_without_its_endpoint() -> None:
    """It may have moved to another gateway since the client heard of it: two endpoints of one broker, for two of its
    partitions, and a Java consumer reads neither.
    """
    gateway = Gateway()
    fenced = PartitionFetchResult(error_code=ErrorCode.fenced_leader_epoch)
    gateway.node(2, fetches=FakeStream(lambda _: FetchedResult(0, [PartitionFetched(fenced)])))
    answer = await gateway.ask(FETCH, 16, fetch_body({topic_id("orders"): [1]}))
    leader = answer.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 5)
    assert answer.node_endpoints == ()


async def test_a_fetch_session_that_grows_too_large_is_ended_and_none_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.FETCH_SESSION_PARTITIONS_MAX", 1)
    gateway = Gateway()
    gateway.node(1, fetches=FakeStream(fetch_all))
    first = await gateway.ask(FETCH, 11, fetch_body({"orders": [0]}, session_epoch=0))
    grown = fetch_body({"bills": [0]}, session_id=first.session_id, session_epoch=1)
    answer = await gateway.ask(FETCH, 11, grown)
    assert (answer.error_code, answer.responses) == (ErrorCode.fetch_session_id_not_found, ())
    both = fetch_body({"orders": [0], "bills": [0]}, session_id=first.session_id, session_epoch=0)
    for _ in range(2):
        answer = await gateway.ask(FETCH, 11, both)
        assert (answer.session_id, len(fetched(answer))) == (0, 2)


async def test_fetch_session_tells_only_news() -> None:
    gateway = Gateway()
    stream = FakeStream(fetch_all)
    gateway.node(1, fetches=stream)
    first = await gateway.ask(
        FETCH, 11, fetch_body({"bills": [0], "orders": [0]}, fetch_offset=9, session_epoch=0)
    )
    assert first.session_id > 0
    assert len(fetched(first)) == 2
    session = {"session_id": first.session_id}
    quiet = await gateway.ask(FETCH, 11, fetch_body({}, session_epoch=1, **session))
    assert (quiet.session_id, fetched(quiet)) == (first.session_id, [])
    assert len(stream.requests[-1].partitions) == 2
    news = await gateway.ask(FETCH, 11, fetch_body({"orders": [0]}, session_epoch=2, **session))
    assert fetched(news) == [(0, 0, 9, b"r")]
    stale = await gateway.ask(FETCH, 11, fetch_body({}, session_epoch=2, **session))
    assert stale.error_code == ErrorCode.invalid_fetch_session_epoch
    forgotten = [{"topic": "bills", "partitions": [0]}]
    await gateway.ask(FETCH, 11, fetch_body({}, session_epoch=3, forgotten_topics_data=forgotten, **session))
    assert len(stream.requests[-1].partitions) == 1
    async with asyncio.timeout(5):  # a client that closes its session waits for the answer, not for records
        await gateway.ask(FETCH, 11, fetch_body({}, session_epoch=-1, max_wait=600_000, **session))
    gone = await gateway.ask(FETCH, 11, fetch_body({}, session_epoch=4, **session))
    assert gone.error_code == ErrorCode.fetch_session_id_not_found
