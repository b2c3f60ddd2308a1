"""A client's transactional records at the partition's leader: who is asked, who waits, and what becomes of them."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest
from fake_coordinators import (
    ADDS,
    VERIFIES,
    FakeCoordinators,
    Producer,
    apply_coordinator,
    code,
    until_waiting,
)
from storage_harness import StorageHarness, batch, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import OutcomeUnknown
from barnabas.log.producers.verification_guards import NO_GUARD
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    AppendTransaction,
    PartitionAppend,
)
from barnabas.storage import limits
from barnabas.storage.replica.appending import Appending


async def test_only_the_first_batch_of_a_transaction_is_asked_about(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    assert [code(await producer.send(number)) for number in range(3)] == [ErrorCode.none] * 3
    (request,) = coordinators.asked
    (asked,) = request.transactions
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("t", 7, 0)
    assert (asked.verify_only, asked.transaction_version) == (True, 0)
    assert [(topic.name, list(topic.partitions)) for topic in asked.topics] == [("events", [0])]
    assert await producer.end() is ErrorCode.none
    assert code(await producer.send(3)) is ErrorCode.none
    assert len(coordinators.asked) == 2
    assert len(producer.node.replica(producer.topic).appending.unverified) == 0
    assert producer.node.verification.waiting_bytes == 0


async def test_a_leader_adds_the_partition_where_that_is_left_to_it(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    assert code(await producer.send(0, ADDS)) is ErrorCode.none
    (asked,) = coordinators.asked[0].transactions
    assert (asked.verify_only, asked.transaction_version) == (False, 2)


@pytest.mark.parametrize(
    ("answer", "adds", "told"),
    [
        (ErrorCode.transaction_abortable, False, ErrorCode.transaction_abortable),
        (ErrorCode.producer_fenced, False, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_id_mapping, True, ErrorCode.invalid_producer_id_mapping),
        (ErrorCode.not_coordinator, True, ErrorCode.not_enough_replicas),
        (ErrorCode.coordinator_load_in_progress, False, ErrorCode.not_enough_replicas),
        (ErrorCode.coordinator_not_available, False, ErrorCode.not_enough_replicas),
        (ErrorCode.concurrent_transactions, False, ErrorCode.not_enough_replicas),
        (ErrorCode.cluster_authorization_failed, False, ErrorCode.invalid_txn_state),
    ],
)
async def test_what_is_not_confirmed_is_not_appended(
    producer: Producer, coordinators: FakeCoordinators, answer: ErrorCode, adds: bool, told: ErrorCode
) -> None:
    coordinators.codes[0] = [answer]
    refused = await producer.send(0, ADDS if adds else VERIFIES)
    assert (code(refused), refused.never_appended) == (told, True)
    replica = producer.node.replica(producer.topic)
    assert replica.log is not None
    assert (replica.log.log_end_offset, len(replica.log.guards)) == (0, 0)
    assert producer.node.verification.failures == 1
    coordinators.codes.clear()
    assert code(await producer.send(0, ADDS if adds else VERIFIES)) is ErrorCode.none


async def test_what_is_refused_for_now_comes_before_what_follows(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.codes[0] = [ErrorCode.not_coordinator, ErrorCode.none]
    assert code(await producer.send(4)) is ErrorCode.not_enough_replicas
    assert code(await producer.send(5)) is ErrorCode.out_of_order_sequence_number
    assert [code(await producer.send(number)) for number in (4, 5)] == [ErrorCode.none] * 2


async def test_the_producers_batches_wait_in_order_and_nobody_elses_do(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    sent = [producer.send(number) for number in range(4)]
    await until_waiting(producer, 4)
    assert len(coordinators.asked) == 1
    other = Producer(producer.node, producer.topic, producer_id=8)
    assert code(await producer.node.append(producer.topic, batch(b"plain"))) is ErrorCode.none
    plain = other.batch(0, transactional=False)
    assert (await producer.node.append(producer.topic, plain)).base_offset == 1
    await coordinators.release()
    assert [(await each).base_offset for each in sent] == [2, 3, 4, 5]
    assert len(coordinators.asked) == 1


async def test_a_refusal_is_for_all_that_waited_behind(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    sent = [producer.send(number) for number in range(3)]
    await until_waiting(producer, 3)
    coordinators.codes[0] = [ErrorCode.transaction_abortable]
    await coordinators.release()
    assert [code(await each) for each in sent] == [ErrorCode.transaction_abortable] * 3


async def test_a_newer_epoch_behind_an_older_is_asked_about_by_itself(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    older = producer.send(0)
    newer = Producer(producer.node, producer.topic, epoch=1).send(0)
    await until_waiting(producer, 2)
    coordinators.is_held = False
    coordinators.codes[0] = [ErrorCode.producer_fenced, ErrorCode.none]
    await coordinators.release()
    assert code(await older) is ErrorCode.invalid_producer_epoch
    assert code(await newer) is ErrorCode.none
    assert [each.transactions[0].producer_epoch for each in coordinators.asked] == [0, 1]


async def test_a_marker_that_lands_meanwhile_wins(producer: Producer, coordinators: FakeCoordinators) -> None:
    """Scenario 30."""
    coordinators.is_held = True
    sent = producer.send(0)
    await until_waiting(producer, 1)
    assert await producer.end(committed=False) is ErrorCode.none
    await coordinators.release()
    assert code(await sent) is ErrorCode.invalid_txn_state
    replica = producer.node.replica(producer.topic)
    assert replica.last_stable_offset == replica.high_watermark == 1


async def test_the_marker_of_the_transaction_before_does_not(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    """Scenario 32: under version 2 the producer goes on before its markers have come."""
    assert code(await producer.send(0, ADDS)) is ErrorCode.none
    coordinators.is_held = True
    producer.epoch = 1
    following = producer.send(0, ADDS)
    await until_waiting(producer, 1)
    assert await producer.end(epoch=1, version=2) is ErrorCode.none
    await coordinators.release()
    assert (await following).base_offset == 2
    assert await producer.end(epoch=1, version=2) is ErrorCode.invalid_producer_epoch


async def test_the_end_of_the_transaction_before_is_waited_for(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.codes[0] = [
        ErrorCode.concurrent_transactions,
        ErrorCode.concurrent_transactions,
        ErrorCode.none,
    ]
    assert code(await producer.send(0, ADDS)) is ErrorCode.none
    assert len(coordinators.asked) == 3
    coordinators.codes[1] = [ErrorCode.concurrent_transactions]
    assert code(await producer.send(0, ADDS, index=1)) is ErrorCode.concurrent_transactions


async def test_partitions_of_a_request_are_decided_each_by_itself(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.codes[1] = [ErrorCode.transaction_abortable]
    items = [
        PartitionAppend(
            topic_id=producer.topic.bytes, partition=index, leader_epoch=-1, records=producer.batch(0)
        )
        for index in (0, 1)
    ]
    request = AppendRequest(partitions=items, acks=-1, timeout_ms=1000, transaction=VERIFIES)
    result = await producer.node.connection.appends.send(request)
    assert [code(each) for each in result.partitions] == [ErrorCode.none, ErrorCode.transaction_abortable]
    (asked,) = coordinators.asked[0].transactions
    assert [list(topic.partitions) for topic in asked.topics] == [[0, 1]]


async def test_a_request_is_of_one_producer(producer: Producer, coordinators: FakeCoordinators) -> None:
    other = Producer(producer.node, producer.topic, epoch=1)
    items = [
        PartitionAppend(
            topic_id=producer.topic.bytes, partition=index, leader_epoch=-1, records=each.batch(0)
        )
        for index, each in enumerate((producer, other))
    ]
    request = AppendRequest(partitions=items, acks=-1, timeout_ms=1000, transaction=VERIFIES)
    result = await producer.node.connection.appends.send(request)
    assert {code(each) for each in result.partitions} == {ErrorCode.invalid_producer_id_mapping}
    assert coordinators.asked == []


async def test_without_verification_only_who_adds_partitions_asks(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    assert code(await producer.send(0, None)) is ErrorCode.invalid_txn_state
    producer.node.verify_no_transactions()
    assert code(await producer.send(0, None)) is ErrorCode.none
    assert code(await producer.send(0, VERIFIES, index=1)) is ErrorCode.none
    assert coordinators.asked == []
    producer.epoch = 1
    assert code(await producer.send(0, ADDS, index=1)) is ErrorCode.none
    assert len(coordinators.asked) == 1


async def test_an_older_gateway_may_go_on_in_an_open_transaction(producer: Producer) -> None:
    assert code(await producer.send(0)) is ErrorCode.none
    assert code(await producer.send(1, None)) is ErrorCode.none


async def test_nobody_is_asked_about_what_is_refused_anyway(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    node, topic = producer.node, producer.topic
    damaged = bytearray(producer.batch(0))
    damaged[-1] ^= 1
    assert code(await node.append(topic, bytes(damaged), transaction=VERIFIES)) is ErrorCode.corrupt_message
    assert code(await producer.send(0, leader_epoch=9)) is ErrorCode.unknown_leader_epoch
    newer = Producer(node, topic, epoch=5)
    assert code(await newer.send(0)) is ErrorCode.none
    assert code(await producer.send(0)) is ErrorCode.invalid_producer_epoch
    assert len(coordinators.asked) == 1
    short = await node.append(topic, batch(b"v", transactional=True)[:40], transaction=VERIFIES)
    assert code(short) is ErrorCode.invalid_record


async def test_a_silent_coordinator_is_waited_for_until_the_requests_time_is_over(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    """What was given up is never appended, whatever is answered then."""
    coordinators.is_held = True
    refused = await producer.send(0, timeout_ms=1)
    assert (code(refused), refused.never_appended) == (ErrorCode.not_enough_replicas, True)
    behind = producer.send(1)
    await until_waiting(producer, 1)
    await coordinators.release()
    assert code(await behind) is ErrorCode.out_of_order_sequence_number
    replica = producer.node.replica(producer.topic)
    assert replica.log is not None
    assert replica.log.log_end_offset == 0
    assert producer.node.verification.waiting_bytes == 0


async def test_a_guard_that_nobody_waits_for_any_more_is_closed(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    assert code(await producer.send(0, timeout_ms=1)) is ErrorCode.not_enough_replicas
    guards = producer.node.replica(producer.topic).log.guards  # type: ignore[union-attr]
    assert len(guards) == 1
    coordinators.is_held = False
    await coordinators.release()
    assert code(await producer.send(0, index=1)) is ErrorCode.none  # asked after the answer
    assert len(guards) == 0


async def test_nothing_overtakes_what_waits_when_verification_ends(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    sent = [producer.send(0)]
    await until_waiting(producer, 1)
    producer.node.verify_no_transactions()
    sent.append(producer.send(1))
    await until_waiting(producer, 2)
    await coordinators.release()
    assert [(await each).base_offset for each in sent] == [0, 1]


async def test_a_lost_answer_is_one_to_try_again_after(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.error = OutcomeUnknown("lost")
    assert code(await producer.send(0)) is ErrorCode.not_enough_replicas
    coordinators.error = None
    assert code(await producer.send(0)) is ErrorCode.none


async def test_who_leads_no_more_appends_nothing_late(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    node, topic = producer.node, producer.topic
    coordinators.is_held = True
    sent = [producer.send(number) for number in range(2)]
    await until_waiting(producer, 2)
    node.apply(*topic_records("events", topic, 2, leader=2, leader_epoch=1, replicas=(1, 2)))
    results = [await each for each in sent]
    assert [(code(each), each.never_appended) for each in results] == [
        (ErrorCode.not_leader_or_follower, True)
    ] * 2
    node.apply(*topic_records("events", topic, 2, leader_epoch=2, replicas=(1, 2)))
    await coordinators.release()
    await asyncio.sleep(0)
    replica = node.replica(topic)
    assert replica.log is not None
    assert replica.log.log_end_offset == 0
    assert node.verification.waiting_bytes == 0


async def test_who_leads_under_another_epoch_asks_anew(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    """Another node may have led in between, and written the marker."""
    node, topic = producer.node, producer.topic
    coordinators.is_held = True
    sent = producer.send(0)
    await until_waiting(producer, 1)
    node.apply(*topic_records("events", topic, 2, leader_epoch=2))
    assert code(await sent) is ErrorCode.not_leader_or_follower
    coordinators.is_held = False
    await coordinators.release()
    assert code(await producer.send(0)) is ErrorCode.none


async def test_an_answer_to_the_former_leader_epoch_says_nothing_of_this_one(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    """Under the former guard the log would refuse the batch, and the producer abort."""
    node, topic = producer.node, producer.topic
    coordinators.is_held = True
    producer.send(0)
    await until_waiting(producer, 1)
    node.apply(*topic_records("events", topic, 2, leader_epoch=2))
    again = producer.send(0)
    while not node.verification.questions.waiting:
        await asyncio.sleep(0)
    coordinators.is_held = False
    await coordinators.release()
    assert code(await again) is ErrorCode.none
    assert len(coordinators.asked) == 2


@pytest.mark.parametrize("hands_over", [False, True])
async def test_a_node_that_stops_refuses_what_waits(
    producer: Producer, coordinators: FakeCoordinators, hands_over: bool
) -> None:
    node, topic = producer.node, producer.topic
    node.apply(*topic_records("events", topic, 2, replicas=(1, 2)))
    coordinators.is_held = True
    sent = producer.send(0)
    await until_waiting(producer, 1)
    await (node.appends.refuse_before_hand_over(1) if hands_over else node.appends.stop(1))
    result = await sent
    assert (code(result), result.never_appended) == (ErrorCode.not_leader_or_follower, True)


async def test_a_deleted_topic_takes_what_waits_with_it(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    sent = producer.send(0)
    await until_waiting(producer, 1)
    producer.node.snapshot(producer.node.deletion(producer.topic))
    assert code(await sent) is ErrorCode.unknown_topic_or_partition


async def test_a_full_disk_after_the_answer(
    producer: Producer, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction does not begin; what waited behind comes in the same order once there is room again."""
    coordinators.is_held = True
    sent = [producer.send(number) for number in range(2)]
    await until_waiting(producer, 2)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr("barnabas.log.segments.segment_file.SegmentFile.write", full)
        await coordinators.release()
        codes = [code(await each) for each in sent]
    assert codes[0] is ErrorCode.kafka_storage_error
    assert codes[1] in (ErrorCode.kafka_storage_error, ErrorCode.out_of_order_sequence_number)
    coordinators.is_held = False
    assert [code(await producer.send(number)) for number in range(2)] == [ErrorCode.none] * 2


