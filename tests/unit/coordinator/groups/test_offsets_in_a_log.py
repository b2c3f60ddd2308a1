"""Offsets through a real log: batches as the runtime writes them, taken by a partition's leader, compacted by its
cleaner, and read again: what a new coordinator finds is what the one before it knew."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import decode_batch, encode_record, head_of
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetKey,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.coordinator.runtime.write_queue import WriteQueue
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.files import SystemFiles
from barnabas.log.cleaning import cleaner
from barnabas.log.cleaning.cleanable import measure
from barnabas.log.cleaning.offset_map import ENTRY_BYTES
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.records.batch import iterate_headers

RETENTION_MS = 1_000
AT_ONCE_MAX = 8
"""Decisions in one append: it must fit the log's small segments."""
KEYS = [OffsetKey("g", topic, partition) for topic in "tu" for partition in (0, 1)]


class WrittenShard:
    """A shard whose records go into a log on disk."""

    def __init__(self, directory: str) -> None:
        self.clock = ManualClock()
        config = LogConfig(
            segment_bytes=2_000,
            cleanup_policy=frozenset({"compact"}),
            delete_retention_ms=RETENTION_MS,
            message_timestamp_after_max_ms=2**60,
            min_cleanable_dirty_ratio=0.0,
        )
        environment = seeded_environment(1, self.clock, files=SystemFiles())
        self.log = PartitionLog.open(
            directory, "__consumer_offsets", 0, uuid.UUID(int=9), config, environment
        )
        self.shard = GroupShard(CoordinatorConfig())
        self.queue: WriteQueue[GroupLogRecord] = WriteQueue(head_of)

    def decide(self, record: GroupLogRecord) -> None:
        self.shard.replay_uncommitted(record)
        self.queue.add([record], [(self.clock.now_ms(), *encode_record(record), ())], [])
        if len(self.queue) == AT_ONCE_MAX:
            self.write()

    def write(self) -> None:
        while self.queue.has_next:
            append = self.queue.next_append()
            end = self.log.log_end_offset
            info = self.log.append_as_leader(append.batches, 0, origin=AppendOrigin.COORDINATOR)
            assert (info.base_offset, info.last_offset) == (end, end + append.record_count - 1)
            for write in self.queue.on_written():
                for record in write.records:
                    self.shard.on_committed(record)
        self.log.producer_state.on_high_watermark(self.log.log_end_offset)

    def compact(self) -> None:
        self.write()
        self.log.roll()
        to_clean = measure(self.log, self.log.log_end_offset, self.clock.now_ms())
        if to_clean.cleanable_bytes:
            cleaner.clean(to_clean, self.clock.now_ms(), lambda _: None, buffer_bytes=1_000 * ENTRY_BYTES)

    def records(self) -> Iterator[GroupLogRecord]:
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset and (data := self.log.read(offset, 2_000)):
            for position, header in iterate_headers(data):
                offset = header.next_offset
                yield from decode_batch(memoryview(data)[position : position + header.size_in_bytes])

    def load_anew(self) -> None:
        """A new coordinator."""
        self.write()
        shard = GroupShard(CoordinatorConfig())
        for record in self.records():
            shard.replay(record)
        by_replay = shard.producers.open_count
        shard.producers.restore(
            [
                LogProducer(
                    Producer(entry.producer_id, entry.producer_epoch),
                    entry.coordinator_epoch,
                    is_open=entry.current_transaction_first_offset >= 0,
                )
                for entry in self.log.producer_state.producers.values()
            ]
        )
        assert shard.producers.open_count == by_replay == self.shard.producers.open_count
        assert shard.offsets == self.shard.offsets
        assert [shard.pending.has(key) for key in KEYS] == [self.shard.pending.has(key) for key in KEYS]
        for producer_id in (1, 2):
            mine = set(shard.pending.keys_of(producer_id))
            assert mine == set(self.shard.pending.keys_of(producer_id))
        self.shard = shard


keys = st.sampled_from(KEYS)
producers = st.builds(Producer, st.integers(1, 2), st.integers(0, 2))
steps = st.one_of(
    st.builds(OffsetRecord, st.just("g"), st.sampled_from("tu"), st.integers(0, 1), st.none()),
    st.tuples(keys, st.none() | producers),
    st.tuples(keys, producers),
    st.builds(MarkerRecord, producers, st.booleans(), st.integers(0, 1)),
    st.sampled_from(["write", "compact", "load anew", "wait"]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=60))
def test_a_new_coordinator_finds_what_the_one_before_it_knew(taken: list[object]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written = WrittenShard(directory)
        for number, step in enumerate(taken):
            match step:
                case OffsetRecord() as record:
                    written.decide(record)
                case MarkerRecord(producer, _, epoch) as record:
                    if written.shard.producers.verdict_on_marker(producer, epoch, 0) is ErrorCode.none:
                        written.decide(record)
                case (OffsetKey() as key, producer):
                    known = written.shard.producers
                    if producer is None or known.verdict_on_epoch(producer) is ErrorCode.none:
                        written.decide(OffsetRecord(*key, OffsetAndMetadata(number), producer))
                case "compact":
                    written.compact()
                case "load anew":
                    written.load_anew()
                case "wait":
                    written.clock.advance(RETENTION_MS + 1)
                case _:
                    written.write()
        written.compact()
        written.load_anew()
        written.log.close()
