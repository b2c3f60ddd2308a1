"""Transactions of one producer in one partition, in any order that a network allows, beside a simple model of who knows
what: the coordinator, the producer, and questions, answers and markers that are on their way.

Whatever happens: a record is in the log only if it was part of its transaction when it came, it is ended by its own
transaction's marker, and once all markers have come nothing is left open.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.memory_files import MemoryFiles
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.log.prepared_batches import AppendOrigin
from barnabas.records.batch import iterate_headers
from barnabas.records.control import decode_marker, encode_marker
from barnabas.records.record import decode_records, encode_batch

P = 7
REFUSALS = (
    ErrorCode.invalid_txn_state,
    ErrorCode.invalid_producer_epoch,
    ErrorCode.out_of_order_sequence_number,
)


@dataclass
class Transaction:
    """As the coordinator knows it."""

    number: int
    epoch: int
    is_added: bool = False
    """Whether the partition is part of it."""
    committed: bool | None = None
    """None while it is open."""
    is_complete: bool = False


class Asked(NamedTuple):
    """A batch that waits: the coordinator was asked under `guard`, and has said yes, or nothing yet."""

    number: int
    epoch: int
    sequence: int
    guard: int
    leader_epoch: int
    verified: bool = False


class Marker(NamedTuple):
    transaction: Transaction
    epoch: int


class Transactions(RuleBasedStateMachine):
    """`version` 2: each transaction has an epoch, and asking adds the partition; 0: one epoch, the producer adds it."""

    version = 2

    @initialize()
    def begin(self) -> None:
        environment = seeded_environment(clock=ManualClock(), files=MemoryFiles())
        self.log = PartitionLog.open("/d", "t", 0, uuid.UUID(int=1), LogConfig(), environment)
        self.log.assign_epoch_start(0)
        self.leader_epoch = 0
        self.current = Transaction(0, 0)
        self.asked: list[Asked] = []
        self.markers: list[Marker] = []
        self.delivered: list[Marker] = []
        self.sequence = 0

    # -- the producer and the coordinator -----------------------------------------------------------------------

    @precondition(lambda self: self.version == 0 and self.current.committed is None)
    @rule()
    def producer_adds_the_partition(self) -> None:
        self.current.is_added = True

    @precondition(lambda self: self.current.committed is None)
    @rule(committed=st.booleans())
    def is_decided(self, committed: bool) -> None:
        self.current.committed = committed
        if not self.current.is_added:
            self.current.is_complete = True
            return
        epoch = self.current.epoch + (1 if self.version == 2 else 0)
        self.markers.append(Marker(self.current, epoch))

    @precondition(lambda self: self.current.committed is not None)
    @rule()
    def next_begins_with_its_first_batch(self) -> None:
        """The producer knows the decision; the coordinator takes nothing of the next before the markers are there."""
        if not self.current.is_complete and self.version == 0:
            return
        epoch = self.current.epoch + (1 if self.version == 2 else 0)
        if self.version == 0:
            # Under one epoch for all a question of the transaction before would be taken for one of this: who has not
            # heard of its records does not go on (what version 2 is for).
            self.asked = [each for each in self.asked if each.verified]
        self.previous = self.current
        self.current = Transaction(self.current.number + 1, epoch)
        if self.version == 2:
            self.sequence = 0

    # -- a batch --------------------------------------------------------------------------------------------------

    @rule()
    def batch_comes(self) -> None:
        """The leader opens a guard, unless the transaction is open."""
        self._batch(self.current.number, self.current.epoch, self.sequence)

    @precondition(lambda self: self.current.number > 0 and self.version == 2)
    @rule()
    def late_batch_of_the_one_before_comes(self) -> None:
        self._batch(self.current.number - 1, self.current.epoch - 1, 0)

    def _batch(self, number: int, epoch: int, sequence: int) -> None:
        if self.log.producer_state.is_open(P, epoch):
            self._append(Asked(number, epoch, sequence, 0, self.leader_epoch))
            return
        guard = self.log.guards.open(P, epoch, self.leader_epoch, is_new_epoch=self.version == 2)
        self.asked.append(Asked(number, epoch, sequence, guard, self.leader_epoch))

    @precondition(lambda self: any(not each.verified for each in self.asked))
    @rule(which=st.integers(0, 99))
    def coordinator_answers(self, which: int) -> None:
        waiting = [each for each in self.asked if not each.verified]
        asked = waiting[which % len(waiting)]
        self.asked.remove(asked)
        current = self.current
        is_ready = current.number == 0 or self.previous.is_complete
        if asked.epoch == current.epoch and current.committed is None and is_ready:
            if self.version == 2:
                current.is_added = True
            if current.is_added:
                self.asked.append(asked._replace(verified=True))

    @precondition(lambda self: any(each.verified for each in self.asked))
    @rule(which=st.integers(0, 99), keeps=st.booleans())
    def answer_comes(self, which: int, keeps: bool) -> None:
        """Or it is lost, with all that waited for it."""
        verified = [each for each in self.asked if each.verified]
        asked = verified[which % len(verified)]
        self.asked.remove(asked)
        if keeps and asked.leader_epoch == self.leader_epoch:
            self._append(asked)

    def _append(self, asked: Asked) -> None:
        batch = encode_batch(
            [(1, None, b"%d" % asked.number, ())],
            producer_id=P,
            producer_epoch=asked.epoch,
            base_sequence=asked.sequence,
            transactional=True,
        )
        try:
            info = self.log.append_as_leader(batch, asked.leader_epoch, guard=asked.guard)
        except KafkaError as refused:
            if refused.code not in REFUSALS:
                raise
            return
        if not info.duplicate and asked.number == self.current.number:
            self.sequence += 1

    # -- markers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.markers)
    @rule()
    def marker_comes(self) -> None:
        marker = self.markers.pop(0)
        assert self._end(marker), "what a coordinator has decided is never refused"
        marker.transaction.is_complete = True
        self.delivered.append(marker)

    @precondition(lambda self: self.delivered and self.version == 2)
    @rule(which=st.integers(0, 99))
    def marker_comes_again(self, which: int) -> None:
        self._end(self.delivered[which % len(self.delivered)])

    def _end(self, marker: Marker) -> bool:
        committed = marker.transaction.committed
        assert committed is not None
        batch = encode_marker(
            committed=committed,
            producer_id=P,
            producer_epoch=marker.epoch,
            coordinator_epoch=1,
            timestamp=marker.transaction.number,
        )
        try:
            self.log.append_as_leader(
                batch, self.leader_epoch, origin=AppendOrigin.MARKER, transaction_version=self.version
            )
        except KafkaError as refused:
            if refused.code is not ErrorCode.invalid_producer_epoch:
                raise
            return False
        return True

    # -- the leader -------------------------------------------------------------------------------------------------

    @rule()
    def leads_under_another_epoch(self) -> None:
        self.leader_epoch += 1
        self.log.assign_epoch_start(self.leader_epoch)

    # -- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def each_record_is_ended_by_its_own_marker(self) -> None:
        if not hasattr(self, "log"):
            return
        data = self.log.read(0, 1 << 30)
        open_number: int | None = None
        for position, header in iterate_headers(data):
            batch = data[position : position + header.size_in_bytes]
            if header.is_control:
                marker = decode_marker(batch)
                assert marker is not None
                assert open_number in (None, marker.timestamp), "another transaction's marker ends it"
                open_number = None
            else:
                (record,) = decode_records(batch)
                assert record.value is not None
                number = int(record.value)
                assert open_number in (None, number)
                open_number = number
        end = self.log.log_end_offset
        assert (open_number is not None) == (self.log.last_stable_offset(end) < end)

    def teardown(self) -> None:
        """Everything is decided and every marker comes, before the last answers do: nothing hangs."""
        if not hasattr(self, "log"):
            return
        if self.current.committed is None:
            self.is_decided(False)
        while self.markers:
            self.marker_comes()
        for asked in self.asked:
            if asked.verified and asked.leader_epoch == self.leader_epoch:
                self._append(asked)
        assert self.log.last_stable_offset(self.log.log_end_offset) == self.log.log_end_offset
        self.each_record_is_ended_by_its_own_marker()


class LegacyTransactions(Transactions):
    version = 0


TestNewEpochs = Transactions.TestCase
TestNewEpochs.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestOneEpoch = LegacyTransactions.TestCase
TestOneEpoch.settings = TestNewEpochs.settings