async def test_in_the_writer_thread_the_guard_goes_along(
    producer: Producer, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Appending, "is_direct", lambda *_: False)
    coordinators.is_held = True
    sent = [producer.send(number) for number in range(3)]
    await until_waiting(producer, 3)
    await coordinators.release()
    assert [(await each).base_offset for each in sent] == [0, 1, 2]
    assert len(coordinators.asked) == 1


@pytest.mark.parametrize("is_given_up", [False, True], ids=["no answer", "given up"])
async def test_what_fails_behind_a_batch_on_its_way_to_the_disk_does_not_refuse_that(
    producer: Producer, coordinators: FakeCoordinators, is_given_up: bool
) -> None:
    """Until the first batch is in the log the next one is asked about, too, and both have one guard."""
    replica = producer.node.replica(producer.topic)
    queue, disk = replica.appending._queue, threading.Event()
    assert queue is not None
    queue.submit(disk.wait, lambda *_: None)
    first = producer.send(0)
    async with asyncio.timeout(20):
        while len(queue.items) < 2:
            await asyncio.sleep(0)
    if is_given_up:
        coordinators.is_held = True
    else:
        coordinators.error = OutcomeUnknown("lost")
    assert (
        code(await producer.send(1, timeout_ms=1 if is_given_up else 1_000)) is ErrorCode.not_enough_replicas
    )
    if is_given_up:
        await coordinators.release()
        await coordinators.until_asked(2)
    coordinators.error, coordinators.is_held = None, False
    await asyncio.sleep(0)
    disk.set()
    assert code(await first) is ErrorCode.none
    assert code(await producer.send(1)) is ErrorCode.none


