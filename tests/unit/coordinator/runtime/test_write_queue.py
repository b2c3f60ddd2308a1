"""How decisions that wait are packed into appends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.decision import Waiter
from barnabas.coordinator.runtime.core.producers import PLAIN, BatchHead, Producer
from barnabas.coordinator.runtime.write_queue import WriteQueue
from barnabas.messages.coordinator_pb2 import HeartbeatResponse
from barnabas.records.batch import iterate_headers, parse_header
from barnabas.records.control import encode_marker, encode_marker_record
from barnabas.records.record import RecordParts, decode_records


def encoded(value: bytes, timestamp: int = 1) -> RecordParts:
    return timestamp, b"key", value, ()


def decisions_in(batches: bytes) -> list[list[bytes | None]]:
    """The values of each batch."""
    view = memoryview(batches)
    return [
        [record.value for record in decode_records(view[position : position + header.size_in_bytes])]
        for position, header in iterate_headers(batches)
    ]


def test_a_thousand_commits_are_one_batch() -> None:
    queue: WriteQueue[int] = WriteQueue()
    for number in range(1_000):
        queue.add([number], [encoded(b"%d" % number, timestamp=1_000 - number)], [])
    append = queue.next_append()
    assert decisions_in(append.batches) == [[b"%d" % number for number in range(1_000)]]
    assert append.record_count == 1_000
    assert [each.records for each in queue.on_written()] == [[number] for number in range(1_000)]
    assert not queue
    assert not queue.has_next


def test_a_large_decision_is_written_in_parts_and_answered_after_the_last() -> None:
    queue: WriteQueue[int] = WriteQueue()
    value = b"v" * (limits.BATCH_BYTES_TARGET // 4)
    reply = (Waiter(1), HeartbeatResponse())
    queue.add(list(range(20)), [encoded(value)] * 20, [reply])
    answered = []
    appends = 0
    while queue.has_next:
        assert not answered
        append = queue.next_append()
        assert len(decisions_in(append.batches)) <= limits.APPEND_BATCHES_MAX
        appends += 1
        answered += [each for decision in queue.on_written() for each in decision.replies]
    assert answered == [reply]
    assert appends > 1


def test_a_full_queue_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: WriteQueue[int] = WriteQueue()
    value = b"v" * (limits.BATCH_BYTES_TARGET // 2)
    while not queue.is_full:
        queue.add([0], [encoded(value)], [])
    assert len(queue) * len(value) <= limits.BACKLOG_BYTES_MAX
    queue.next_append()
    assert not queue.is_full
    queue.on_written()
    queue.clear()
    monkeypatch.setattr(limits, "BACKLOG_DECISIONS_MAX", 2)
    queue.add([0], [encoded(b"")], [])
    assert not queue.is_full
    queue.add([0], [encoded(b"")], [])
    assert queue.is_full


@given(
    st.lists(st.lists(st.integers(0, limits.BATCH_BYTES_TARGET), min_size=1, max_size=3), max_size=6),
)
def test_order_is_kept_and_no_decision_is_torn_without_need(sizes: list[list[int]]) -> None:
    queue: WriteQueue[tuple[int, int]] = WriteQueue()
    for number, decision in enumerate(sizes):
        values = [bytes([number]) + bytes(size) for size in decision]
        records = [(number, index) for index in range(len(values))]
        queue.add(records, [encoded(value) for value in values], [])
    written: list[tuple[int, int]] = []
    batches: list[list[int]] = []
    while queue.has_next:
        append = queue.next_append()
        batches += [[value[0] for value in batch if value] for batch in decisions_in(append.batches)]
        written += [record for decision in queue.on_written() for record in decision.records]
    assert written == [(number, index) for number, each in enumerate(sizes) for index in range(len(each))]
    for number, decision in enumerate(sizes):
        if sum(decision) + 100 * len(decision) <= limits.BATCH_BYTES_TARGET:
            assert sum(number in batch for batch in batches) == 1


WRITTEN = BatchHead(Producer(7, 3))
OTHER_EPOCH = BatchHead(Producer(7, 4))
MARKER = BatchHead(Producer(7, 3), is_control=True)


def heads_in(batches: bytes) -> list[BatchHead]:
    heads = []
    for _, header in iterate_headers(batches):
        assert header.base_sequence == -1
        assert header.is_transactional == (header.producer_id >= 0)
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        heads.append(BatchHead(producer, header.is_control))
    return heads


def test_what_is_written_under_different_producers_shares_no_batch() -> None:
    queue: WriteQueue[BatchHead] = WriteQueue(lambda head: head)
    decisions = [[PLAIN], [PLAIN], [WRITTEN, WRITTEN], [WRITTEN], [OTHER_EPOCH], [MARKER], [MARKER], [PLAIN]]
    for number, heads in enumerate(decisions):
        queue.add(heads, [encoded(b"%d" % number)] * len(heads), [])
    append = queue.next_append()
    assert heads_in(append.batches) == [PLAIN, WRITTEN, OTHER_EPOCH, MARKER, MARKER, PLAIN]
    values = decisions_in(append.batches)
    assert values == [[b"0", b"1"], [b"2", b"2", b"3"], [b"4"], [b"5"], [b"6"], [b"7"]]
    assert append.record_count == 9
    assert [list(write.records) for write in queue.on_written()] == decisions


def test_one_decision_with_several_heads_is_answered_after_the_last_of_them() -> None:
    queue: WriteQueue[BatchHead] = WriteQueue(lambda head: head)
    reply = (Waiter(1), HeartbeatResponse())
    queue.add([PLAIN, WRITTEN, MARKER, MARKER, PLAIN], [encoded(b"v")] * 5, [reply])
    append = queue.next_append()
    assert heads_in(append.batches) == [PLAIN, WRITTEN, MARKER, MARKER, PLAIN]
    assert [write.replies for write in queue.on_written()] == [[], [], [], [], [reply]]


def test_a_marker_has_the_bytes_of_every_other_marker() -> None:
    queue: WriteQueue[BatchHead] = WriteQueue(lambda head: head)
    key, value = encode_marker_record(committed=True, coordinator_epoch=5)
    queue.add([MARKER], [(9, key, value, ())], [])
    assert queue.next_append().batches == encode_marker(
        committed=True, producer_id=7, producer_epoch=3, coordinator_epoch=5, timestamp=9
    )


def test_many_producers_are_many_batches_up_to_the_limit() -> None:
    queue: WriteQueue[int] = WriteQueue(lambda number: BatchHead(Producer(number, 0)))
    for number in range(limits.APPEND_BATCHES_MAX + 1):
        queue.add([number], [encoded(b"v")], [])
    first = queue.next_append()
    assert first.record_count == limits.APPEND_BATCHES_MAX
    queue.on_written()
    assert parse_header(queue.next_append().batches).producer_id == limits.APPEND_BATCHES_MAX


def test_an_append_has_a_size_however_many_producers_there_are() -> None:
    queue: WriteQueue[int] = WriteQueue(lambda number: BatchHead(Producer(number, 0)))
    value = b"v" * (limits.BATCH_BYTES_TARGET * 5 // 8)
    for number in range(8):
        queue.add([number], [encoded(value)], [])
    sizes = []
    while queue.has_next:
        sizes.append(len(queue.next_append().batches))
        queue.on_written()
    assert max(sizes) <= limits.APPEND_BYTES_TARGET
    assert len(sizes) == 3
