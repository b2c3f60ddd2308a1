"""Producer snapshots, aborted transactions, checkpoints and the properties that lie beside the segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from barnabas.cli.dump.entries import Entry, Findings
from barnabas.kernel.files import SystemFiles
from barnabas.log.checkpoints.checkpoint_file import read_checkpoint
from barnabas.log.errors import LogStoreError
from barnabas.log.producers.producer_snapshot import decode_snapshot
from barnabas.log.segments.transaction_index import TransactionIndex


def read_snapshot(path: str, findings: Findings) -> Iterator[Entry]:
    """A producer each, with its last batch."""
    producers = decode_snapshot(Path(path).read_bytes())
    if producers is None:
        findings.add("it is no whole producer snapshot of version 1, or its CRC is wrong")
        return
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        first_offset = producer.current_transaction_first_offset
        yield {
            "type": "producer",
            "file": path,
            "producerId": producer.producer_id,
            "producerEpoch": producer.producer_epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": first_offset if first_offset >= 0 else None,
            "lastTimestamp": producer.last_timestamp,
            "firstSequence": last.first_sequence if last else None,
            "lastSequence": last.last_sequence if last else None,
            "lastOffset": last.last_offset if last else None,
            "offsetDelta": last.offset_delta if last else None,
            "timestamp": last.timestamp if last else None,
        }


def read_transaction_index(path: str) -> Iterator[Entry]:
    """An aborted transaction each."""
    for aborted in TransactionIndex(SystemFiles(), path).entries():
        yield {
            "type": "abortedTransaction",
            "file": path,
            "version": 0,
            "producerId": aborted.producer_id,
            "firstOffset": aborted.first_offset,
            "lastOffset": aborted.last_offset,
            "lastStableOffset": aborted.last_stable_offset,
        }


def read_checkpoint_file(path: str, findings: Findings) -> Iterator[Entry]:
    """Leader epochs with their start offsets, or partitions with their offsets."""
    is_epochs = path.endswith("leader-epoch-checkpoint")
    try:
        rows = read_checkpoint(SystemFiles(), path, columns=2 if is_epochs else 3)
    except LogStoreError as error:
        findings.add(str(error))
        return
    for row in rows:
        if is_epochs:
            yield {"type": "epoch", "file": path, "epoch": int(row[0]), "startOffset": int(row[1])}
        else:
            topic, partition, offset = row
            yield {
                "type": "checkpoint",
                "file": path,
                "topic": topic,
                "partition": int(partition),
                "offset": int(offset),
            }


def read_property_file(path: str) -> Iterator[Entry]:
    """meta.properties and partition.metadata: a name and a value a line."""
    for line in Path(path).read_text(errors="replace").splitlines():
        name, separator, value = line.partition("=" if path.endswith(".properties") else ": ")
        if separator and not line.startswith("#"):
            yield {"type": "property", "file": path, name.strip(): value.strip()}
