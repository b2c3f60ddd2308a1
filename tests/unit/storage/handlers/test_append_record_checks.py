"""Appends whose records have to be looked at: whom that holds up, how much is told of it, what may happen meanwhile."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from storage_harness import NOW_MS, StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult
from barnabas.records import validate
from barnabas.records.produced_records import walk_records
from barnabas.records.record import encode_batch
from barnabas.storage import limits
from barnabas.storage.replica.replica import Replica

SEVERAL_DIRECTORIES = pytest.mark.parametrize("directories", [1, 2])


@pytest.fixture
def directories() -> int:
    return 1


@pytest.fixture
async def node(tmp_path: Path, directories: int) -> AsyncIterator[StorageHarness]:
    others = [tmp_path / f"data-{number}" for number in range(1, directories)]
    async with run_node(tmp_path / "data", tmp_path / "s", others=others) as harness:
        yield harness


class Walks:
    """Walks over records: where they are made, and those in the thread as long as they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_loop = 0
        self.in_thread = 0
        self.held = threading.Semaphore(0)
        self.is_held = False
        monkeypatch.setattr(validate, "walk_records", self)

    def __call__(self, *args: Any) -> Iterator[tuple[int, bool]]:
        if threading.current_thread() is threading.main_thread():
            self.on_loop += 1
        else:
            self.in_thread += 1
            if self.is_held:
                assert self.held.acquire(timeout=20)
        return walk_records(*args)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Walks]:
    walks = Walks(monkeypatch)
    yield walks
    walks.held.release(1_000)


