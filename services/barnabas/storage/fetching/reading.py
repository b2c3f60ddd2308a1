"""Reading what one fetch asks for: partition by partition, in order, within the request's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import NO_EPOCH, READ_COMMITTED
from barnabas.links.local_storage import Read, Sought
from barnabas.links.storage_messages import PartitionFetched
from barnabas.log.log_slice import LogSlice
from barnabas.log.partition_log import PartitionLog
from barnabas.messages.storage_pb2 import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionFetch,
    PartitionFetchResult,
)
from barnabas.storage import limits
from barnabas.storage.counts import NODE_FAULTS
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.fetching.replica_selector import ReplicaSelector
from barnabas.storage.replica.error_codes import NOT_LEADER, STORAGE_ERROR
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replicas import Replicas

OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)


@dataclass(slots=True)
class ReadOutcome:
    """What was read so far, in the order of the request. `is_final` means: answer at once, for there is an error, a
    divergence or a nearer replica in it.
    """

    answers: list[PartitionFetched] = field(default_factory=list)
    size_bytes: int = 0
    is_final: bool = False
    sizes: list[tuple[Replica, int]] = field(default_factory=list)

    def progress(self) -> tuple[int, int]:
        """(replicas, bytes) that are done."""
        return len(self.answers), self.size_bytes

    def add(self, more: ReadOutcome) -> None:
        """Append what was read of the partitions that follow."""
        self.answers += more.answers
        self.size_bytes += more.size_bytes
        self.is_final = self.is_final or more.is_final
        self.sizes += more.sizes


class TooLittle(NamedTuple):
    """A fetch that has to wait: what is there for it, and what it waits for."""

    size_bytes: int
    min_bytes: int
    watched: list[tuple[Replica, int]]
    """The offset wanted of each."""


class FetchReader:
    """Reads for fetches. Changes nothing but counts: of what was read on the event loop only, of what failed also in
    threads.
    """

    def __init__(
        self, replicas: Replicas, *, bytes_max: int, selector: ReplicaSelector | None = None
    ) -> None:
        """`selector` sends consumers from this node as leader to replicas nearer to them; None: it never does."""
        self._replicas = replicas
        self._bytes_max = bytes_max
        self._selector = selector

    def enough_bytes(self, min_bytes: int, max_bytes: int) -> int:
        """How many bytes a fetch waits for: no more than an answer to it holds in any case.

        An answer is of whole batches, so that one which is full may be some way below its limit.
        """
        return min(min_bytes, max(1, min(max_bytes, self._bytes_max, limits.FETCH_ANSWER_BYTES_TARGET) // 2))

    def read(self, request: FetchRequest) -> ReadOutcome:
        """Read what there is now and does not have to be waited for: up to the first partition that does.

        The first batch found is read even when it is larger than the request's max_bytes.
        """
        outcome = ReadOutcome(is_final=not request.partitions)
        self.read_on(request, outcome)
        return outcome

    def read_on(self, request: FetchRequest, outcome: ReadOutcome) -> None:
        """Go on where `outcome` stopped, in the same way."""
        for number in range(len(outcome.answers), len(request.partitions)):
            try:
                self._read_one(request, number, outcome, nowait=True)
            except BlockingIOError:
                return

    def read_at_once(
        self,
        sought: Sequence[Sought],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
        rack_id: str = "",
    ) -> list[Read] | TooLittle | None:
        """See `LocalStorage`. What is asked for is found first, and read once there proves to be enough."""
        enough = self.enough_bytes(min_bytes, max_bytes)
        budget = min(max_bytes, self._bytes_max, limits.FETCH_ANSWER_BYTES_TARGET)
        size_bytes = 0
        located: list[tuple[Replica, _Located]] = []
        try:
            for item in sought:
                replica = self._replicas.find(item.topic_id, item.partition)
                if replica is None or not self._may_be_read(replica, item, rack_id):
                    return None
                left, first = budget - size_bytes, size_bytes == 0
                got = _locate(replica, item, left, committed=committed, first=first, nowait=True)
                if got.error_code or got.diverging is not None:
                    return None
                if got.found is not None:
                    size_bytes += got.found.length
                located.append((replica, got))
            if size_bytes < enough:
                watched = [
                    (replica, item.fetch_offset) for item, (replica, _) in zip(sought, located, strict=True)
                ]
                return TooLittle(size_bytes, enough, watched)
            records = [b"" if got.found is None else got.found.read(nowait=True) for _, got in located]
        except (KafkaError, OSError):
            return None
        if sum(map(len, records)) != size_bytes:
            return None  # a log was truncated meanwhile
        reads = []
        for (replica, got), data in zip(located, records, strict=True):
            replica.counts.reads += 1
            replica.counts.bytes_out += len(data)
            reads.append(
                Read(
                    got.high_watermark,
                    got.last_stable_offset,
                    got.log_start_offset,
                    data,
                    got.aborted_transactions,
                )
            )
        return reads

    def read_in_thread(
        self, request: FetchRequest, progress: tuple[int, int], lane: DirectoryLane
    ) -> ReadOutcome:
        """For a thread: go on after `progress` and wait for the disk, as long as the partitions are in `lane`."""
        start, size_bytes = progress
        outcome = ReadOutcome(size_bytes=size_bytes)
        for number in range(start, len(request.partitions)):
            if number > start and self.lane_of(request, number) is not lane:
                break
            self._read_one(request, number, outcome, nowait=False)
        outcome.size_bytes -= size_bytes
        return outcome

    def lane_of(self, request: FetchRequest, number: int) -> DirectoryLane | None:
        """The log directory of a partition of the request, if this node has it."""
        item = request.partitions[number]
        replica = self._replicas.find(item.topic_id, item.partition)
        return None if replica is None else replica.lane

    def nothing_new(self, request: FetchRequest, number: int) -> ReadOutcome:
        """The answer for a partition that cannot be read at the moment; it is no error."""
        item = request.partitions[number]
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None or replica.log is None:
            return ReadOutcome(
                [_failure(self._replicas.absence(item.topic_id, item.partition))], is_final=True
            )
        return ReadOutcome([PartitionFetched(_Located(0, *_ends(replica, replica.log)).fields())])

    def not_read_in_time(self, request: FetchRequest, number: int) -> ReadOutcome:
        """The same as an error, for who must not take it for emptiness."""
        outcome = self.nothing_new(request, number)
        if outcome.is_final:
            return outcome
        return ReadOutcome([_failure(int(ErrorCode.request_timed_out))], is_final=True)

    def _read_one(self, request: FetchRequest, number: int, outcome: ReadOutcome, *, nowait: bool) -> None:
        """Add the answer of one partition. With `nowait` raises BlockingIOError, with nothing added, where the disk
        would have to be waited for.
        """
        item = request.partitions[number]
        replica = self._replicas.find(item.topic_id, item.partition)
        if replica is None:
            error = self._replicas.absence(item.topic_id, item.partition)
        else:
            error = replica.check_epoch(item.current_leader_epoch, from_follower=request.from_follower)
            # A read that is left to a thread was tried here first.
            replica.counts.reads += nowait
        if replica is None or error:
            if replica is not None:
                replica.counts.failed_reads += error in NODE_FAULTS
            outcome.answers.append(_failure(error))
            outcome.is_final = True
            return
        if request.rack_id:
            nearer = self._nearer(replica, item.fetch_offset, request.rack_id)
            if nearer is not None:
                outcome.answers.append(_elsewhere(replica, nearer))
                outcome.is_final = True
                return
        left = min(request.max_bytes, self._bytes_max, limits.FETCH_ANSWER_BYTES_TARGET) - outcome.size_bytes
        answer = _read_partition(
            replica,
            item,
            left,
            committed=request.isolation_level == READ_COMMITTED,
            first=outcome.size_bytes == 0,
            nowait=nowait,
        )
        outcome.answers.append(answer)
        size_bytes = len(answer.records)
        if size_bytes:
            outcome.sizes.append((replica, size_bytes))
            outcome.size_bytes += size_bytes
        elif answer.fields.error_code or answer.fields.HasField("diverging"):
            outcome.is_final = True

    def _may_be_read(self, replica: Replica, item: Sought, rack_id: str) -> bool:
        if not rack_id:
            return not replica.check_epoch(item.current_leader_epoch)
        if replica.check_epoch(item.current_leader_epoch, from_follower=True):
            return False
        if replica.is_leader:
            return self._nearer(replica, item.fetch_offset, rack_id) is None
        return self._replicas.node_id in replica.record.isr

    def _nearer(self, replica: Replica, offset: int, rack_id: str) -> int | None:
        """The follower that a consumer in `rack_id` is to read from, where this node leads; None: it reads here."""
        leader, opened = replica.leader, replica.log
        if self._selector is None or leader is None or opened is None:
            return None  # a follower sends nobody elsewhere (KAFKA-13778)
        readable = leader.readable_from(offset, opened.log_end_offset)
        return self._selector(rack_id, self._replicas.image, self._replicas.node_id, readable)

    def is_outdated(self, request: FetchRequest, outcome: ReadOutcome) -> bool:
        """Whether a read in a thread found too little, and a partition has changed since: read again, do not wait."""
        if outcome.is_final or outcome.size_bytes >= request.min_bytes:
            return False
        for item, answer in zip(request.partitions, outcome.answers, strict=True):
            replica = self._replicas.find(item.topic_id, item.partition)
            if (
                replica is None
                or replica.check_epoch(item.current_leader_epoch, from_follower=request.from_follower)
                or replica.high_watermark != answer.fields.high_watermark
            ):
                return True
        return False

    def watched(self, request: FetchRequest) -> list[tuple[Replica, int]]:
        """The partitions of a fetch that was read without an error, and the offset wanted of each."""
        found = []
        for item in request.partitions:
            replica = self._replicas.find(item.topic_id, item.partition)
            if replica is not None:
                found.append((replica, item.fetch_offset))
        return found


def failed(request: FetchRequest) -> ReadOutcome:
    """The outcome of a fetch that hit a fault of ours, which was logged."""
    answers = [_failure(int(ErrorCode.unknown_server_error)) for _ in request.partitions]
    return ReadOutcome(answers, is_final=True)


class _Located(NamedTuple):
    """What a fetch gets of one partition, found but not read yet."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    found: LogSlice | None = None
    aborted_transactions: Sequence[tuple[int, int]] = ()
    """(producer id, first offset) of each."""
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the reader's log and this one part."""

    def fields(self) -> PartitionFetchResult:
        """All but the records, as a message."""
        result = PartitionFetchResult(
            error_code=self.error_code,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
        )
        for producer_id, first_offset in self.aborted_transactions:
            result.aborted_transactions.append(
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            )
        if self.diverging is not None:
            epoch, end_offset = self.diverging
            result.diverging.CopyFrom(EpochEndOffset(leader_epoch=epoch, end_offset=end_offset))
        return result


