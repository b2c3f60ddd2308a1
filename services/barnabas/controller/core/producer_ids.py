"""Producer ids, handed out in blocks so that the controller is rarely asked (KIP-730)."""

from __future__ import annotations

from typing import Final

from barnabas.controller.core.decision import Decision
from barnabas.metadata.image import PRODUCER_IDS_KEY, MetadataImage
from barnabas.rpc.v1.controller_pb2 import AllocateProducerIdsResponse
from barnabas.rpc.v1.metadata_pb2 import MetadataRecord, ProducerIdsRecord

PRODUCER_IDS_BLOCK: Final = 1000
"""Ids in a block."""


def allocate_producer_ids(image: MetadataImage) -> Decision[AllocateProducerIdsResponse]:
    """The next block; it is the caller's once the record is stored, whether it uses it or not."""
    first = image.next_producer_id
    record = ProducerIdsRecord(next_producer_id=first + PRODUCER_IDS_BLOCK)
    response = AllocateProducerIdsResponse(first_producer_id=first, count=PRODUCER_IDS_BLOCK)
    return Decision((MetadataRecord(key=PRODUCER_IDS_KEY, producer_ids=record),), response)
