"""Storage.Append: record batches for partitions that this node leads.

Requests of one stream reach each partition in the order sent. An append only writes to the page cache, on the event
loop; one that might wait for its disk goes to the writer thread of the log directory (`directory_lane`). A result
leaves as soon as all of its partitions may be acknowledged; it may overtake others.

Every request is answered within its timeout_ms and ANSWER_GRACE_MS, whatever the disk does. What has not begun by then
is taken back and never written; what has begun may still land, as with any REQUEST_TIMED_OUT of Kafka's.

A sequence out of order is a fatal error to producers of librdkafka. Where another node may lead the partition by now,
for the controller has not heard of this one for a while, it is refused as by a former leader instead.

A node that stops refuses what comes from then on (`AppendHandler.stop`), and answers what it has taken: a producer that
does not know whether its records were written has to send them again, and one without a sequence writes them twice.
Before it hands over it does so for what others are to lead (`refuse_before_hand_over`), so that the change of leader,
too, leaves nothing unanswered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.logs import get_logger
from barnabas.kernel.tracing import start_span
from barnabas.messages.storage_pb2 import AppendRequest, CoordinatorIdentity, PartitionAppend
from barnabas.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, first_flags, parse_header
from barnabas.storage import limits
from barnabas.storage.handlers.append_operation import Answer, AppendOperation
from barnabas.storage.replica.coordinator_claim import CoordinatorClaim, claim_of
from barnabas.storage.replica.error_codes import NOT_LEADER
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas
from barnabas.storage.transactions.verification import Verification

log = get_logger("storage.append")


class AppendHandler:
    """Carries out appends; owns the requests that are not answered yet."""

    def __init__(
        self, replicas: Replicas, verification: Verification, is_in_touch: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_in_touch` says whether the controller cannot have given this node up meanwhile."""
        self.verification = verification
        self._replicas = replicas
        self._is_in_touch = is_in_touch
        self.append_times = replicas.counts.append_times
        self._unanswered: set[AppendOperation] = set()
        self.is_stopped = False
        """Nothing that comes from now on is appended."""
        self._asked_at = -math.inf
        """When the last request came, by the event loop's time, once nothing is taken any more."""
        self._answered: asyncio.Future[None] | None = None
        """Set while somebody waits until everything is answered."""

    @property
    def waiting(self) -> int:
        """Requests whose result waits for a disk, a replica, a transaction's coordinator or a log's opening."""
        return len(self._unanswered)

    def handle(self, request: AppendRequest, answer: Answer) -> None:
        """Append what `request` holds; `answer` is called once, now or later."""
        if self.is_stopped:
            self._asked_at = asyncio.get_running_loop().time()
        span = start_span("storage.append", traceparent=request.traceparent) if request.traceparent else None
        operation = AppendOperation(self, request, answer, span)
        if request.HasField("transaction") and not _is_of_one_producer(request):
            operation.refuse(ErrorCode.invalid_producer_id_mapping, "the batches are of several producers")
        else:
            for number, item in enumerate(request.partitions):
                operation.append(number, item)
        operation.start_waiting()

    def write_at_once(self, coordinator: CoordinatorIdentity, item: PartitionAppend) -> int | None:
        """See `links.storage_link.NodeHere`."""
        replica = None if self.is_stopped else self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            return None
        claim = claim_of(coordinator, item, self._replicas.image.coordinators)
        try:
            info = replica.appending.write_at_once(
                item.records, item.leader_epoch, claim, self.verification.guard_unasked
            )
        except Exception:
            log.exception("append failed", partition=replica.name)
            return None
        return None if info is None else info.base_offset

    async def stop(self, seconds_max: float) -> None:
        """Append nothing that comes from now on, and return once everything taken is answered.

        What still waits after `seconds_max` is answered as if its own time were over.
        """
        self.is_stopped = True
        self.verification.refuse_all(self._replicas.by_partition.values(), NOT_LEADER)
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
        handed_over = [
            each for each in self._replicas.by_partition.values() if each.appending.refuses_clients
        ]
        self.verification.refuse_all(handed_over, NOT_LEADER)
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

    def on_waiting(self, operation: AppendOperation) -> None:
        """It was not answered at once."""
        self._unanswered.add(operation)

    def on_answered(self, operation: AppendOperation) -> None:
        """It had to wait, and is answered."""
        self._unanswered.remove(operation)
        if self._answered is not None and not self._unanswered and not self._answered.done():
            self._answered.set_result(None)

    def find(self, item: PartitionAppend) -> Replica | int:
        """The partition, or Kafka's error code when `item` is refused: this node does not have it, or stops."""
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            return self._replicas.refuse(item.topic_id, item.partition, item.records)
        if self.is_stopped:
            replica.appending.refused.add(item.records)
            replica.appending.count_refused(NOT_LEADER, len(item.records))
            return NOT_LEADER
        return replica

    def may_be_deposed(self, replica: Replica) -> bool:
        """Whether another node may lead the partition by now without this one having heard of it."""
        return len(replica.record.replicas) > 1 and not self._is_in_touch()

    def claim_of(self, request: AppendRequest, item: PartitionAppend) -> CoordinatorClaim | None:
        """What the sender claims to be with `item`, by the metadata of this moment; None for a client."""
        if not request.HasField("coordinator"):
            return None
        return claim_of(request.coordinator, item, self._replicas.image.coordinators)


def _is_of_one_producer(request: AppendRequest) -> bool:
    """Whether all transactional batches are of one producer under one epoch, as those of one transaction are."""
    all_records = [item.records for item in request.partitions]
    headers = [
        parse_header(records)
        for records in all_records
        if len(records) >= HEADER_SIZE and first_flags(records) & TRANSACTIONAL_BIT
    ]
    return len({(each.producer_id, each.producer_epoch) for each in headers if each.has_producer_id}) <= 1


def _is_copied(replica: Replica) -> bool:
    """Whether all replicas in sync have what is in the log; True also of what this node does not lead or keeps."""
    if not replica.appending.refuses_clients or not replica.is_leader or replica.log is None:
        return True
    return replica.high_watermark >= replica.log.log_end_offset