def _read_partition(
    replica: Replica, item: PartitionFetch, left: int, *, committed: bool, first: bool, nowait: bool
) -> PartitionFetched:
    try:
        located = _locate(replica, item, left, committed=committed, first=first, nowait=nowait)
        records = b"" if located.found is None else located.found.read(nowait=nowait)
    except BlockingIOError:
        raise
    except (KafkaError, OSError) as error:
        return _failed_read(replica, error)
    return PartitionFetched(located.fields(), records)


def _locate(
    replica: Replica,
    item: PartitionFetch | Sought,
    left: int,
    *,
    committed: bool,
    first: bool,
    nowait: bool,
) -> _Located:
    """Find what the replica of a partition has for a fetch with `left` bytes to spare.

    All that goes into an answer is of one log, as it was at one time, or it is found anew: where a segment went or was
    compacted meanwhile, its aborted records are found, and listed no more; of what stands where something was taken
    back, less may be committed; and what was left behind or deleted has its files, lists of aborted transactions with
    them, no more. Nor does a truncation that stopped half way have them.
    """
    while True:
        opened = replica.log
        assert opened is not None, "who is read from has its log"
        segments, generation = opened.segments, opened.generation
        located = _locate_in(opened, replica, item, left, committed=committed, first=first, nowait=nowait)
        found = located.found
        if found is None:
            return located
        if opened.is_closed or not opened.is_trusted:
            if replica.log is opened:
                error = NOT_LEADER if opened.is_closed else STORAGE_ERROR
                return located._replace(error_code=error, found=None, aborted_transactions=())
        # One of an earlier generation is read as nothing.
        elif found.generation <= generation and (not committed or opened.segments is segments):
            return located