def let_no_time_pass(node: StorageHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at records takes a second, and nothing else takes any time."""
    seconds = [0.0]

    def end() -> None:
        seconds[0] += 1.0
        ends()

    time = node.checks.loop_time
    ends = time.end
    monkeypatch.setattr(time, "_now", lambda: seconds[0])
    monkeypatch.setattr(time, "end", end)


async def compacted(node: StorageHarness, partitions: int = 1) -> uuid.UUID:
    topic = await node.create_topic("compacted", partitions)
    node.apply(topic_config("compacted", cleanup_policy="compact"))
    return topic


def keyed(count: int = 1, **options: Any) -> bytes:
    return encode_batch([(NOW_MS, b"k", b"v", ())] * count, **options)


LONG = keyed(validate.QUICK_RECORDS_MAX + 1)
KEYLESS = encode_batch([(NOW_MS, None, b"v", ())] * 4)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def handled(node: StorageHarness, topic: uuid.UUID, batches: list[bytes]) -> AppendResult:
    """The result of one request of several batches for one partition, handed over in this process."""
    request = AppendRequest(correlation_id=1, acks=-1, timeout_ms=20_000)
    for records in batches:
        request.partitions.add(topic_id=topic.bytes, partition=0, leader_epoch=-1, records=records)
    answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    node.appends.handle(request, answer.set_result)
    async with asyncio.timeout(20):
        return await answer


def is_idle(replica: Replica) -> bool:
    queue = replica.appending._queue
    return queue is not None and not queue.items


@SEVERAL_DIRECTORIES
async def test_the_batches_of_a_request_take_no_more_of_the_event_loop_together_than_one_may(
    node: StorageHarness, walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await compacted(node)
    let_no_time_pass(node, monkeypatch)
    result = await handled(node, topic, [keyed(3)] * 20)
    assert [(each.error_code, each.base_offset) for each in result.partitions] == [
        (0, 3 * number) for number in range(20)
    ]
    assert walks.on_loop == 1
    assert walks.in_thread == 19


@SEVERAL_DIRECTORIES
async def test_requests_that_come_together_do_not_either(
    node: StorageHarness, walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await compacted(node)
    let_no_time_pass(node, monkeypatch)
    results = await asyncio.gather(*(node.send_append(topic, keyed()) for _ in range(20)))
    assert [each.partitions[0].base_offset for each in results] == list(range(20))
    assert (walks.on_loop, walks.in_thread) == (1, 19)


async def test_what_needs_no_look_at_its_records_stays_on_the_event_loop(
    node: StorageHarness, walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = await compacted(node), await node.create_topic()
    let_no_time_pass(node, monkeypatch)
    await handled(node, topic, [keyed()] * 2)
    answers: list[AppendResult] = []
    request = AppendRequest(correlation_id=1, acks=-1, timeout_ms=20_000)
    request.partitions.add(topic_id=other.bytes, partition=0, leader_epoch=-1, records=batch(b"a"))
    node.appends.handle(request, answers.append)
    assert answers[0].partitions[0].error_code == 0
    assert (walks.on_loop, walks.in_thread) == (1, 1)


async def test_no_more_bad_records_of_a_request_are_named_than_the_limit_says(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECORD_ERRORS_MAX", 6)
    topic = await compacted(node)
    result = await handled(node, topic, [KEYLESS] * 5)
    invalid = int(ErrorCode.invalid_record)
    assert [each.error_code for each in result.partitions] == [invalid] * 5
    assert all(each.error_message for each in result.partitions)
    assert sum(len(each.record_errors) for each in result.partitions) == 6


@SEVERAL_DIRECTORIES
async def test_a_long_look_holds_up_nobody_but_its_own_partition(node: StorageHarness, walks: Walks) -> None:
    topic, other = await compacted(node, partitions=3), await node.create_topic(partitions=4)
    walks.is_held = True
    long = [node.send_append(topic, LONG), node.send_append(topic, LONG), node.send_append(topic, keyed())]
    await until(lambda: walks.in_thread)
    for index in range(4):
        assert (await node.append(other, batch(b"a"), index=index)).error_code == 0
    for index in (1, 2):
        assert (await node.append(topic, keyed(), index=index)).error_code == 0
    assert not any(each.done() for each in long)
    walks.held.release(2)
    results = await asyncio.gather(*long)
    first, second = validate.QUICK_RECORDS_MAX + 1, 2 * (validate.QUICK_RECORDS_MAX + 1)
    assert [each.partitions[0].base_offset for each in results] == [0, first, second]


async def test_partitions_take_turns(node: StorageHarness, walks: Walks) -> None:
    topic = await compacted(node, partitions=2)
    walks.is_held = True
    many = [node.send_append(topic, LONG) for _ in range(5)]
    await until(lambda: walks.in_thread)
    one = node.send_append(topic, LONG, index=1)
    await until(lambda: node.checks.waiting_bytes == 6 * len(LONG))
    walks.held.release(2)
    await one
    assert sum(each.done() for each in many) <= 1
    walks.held.release(4)
    await asyncio.gather(*many)
    assert node.checks.waiting_bytes == 0


async def test_what_is_given_up_while_it_is_looked_at_is_never_written(
    node: StorageHarness, walks: Walks
) -> None:
    topic = await compacted(node)
    first = keyed(validate.QUICK_RECORDS_MAX + 1, producer_id=7, producer_epoch=0, base_sequence=0)
    second = keyed(1, producer_id=7, producer_epoch=0, base_sequence=validate.QUICK_RECORDS_MAX + 1)
    walks.is_held = True
    overdue = node.send_append(topic, first, timeout_ms=1)
    behind = node.send_append(topic, second)
    assert (await overdue).partitions[0].error_code == int(ErrorCode.request_timed_out)
    answer = (await behind).partitions[0]
    assert answer.error_code == int(ErrorCode.out_of_order_sequence_number), (
        "the one before it is to come first"
    )
    walks.held.release(10)
    walks.is_held = False
    assert (await node.append(topic, first)).base_offset == 0
    assert (await node.append(topic, second)).base_offset == validate.QUICK_RECORDS_MAX + 1


async def test_losing_the_leadership_takes_back_what_is_looked_at(node: StorageHarness, walks: Walks) -> None:
    topic = await compacted(node)
    walks.is_held = True
    sent = [node.send_append(topic, records) for records in (LONG, keyed())]
    await until(lambda: walks.in_thread and len(node.replica(topic).appending._queue.items) == 2)  # type: ignore[union-attr]
    node.apply(*topic_records("compacted", topic, leader=2, leader_epoch=1, replicas=(2, 1)))
    for each in sent:
        assert (await each).partitions[0].error_code == int(ErrorCode.not_leader_or_follower)
    node.apply(*topic_records("compacted", topic, leader=1, leader_epoch=2, replicas=(1, 2)))
    walks.held.release(10)
    assert (await node.append(topic, keyed(), acks=1)).base_offset == 0
    await until(lambda: is_idle(node.replica(topic)))


async def test_a_leader_epoch_begins_behind_what_is_looked_at(node: StorageHarness, walks: Walks) -> None:
    topic = await compacted(node)
    walks.is_held = True
    sent = node.send_append(topic, LONG)
    await until(lambda: walks.in_thread)
    node.apply(*topic_records("compacted", topic, leader_epoch=1))
    walks.held.release(10)
    assert (await sent).partitions[0].error_code == 0
    assert (await node.append(topic, keyed(), leader_epoch=1)).base_offset == validate.QUICK_RECORDS_MAX + 1
    log = node.replica(topic).log
    assert log is not None
    assert log.latest().leader_epoch == 1


async def test_bad_records_found_in_the_thread_are_named_and_hold_up_nothing(
    node: StorageHarness, walks: Walks
) -> None:
    topic = await compacted(node)
    bad = encode_batch([(NOW_MS, b"k", b"v", ())] * validate.QUICK_RECORDS_MAX + [(NOW_MS, None, b"v", ())])
    refused, taken = await asyncio.gather(node.append(topic, bad), node.append(topic, keyed()))
    assert refused.error_code == int(ErrorCode.invalid_record)
    assert [each.batch_index for each in refused.record_errors] == [validate.QUICK_RECORDS_MAX]
    assert (taken.error_code, taken.base_offset) == (0, 0)
    assert walks.in_thread == 1


async def test_a_batch_too_large_to_be_looked_at_has_to_come_again_first(
    node: StorageHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's client sends the records of such a batch in parts, under the same sequences."""
    monkeypatch.setattr(validate, "UNFOLDED_BYTES_MAX", 1_000)
    monkeypatch.setattr(validate, "QUICK_UNFOLDED_BYTES_MAX", 500)
    topic = await compacted(node)
    node.apply(topic_config("compacted", cleanup_policy="compact", max_message_bytes="300"))
    records = [(NOW_MS, b"k", bytes(2_000), ())]
    large = encode_batch(records, compression=4, producer_id=7, producer_epoch=0, base_sequence=0)
    sent = [
        node.send_append(topic, each)
        for each in (large, keyed(1, producer_id=7, producer_epoch=0, base_sequence=1))
    ]
    codes = [(await each).partitions[0].error_code for each in sent]
    assert codes == [int(ErrorCode.message_too_large), int(ErrorCode.out_of_order_sequence_number)]


async def test_too_much_that_waits_to_be_looked_at_is_refused_and_no_fault_of_the_disk(
    node: StorageHarness, walks: Walks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.checks, "_bytes_max", 3 * len(LONG))
    topic = await compacted(node, partitions=2)
    walks.is_held = True
    sent = [node.send_append(topic, LONG)]
    await until(lambda: walks.in_thread)
    sent += [node.send_append(topic, LONG) for _ in range(3)]
    sent.append(node.send_append(topic, LONG, index=1))
    done, _ = await asyncio.wait(sent, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert done
    walks.held.release(10)
    codes = [each.partitions[0].error_code for each in await asyncio.gather(*sent)]
    too_much = int(ErrorCode.kafka_storage_error)
    assert codes == [0, 0, too_much, too_much, 0]
    lane = node.replica(topic).lane
    assert lane is not None
    assert not lane.is_refusing
    assert node.checks.waiting_bytes == 0
