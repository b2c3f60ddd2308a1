"""What compaction keeps of one batch (Kafka's rules, but for the headers of what producers may send again).

A record goes when its key stands again at a later offset of the mapped section, when it is a tombstone past its
batch's delete horizon, when its transaction was aborted, or when it has no key. A batch of which everything stays
is kept byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.log.cleaning.cleaned_transactions import CleanedTransactions
from barnabas.log.cleaning.offset_map import OffsetMap
from barnabas.log.producers.producer_state import BatchMetadata
from barnabas.records.batch import BatchHeader, parse_header
from barnabas.records.filtered import KeyedRecord, empty_batch, read_keyed_records, rebuild_batch


class LastBatches(NamedTuple):
    """Where a producer's sequence stands: its last data batches (none when only a marker is left), and its epoch."""

    batches: Sequence[BatchMetadata]
    producer_epoch: int


class BatchFilter:
    """Owner of the transactions of one cleaning; batches come in the order of the log."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: Mapping[int, LastBatches],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.transactions = transactions
        self.records_without_key = 0
        self._offsets = offsets
        self._last_batches = last_batches
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = now_ms + delete_retention_ms

    def apply(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """The batch as it stays, the same object if nothing goes; None when it goes. Raises KafkaError."""
        if header.is_control:
            kept = self._control(header, batch)
        elif self.transactions.on_data(header):
            kept = None
        else:
            kept = self._data(header, batch)
        if kept is None and self._is_needed(header):
            return empty_batch(header)
        return kept

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether the header must outlive the records: as the section's end, or for its producer.

        Kafka keeps a producer's last one. What came before that, sent again because its answer was lost, would be out
        of order for ever at a leader that has read its log again. Nothing of a transaction comes again that has ended.
        """
        if header.next_offset == self._end_offset:
            return True
        last = self._last_batches.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.batches:
            may_come_again = last.batches[-1:] if header.is_transactional else last.batches
            return any(each.last_offset == header.last_offset for each in may_come_again)
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _control(self, header: BatchHeader, batch: bytes) -> bytes | None:
        ends_nothing = self.transactions.on_control(header, batch)
        if header.record_count == 0:
            return None
        if not ends_nothing:
            return batch
        if not header.has_delete_horizon:
            data, records = read_keyed_records(batch)
            return rebuild_batch(header, data, records, self._delete_horizon_ms)
        return None if header.base_timestamp <= self._now_ms else batch

    def _data(self, header: BatchHeader, batch: bytes) -> bytes | None:
        if header.record_count == 0:
            return None
        data, records = read_keyed_records(batch)
        tombstones_go = header.has_delete_horizon and header.base_timestamp <= self._now_ms
        retained = [record for record in records if self._stays(record, tombstones_go)]
        if not retained:
            return None
        needs_horizon = not header.has_delete_horizon and not all(record.has_value for record in retained)
        if len(retained) == len(records) and not needs_horizon:
            return batch
        return rebuild_batch(header, data, retained, self._delete_horizon_ms if needs_horizon else None)

    def _stays(self, record: KeyedRecord, tombstones_go: bool) -> bool:
        if record.offset > self._offsets.latest_offset:
            return True
        if record.key is None:
            self.records_without_key += 1
            return False
        return record.offset >= self._offsets.get(record.key) and (record.has_value or not tombstones_go)


def replaced_header(header: BatchHeader, batch: bytes | None, kept: bytes) -> BatchHeader:
    """The header of what `BatchFilter.apply` kept."""
    return header if kept is batch else parse_header(kept)
