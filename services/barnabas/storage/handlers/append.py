"""Storage.Append: record batches for partitions that this node leads.

Requests of one stream reach each partition in the order sent. An append only writes to the page cache, on the event
loop; one that might wait for its disk goes to the writer thread of the log directory (`directory_lane`). A result
leaves as soon as all of its partitions may be acknowledged; it may overtake others.

Every request is answered within its timeout_ms and ANSWER_GRACE_MS, whatever the disk does. What has not begun by then
is taken back and never written; what has begun may still land, as with any REQUEST_TIMED_OUT of Kafka's.

A node that stops refuses what comes from then on (`AppendHandler.stop`), and answers what it has taken: a producer that
does not know whether its records were written has to send them again, and one without a sequence writes them twice.
Before it hands over it does so for what others are to lead (`refuse_before_hand_over`), so that the change of leader,
too, leaves nothing unanswered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import ALL_REPLICAS, VALID_ACKS
from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import Span, start_span
from barnabas.log.errors import WouldBlock
from barnabas.log.prepared_batches import AppendInfo
from barnabas.messages import storage_pb2
from barnabas.messages.storage_pb2 import (
    AppendRequest,
    AppendResult,
    PartitionAppend,
    PartitionAppendResult,
)
from barnabas.records.validate import InvalidRecords, RecordError
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import LaneItem
from barnabas.storage.replica.coordinator_claim import CoordinatorClaim, claim_of
from barnabas.storage.replica.error_codes import NOT_LEADER
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas

UNANSWERED: Final = -1_000
"""The error code of a partition's result that is still to come; never sent."""

log = get_logger("storage.append")

Answer = Callable[[AppendResult], None]


class AppendHandler:
    """Carries out appends; owns the requests that are not answered yet."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.append_times = replicas.counts.append_times
        self._unanswered: set[_AppendOperation] = set()
        self._is_stopped = False
        self._asked_at = -math.inf
        """When the last request came, by the event loop's time, once nothing is taken any more."""
        self._answered: asyncio.Future[None] | None = None
        """Set while somebody waits until everything is answered."""

    @property
    def waiting(self) -> int:
        """Requests whose result waits for a disk, a replica or a log that is being opened."""
        return len(self._unanswered)

    def handle(self, request: AppendRequest, answer: Answer) -> None:
        """Append what `request` holds; `answer` is called once, now or later."""
        if self._is_stopped:
            self._asked_at = asyncio.get_running_loop().time()
        span = start_span("storage.append", traceparent=request.traceparent) if request.traceparent else None
        operation = _AppendOperation(self, request, answer, span)
        for number, item in enumerate(request.partitions):
            operation.append(number, item)
        operation.start_waiting()

    async def stop(self, seconds_max: float) -> None:
        """Append nothing that comes from now on, and return once everything taken is answered.

        What still waits after `seconds_max` is answered as if its own time were over.
        """
        self._is_stopped = True
        await self._wait_until_answered(seconds_max)
        for operation in list(self._unanswered):
            operation.give_up()

    async def wait_until_unasked(self) -> None:
        """Return when no append has come, to be refused, for UNASKED_SECONDS: all know by then who leads instead.

        Whoever is refused knows that nothing was written, which is more than the end of a stream tells.
        """
        loop = asyncio.get_running_loop()
        gives_up_at = loop.time() + limits.UNASKED_SECONDS_MAX
        self._asked_at = loop.time()
        while (until := min(self._asked_at + limits.UNASKED_SECONDS, gives_up_at)) > loop.time():
            await asyncio.sleep(until - loop.time())

    async def refuse_before_hand_over(self, seconds_max: float) -> None:
        """Take nothing of clients for what other nodes have as well, until `go_on`: they are about to lead it.

        Returns once everything taken is answered and copied, so that the change of leader takes nothing back; or after
        `seconds_max`.
        """
        for replica in self._replicas.by_partition.values():
            replica.appending.refuses_clients = len(replica.record.replicas) > 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._wait_until_answered(seconds_max)
                while not all(map(_is_copied, self._replicas.by_partition.values())):
                    await asyncio.sleep(limits.COPIED_CHECK_SECONDS)

    def go_on(self) -> None:
        """Nobody else leads, for now."""
        for replica in self._replicas.by_partition.values():
            replica.appending.refuses_clients = False

    async def _wait_until_answered(self, seconds_max: float) -> None:
        if not self._unanswered:
            return
        if self._answered is None or self._answered.done():
            self._answered = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._answered,), timeout=seconds_max)

    def on_waiting(self, operation: _AppendOperation) -> None:
        """It was not answered at once."""
        self._unanswered.add(operation)

    def on_answered(self, operation: _AppendOperation) -> None:
        """It had to wait, and is answered."""
        self._unanswered.remove(operation)
        if self._answered is not None and not self._unanswered and not self._answered.done():
            self._answered.set_result(None)

    def find(self, item: PartitionAppend) -> Replica | int:
        """The partition, or Kafka's error code when `item` is refused: this node does not have it, or stops."""
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            return self._replicas.refuse(item.topic_id, item.partition, item.records)
        if self._is_stopped:
            replica.appending.refused.add(item.records)
            replica.appending.count_refused(NOT_LEADER, len(item.records))
            return NOT_LEADER
        return replica

    def claim_of(self, request: AppendRequest, item: PartitionAppend) -> CoordinatorClaim | None:
        """What the sender claims to be with `item`, by the metadata of this moment; None for a client."""
        if not request.HasField("coordinator"):
            return None
        return claim_of(request.coordinator, item, self._replicas.image.coordinators)


