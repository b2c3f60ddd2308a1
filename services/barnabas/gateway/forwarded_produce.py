"""The common case of Produce that its leader cannot answer at once: handed over as it is read, without a task.

What `plain_produce.py` is for the storage node in this process, this is for all others, and for batches of which any
leader has to ask a transaction's coordinator first (KIP-890). A plain request is queued on its
leader's stream by plain calls before `data_received` returns, and its answer is written from a template when the result
comes. Whatever is not plain is left to the general way: at first by not taking it, with nothing changed; later, where
the leader refuses or nobody knows, by `handlers/produce.py`, which goes on from the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from time import perf_counter

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.clients.unsettled import NOTHING_FAILED, Partition
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.handlers import produce
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.plain_produce import is_answered, is_transactional
from barnabas.gateway.produce_batches import transaction_in
from barnabas.gateway.request import Client, Request
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import NO_EPOCH
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, PartitionAppend, PartitionAppendResult
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import led_partition
from barnabas.records.batch import is_sequenced
from barnabas.wire.plain_produce import PlainProduce, encode_plain_answer, read_plain_produce
from barnabas.wire.produce import API_KEY, TOPIC_ID_FROM
from barnabas.wire.requests import MalformedRequest, read_body, read_header


class ForwardedProduces:
    """Owns nothing: hands plain requests over."""

    def __init__(self, parts: GatewayParts, faults: Faults) -> None:
        self._parts = parts
        self._faults = faults

    def forward(self, frame: bytes, client: Client, times: RequestTimes) -> ForwardedProduce | None:
        """Hand over the request in `frame`, the next of its client's to do so; None, with nothing changed, when it must
        go the general way. Raises CloseConnection for a failure before it that ends the connection.
        """
        began = perf_counter()
        plain = None if self._faults.is_active else read_plain_produce(frame)
        if plain is None:
            return None
        version, _, _, acks, timeout_ms, topic, partition, records = plain
        if not is_answered(acks, records):
            return None
        unsettled, held = client.unsettled, client.held
        unsettled.settle_all()
        if client.gaps or held.refusals or client.resends or self._parts.sending_away.has_begun:
            return None
        image = self._parts.metadata.image
        head = _head_of(plain)
        try:
            found = led_partition(image, topic if version >= TOPIC_ID_FROM else topic.decode(), partition)
        except UnicodeDecodeError:
            return None
        if head is None or isinstance(found, ErrorCode):
            return None
        node = self._parts.links.storage(found.leader)
        if node is None:
            return None
        stream, size_bytes = node.appends, len(records)
        batches = AppendBatches(head)
        batches.add(
            PartitionAppend(topic_id=found.topic_id, partition=partition, leader_epoch=NO_EPOCH), records
        )
        if not stream.has_room(size_bytes) or unsettled.are_elsewhere(batches.partitions, stream, image):
            return None
        seconds = max(0, timeout_ms) / 1000 + limits.ANSWER_GRACE_SECONDS
        result = stream.send(batches, size_bytes, seconds)
        order = client.resends.next_order()
        forwarded = ForwardedProduce(result, frame, plain, batches, client, times, self._parts, image, order)
        if is_sequenced(records):
            unsettled.add(result, forwarded.settle, stream, image, batches.partitions, order)
        if stream.is_full:
            held.until(result)
        times.api_key, times.api_version, times.started = API_KEY, version, began
        times.local_seconds = perf_counter() - began
        return forwarded


def _head_of(plain: PlainProduce) -> AppendRequest | None:
    """What goes to the leader beside the batch; None for a transaction's batch in a request without a transactional id,
    which is refused.
    """
    version, _, transactional_id, acks, timeout_ms, _, _, records = plain
    head = AppendRequest(acks=acks, timeout_ms=timeout_ms)
    if is_transactional(records):
        if transactional_id is None:
            return None
        head.transaction.CopyFrom(transaction_in(version, transactional_id))
    return head


class ForwardedProduce:
    """A request whose batch is on its way; owns what it takes to answer it."""

    __slots__ = (
        "_batches",
        "_began",
        "_client",
        "_frame",
        "_image",
        "_order",
        "_parts",
        "_plain",
        "_rest",
        "_times",
        "result",
    )

    def __init__(
        self,
        result: asyncio.Future[AppendResult],
        frame: bytes,
        plain: PlainProduce,
        batches: AppendBatches,
        client: Client,
        times: RequestTimes,
        parts: GatewayParts,
        image: MetadataImage,
        order: int,
    ) -> None:
        """`image` is what its leader was found in; `order` is its place among all that its client handed over."""
        self.result = result
        self._frame = frame
        self._plain = plain
        self._batches = batches
        self._client = client
        self._times = times
        self._parts = parts
        self._image = image
        self._order = order
        self._began = asyncio.get_running_loop().time()
        self._rest: Callable[[], Awaitable[bytes | None]] | None = None
        """The rest of the general way, once it is known that it has to be gone."""

    def answer(self) -> bytes | None:
        """The answer by a `result` that says that the batch was taken; None by any other, which `finish` takes."""
        resumed = perf_counter()
        got = self._taken()
        if got is None:
            return None
        self._client.unsettled.settle(self.result)
        version, correlation_id, _, _, _, topic, partition, _ = self._plain
        answer = encode_plain_answer(
            *(version, correlation_id, topic, partition),
            *(got.base_offset, got.log_append_time_ms, got.log_start_offset),
        )
        times = self._times
        times.answered = now = perf_counter()
        times.local_seconds += now - resumed
        return answer

    def settle(self, behind_failed: Container[Partition] = NOTHING_FAILED) -> None:
        """There is a result. What failed opens its gap now, before anything else runs. Raises CloseConnection."""
        if self._taken() is not None:
            return
        try:
            header = read_header(self._frame)
            body = read_body(self._frame, header)
        except MalformedRequest as error:  # a client id that is no text: nobody had to read it before
            raise CloseConnection(str(error)) from error
        request = Request(header, body, self._client, self._parts, self._times)
        self._rest = produce.resume(
            request, self.result, self._batches, self._image, self._began, self._order, behind_failed
        )

    def _taken(self) -> PartitionAppendResult | None:
        """Where the batch is, if it was taken."""
        result = self.result
        if result.exception() is not None:
            return None
        partitions = result.result().partitions
        return partitions[0] if len(partitions) == 1 and not partitions[0].error_code else None

    async def finish(self) -> Pieces:
        """The answer by a `result` that is a failure, after the client was made to wait where it has to."""
        self._client.unsettled.settle(self.result)
        if self._rest is None:
            self.settle()  # it is of no idempotent producer
        assert self._rest is not None, "it failed"
        answer = await self._rest()
        self._times.answered = perf_counter()
        return answer
