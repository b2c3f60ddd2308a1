"""Produce requests that are handed over as they are read: which are, and what is answered when the result comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from gateway_harness import (
    CORRELATION_ID,
    FakeStream,
    Gateway,
    decode_answer,
    request_frame,
    topic_id,
)

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.forwarded_produce import ForwardedProduce, ForwardedProduces
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult, RecordError
from barnabas.records.record import encode_batch
from barnabas.wire.produce import ProducedPartition, encode_produce_response

PRODUCE = 0
BATCH = encode_batch([(1, b"k", b"v", ())])
OF_A_PRODUCER = encode_batch([(1, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=3)
OF_A_TRANSACTION = encode_batch(
    [(1, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=3, transactional=True
)


def produce_frame(
    topic: str = "orders",
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
    records: bytes = BATCH,
    transactional_id: str | None = None,
) -> bytes:
    entry: dict[str, Any] = {"partition_data": [{"index": partition, "records": records}]}
    entry |= {"topic_id": topic_id(topic)} if version >= 13 else {"name": topic}
    body = {"acks": acks, "timeout": 900, "transactional_id": transactional_id, "topic_data": [entry]}
    return request_frame(PRODUCE, version, body)


def taken(offset: int = 5) -> AppendResult:
    result = PartitionAppendResult(base_offset=offset, log_append_time_ms=-1, log_start_offset=2)
    return AppendResult(partitions=[result])


def refused(code: ErrorCode, message: str = "", blamed: Sequence[RecordError] = ()) -> AppendResult:
    """As a leader refuses: it has no offset to tell, as a gateway has none that gives up before the leader answers."""
    result = PartitionAppendResult(
        error_code=code,
        error_message=message,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=blamed,
    )
    return AppendResult(partitions=[result])


class Node1(Gateway):
    """A gateway whose node 1 gives one result to all; None leaves them waiting."""

    def __init__(self, result: AppendResult | Exception | None) -> None:
        super().__init__()
        self.appends = FakeStream(lambda _: result)
        self.node(1, self.appends)
        self.faults = Faults()
        self.times = RequestTimes()

    def forward(self, frame: bytes) -> ForwardedProduce | None:
        return ForwardedProduces(self.parts, self.faults).forward(frame, self.client, self.times)

    async def answer(self, frame: bytes) -> Any:
        forwarded = self.forward(frame)
        assert forwarded is not None
        answer = forwarded.answer()
        return answer if answer is not None else await forwarded.finish()


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize(
    ("records", "transactional_id"),
    [(BATCH, None), (OF_A_PRODUCER, "mine"), (OF_A_TRANSACTION, "mine")],
    ids=["plain", "id alone", "transaction"],
)
async def test_it_is_handed_over_and_answered_as_the_general_way_would(
    version: int, acks: int, records: bytes, transactional_id: str | None
) -> None:
    gateway, general = Node1(taken()), Node1(taken())
    frame = produce_frame(version=version, acks=acks, records=records, transactional_id=transactional_id)
    answer = await gateway.answer(frame)
    assert answer == await general.dispatcher.serve(frame, general.client)
    topic = topic_id("orders") if version >= 13 else "orders"
    assert answer == encode_produce_response(
        version, CORRELATION_ID, [(topic, [ProducedPartition(0, 0, 5, -1, 2)])]
    )
    (sent,), (expected,) = gateway.appends.requests, general.appends.requests
    assert (sent.head, sent.partitions, [bytes(each) for each in sent.records]) == (
        (expected.head, expected.partitions, expected.records)
    )
    assert gateway.appends.timeouts == general.appends.timeouts == [0.9 + limits.ANSWER_GRACE_SECONDS]
    times = gateway.times
    assert (times.api_key, times.api_version, times.errors) == (PRODUCE, version, None)
    assert 0 < times.started < times.answered
    assert 0 < times.local_seconds <= times.answered - times.started


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize(
    ("records", "transactional_id"),
    [(BATCH, None), (OF_A_PRODUCER, None), (OF_A_TRANSACTION, "mine")],
    ids=["plain", "idempotent", "transaction"],
)
@pytest.mark.parametrize(
    "result",
    [
        Unreachable("nobody is there"),
        OutcomeUnknown("the stream broke"),
        refused(ErrorCode.not_leader_or_follower),
        refused(ErrorCode.fenced_leader_epoch),
        refused(ErrorCode.unknown_topic_id),
        refused(ErrorCode.corrupt_message),
        refused(ErrorCode.transaction_abortable),
        refused(ErrorCode.invalid_record, "it is bad", [RecordError(batch_index=1, message="this one")]),
    ],
    ids=["not sent", "unknown", "not leader", "fenced", "no topic", "corrupt", "abortable", "bad record"],
)
async def test_a_failure_is_answered_as_the_general_way_would(
    version: int,
    records: bytes,
    transactional_id: str | None,
    result: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.05)  # for what goes to its leader again
    gateway, general = Node1(result), Node1(result)
    frame = produce_frame(version=version, records=records, transactional_id=transactional_id)
    answer = await gateway.answer(frame)
    assert answer == await general.dispatcher.serve(frame, general.client)
    assert decode_answer(PRODUCE, version, answer).responses[0].partition_responses[0].error_code
    assert bool(gateway.client.gaps) == bool(general.client.gaps)
    assert gateway.times.errors
    assert gateway.times.answered
    assert gateway.client.held.refusals == general.client.held.refusals


async def test_while_producers_are_sent_away_it_is_left_alone() -> None:
    gateway = Node1(taken())
    gateway.parts.sending_away.begin()
    assert gateway.forward(produce_frame()) is None
    assert gateway.appends.requests == []


@pytest.mark.parametrize(
    "frame",
    [
        produce_frame("nobody"),
        produce_frame(partition=9),
        produce_frame(partition=1),
        produce_frame(partition=2),
        produce_frame(acks=0),
        produce_frame(acks=2),
        produce_frame(version=8),
        produce_frame(records=BATCH[:22]),
        produce_frame(records=OF_A_TRANSACTION),
        produce_frame(records=OF_A_TRANSACTION, transactional_id="mine").replace(b"mine", b"m\xffne"),
        produce_frame(transactional_id="mine").replace(b"mine", b"m\xffne"),
        produce_frame()[:-1],
        b"",
    ],
    ids=[
        "unknown",
        "no partition",
        "cannot be reached",
        "leaderless",
        "acks 0",
        "acks 2",
        "old",
        "cut batch",
        "transaction without an id",
        "id not in UTF-8",
        "id not in UTF-8 alone",
        "cut",
        "empty",
    ],
)
async def test_what_needs_more_is_left_alone(frame: bytes) -> None:
    gateway = Node1(taken())
    assert gateway.forward(frame) is None
    assert gateway.appends.requests == []


async def test_injected_faults_see_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Node1(taken())
    monkeypatch.setattr(gateway.faults, "is_active", True)
    assert gateway.forward(produce_frame()) is None
    assert gateway.appends.requests == []


async def test_a_node_without_room_is_left_to_the_general_way() -> None:
    gateway = Node1(taken())
    gateway.appends.room_bytes = len(BATCH) - 1
    assert gateway.forward(produce_frame()) is None
    assert gateway.appends.requests == []


async def test_who_was_refused_before_waits_for_his_turn_to_be_refused_again() -> None:
    gateway = Node1(taken())
    gateway.client.held.refusals = 1
    assert gateway.forward(produce_frame()) is None


async def test_a_client_of_a_node_that_has_its_share_is_held_until_the_result() -> None:
    gateway = Node1(None)
    gateway.appends.is_full = True
    forwarded = gateway.forward(produce_frame())
    assert forwarded is not None
    assert gateway.client.held.count == 1
    forwarded.result.set_result(taken())
    await asyncio.sleep(0)
    assert gateway.client.held.count == 0


async def test_a_client_id_that_is_no_text_ends_the_connection_whoever_looks_at_the_failure_first() -> None:
    """In a callback of the event loop nothing else would do so: the client would wait for ever."""
    gateway = Node1(refused(ErrorCode.not_leader_or_follower))
    frame = produce_frame(records=OF_A_PRODUCER)
    assert gateway.forward(frame[:10] + b"\xff\xff\xff\xff" + frame[14:]) is not None
    await asyncio.sleep(0)
    with pytest.raises(CloseConnection, match="client id"):
        gateway.forward(frame)