def _locate_in(
    opened: PartitionLog,
    replica: Replica,
    item: PartitionFetch | Sought,
    left: int,
    *,
    committed: bool,
    first: bool,
    nowait: bool,
) -> _Located:
    high_watermark, stable, start = ends = _ends(replica, opened)
    upper_bound = stable if committed else high_watermark
    offset = item.fetch_offset
    if item.last_fetched_epoch != NO_EPOCH:
        epoch, end_offset = opened.end_offset_for_epoch(item.last_fetched_epoch)
        if epoch == NO_EPOCH:
            return _Located(OFFSET_OUT_OF_RANGE, *ends)
        if epoch < item.last_fetched_epoch or end_offset < offset:
            return _Located(0, *ends, diverging=(epoch, end_offset))
    if not start <= offset <= opened.log_end_offset:
        return _Located(OFFSET_OUT_OF_RANGE, *ends)
    max_bytes = min(item.max_bytes, left)
    if offset >= upper_bound or (max_bytes <= 0 and not first):
        return _Located(0, *ends)
    found = opened.locate(
        offset, max(max_bytes, 0), upper_bound_offset=upper_bound, min_one_batch=first, nowait=nowait
    )
    if found is None or not committed:
        return _Located(0, *ends, found)
    aborted = [
        (each.producer_id, each.first_offset)
        for each in opened.aborted_transactions(offset, found.end_offset, nowait=nowait)
    ]
    return _Located(0, *ends, found, aborted)


def _ends(replica: Replica, opened: PartitionLog) -> tuple[int, int, int]:
    """(high watermark, last stable offset, log start offset)"""
    # It may move while this runs in a thread: what is stable is so below the very one that is told.
    high_watermark = replica.high_watermark
    return high_watermark, opened.last_stable_offset(high_watermark), opened.log_start_offset


def _elsewhere(replica: Replica, node: int) -> PartitionFetched:
    """The consumer is to read from the replica on `node`."""
    assert replica.log is not None, "a leader has its log"
    fields = _Located(0, *_ends(replica, replica.log)).fields()
    fields.preferred_read_replica = node
    return PartitionFetched(fields)


def _failed_read(replica: Replica, error: KafkaError | OSError) -> PartitionFetched:
    code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
    replica.counts.failed_reads += int(code) in NODE_FAULTS
    if code != ErrorCode.offset_out_of_range:
        assert replica.lane is not None, "what is read has its log"
        replica.lane.lines.error("cannot read", partition=replica.name, reason=str(error))
    return _failure(int(code))


def _failure(error_code: int) -> PartitionFetched:
    return PartitionFetched(
        PartitionFetchResult(
            error_code=error_code, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1
        )
    )
