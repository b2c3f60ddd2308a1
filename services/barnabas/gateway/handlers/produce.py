"""Produce (key 0): record batches into partitions.

v3 is the first with record format v2, v5 adds the log start offset, v8 error messages, v10 the current leader
(KIP-951), v12 implicit transaction partitions (KIP-890), v13 topic ids instead of names. Versions 0 to 2 are shown in
ApiVersions but not served, as in Kafka 4: librdkafka decides on compression from them (KAFKA-18659).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.sequence_gaps import Place
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import SENT_AGAIN, ErrorCode
from barnabas.kernel.kafka_values import VALID_ACKS
from barnabas.kernel.tracing import current_traceparent
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, PartitionAppend
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import LEADER_ERRORS, NOBODY_LEADS, current_leader, led_partition
from barnabas.records.batch import COMPRESSION_MASK, CRC_START, PRODUCER_ID_AT, TRANSACTIONAL_BIT
from barnabas.records.compression import Compression
from barnabas.wire.produce import (
    TOPIC_ID_FROM,
    LeaderEndpoint,
    ProducedPartition,
    encode_produce_response,
)

_SENT_AGAIN: Final = SENT_AGAIN | {ErrorCode.request_timed_out, ErrorCode.unknown_topic_id}
"""Failures after which a client sends the batch again under the same sequence: also that its time was over and that
nobody knows the topic's id, where no log may have seen the batch. What a log has against the batch, it remembers.
"""

ZSTD_FROM: Final = 7
"""The first version whose clients may send zstd (KIP-110)."""

_ATTRIBUTES_AT: Final = CRC_START + 1
"""The low byte of a batch's attributes, where all the flags are."""

_NEGATIVE: Final = 0x80
"""The least first byte of a number below 0."""


async def handle(request: Request) -> Answer:
    return await _Produce(request, request.client.held.refusals).run()


def resume(
    request: Request, result: asyncio.Future[AppendResult], batches: AppendBatches
) -> Callable[[], Awaitable[bytes | None]]:
    """Go on with a request whose only batch was handed over and failed: that opens its gap before this returns.

    Returns what gives the answer. Raises CloseConnection.
    """
    produce = _Produce(request, refusals_before=0)  # or it would not have been handed over so
    produce.settle(result, batches, [(0, 0)])
    return produce.finish