async def test_what_waits_is_bounded(
    producer: Producer, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinators.is_held = True
    size = len(producer.batch(0)) + limits.UNVERIFIED_BATCH_COST_BYTES
    monkeypatch.setattr(limits, "UNVERIFIED_PARTITION_BYTES_MAX", 2 * size)
    sent = [producer.send(number) for number in range(2)]
    await until_waiting(producer, 2)
    assert producer.node.verification.waiting_bytes == 2 * size
    assert code(await producer.send(2)) is ErrorCode.not_enough_replicas
    monkeypatch.setattr(producer.node.verification._room, "bytes_max", 2 * size)
    assert code(await producer.send(0, index=1)) is ErrorCode.not_enough_replicas
    await coordinators.release()
    assert [code(await each) for each in sent] == [ErrorCode.none] * 2


async def test_without_a_coordinator_it_is_to_be_tried_again(node: StorageHarness) -> None:
    producer = Producer(node, await node.create_topic("others"))
    node.apply(*topic_records("__transaction_state", producer.topic, internal=True))
    assert node.verification.guard_unasked == NO_GUARD
    alone = AppendTransaction(transactional_id="t")
    node.snapshot(*topic_records("others", producer.topic))
    assert code(await producer.send(0, alone)) is ErrorCode.not_enough_replicas


async def test_a_coordinator_that_is_replaced_while_it_is_asked(
    producer: Producer, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    sent = producer.send(0)
    await coordinators.until_asked(1)
    later = producer.send(0, index=1)
    await until_waiting(producer, 1, index=1)
    coordinators.is_held = False
    apply_coordinator(producer.node, incarnation="another process")
    assert code(await sent) is ErrorCode.not_enough_replicas
    assert code(await later) is ErrorCode.none
    assert coordinators.closed == ["c"]
