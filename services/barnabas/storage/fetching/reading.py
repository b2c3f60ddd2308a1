"""Reading what one fetch asks for: partition by partition, in order, within the request's bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.partition_log import PartitionLog
from barnabas.rpc.v1.storage_pb2 import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionFetch,
    PartitionFetchResult,
)
from barnabas.storage.counts import NODE_FAULTS
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.fetching.delayed_fetch import READ_COMMITTED
from barnabas.storage.fetching.fetch_encoding import PartitionAnswer
from barnabas.storage.replica.replica import NO_EPOCH, Replica
from barnabas.storage.replica.replicas import Replicas

ANSWER_BYTES_TARGET: Final = 8 * 1024 * 1024
"""About the most that one fetch is answered with, whatever more it allows: clients ask again at once, and what is
larger leaves the processor's cache between its copies."""

OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)

log = get_logger("storage.reading")


@dataclass(slots=True)
class ReadOutcome:
    """What was read so far, in the order of the request. `is_final` means: answer at once, for there is an error or a
    divergence in it.
    """

    answers: list[PartitionAnswer] = field(default_factory=list)
    size_bytes: int = 0
    is_final: bool = False
    sizes: list[tuple[Replica, int]] = field(default_factory=list)

    def progress(self) -> tuple[int, int]:
        """(partitions, bytes) that are done."""
        return len(self.answers), self.size_bytes

    def add(self, more: ReadOutcome) -> None:
        """Append what was read of the partitions that follow."""
        self.answers += more.answers
        self.size_bytes += more.size_bytes
        self.is_final = self.is_final or more.is_final
        self.sizes += more.sizes


class FetchReader:
    """Reads for fetches. Changes nothing but counts, those on the event loop only."""

    def __init__(self, replicas: Replicas, *, bytes_max: int) -> None:
        self._replicas = replicas
        self._bytes_max = bytes_max

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
        partition = self._replicas.find(item.topic_id, item.partition)
        return None if partition is None else partition.lane

    def nothing_new(self, request: FetchRequest, number: int) -> ReadOutcome:
        """The answer for a partition that cannot be read at the moment; it is no error."""
        item = request.partitions[number]
        partition = self._replicas.find(item.topic_id, item.partition)
        if partition is None or partition.log is None:
            return ReadOutcome(
                [_failure(self._replicas.absence(item.topic_id, item.partition))], is_final=True
            )
        return ReadOutcome([PartitionAnswer(_ends(partition, partition.log))])

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
        partition = self._replicas.find(item.topic_id, item.partition)
        if partition is None:
            error = self._replicas.absence(item.topic_id, item.partition)
        else:
            error = partition.check_epoch(item.current_leader_epoch)
            # A read that is left to a thread was tried here first.
            partition.counts.reads += nowait
        if partition is None or error:
            if partition is not None:
                partition.counts.failed_reads += error in NODE_FAULTS
            outcome.answers.append(_failure(error))
            outcome.is_final = True
            return
        left = min(request.max_bytes, self._bytes_max, ANSWER_BYTES_TARGET) - outcome.size_bytes
        answer = _read_partition(
            partition,
            item,
            left,
            committed=request.isolation_level == READ_COMMITTED,
            first=outcome.size_bytes == 0,
            nowait=nowait,
        )
        outcome.answers.append(answer)
        size_bytes = len(answer.records)
        if size_bytes:
            outcome.sizes.append((partition, size_bytes))
            outcome.size_bytes += size_bytes
        elif answer.fields.error_code or answer.fields.HasField("diverging"):
            outcome.is_final = True

    def is_outdated(self, request: FetchRequest, outcome: ReadOutcome) -> bool:
        """Whether a read in a thread found too little, and a partition has changed since: read again, do not wait."""
        if outcome.is_final or outcome.size_bytes >= request.min_bytes:
            return False
        for item, answer in zip(request.partitions, outcome.answers, strict=True):
            partition = self._replicas.find(item.topic_id, item.partition)
            if (
                partition is None
                or partition.error
                or partition.high_watermark != answer.fields.high_watermark
            ):
                return True
        return False

    def watched(self, request: FetchRequest) -> list[tuple[Replica, int]]:
        """The partitions of a fetch that was read without an error, and the offset wanted of each."""
        found = []
        for item in request.partitions:
            partition = self._replicas.find(item.topic_id, item.partition)
            if partition is not None:
                found.append((partition, item.fetch_offset))
        return found


def failed(request: FetchRequest) -> ReadOutcome:
    """The outcome of a fetch that hit a fault of ours, which was logged."""
    answers = [_failure(int(ErrorCode.unknown_server_error)) for _ in request.partitions]
    return ReadOutcome(answers, is_final=True)


def _read_partition(
    partition: Replica, item: PartitionFetch, left: int, *, committed: bool, first: bool, nowait: bool
) -> PartitionAnswer:
    opened = partition.log
    assert opened is not None, "a leader has its log"
    result = _ends(partition, opened)
    stable = result.last_stable_offset
    upper_bound = stable if committed else result.high_watermark
    offset = item.fetch_offset
    if item.last_fetched_epoch != NO_EPOCH:
        epoch, end_offset = opened.end_offset_for_epoch(item.last_fetched_epoch)
        if epoch == NO_EPOCH:
            result.error_code = OFFSET_OUT_OF_RANGE
            return PartitionAnswer(result)
        if epoch < item.last_fetched_epoch or end_offset < offset:
            result.diverging.CopyFrom(EpochEndOffset(leader_epoch=epoch, end_offset=end_offset))
            return PartitionAnswer(result)
    if not opened.log_start_offset <= offset <= opened.log_end_offset:
        result.error_code = OFFSET_OUT_OF_RANGE
        return PartitionAnswer(result)
    max_bytes = min(item.max_bytes, left)
    if offset >= upper_bound or (max_bytes <= 0 and not first):
        return PartitionAnswer(result)
    records = b""
    try:
        found = opened.locate(
            offset, max(max_bytes, 0), upper_bound_offset=upper_bound, min_one_batch=first, nowait=nowait
        )
        if found is not None:
            records = found.read(nowait=nowait)
            if committed:
                for aborted in opened.aborted_transactions(offset, stable, nowait=nowait):
                    result.aborted_transactions.append(
                        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    )
    except BlockingIOError:
        raise
    except (KafkaError, OSError) as error:
        return _failed_read(partition, error)
    return PartitionAnswer(result, records)


def _ends(partition: Replica, opened: PartitionLog) -> PartitionFetchResult:
    """The result with the log's offsets and nothing else."""
    # The high watermark first: it may move while this runs in a thread.
    high_watermark = partition.high_watermark
    return PartitionFetchResult(
        high_watermark=high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=opened.log_start_offset,
    )


def _failed_read(partition: Replica, error: KafkaError | OSError) -> PartitionAnswer:
    code = error.code if isinstance(error, KafkaError) else ErrorCode.kafka_storage_error
    partition.counts.failed_reads += int(code) in NODE_FAULTS
    if code != ErrorCode.offset_out_of_range:
        log.error("cannot read", partition=partition.name, reason=str(error))
    return _failure(int(code))


def _failure(error_code: int) -> PartitionAnswer:
    return PartitionAnswer(
        PartitionFetchResult(
            error_code=error_code, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1
        )
    )