class _Produce:
    """One produce request on its way: owns the results gathered so far, by place in the request."""

    def __init__(self, request: Request, refusals_before: int) -> None:
        """`refusals_before` are those in a row of its client's when it began."""
        self._request = request
        self._refusals_before = refusals_before
        self._results: dict[Place, ProducedPartition] = {}
        self._is_behind_gap = False
        self._behind: frozenset[Place] = frozenset()
        """What is handed over behind a batch that was refused long before."""
        self._refused_behind: set[Place] = set()
        """What of it its leader refused for that."""

    async def run(self) -> bytes | None:
        self._prepare()
        turn = self._request.turn
        if not turn.has_come:
            await turn.wait()
        sends = self._hand_over()
        turn.pass_on()
        with self._request.wait:
            if len(sends) == 1:
                await sends[0]
            elif sends:
                await asyncio.gather(*sends)
        return await self.finish()

    async def finish(self) -> bytes | None:
        """The answer, once every place has its result."""
        await self._back_off()
        for result in self._results.values():
            if result.error_code:
                self._request.times.count_error(result.error_code)
        if self._request.body.acks == 0:
            self._check_unacknowledged()
            return None
        return self._encode()

    def _prepare(self) -> None:
        """Refuse what is not to be handed over. What is done before the turn has come may take its time."""
        body = self._request.body
        if body.acks not in VALID_ACKS:
            self._refuse_all(ErrorCode.invalid_required_acks)
        elif body.transactional_id is not None or self._is_transactional():
            self._refuse_all(
                ErrorCode.transactional_id_authorization_failed, "transactions are not served yet"
            )

    def _hand_over(self) -> list[Any]:
        """Pass the batches that were not refused to their leaders, in this request's turn; returns what to await.

        It does not wait: those behind it would.
        """
        client = self._request.client
        client.unsettled.settle_all()
        gaps = client.gaps
        if gaps and gaps.is_behind(self._request.body, self._results):
            self._check_gaps()
            self._is_behind_gap = True
            self._refuse_all(gaps.code)
            return []
        if gaps:
            self._behind = gaps.behind(self._request.body, self._results)
        sends = self._send()
        if self._results:
            self._open_gaps(self._results)
        return sends

    def _send(self) -> list[Any]:
        """Queue the batches on their leaders' streams; returns what waits for the results."""
        image = self._request.image  # of this moment: until its turn came the request may have waited
        requests: dict[int, AppendBatches] = {}
        places: dict[int, list[Place]] = {}
        sizes: dict[int, int] = {}
        for topic_index, topic in enumerate(self._request.body.topic_data):
            name_or_id = self._name_or_id(topic)
            for partition_index, data in enumerate(topic.partition_data):
                place = (topic_index, partition_index)
                if place in self._results:
                    continue  # it was refused
                found = self._find(image, name_or_id, data)
                if isinstance(found, ErrorCode):
                    nobody = self._current_leader(name_or_id, data.index) if found is NOBODY_LEADS else None
                    self._results[place] = _failed(data.index, found)._replace(current_leader=nobody)
                    continue
                leader, topic_id = found.leader, found.topic_id
                if leader not in requests:
                    requests[leader] = self._new_request()
                    places[leader], sizes[leader] = [], 0
                records = data.records or b""  # none at all is refused by the leader, like any bad batch
                append = PartitionAppend(
                    topic_id=topic_id,
                    partition=data.index,
                    leader_epoch=-1,
                    behind_refused=place in self._behind,
                )
                requests[leader].add(append, records)
                places[leader].append(place)
                sizes[leader] += len(records)
        sends = [self._append(image, node, requests[node], sizes[node], places[node]) for node in requests]
        return [send for send in sends if send is not None]

    def _open_gaps(self, places: Iterable[Place]) -> None:
        """What failed and will be sent again has to come before what is behind it on this connection."""
        results = self._results
        failed = {
            place: code
            for place in places
            if place not in self._refused_behind
            and (code := results[place].error_code)
            and code in _SENT_AGAIN
        }
        if failed:
            code = ErrorCode(next(iter(failed.values())))
            self._request.client.gaps.open(self._request.body, code, failed)
            self._check_gaps()

    def _check_gaps(self) -> None:
        """Close the connection over the limit. The gaps are open by then: nothing gets past them until it is closed."""
        if self._request.client.gaps.are_too_many:
            raise CloseConnection(
                f"idempotent producers lack refused batches in more than {limits.SEQUENCE_GAPS_MAX} partitions"
            )

    def _is_transactional(self) -> bool:
        """Whether a batch belongs to a transaction: Kafka then wants a transactional id of the request as a whole."""
        return any(
            _attributes(data.records) & TRANSACTIONAL_BIT
            for topic in self._request.body.topic_data
            for data in topic.partition_data
        )

    def _new_request(self) -> AppendBatches:
        body = self._request.body
        return AppendBatches(
            AppendRequest(
                acks=body.acks, timeout_ms=milliseconds(body.timeout), traceparent=current_traceparent()
            )
        )

    def _name_or_id(self, topic: Any) -> str | bytes:
        if self._request.version >= TOPIC_ID_FROM:
            return topic.topic_id.bytes if topic.topic_id else bytes(16)
        name: str = topic.name
        return name

    def _find(self, image: MetadataImage, name_or_id: str | bytes, data: Any) -> PartitionRecord | ErrorCode:
        found = led_partition(image, name_or_id, data.index)
        if (
            self._request.version < ZSTD_FROM
            and (found is NOBODY_LEADS or isinstance(found, PartitionRecord))
            and _attributes(data.records) & COMPRESSION_MASK == Compression.ZSTD
        ):
            return ErrorCode.unsupported_compression_type
        return found

    def _append(
        self,
        image: MetadataImage,
        node_id: int,
        request: AppendBatches,
        size_bytes: int,
        places: list[Place],
    ) -> Any:
        """Queue the request on the leader's stream (before the first await) and return what waits for the result.

        None when it failed already: the leader is fenced, or has too much to answer, or has just become the leader.
        """
        connection = self._request.parts.links.storage(node_id)
        if connection is None:
            self._fail(places, request, NOBODY_LEADS)
            return None
        # The node keeps the time-out too, if it lives; that it does is not for the client to wait for.
        seconds = max(0, request.head.timeout_ms) / 1000 + limits.ANSWER_GRACE_SECONDS
        stream = connection.appends
        unsettled = self._request.client.unsettled
        if not stream.has_room(size_bytes) or unsettled.are_elsewhere(request.partitions, stream, image):
            # Certainly not written: the client is to look for the leader again.
            self._fail(places, request, NOBODY_LEADS)
            return None
        result = stream.send(request, size_bytes, seconds)
        settle = partial(self.settle, result, request, places)
        if any(map(is_sequenced, request.records)):
            unsettled.add(result, settle, stream, image, request.partitions)
            settle = partial(unsettled.settle, result)
        finishing = _finish(result, settle)
        return self._held(finishing) if stream.is_full else finishing

    async def _held(self, finishing: Coroutine[Any, Any, None]) -> None:
        """The node has its share to answer: no more is read of connections that write to it."""
        with self._request.client.held:
            await finishing

    async def _back_off(self) -> None:
        """Clients whose partitions have no leader back off; one that does not is made to, or it would keep us busy."""
        held = self._request.client.held
        if self._is_behind_gap:
            # It was under way when the one before it was refused, and says nothing new of its client: counted, each
            # of five would have it wait longer, and the last be answered when there has long been a leader.
            return
        if not self._results or any(each.error_code != NOBODY_LEADS for each in self._results.values()):
            held.refusals = 0
            return
        parts, size_bytes = self._request.parts, self._request.times.request_bytes
        # Was it under way when another one was refused, for another partition perhaps? So it is where a node that led
        # many hands over, and no sign of a client that does not back off.
        is_told_already = held.refusals > self._refusals_before
        seconds = max(
            0.0 if is_told_already else held.next_pause_seconds(),
            parts.refusal_pace.pause_seconds(size_bytes, parts.clock.monotonic()),
        )
        body = self._request.body
        seconds = min(seconds, max(0, milliseconds(body.timeout)) / 1000 + limits.ANSWER_GRACE_SECONDS)
        if body.acks:
            held.mute(seconds)
        elif seconds > 0:
            await asyncio.sleep(seconds)  # it gets no answer, but the end of its connection

    def settle(
        self, result: asyncio.Future[AppendResult], request: AppendBatches, places: list[Place]
    ) -> None:
        """Take over the result of what went to one leader. What failed opens its gap now, before anything else runs."""
        try:
            partitions = result.result().partitions
        except Unreachable:
            # Certainly not written: the client is to look for the leader again.
            self._fail(places, request, NOBODY_LEADS)
        except OutcomeUnknown:
            # Perhaps written: a code after which idempotent producers send again under the same sequence.
            self._fail(places, request, ErrorCode.request_timed_out)
        else:
            has_failed = False
            for place, sent, got in zip(places, request.partitions, partitions, strict=True):
                code = self._code(place, client_code(got.error_code))
                has_failed = has_failed or bool(code)
                self._results[place] = ProducedPartition(
                    sent.partition,
                    code,
                    got.base_offset,
                    got.log_append_time_ms,
                    got.log_start_offset,
                    got.error_message or None,
                    self._current_leader(sent.topic_id, sent.partition) if code in LEADER_ERRORS else None,
                    [(error.batch_index, error.message) for error in got.record_errors] if code else (),
                )
            if not has_failed:
                return
        self._open_gaps(places)

    def _code(self, place: Place, code: ErrorCode) -> ErrorCode:
        """What the client is told: of what is refused behind another batch, what it was told of that one."""
        gaps, body = self._request.client.gaps, self._request.body
        if not code and place in self._behind:
            gaps.close(body, (place,))
        elif code is ErrorCode.out_of_order_sequence_number and place in self._behind | gaps.behind(body):
            gaps.refuse_behind(body, (place,))
            self._refused_behind.add(place)
            self._is_behind_gap = True
            return gaps.code
        return code

    def _fail(self, places: list[Place], request: AppendBatches, code: ErrorCode) -> None:
        for place, sent in zip(places, request.partitions, strict=True):
            self._results[place] = _failed(sent.partition, code)

    def _refuse_all(self, code: ErrorCode, message: str = "") -> None:
        """All that was not refused for another reason."""
        for topic_index, topic in enumerate(self._request.body.topic_data):
            for partition_index, data in enumerate(topic.partition_data):
                place = (topic_index, partition_index)
                self._results.setdefault(place, _failed(data.index, code, message))

    def _current_leader(self, name_or_id: str | bytes, partition: int) -> tuple[int, int] | None:
        image = self._request.image
        leads = current_leader(image, name_or_id, partition)
        return None if leads is None else (self._request.shown_leader(image, leads[0]), leads[1])

    def _check_unacknowledged(self) -> None:
        """With acks=0 nothing can be answered; Kafka closes the connection so that the client learns of errors."""
        for result in self._results.values():
            if result.error_code:
                raise CloseConnection(
                    f"produce with acks=0 failed: {ErrorCode(result.error_code).name.upper()}"
                )

    def _encode(self) -> bytes:
        request, by_id = self._request, self._request.version >= TOPIC_ID_FROM
        # A topic that is named twice is answered once, one without partitions not at all, as in Kafka.
        topics: dict[str | bytes, list[ProducedPartition]] = {}
        for topic_index, topic in enumerate(request.body.topic_data):
            key = (topic.topic_id.bytes if topic.topic_id else bytes(16)) if by_id else topic.name
            for partition_index in range(len(topic.partition_data)):
                topics.setdefault(key, []).append(self._results[topic_index, partition_index])
        leaders = leader_endpoints(request, self._results)
        return encode_produce_response(
            request.version, request.header.correlation_id, list(topics.items()), leaders
        )


