"""One append request from its arrival to its answer: what became of each partition's records so far, and what is still
to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import ALL_REPLICAS, VALID_ACKS
from barnabas.kernel.logs import get_logger
from barnabas.log.errors import WouldBlock
from barnabas.log.prepared_batches import AppendInfo
from barnabas.log.producers.verification_guards import NO_GUARD
from barnabas.messages import storage_pb2
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    AppendResult,
    PartitionAppend,
    PartitionAppendResult,
)
from barnabas.records.batch import TRANSACTIONAL_BIT, first_flags
from barnabas.records.validate import InvalidRecords, RecordError
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import LaneItem
from barnabas.storage.replica.error_codes import NOT_LEADER, STORAGE_ERROR
from barnabas.storage.replica.replica import Replica
from barnabas.storage.transactions.unverified import UnverifiedBatch

if TYPE_CHECKING:
    from barnabas.kernel.tracing import Span
    from barnabas.storage.handlers.append import AppendHandler

UNANSWERED: Final = -1_000
"""The error code of a partition's result that is still to come; never sent."""

NOT_ENOUGH_REPLICAS: Final = int(ErrorCode.not_enough_replicas)
_NO_ANSWER: Final = "the transaction's coordinator did not say in time whether the partition is part of it"

log = get_logger("storage.append")

_TOLD_TO_PRODUCERS: Final = frozenset({ErrorCode.out_of_order_sequence_number})
_TOLD_TO_OWNERS: Final = frozenset({ErrorCode.kafka_storage_error, ErrorCode.not_enough_replicas})
"""What only a leader says that the controller cannot have given up as silent, to clients and to coordinators. Others
may lead for another reason, of which this one has heard nothing for IN_TOUCH_SECONDS_MAX at most."""

Answer = Callable[[AppendResult], None]


