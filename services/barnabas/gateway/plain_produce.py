"""The common case of Produce as a straight function from bytes to bytes.

A small request costs little in what it must do (checks, a CRC, one write) and much in what a general server does
around it: tasks, futures, decoded objects, messages to other processes. So where a request is plain (one batch for one
partition, `wire/plain_produce.py`), and the partition is led by the storage node in this very process, the answer is
made by plain calls before `data_received` returns: of a transaction's batches those that belong to what is open in the
log, or of which a coordinator in this process knows. Whatever is not so is left before anything has changed: to
`forwarded_produce.py`, or to the general way, `handlers/produce.py`, which answers errors, too.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.produce_batches import transaction_in
from barnabas.links.local_storage import LocalStorage
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.subscription import MetadataSubscription
from barnabas.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT, first_flags
from barnabas.wire.plain_produce import encode_plain_answer, read_plain_produce
from barnabas.wire.produce import API_KEY, TOPIC_ID_FROM

_ACKNOWLEDGED: Final = (-1, 1)
"""Values of acks for which there is an answer to give."""


class PlainProduces:
    """Owns the ids of the topics that were produced to, by name, for as long as the metadata stays the same."""

    def __init__(
        self, metadata: MetadataSubscription, local: LocalStorage, metrics: RequestMetrics, faults: Faults
    ) -> None:
        self._metadata = metadata
        self._observe = metrics.observe_at_once
        self._faults = faults
        self._append = local.append_at_once
        self._image: MetadataImage | None = None
        self._topic_ids: dict[bytes, bytes] = {}

    def answer(self, frame: bytes, received: float, _: object = None) -> bytes | None:
        """The whole answer to the request in `frame`, which was read at `received` (perf_counter).

        None, with nothing changed, when it must go another way.
        """
        if self._faults.is_active:
            return None
        plain = read_plain_produce(frame)
        if plain is None:
            return None
        version, correlation_id, transactional_id, acks, _, topic, partition, records = plain
        if not is_answered(acks, records):
            return None
        transaction = None
        if is_transactional(records):
            if transactional_id is None:
                return None
            transaction = transaction_in(version, transactional_id)
        topic_id = topic if version >= TOPIC_ID_FROM else self._topic_id(topic)
        if topic_id is None:
            return None
        placed = self._append(topic_id, partition, records, acks, transaction)
        if placed is None:
            return None
        answer = encode_plain_answer(version, correlation_id, topic, partition, *placed)
        self._observe(API_KEY, version, len(frame), received)
        return answer

    def _topic_id(self, name: bytes) -> bytes | None:
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._topic_ids = {}
        found = self._topic_ids.get(name)
        if found is None:
            try:
                topic = image.topics.get(name.decode())
            except UnicodeDecodeError:
                return None
            if topic is None:
                return None
            found = self._topic_ids[name] = topic.topic_id
        return found


def is_answered(acks: int, records: memoryview) -> bool:
    """Whether there is a batch, and an answer to give."""
    return acks in _ACKNOWLEDGED and len(records) >= HEADER_SIZE


def is_transactional(records: memoryview) -> bool:
    """Whether the batch is of a transaction."""
    return bool(first_flags(records) & TRANSACTIONAL_BIT)