async def _finish(result: asyncio.Future[AppendResult], settle: Callable[[], None]) -> None:
    """Wait for `result`, which `settle` looks at, whether it is a failure or not."""
    try:
        await result
    except (Unreachable, OutcomeUnknown):
        settle()
    else:
        settle()


def leader_endpoints(request: Request, results: dict[Place, ProducedPartition]) -> list[LeaderEndpoint]:
    """The endpoints of the leaders that `results` name, so that the client need not ask (KIP-951)."""
    leaders = {result.current_leader[0] for result in results.values() if result.current_leader}
    if not leaders:
        return []
    brokers = request.brokers(request.image)
    return [LeaderEndpoint(*brokers[leader]) for leader in sorted(leaders) if leader in brokers]


def _attributes(records: bytes | None) -> int:
    """The flags of the first batch; 0 where it is cut before them, which its leader will refuse."""
    return records[_ATTRIBUTES_AT] if records is not None and len(records) > _ATTRIBUTES_AT else 0


def is_sequenced(records: bytes | memoryview) -> bool:
    """Whether the first batch is of an idempotent producer: its id is not negative."""
    return len(records) > PRODUCER_ID_AT and records[PRODUCER_ID_AT] < _NEGATIVE


def _failed(partition: int, code: ErrorCode, message: str = "") -> ProducedPartition:
    return ProducedPartition(partition, code, -1, -1, -1, message or None)


HANDLER = Handler(
    api_key=0,
    versions=(3, 13),
    handle=handle,
    unanswered=NOBODY_LEADS,
    advertised_from=0,
    lacks="Transactional batches are refused until transactions are served.",
)
