"""The batches of one partition that wait until their transaction's coordinator has been asked, in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.records.batch import BatchHeader
from barnabas.storage import limits

OnDecided = Callable[[int, KafkaError | None], None]
"""Called once on the event loop: with the guard under which the batch is to be appended, or with why it is refused."""


class TransactionKey(NamedTuple):
    """One transaction as a producer names it. What waits of one of them waits for the same answer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds_partitions: bool
    """Whether the partition is added to it, or has to be part of it already."""


class UnverifiedBatch:
    """One batch, and who is told what becomes of it."""

    __slots__ = ("header", "key", "on_decided", "size_bytes")

    def __init__(
        self, key: TransactionKey, header: BatchHeader, size_bytes: int, on_decided: OnDecided
    ) -> None:
        self.key = key
        self.header = header
        self.size_bytes = size_bytes + limits.UNVERIFIED_BATCH_COST_BYTES
        self.on_decided = on_decided


class UnverifiedRoom:
    """Owner of how much of it the whole node has."""

    __slots__ = ("bytes_max", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0


class UnverifiedBatches:
    """Owner of the batches of one partition, by producer: others do not wait for them."""

    __slots__ = ("_answers", "_room", "_size_bytes", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, deque[UnverifiedBatch]] = {}
        self._answers: dict[int, asyncio.Future[ErrorCode]] = {}
        """What the first of each producer's waits for, or one that was."""
        self._size_bytes = 0
        self._room: UnverifiedRoom | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def has(self, producer_id: int) -> bool:
        """Whether what comes of the producer has to wait behind others."""
        return producer_id in self._waiting

    def has_room(self, size_bytes: int, room: UnverifiedRoom) -> bool:
        """Whether a batch of `size_bytes` may wait here."""
        size_bytes += limits.UNVERIFIED_BATCH_COST_BYTES
        return (
            self._size_bytes + size_bytes <= limits.UNVERIFIED_PARTITION_BYTES_MAX
            and room.size_bytes + size_bytes <= room.bytes_max
        )

    def add(self, batch: UnverifiedBatch, room: UnverifiedRoom) -> bool:
        """Wait; whether nothing of the producer did before, so that somebody has to be asked."""
        self._room = room
        room.size_bytes += batch.size_bytes
        self._size_bytes += batch.size_bytes
        queue = self._waiting.get(batch.header.producer_id)
        if queue is None:
            self._waiting[batch.header.producer_id] = deque((batch,))
            return True
        queue.append(batch)
        return False

    def first(self, producer_id: int) -> UnverifiedBatch | None:
        """What waits the longest of the producer; without any, nothing of it has to wait from now on."""
        queue = self._waiting.get(producer_id)
        if not queue:
            self._waiting.pop(producer_id, None)
            return None
        return queue[0]

    def on_asked(self, producer_id: int, answer: asyncio.Future[ErrorCode]) -> None:
        """The producer's batches wait for this."""
        self._answers[producer_id] = answer

    def on_answered(self, producer_id: int, answer: asyncio.Future[ErrorCode]) -> bool:
        """It is there; whether anything of the producer's waited for it, until now."""
        if self._answers.get(producer_id) is not answer:
            return False
        del self._answers[producer_id]
        return True

    def take(self, key: TransactionKey) -> UnverifiedBatch | None:
        """The next of the producer's, if it is of this transaction: it waits no longer."""
        queue = self._waiting.get(key.producer_id)
        if not queue or queue[0].key != key:
            return None
        batch = queue.popleft()
        self._release(batch)
        return batch

    def withdraw(self, batch: UnverifiedBatch) -> None:
        """Nobody waits for the batch any more: it is never appended. Those behind it wait on."""
        queue = self._waiting.get(batch.header.producer_id)
        if queue is not None and batch in queue:
            queue.remove(batch)
            self._release(batch)

    def refuse_all(self, error: KafkaError) -> None:
        """Nothing of it is appended, whatever the coordinator says."""
        waiting, self._waiting = self._waiting, {}
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.cancel()
        for queue in waiting.values():
            while queue:
                batch = queue.popleft()
                self._release(batch)
                batch.on_decided(0, error)

    def _release(self, batch: UnverifiedBatch) -> None:
        assert self._room is not None, "what waits has taken room"
        self._room.size_bytes -= batch.size_bytes
        self._size_bytes -= batch.size_bytes
