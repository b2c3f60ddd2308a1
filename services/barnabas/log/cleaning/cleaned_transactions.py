"""What compaction knows of transactions while it walks over a log: whose records do not count, which markers may go.

Records of aborted transactions go. A marker goes once nothing of its transaction is left, and then only after the
delete retention, so that a consumer that has read some of the records also sees how the transaction ended (KIP-98,
KIP-534).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from barnabas.log.segments.transaction_index import AbortedTransaction
from barnabas.records.batch import BatchHeader
from barnabas.records.control import ABORT, COMMIT
from barnabas.records.record import decode_records

_CONTROL_KEY_BYTES = 4


class CleanedTransactions:
    """Owner of the transactions that are open at the batch being read; batches come in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._kept: list[AbortedTransaction] = []
        self._to_come = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_with_batches: set[int] = set()
        self._committed: set[int] = set()

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._aborted:
            self._aborted_with_batches.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, batch: bytes) -> bool:
        """Whether nothing is left of the transaction that the control batch ended. Raises KafkaError."""
        self._begin_up_to(header.last_offset)
        record = next(decode_records(batch), None)
        if record is None:
            return True  # cleaned before
        if record.key is None or len(record.key) < _CONTROL_KEY_BYTES:
            return False
        kind = int.from_bytes(record.key[2:4], "big")
        producer_id = header.producer_id
        if kind == ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or producer_id not in self._aborted_with_batches:
                return True
            self._aborted_with_batches.discard(producer_id)
            self._kept.append(aborted)
            return False
        if kind == COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """The aborted transactions whose marker stays and of which batches were seen, since the last call: the
        cleaned segment lists them.
        """
        kept, self._kept = self._kept, []
        return kept

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            aborted = self._to_come.popleft()
            self._aborted.setdefault(aborted.producer_id, aborted)
