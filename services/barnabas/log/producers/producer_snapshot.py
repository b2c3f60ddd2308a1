"""`.snapshot`: the producer state at an offset, named by that offset (Kafka's ProducerSnapshot, version 1).

version int16, CRC-32C uint32 over what follows, entry count int32, then entries of 46 bytes: producer id int64,
epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64, coordinator epoch int32,
first offset of the open transaction int64 (-1 when none is open).

Kafka keeps one batch of each producer. Then a broker that was stopped in order knows less of what a client sends again
than one that was killed, which reads its log. Here each retained batch is an entry, the newest last: Kafka, where a
later entry of a producer replaces an earlier one, reads from such a file what it would have written itself.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence

import google_crc32c

from barnabas.kernel.files import Files
from barnabas.log.producers.producer_state import (
    BATCHES_RETAINED,
    NO_OFFSET,
    BatchMetadata,
    ProducerEntry,
)
from barnabas.log.segments.segment import SNAPSHOT_SUFFIX, file_name
from barnabas.log.small_files import read_whole, remove_quietly, write_atomically

_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_BATCH = BatchMetadata(-1, -1, 0, -1)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes."""
    packed = []
    for entry in entries:
        packed += [_pack(entry, batch, batch.timestamp, NO_OFFSET) for batch in entry.batches[:-1]]
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        packed.append(_pack(entry, last, entry.last_timestamp, entry.current_transaction_first_offset))
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(_VERSION, google_crc32c.value(body)) + body


def _pack(entry: ProducerEntry, batch: BatchMetadata, timestamp: int, first_offset: int) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp,
        entry.coordinator_epoch,
        first_offset,
    )


def decode_snapshot(data: bytes) -> list[ProducerEntry] | None:
    """The entries, or None when the bytes are not a whole snapshot of version 1."""
    if len(data) < _HEADER.size + _COUNT.size:
        return None
    version, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    (count,) = _COUNT.unpack_from(body)
    whole = len(body) == _COUNT.size + count * _ENTRY.size
    if version != _VERSION or not whole or google_crc32c.value(body) != crc:
        return None
    entries: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset = fields
        batches = [BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else []
        earlier = entries.get(producer_id)
        if earlier is not None and earlier.producer_epoch == epoch:
            batches = [*earlier.batches, *batches][-BATCHES_RETAINED:]
        entries[producer_id] = ProducerEntry(
            producer_id, epoch, coordinator_epoch, timestamp, first_offset, batches
        )
    return list(entries.values())


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """The offsets at which snapshots exist, rising; `names` are a partition directory's files."""
    stems = [name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdigit())


def write_snapshot(
    files: Files, directory: str, offset: int, entries: Iterable[ProducerEntry], *, sync: bool
) -> None:
    """Keep the state at `offset`."""
    path = os.path.join(directory, file_name(offset, SNAPSHOT_SUFFIX))
    write_atomically(files, path, encode_snapshot(entries), sync=sync)


def load_snapshot(
    files: Files, directory: str, offsets: Sequence[int], offset_max: int
) -> tuple[int, list[ProducerEntry]] | None:
    """The newest good snapshot at or before `offset_max`, with its offset; unreadable ones are passed over.

    `offsets` are where snapshots exist, rising.
    """
    for offset in reversed(offsets):
        if offset <= offset_max:
            try:
                data = read_whole(files, os.path.join(directory, file_name(offset, SNAPSHOT_SUFFIX)))
            except FileNotFoundError:
                continue  # it went with an empty segment that a failed roll left
            entries = decode_snapshot(data)
            if entries is not None:
                return offset, entries
    return None


def remove_snapshots(files: Files, directory: str, offsets: Iterable[int]) -> None:
    """Remove the snapshots at these offsets."""
    for offset in offsets:
        remove_quietly(files, os.path.join(directory, file_name(offset, SNAPSHOT_SUFFIX)))
