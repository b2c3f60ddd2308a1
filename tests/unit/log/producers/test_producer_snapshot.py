"""`.snapshot` files: what comes back of what was written."""

from __future__ import annotations

from barnabas.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.log.producers.producer_state import NO_OFFSET, BatchMetadata, ProducerEntry


def entry(producer_id: int, epoch: int, *last_offsets: int) -> ProducerEntry:
    batches = [BatchMetadata(offset, offset, 0, 1_000 + offset) for offset in last_offsets]
    return ProducerEntry(producer_id, epoch, -1, 1_000 + last_offsets[-1], NO_OFFSET, batches)


def retained(*entries: ProducerEntry) -> list[tuple[int, int, list[int]]]:
    """(producer id, epoch, last offsets of its batches) of each that is read."""
    found = decode_snapshot(encode_snapshot(entries))
    assert found is not None
    return [
        (each.producer_id, each.producer_epoch, [batch.last_offset for batch in each.batches])
        for each in found
    ]


def test_all_batches_of_each_producer_come_back() -> None:
    assert retained(entry(7, 0, 1, 3, 5), entry(8, 2, 2)) == [(7, 0, [1, 3, 5]), (8, 2, [2])]


def test_batches_of_a_former_epoch_are_no_batches_of_the_producer() -> None:
    """A file of another's making may have them; a repetition is one only within its epoch, which numbers from 0."""
    assert retained(entry(7, 0, 1, 3), entry(7, 1, 5)) == [(7, 1, [5])]
    assert retained(entry(7, 1, 5), entry(7, 1, 6)) == [(7, 1, [5, 6])]


def test_no_more_batches_are_kept_than_a_producer_may_have_under_way() -> None:
    assert retained(entry(7, 0, 1, 2, 3), entry(7, 0, 4, 5, 6)) == [(7, 0, [2, 3, 4, 5, 6])]