class _AppendOperation:
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
    )

    def __init__(
        self, handler: AppendHandler, request: AppendRequest, answer: Answer, span: Span | None
    ) -> None:
        self._handler = handler
        self._request = request
        self._answer = answer
        self._span = span
        self._result = AppendResult(correlation_id=request.correlation_id)
        self._errors_left = limits.RECORD_ERRORS_MAX
        self._open = 1
        """Results that are still to come, and one for the request itself while it is being taken."""
        self._parked: dict[int, Replica] = {}
        self._queued: dict[int, tuple[Replica, LaneItem]] = {}
        """Appends in a directory's writer thread."""
        self._is_waiting = False
        self._timer: asyncio.TimerHandle | None = None

    def append(self, number: int, item: PartitionAppend) -> None:
        """Append to partition `number` of the request, now or when its log is open."""
        replica = self._handler.find(item)
        if isinstance(replica, int):
            result = _refusal(replica, never_appended=True)
        elif not replica.is_opening:
            result = self._append_now(number, item, replica)
        elif replica.park(partial(self._append_parked, number, item, replica), len(item.records)):
            self._parked[number] = replica
            self._open += 1
            result = _refusal(UNANSWERED)
        else:
            replica.appending.refused.add(item.records)  # a smaller one behind it may be parked
            result = _refusal(NOT_LEADER, never_appended=True)
        self._result.partitions.append(result)

    def _append_now(self, number: int, item: PartitionAppend, replica: Replica) -> PartitionAppendResult:
        request = self._request
        acks = request.acks
        try:
            if acks not in VALID_ACKS:
                raise KafkaError(ErrorCode.invalid_required_acks, f"acks={acks}: use -1, 0 or 1")
            if item.behind_refused:
                replica.appending.check_known(item.records)
            began = machine_seconds()
            if not replica.appending.is_direct(began):
                return self._append_in_lane(number, item, replica)
            try:
                claim = self._handler.claim_of(request, item)
                info = replica.appending.append(item.records, item.leader_epoch, acks, claim=claim)
            except WouldBlock:
                return self._append_in_lane(number, item, replica)
            ended = machine_seconds()
            if replica.lane is not None and not info.duplicate:
                replica.lane.on_append(began, ended)
            self._handler.append_times.observe(ended - began)
        except KafkaError as error:
            refused = self._refused(error)
            refused.never_appended = error.code == NOT_LEADER  # of others a log may know more
            return refused
        except Exception:
            log.exception("append failed", partition=replica.name)
            replica.appending.count_refused(int(ErrorCode.unknown_server_error), len(item.records))
            return _refusal(int(ErrorCode.unknown_server_error))
        return self._appended(number, replica, info)

    def _append_in_lane(self, number: int, item: PartitionAppend, replica: Replica) -> PartitionAppendResult:
        """Leave the append to the directory's writer thread. Raises KafkaError for what is refused at once."""
        request = self._request
        queued = replica.appending.append_in_lane(
            item.records,
            item.leader_epoch,
            request.acks,
            claim=self._handler.claim_of(request, item),
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
            result = self._refused(refused)
        self._result.partitions[number].CopyFrom(result)
        self._close_one()

    def _appended(self, number: int, replica: Replica, info: AppendInfo) -> PartitionAppendResult:
        """The result of what is in the log, answered or still to be acknowledged."""
        error_code = self._code_when_committed(number, replica)
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
            self._result.partitions[number].CopyFrom(self._append_now(number, item, replica))
            self._close_one()

    def _code_when_committed(self, number: int, replica: Replica) -> int:
        """NOT_COORDINATOR for who does not own the partition any more: its next owner may have told by now what is
        committed, before this was.
        """
        if not replica.internal or not self._request.HasField("coordinator"):
            return 0
        is_owner = self._request.partitions[number].coordinator_epoch == replica.record.coordinator_epoch
        return 0 if is_owner else int(ErrorCode.not_coordinator)

    def _on_decided(self, number: int, replica: Replica, error_code: int) -> None:
        error_code = error_code or self._code_when_committed(number, replica)
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

    def _refused(self, error: KafkaError) -> PartitionAppendResult:
        """The result of what is refused; names the records to blame as long as the request has not named too many."""
        records = error.record_errors[: self._errors_left] if isinstance(error, InvalidRecords) else ()
        self._errors_left -= len(records)
        return _refusal(int(error.code), error.message, records)

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
        for number, result in enumerate(self._result.partitions):
            if number in self._parked:
                self._settle(number, NOT_LEADER)
            elif result.error_code == UNANSWERED:
                self._settle(number, int(ErrorCode.request_timed_out))
        self._parked.clear()
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


def _is_copied(replica: Replica) -> bool:
    """Whether all replicas in sync have what is in the log; True also of what this node does not lead or keeps."""
    if not replica.appending.refuses_clients or not replica.is_leader or replica.log is None:
        return True
    return replica.high_watermark >= replica.log.log_end_offset


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
