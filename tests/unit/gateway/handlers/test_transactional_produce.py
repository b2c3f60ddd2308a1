"""Produce in transactions: what leaders are told of them, which codes come back, and what comes again in its order."""

from __future__ import annotations

from typing import Any, Final

import pytest
from gateway_harness import FakeStream, Gateway, topic_id
from produce_connection import EITHER_WAY, Preparing, settle
from resent import NOT_LEADER, OUT_OF_ORDER, A, B, C, answer, leads, name_of

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import AppendResult, AppendTransaction, PartitionAppendResult
from barnabas.records.record import encode_batch

PRODUCE: Final = 0
VERSIONS: Final = range(3, 14)

pytestmark = pytest.mark.usefixtures("time_jumps")


def batch(*, producer_id: int = 7, epoch: int = 3, transactional: bool = True) -> bytes:
    return encode_batch(
        [(0, None, b"v", ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )


def produce_body(*batches: bytes, transactional_id: str | None = "pay", acks: int = -1) -> dict[str, Any]:
    """One batch for each of the partitions of `orders` that have leaders."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    topic = {"name": "orders", "topic_id": topic_id("orders"), "partition_data": data}
    return {"acks": acks, "timeout": 0, "transactional_id": transactional_id, "topic_data": [topic]}


def codes_of(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partition_responses]


def answering(code: int) -> tuple[Gateway, list[FakeStream]]:
    """A gateway whose leaders answer everything with `code`."""

    def append(request: Any) -> AppendResult:
        return AppendResult(partitions=[PartitionAppendResult(error_code=code) for _ in request.partitions])

    gateway = Gateway()
    streams = [FakeStream(append), FakeStream(append)]
    for node, stream in enumerate(streams, start=1):
        gateway.node(node, stream)
    return gateway, streams


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_leader_is_told_of_the_transaction(version: int) -> None:
    gateway, streams = answering(0)
    answer = await gateway.ask(PRODUCE, version, produce_body(batch(), batch()))
    assert codes_of(answer) == [0, 0]
    expected = AppendTransaction(transactional_id="pay", adds_partitions=version >= 12)
    for stream in streams:
        (sent,) = stream.requests
        assert sent.head.transaction == expected


@pytest.mark.parametrize("transactional_id", [None, "pay"])
async def test_records_outside_of_a_transaction_are_in_none(transactional_id: str | None) -> None:
    gateway, (stream, _) = answering(0)
    body = produce_body(batch(transactional=False), transactional_id=transactional_id)
    assert codes_of(await gateway.ask(PRODUCE, 12, body)) == [0]
    assert not stream.requests[0].head.HasField("transaction")


async def test_records_of_a_transaction_may_come_with_others() -> None:
    gateway, streams = answering(0)
    body = produce_body(batch(), batch(producer_id=-1, epoch=-1, transactional=False))
    assert codes_of(await gateway.ask(PRODUCE, 12, body)) == [0, 0]
    assert all(len(stream.requests) == 1 for stream in streams)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 2])
async def test_records_of_a_transaction_without_its_id_refuse_the_whole(version: int, acks: int) -> None:
    gateway, streams = answering(0)
    body = produce_body(batch(transactional=False), batch(), transactional_id=None, acks=acks)
    code = ErrorCode.transactional_id_authorization_failed
    assert codes_of(await gateway.ask(PRODUCE, version, body)) == [code, code]
    assert not any(stream.requests for stream in streams)


@pytest.mark.parametrize(("producer_id", "epoch"), [(8, 3), (7, 4)])
async def test_records_of_two_transactions_refuse_the_whole(producer_id: int, epoch: int) -> None:
    gateway, streams = answering(0)
    body = produce_body(batch(), batch(producer_id=producer_id, epoch=epoch))
    code = ErrorCode.invalid_producer_id_mapping
    assert codes_of(await gateway.ask(PRODUCE, 9, body)) == [code, code]
    assert not any(stream.requests for stream in streams)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_no_part_of_its_transaction_has_a_code_that_the_version_knows(version: int) -> None:
    gateway, _ = answering(ErrorCode.transaction_abortable)
    told = ErrorCode.transaction_abortable if version >= 11 else ErrorCode.invalid_txn_state
    assert codes_of(await gateway.ask(PRODUCE, version, produce_body(batch()))) == [told]


async def test_a_batch_cut_in_its_header_is_left_to_its_leader() -> None:
    gateway, (stream, _) = answering(ErrorCode.corrupt_message)
    body = produce_body(batch()[:40])
    assert codes_of(await gateway.ask(PRODUCE, 9, body)) == [ErrorCode.corrupt_message]
    assert len(stream.requests) == 1


@EITHER_WAY
@pytest.mark.parametrize("code", [ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas])
async def test_what_comes_behind_a_batch_that_comes_again_is_refused_with_it(
    code: ErrorCode, forwards: bool
) -> None:
    """Were it not, it might be the first of the transaction that its partition has."""
    run = Preparing(prepares=False, forwards=forwards, transactional_id="pay")
    await run.produce(A)
    await answer(run, 0, code)
    await run.produce(B)
    assert (len(run.sent), run.answers()) == (1, [(code, -1), (code, -1)])
    await run.produce(A, B)
    await answer(run, 1)
    await answer(run, 2)
    assert run.answers()[2:] == [(0, 1), (0, 2)]


async def test_what_was_under_way_behind_it_hears_the_same() -> None:
    run = Preparing(prepares=False, transactional_id="pay")
    await run.produce(A, B)
    await answer(run, 0, ErrorCode.concurrent_transactions)
    await answer(run, 1, OUT_OF_ORDER)
    assert run.answers() == [(ErrorCode.concurrent_transactions, -1)] * 2


@EITHER_WAY
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
    ],
)
async def test_what_ends_the_transaction_leaves_no_gap(code: ErrorCode, forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards, transactional_id="pay")
    await run.produce(A)
    await answer(run, 0, code)
    assert run.answers() == [(code, -1)]
    assert not run.gateway.client.gaps
    await run.produce(B)
    assert len(run.sent) == 2


@EITHER_WAY
async def test_what_is_sent_on_to_a_new_leader_says_which_transaction_it_is_of(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards, transactional_id="pay")
    await run.produce(A, B)
    await answer(run, 0, NOT_LEADER)
    await answer(run, 1, NOT_LEADER)
    leads(run, 2, 2)
    await settle()
    assert name_of(run, 2) == (2, A)
    await run.produce(C)
    await answer(run, 2)
    await answer(run, 3)
    await answer(run, 4)
    assert [name_of(run, number) for number in (3, 4)] == [(2, B), (2, C)]
    assert run.answers() == [(0, 2), (0, 3), (0, 4)]
    assert run.transactions == [AppendTransaction(transactional_id="pay")] * 5


async def test_a_batch_of_the_next_epoch_fills_the_gap_of_the_one_before() -> None:
    """The transaction is aborted instead, and under the next epoch sequences begin with 0."""
    run = Preparing(prepares=False, transactional_id="pay")
    await run.produce(B)
    await answer(run, 0, ErrorCode.concurrent_transactions)
    await run.produce(A)
    assert not run.gateway.client.gaps
    await run.produce(C)
    assert [name_of(run, number) for number in (1, 2)] == [(1, A), (1, C)]
