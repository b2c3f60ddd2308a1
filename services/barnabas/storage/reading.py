"""Reading what one fetch asks for: partition by partition, in order, within the request's bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.rpc.v1.storage_pb2 import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    PartitionFetch,
    PartitionFetchResult,
)
from barnabas.storage.counts import NODE_FAULTS
from barnabas.storage.delayed_fetch import READ_COMMITTED
from barnabas.storage.fetch_encoding import PartitionAnswer
from barnabas.storage.partition import NO_EPOCH, Partition
from barnabas.storage.replicas import Replicas

ANSWER_BYTES_TARGET: Final = 8 * 1024 * 1024
"""About the most that one fetch is answered with, whatever more it allows: clients ask again at once, and what is
larger leaves the processor's cache between its copies."""

OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)

log = get_logger("storage.reading")


@dataclass(slots=True)
class ReadOutcome:
    """What was read. `is_final` means: answer at once, for there is an error or a divergence in it."""

    answers: list[PartitionAnswer] = field(default_factory=list)
    size_bytes: int = 0
    is_final: bool = False
    sizes: list[tuple[Partition, int]] = field(default_factory=list)


class FetchReader:
    """Reads for fetches. Changes nothing, so that it may be called from any thread.

    Only what is read on the event loop (`nowait`) is counted: a read that was left to a thread was tried there first.
    """

    def __init__(self, replicas: Replicas, *, bytes_max: int) -> None:
        self._replicas = replicas
        self._bytes_max = bytes_max

    def read(self, request: FetchRequest, *, nowait: bool = False) -> ReadOutcome:
        """Read what there is now. With `nowait` raises BlockingIOError where the disk would have to be waited for.

        The first batch found is read even when it is larger than the request's max_bytes.
        """
        outcome = ReadOutcome()
        answers = outcome.answers
        left = min(request.max_bytes, self._bytes_max, ANSWER_BYTES_TARGET)
        committed = request.isolation_level == READ_COMMITTED
        find = self._replicas.find
        for item in request.partitions:
            partition = find(item.topic_id, item.partition)
            if partition is None:
                error = self._replicas.absence(item.topic_id, item.partition)
            else:
                error = partition.check_epoch(item.current_leader_epoch)
            if nowait and partition is not None:
                partition.counts.reads += 1
            if partition is None or error:
                if partition is not None:
                    partition.counts.failed_reads += error in NODE_FAULTS
                answers.append(_failure(error))
                outcome.is_final = True
                continue
            first = outcome.size_bytes == 0
            answer = _read_partition(partition, item, left, committed=committed, first=first, nowait=nowait)
            answers.append(answer)
            size_bytes = len(answer.records)
            if size_bytes:
                outcome.sizes.append((partition, size_bytes))
                outcome.size_bytes += size_bytes
                left -= size_bytes
            elif answer.fields.error_code or answer.fields.HasField("diverging"):
                outcome.is_final = True
        if not request.partitions:
            outcome.is_final = True
        return outcome

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

    def watched(self, request: FetchRequest) -> list[tuple[Partition, int]]:
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
    partition: Partition, item: PartitionFetch, left: int, *, committed: bool, first: bool, nowait: bool
) -> PartitionAnswer:
    opened = partition.log
    assert opened is not None, "a leader has its log"
    high_watermark = partition.high_watermark
    stable = partition.last_stable_offset
    result = PartitionFetchResult(
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=opened.log_start_offset,
    )
    upper_bound = stable if committed else high_watermark
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
                for aborted in opened.aborted_transactions(offset, stable):
                    result.aborted_transactions.append(
                        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                    )
    except BlockingIOError:
        raise
    except (KafkaError, OSError) as error:
        return _failed_read(partition, error)
    return PartitionAnswer(result, records)


def _failed_read(partition: Partition, error: KafkaError | OSError) -> PartitionAnswer:
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