class AppendOperation:
    """One request until its answer; owns the results so far."""

    __slots__ = (
        "_answer",
        "_errors_left",
        "_handler",
        "_is_waiting",
        "_open",
        "_parked",
        "_queued",
        "_request",
        "_result",
        "_span",
        "_timer",
        "_transaction",
        "_unverified",
    )

    def __init__(
        self, handler: AppendHandler, request: AppendRequest, answer: Answer, span: Span | None
    ) -> None:
        self._handler = handler
        self._request = request
        # What a coordinator writes is part of no transaction that is to be asked about.
        has_transaction = request.HasField("transaction") and not request.HasField("coordinator")
        self._transaction = request.transaction if has_transaction else None
        self._answer = answer
        self._span = span
        self._result = AppendResult(correlation_id=request.correlation_id)
        self._errors_left = limits.RECORD_ERRORS_MAX
        self._open = 1
        """Results that are still to come, and one for the request itself while it is being taken."""
        self._parked: dict[int, Replica] = {}
        self._queued: dict[int, tuple[Replica, LaneItem]] = {}
        """Appends in a directory's writer thread."""
        self._unverified: dict[int, tuple[Replica, UnverifiedBatch]] = {}
        """Batches about which transaction coordinators are being asked."""
        self._is_waiting = False
        self._timer: asyncio.TimerHandle | None = None

    def append(self, number: int, item: PartitionAppend) -> None:
        """Append to partition `number` of the request, now or when its log is open."""
        replica = self._handler.find(item)
        if isinstance(replica, int):
            result = _refusal(replica, never_appended=True)
        elif not replica.is_opening:
            result = self._append_found(number, item, replica)
        elif replica.park(partial(self._append_parked, number, item, replica), len(item.records)):
            self._parked[number] = replica
            self._open += 1
            result = _refusal(UNANSWERED)
        else:
            replica.appending.refused.add(item.records)  # a smaller one behind it may be parked
            result = _refusal(NOT_LEADER, never_appended=True)
        self._result.partitions.append(result)

    def _append_found(self, number: int, item: PartitionAppend, replica: Replica) -> PartitionAppendResult:
        """Append to a log that is there; records of transactions once it is clear that they may be."""
        verification = self._handler.verification
        if self._transaction is None:
            return self._append_now(number, item, replica, verification.guard_unasked)
        records = item.records
        if not first_flags(records) & TRANSACTIONAL_BIT:
            return self._append_now(number, item, replica)
        try:
            replica.appending.admit(item.leader_epoch, self._request.acks, None)  # else nobody need be asked
            on_verified = partial(self._on_verified, number, replica)
            waits_for = verification.begin(replica, records, self._transaction, on_verified)
        except KafkaError as refused:
            return self._refused_unverified(number, replica, refused)
        if isinstance(waits_for, int):
            return self._append_now(number, item, replica, waits_for)
        self._unverified[number] = replica, waits_for
        self._open += 1
        return _refusal(UNANSWERED)

    def _on_verified(self, number: int, replica: Replica, guard: int, refused: KafkaError | None) -> None:
        del self._unverified[number]  # what was given up is told nothing
        item = self._request.partitions[number]
        if refused is None:
            result = self._append_now(number, item, replica, guard)
        else:
            result = self._refused_unverified(number, replica, refused)
        self._result.partitions[number].CopyFrom(result)
        self._close_one()

    def _refused_unverified(
        self, number: int, replica: Replica, refused: KafkaError
    ) -> PartitionAppendResult:
        """The result of what came nowhere near a log."""
        records = self._request.partitions[number].records
        replica.appending.refused.note(refused.code, records)
        replica.appending.count_refused(int(refused.code), len(records))
        return self._unless_deposed(number, replica, refused) or _refusal(
            int(refused.code), refused.message, never_appended=True
        )

    def _append_now(
        self, number: int, item: PartitionAppend, replica: Replica, guard: int = NO_GUARD
    ) -> PartitionAppendResult:
        request = self._request
        acks = request.acks
        try:
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.invalid_required_acks, f"acks={acks}: use -1, 0 or 1")
            if item.behind_refused:
                replica.appending.check_known(item.records)
            began = machine_seconds()
            if not replica.appending.is_direct(began):
                return self._append_in_lane(number, item, replica, guard)
            try:
                claim = self._handler.claim_of(request, item)
                info = replica.appending.append(
                    item.records, item.leader_epoch, acks, claim=claim, guard=guard
                )
            except WouldBlock:
                return self._append_in_lane(number, item, replica, guard)
            ended = machine_seconds()
            if replica.lane is not None and not info.duplicate:
                replica.lane.on_append(began, ended)
            self._handler.append_times.observe(ended - began)
        except KafkaError as error:
            refused = self._refused(number, replica, error)
            refused.never_appended = refused.error_code == NOT_LEADER  # of others a log may know more
            return refused
        except Exception:
            log.exception("append failed", partition=replica.name)
            replica.appending.count_refused(int(ErrorCode.unknown_server_error), len(item.records))
            return _refusal(int(ErrorCode.unknown_server_error))
        return self._appended(number, replica, info)

    def _append_in_lane(
        self, number: int, item: PartitionAppend, replica: Replica, guard: int
    ) -> PartitionAppendResult:
        """Leave the append to the directory's writer thread. Raises KafkaError for what is refused at once."""
        request = self._request
        queued = replica.appending.append_in_lane(
            item.records,
            item.leader_epoch,
            request.acks,
            claim=self._handler.claim_of(request, item),
            guard=guard,
            on_appended=partial(self._on_appended, number, replica),
        )
        self._queued[number] = replica, queued
        self._open += 1
        return _refusal(UNANSWERED)

    def _on_appended(
        self,
        number: int,
        replica: Replica,
        info: AppendInfo | None,
        refused: KafkaError | None,
        seconds: float,
    ) -> None:
        if info is not None:
            self._handler.append_times.observe(seconds)
        if self._queued.pop(number, None) is None:
            return  # it was answered in the meantime
        if info is not None:
            result = self._appended(number, replica, info)
        else:
            assert refused is not None, "an append either happens or is refused"
            result = self._refused(number, replica, refused)
        self._result.partitions[number].CopyFrom(result)
        self._close_one()

    def _appended(self, number: int, replica: Replica, info: AppendInfo) -> PartitionAppendResult:
        """The result of what is in the log, answered or still to be acknowledged."""
        error_code = self._code_of_former_owner(number, replica)
        if replica.wait(info.last_offset + 1, self._request.acks, partial(self._on_decided, number, replica)):
            self._open += 1
            error_code = UNANSWERED
        return PartitionAppendResult(
            error_code=error_code,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )

    def _append_parked(self, number: int, item: PartitionAppend, replica: Replica) -> None:
        if number in self._parked:  # else it was given up, and must not be written after all
            del self._parked[number]
            self._result.partitions[number].CopyFrom(self._append_found(number, item, replica))
            self._close_one()

    @property
    def _is_of_coordinator(self) -> bool:
        return self._request.HasField("coordinator")

    def _code_of_former_owner(self, number: int, replica: Replica) -> int:
        """NOT_COORDINATOR for who does not own the partition any more: its next owner may have told by now what is
        committed, before this was.
        """
        if not replica.internal or not self._is_of_coordinator:
            return 0
        is_owner = self._request.partitions[number].coordinator_epoch == replica.record.coordinator_epoch
        return 0 if is_owner else int(ErrorCode.not_coordinator)

    def _on_decided(self, number: int, replica: Replica, error_code: int) -> None:
        error_code = error_code or self._code_of_former_owner(number, replica)
        if error_code == STORAGE_ERROR and self._is_of_coordinator:
            error_code = NOT_LEADER  # no word on who owns the partition by now: it was admitted long ago
        if error_code:  # it is in a log that need not stay as it is
            replica.appending.refused.add(self._request.partitions[number].records)
        result = self._result.partitions[number]
        if result.error_code == UNANSWERED:
            self._settle(number, error_code)
            self._close_one()

    def _settle(self, number: int, error_code: int) -> None:
        result = self._result.partitions[number]
        if error_code:
            result.CopyFrom(_refusal(error_code))
        else:
            result.error_code = 0

    def _refused(self, number: int, replica: Replica, error: KafkaError) -> PartitionAppendResult:
        """The result of what is refused; names the records to blame as long as the request has not named too many."""
        deposed = self._unless_deposed(number, replica, error)
        if deposed is not None:
            return deposed
        records = error.record_errors[: self._errors_left] if isinstance(error, InvalidRecords) else ()
        self._errors_left -= len(records)
        return _refusal(int(error.code), error.message, records)

    def _unless_deposed(
        self, number: int, replica: Replica, error: KafkaError
    ) -> PartitionAppendResult | None:
        """What is said instead of `error` where another node may lead, which may have what came before the batch, or
        take what a coordinator writes; or where another coordinator owns the partition.

        A sequence that is out of order ends an idempotent producer of librdkafka for good. It may only have come here
        by what another gateway, as cut off as this node is, said of who leads. And a coordinator that hears of a full
        disk, or of missing replicas, takes itself for the owner by it.
        """
        is_trusted = error.code in (_TOLD_TO_OWNERS if self._is_of_coordinator else _TOLD_TO_PRODUCERS)
        if not is_trusted:
            return None
        former = self._code_of_former_owner(number, replica)
        if former:  # another one has taken over while this waited for its turn
            return _refusal(former)
        if not self._handler.may_be_deposed(replica):
            return None
        replica.appending.refused.add(self._request.partitions[number].records)
        return _refusal(NOT_LEADER, "the controller may have another leader by now", never_appended=True)

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Append nothing of it."""
        for _ in self._request.partitions:
            self._result.partitions.append(_refusal(int(code), message, never_appended=True))

    def start_waiting(self) -> None:
        """Every partition was tried: answer now, or when all results are there, or when the time is over."""
        self._open -= 1
        if self._open == 0:
            self._finish()
            return
        self._is_waiting = True
        self._handler.on_waiting(self)
        timeout_ms = self._request.timeout_ms
        if self._request.acks != ALL_REPLICAS:
            # It waits for this node's disk only, which the client's timeout does not bound in Kafka.
            timeout_ms += limits.ANSWER_GRACE_MS
        if self._parked:
            timeout_ms = limits.OPENING_WAIT_MS_MAX
        seconds = min(timeout_ms, limits.WAIT_MS_MAX) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self.give_up)

    def give_up(self) -> None:
        """Answer now: the request's time is over, or the node's."""
        queued, self._queued = self._queued, {}
        sent = self._request.partitions
        for number, (replica, item) in reversed(
            queued.items()
        ):  # so that none begins whose forerunner is gone
            replica.appending.on_overdue(item, sent[number].records)
        for number, replica in self._parked.items():
            replica.appending.refused.add(sent[number].records)
        for number, (replica, batch) in self._unverified.items():
            replica.appending.unverified.withdraw(batch)
            replica.appending.refused.add(sent[number].records)
        for number, result in enumerate(self._result.partitions):
            if number in self._parked:
                self._settle(number, NOT_LEADER)
            elif number in self._unverified:
                result.CopyFrom(_refusal(NOT_ENOUGH_REPLICAS, _NO_ANSWER, never_appended=True))
            elif result.error_code == UNANSWERED:
                self._settle(number, int(ErrorCode.request_timed_out))
        self._parked.clear()
        self._unverified.clear()
        self._finish()

    def _close_one(self) -> None:
        self._open -= 1
        if self._open == 0:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_waiting:
            self._handler.on_answered(self)
        if self._span is not None:
            self._span.end()
        self._answer(self._result)


def _refusal(
    error_code: int,
    message: str = "",
    record_errors: Sequence[RecordError] = (),
    *,
    never_appended: bool = False,
) -> PartitionAppendResult:
    return PartitionAppendResult(
        error_code=error_code,
        never_appended=never_appended,
        error_message=message,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[
            storage_pb2.RecordError(batch_index=error.batch_index, message=error.message)
            for error in record_errors
        ],
    )
