"""Offsets of open transactions, against a model that knows where in the log each record stands; with reloads at any
point, and compaction as Kafka does it."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.pending import PendingOffsets
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    MarkerRecord,
    OffsetAndMetadata,
    OffsetKey,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.runtime.core.producers import Producer

KEYS = [OffsetKey(group, topic, partition) for group in "gh" for topic in "tu" for partition in (0, 1)]
keys = st.sampled_from(KEYS)
producer_ids = st.integers(1, 3)

At = tuple[int, OffsetAndMetadata]
"""An offset of the log, and the value that stands there."""


class Model:
    """The rule in so many words: offsets of the log decide, and no number stands for them."""

    def __init__(self) -> None:
        self.stored: dict[OffsetKey, At] = {}
        self.pending: dict[int, dict[OffsetKey, At]] = {}

    def replay(self, at: int, record: GroupLogRecord) -> None:
        if isinstance(record, MarkerRecord):
            for key, (place, value) in self.pending.pop(record.producer.producer_id, {}).items():
                if record.committed and place > self.stored.get(key, (-1, None))[0]:
                    self.stored[key] = (place, value)
        elif isinstance(record, OffsetRecord):
            if record.value is None:
                self.stored.pop(record.key, None)
                for offsets in self.pending.values():
                    offsets.pop(record.key, None)
            elif record.producer is not None:
                offsets = self.pending.setdefault(record.producer.producer_id, {})
                offsets[record.key] = (at, record.value)
            else:
                self.stored[record.key] = (at, record.value)


class Log:
    """Records with gaps between them where compaction has been."""

    def __init__(self) -> None:
        self.records: list[tuple[int, GroupLogRecord]] = []
        self.end = 0

    def append(self, record: GroupLogRecord) -> int:
        self.records.append((self.end, record))
        self.end += 1
        return self.end - 1

    def transactions(self) -> Iterator[tuple[list[int], int | None, bool]]:
        """Where the records of each stand, where its marker stands if it has one, and whether it is committed."""
        under_way: dict[int, list[int]] = {}
        for at, record in self.records:
            if isinstance(record, MarkerRecord):
                yield under_way.pop(record.producer.producer_id, []), at, record.committed
            elif isinstance(record, OffsetRecord) and record.producer is not None:
                under_way.setdefault(record.producer.producer_id, []).append(at)
        for records in under_way.values():
            yield records, None, False

    def compact(self, before: int, *, forgets: bool) -> None:
        """Clean what is below `before` and decided; with `forgets` the delete retention has passed: tombstones and
        markers of transactions of which nothing was left go as well."""
        transactions = list(self.transactions())
        before = min([before, *(at[0] for at, marker, _ in transactions if marker is None)])
        aborted = {each for at, marker, committed in transactions if marker and not committed for each in at}
        markers = {marker for at, marker, _ in transactions if not at}
        newest = {
            record.key: at
            for at, record in self.records
            if isinstance(record, OffsetRecord) and at < before and at not in aborted
        }

        def stays(at: int, record: GroupLogRecord) -> bool:
            if at >= before:
                return True
            if isinstance(record, OffsetRecord):
                is_gone = record.value is None and forgets
                return at not in aborted and newest[record.key] == at and not is_gone
            return not (forgets and at in markers)

        self.records = [(at, record) for at, record in self.records if stays(at, record)]


class PendingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.model = Model()
        self.shard = GroupShard(CoordinatorConfig())
        self.epochs = dict.fromkeys((1, 2, 3), 0)

    def _append(self, record: GroupLogRecord) -> None:
        at = self.log.append(record)
        self.model.replay(at, record)
        self.shard.replay(record)

    @rule(key=keys)
    def commit(self, key: OffsetKey) -> None:
        self._append(OffsetRecord(*key, OffsetAndMetadata(self.log.end)))

    @rule(key=keys, producer_id=producer_ids)
    def commit_in_transaction(self, key: OffsetKey, producer_id: int) -> None:
        producer = Producer(producer_id, self.epochs[producer_id])
        self._append(OffsetRecord(*key, OffsetAndMetadata(self.log.end), producer))

    @rule(key=keys)
    def delete(self, key: OffsetKey) -> None:
        self._append(OffsetRecord(*key, None))

    @rule(producer_id=producer_ids, committed=st.booleans(), bumps=st.booleans())
    def end(self, producer_id: int, committed: bool, bumps: bool) -> None:
        self.epochs[producer_id] += bumps
        self._append(MarkerRecord(Producer(producer_id, self.epochs[producer_id]), committed, 0))

    @rule()
    def load_anew(self) -> None:
        self.shard = GroupShard(CoordinatorConfig())
        for _, record in self.log.records:
            self.shard.replay(record)

    @rule(share=st.floats(0, 1), forgets=st.booleans())
    def compact(self, share: float, forgets: bool) -> None:
        self.log.compact(int(self.log.end * share), forgets=forgets)
        self.load_anew()

    @invariant()
    def it_is_what_the_model_says(self) -> None:
        stored = {
            OffsetKey(group_id, topic, partition): value
            for group_id, topics in self.shard.offsets.items()
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        }
        assert stored == {key: value for key, (_, value) in self.model.stored.items()}
        pending = {key for offsets in self.model.pending.values() for key in offsets}
        assert {key for key in KEYS if self.shard.pending.has(key)} == pending
        for producer_id in (1, 2, 3):
            offsets = self.model.pending.get(producer_id, {})
            assert set(self.shard.pending.keys_of(producer_id)) == set(offsets)
            assert self.shard.pending.count_of(producer_id) == len(offsets)
        assert len(self.shard.pending) == sum(map(len, self.model.pending.values()))
        for key in KEYS:
            values = [offsets[key][1] for offsets in self.model.pending.values() if key in offsets]
            assert sorted(self.shard.pending.values_at(key), key=repr) == sorted(values, key=repr)
        for group_id in "gh":
            of_group = {key for key in pending if key.group_id == group_id}
            assert set(self.shard.pending.of_group(group_id)) == of_group
            assert self.shard.pending.has_group(group_id) == bool(of_group)
            assert self.shard.has_offsets(group_id) <= (group_id in self.shard.groups)
        assert set(self.shard.pending.of_topics(["t"])) == {key for key in pending if key.topic == "t"}

    @invariant()
    def which_transactions_are_open_is_what_the_log_says(self) -> None:
        assert self.shard.producers.open_count == sum(
            marker is None for _, marker, _ in self.log.transactions()
        )

    def teardown(self) -> None:
        """Nothing is left of what was compared once no transaction is open."""
        for producer_id in (1, 2, 3):
            self._append(MarkerRecord(Producer(producer_id, self.epochs[producer_id]), True, 0))
        self.it_is_what_the_model_says()
        assert vars(self.shard.pending) | {"_places": 0} == vars(PendingOffsets())


TestPendingMachine = PendingMachine.TestCase
TestPendingMachine.settings = settings(max_examples=150, stateful_step_count=40)
