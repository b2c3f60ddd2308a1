"""How decisions that wait are packed into appends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.decision import Waiter
from barnabas.coordinator.runtime.write_queue import WriteQueue
from barnabas.messages.coordinator_pb2 import HeartbeatResponse
from barnabas.records.batch import iterate_headers
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
