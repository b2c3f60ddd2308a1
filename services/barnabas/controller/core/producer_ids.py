"""Producer ids, handed out in blocks so that the controller is rarely asked (KIP-730).

Metadata that were restored from a backup do not know which blocks were handed out since. Two producers with one id and
epoch would take each other's batches for repetitions, which are acknowledged and not written. So each term begins at an
id that follows from the time: above all that former terms have handed out, whether they are remembered or not, as long
as the clock has not gone back behind them.
"""

from __future__ import annotations

from typing import Final

from barnabas.controller.core.decision import Decision
from barnabas.messages.controller_pb2 import AllocateProducerIdsResponse
from barnabas.messages.metadata_pb2 import MetadataRecord, ProducerIdsRecord
from barnabas.metadata.image import PRODUCER_IDS_KEY, MetadataImage

PRODUCER_IDS_BLOCK: Final = 1000
"""Ids in a block."""

PRODUCER_IDS_PER_MS: Final = 1000
"""How far apart terms begin: more than can be handed out in the meantime (each block is a write to the store), and
few enough for ids that JavaScript counts exactly (2^53) until the year 2255."""


def skipped_producer_ids(image: MetadataImage, now_ms: int) -> list[MetadataRecord]:
    """What a term that begins now stores, so that it hands out nothing that a forgotten one has."""
    first = now_ms * PRODUCER_IDS_PER_MS
    if first <= image.next_producer_id:
        return []
    record = ProducerIdsRecord(next_producer_id=first)
    return [MetadataRecord(key=PRODUCER_IDS_KEY, producer_ids=record)]


def allocate_producer_ids(image: MetadataImage) -> Decision[AllocateProducerIdsResponse]:
    """The next block; it is the caller's once the record is stored, whether it uses it or not."""
    first = image.next_producer_id
    record = ProducerIdsRecord(next_producer_id=first + PRODUCER_IDS_BLOCK)
    response = AllocateProducerIdsResponse(first_producer_id=first, count=PRODUCER_IDS_BLOCK)
    return Decision((MetadataRecord(key=PRODUCER_IDS_KEY, producer_ids=record),), response)
