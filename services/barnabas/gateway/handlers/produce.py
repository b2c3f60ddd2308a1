"""Produce (key 0): record batches into partitions.

v3 is the first with record format v2, v5 adds the log start offset, v8 error messages, v10 the current leader
(KIP-951), v11 may answer TRANSACTION_ABORTABLE, v12 leaves it to the leaders to add their partitions to the transaction
(KIP-890), v13 has topic ids instead of names. Versions 0 to 2 are shown in ApiVersions but not served, as in Kafka 4:
librdkafka decides on compression from them (KAFKA-18659).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from barnabas.gateway import limits
from barnabas.gateway.answers.produced import Produced, places_of
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.resends import Resend
from barnabas.gateway.clients.sequence_gaps import Place
from barnabas.gateway.clients.unsettled import NOTHING_FAILED, Partition
from barnabas.gateway.inside.storage_codes import client_code
from barnabas.gateway.produce_batches import (
    known_code,
    leader_of,
    named_partitions,
    refusal_of,
    topic_of,
    transaction_of,
)
from barnabas.gateway.produce_elsewhere import ProduceElsewhere
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import SENT_AGAIN, ErrorCode
from barnabas.kernel.tracing import current_traceparent
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.links.storage_messages import AppendBatches
from barnabas.messages.storage_pb2 import AppendRequest, AppendResult, PartitionAppend, PartitionAppendResult
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import NOBODY_LEADS
from barnabas.records.batch import is_sequenced

_SENT_AGAIN: Final = SENT_AGAIN | {ErrorCode.request_timed_out, ErrorCode.unknown_topic_id}
"""Failures after which a client sends the batch again under the same sequence: also that its time was over and that
nobody knows the topic's id, where no log may have seen the batch. What a log has against the batch, it remembers. What
ends its transaction (INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_ABORTABLE) leaves no gap: the client aborts
it, and whatever of it is behind the batch never counts.
"""


async def handle(request: Request) -> Answer:
    now = asyncio.get_running_loop().time()
    return await _Produce(request, request.client.held.refusals, now).run()


def resume(
    request: Request,
    result: asyncio.Future[AppendResult],
    batches: AppendBatches,
    image: MetadataImage,
    began: float,
    order: int,
    behind_failed: Container[Partition],
) -> Callable[[], Awaitable[bytes | None]]:
    """Go on with a request whose only batch was handed over by `image` and failed: that opens its gap, or gives it its
    place among what is sent on, before this returns. It `began` by the event loop's time, as number `order`;
    `behind_failed` as in `unsettled.Settle`.

    Returns what gives the answer. Raises CloseConnection.
    """
    produce = _Produce(request, refusals_before=0, began=began)  # or it would not have been handed over so
    produce.settle(result, batches, [(0, 0)], image, order, None, behind_failed)
    return partial(produce.finish, result)


class _Produce:
    """One produce request on its way: owns the results gathered so far, by place in the request."""

    def __init__(self, request: Request, refusals_before: int, began: float) -> None:
        """`refusals_before` are those in a row of its client's when it began."""
        self._request = request
        self._refusals_before = refusals_before
        self._began = began
        self._until = began + max(0, milliseconds(request.body.timeout)) / 1000
        """When its client's time is over."""
        self._resends: dict[object, Resend] = {}
        """By the result that refused it, or the request that was not handed over."""
        self._results = Produced(request)
        self._transaction = transaction_of(request.version, request.body)
        self._is_behind_gap = False
        self._behind: frozenset[Place] = frozenset()
        """What is handed over behind a batch that was refused long before."""
        self._refused_behind: set[Place] = set()
        """What of it its leader refused for that."""
        self._elsewhere = ProduceElsewhere(request)
        self._waited_seconds = 0.0
        """For what came before it to be sent on."""

    async def run(self) -> bytes | None:
        self._prepare()
        client, turn = self._request.client, self._request.turn
        if not turn.has_come:
            await turn.wait()
        # What was refused by now, and is sent on, comes before this request.
        self._waited_seconds = await client.resends.wait_until_empty(client.unsettled.settle_all, self._until)
        sends = self._hand_over()
        turn.pass_on()
        with self._request.wait:
            if len(sends) == 1:
                await sends[0]
            elif sends:
                await asyncio.gather(*sends)
        return await self.finish()

    async def finish(self, failure: asyncio.Future[AppendResult] | None = None) -> bytes | None:
        """The answer, once every place has its result, or could have but for a `failure` that was not followed yet."""
        if failure is not None:
            await self._follow(failure)
        await self._back_off()
        failed = list(self._results.failures().values())
        for code in failed:
            self._request.times.count_error(code)
        if self._request.body.acks == 0:
            if failed:  # Kafka closes the connection, so that the client learns of it
                raise CloseConnection(f"produce with acks=0 failed: {failed[0].name.upper()}")
            return None
        return self._results.encode(self._elsewhere.throttle_time_ms)

    def _prepare(self) -> None:
        """Refuse what is not to be handed over. What is done before the turn has come may take its time."""
        refusal = refusal_of(self._request.body)
        if refusal is not None:
            self._results.refuse_all(*refusal)

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
            self._results.refuse_all(gaps.code)
            return []
        if gaps:
            self._behind = gaps.behind(self._request.body, self._results)
        if client.resends:  # its time is over: were it written now, nobody would be told
            self._results.refuse_all(NOBODY_LEADS)
        sends = self._send()
        if self._results:
            self._open_gaps(places_of(self._request.body))
        return sends

    def _send(self, resend: Resend | None = None) -> list[Any]:
        """Queue the batches on their leaders' streams; returns what waits for the results.

        Of a `resend` only what was refused is sent, and what finds no leader yet stays in it.
        """
        image = self._request.image  # of this moment: until its turn came the request may have waited
        elsewhere = self._elsewhere if resend is None and self._elsewhere.is_sent_away else None
        if resend is not None:
            resend.image = image
        requests: dict[int, AppendBatches] = {}
        places: dict[int, list[Place]] = {}
        sizes: dict[int, int] = {}
        for topic_index, topic in enumerate(self._request.body.topic_data):
            name_or_id = topic_of(self._request.version, topic)
            for partition_index, data in enumerate(topic.partition_data):
                place = (topic_index, partition_index)
                if place in self._results or (resend is not None and place not in resend.refused):
                    continue  # it was refused, or is taken already
                found = leader_of(image, self._request.version, name_or_id, data)
                if elsewhere and not isinstance(found, ErrorCode) and elsewhere.refuses(image, found.leader):
                    found = NOBODY_LEADS
                if resend is not None and found is NOBODY_LEADS:
                    continue
                if isinstance(found, ErrorCode):
                    if found is NOBODY_LEADS:
                        self._results.refuse_unled(place, name_or_id, data.index)
                    else:
                        self._results.refuse(place, data.index, found)
                    if resend is not None:
                        self._request.client.unsettled.on_failed([resend.refused.pop(place)], resend.order)
                    continue
                leader, topic_id = found.leader, found.topic_id
                if leader not in requests:
                    requests[leader] = self._new_request(is_resent=resend is not None)
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
        sends = [
            self._append(image, node, requests[node], sizes[node], places[node], resend) for node in requests
        ]
        return [send for send in sends if send is not None]

    def _open_gaps(self, places: Iterable[Place]) -> None:
        """What failed and will be sent again has to come before what is behind it on this connection."""
        failed = {
            place: code
            for place, code in self._results.failures(places).items()
            if place not in self._refused_behind and code in _SENT_AGAIN
        }
        if failed:
            code = next(iter(failed.values()))
            self._request.client.gaps.open(self._request.body, code, failed)
            self._check_gaps()

    def _check_gaps(self) -> None:
        """Close the connection over the limit. The gaps are open by then: nothing gets past them until it is closed."""
        if self._request.client.gaps.are_too_many:
            raise CloseConnection(
                f"idempotent producers lack refused batches in more than {limits.SEQUENCE_GAPS_MAX} partitions"
            )

    def _new_request(self, *, is_resent: bool) -> AppendBatches:
        body = self._request.body
        passed_seconds = self._waited_seconds
        if is_resent:
            passed_seconds = asyncio.get_running_loop().time() - self._began
        timeout_ms = max(0, milliseconds(body.timeout) - int(passed_seconds * 1000))
        return AppendBatches(
            AppendRequest(
                acks=body.acks,
                timeout_ms=timeout_ms,
                traceparent=current_traceparent(),
                transaction=self._transaction,
            )
        )

    def _append(
        self,
        image: MetadataImage,
        node_id: int,
        request: AppendBatches,
        size_bytes: int,
        places: list[Place],
        resend: Resend | None,
    ) -> Any:
        """Queue the request on the leader's stream (before the first await) and return what waits for the result.

        None when it failed already: the leader is fenced, or has too much to answer, or has just become the leader.
        """
        connection = self._request.parts.links.storage(node_id)
        if connection is None:
            self._fail(places, request, NOBODY_LEADS, resend)
            return None
        # The node keeps the time-out too, if it lives; that it does is not for the client to wait for.
        seconds = max(0, request.head.timeout_ms) / 1000 + limits.ANSWER_GRACE_SECONDS
        stream = connection.appends
        client, partitions = self._request.client, request.partitions
        unsettled = client.unsettled
        order = client.resends.next_order() if resend is None else resend.order
        is_behind = unsettled.are_elsewhere(partitions, stream, image)
        if resend is None and is_behind and self._resend(request, places[0], image, order):
            # What its former leader still has is to come first: it is sent on behind that.
            self._resends[request].refused.update(zip(places, partitions, strict=True))
            return self._follow(request)
        if resend is not None:
            is_behind = is_behind or unsettled.are_before(partitions, order, counts_sent_on=False)
        if is_behind or not stream.has_room(size_bytes):
            # Certainly not written: the client is to look for the leader again.
            self._fail(places, request, NOBODY_LEADS, resend)
            return None
        if resend is not None:
            for place in places:
                del resend.refused[place]
        result = stream.send(request, size_bytes, seconds)
        settle = partial(self.settle, result, request, places, image, order, resend)
        if any(map(is_sequenced, request.records)):
            unsettled.add(result, settle, stream, image, partitions, order, is_sent_on=resend is not None)
            settle = partial(unsettled.settle, result)
        finishing = self._finish(result, settle)
        return self._held(finishing) if stream.is_full else finishing

    async def _finish(self, result: asyncio.Future[AppendResult], settle: Callable[[], None]) -> None:
        """Wait for `result`, which `settle` looks at, whether it is a failure or not; then send on what may be."""
        with contextlib.suppress(Unreachable, OutcomeUnknown):
            await result
        settle()
        await self._follow(result)

    async def _follow(self, result: object) -> None:
        """Send on what was refused with `result`, if that may be, as soon as it is known who leads instead.

        What was handed over before it for the same partitions comes back first; what of it was refused is taken first.
        """
        resend = self._resends.pop(result, None)
        if resend is None:
            return
        client, loop = self._request.client, asyncio.get_running_loop()
        places = list(resend.refused)
        # Those behind wait no longer than this one may.
        letting_go = loop.call_at(resend.until, self._let_go, resend)
        try:
            while resend.refused and not resend.is_over and loop.time() < resend.until:
                await client.resends.wait_for_turn(resend)
                await resend.wait_for_other_leader(self._request.parts.metadata.wait_until)
                client.unsettled.settle_all()
                if resend.is_over or not client.resends.is_first(resend):
                    continue  # one that was handed over before it has come back
                if self._is_behind_failed(resend):
                    break
                await asyncio.gather(*self._send(resend))
        finally:
            letting_go.cancel()
            self._give_up(resend)
            self._open_gaps(places)
            client.resends.leave(resend)

    def _let_go(self, resend: Resend) -> None:
        """Its time is over. What is on its way is in its leader's hands; what is not is refused, before anything that
        is behind it goes.
        """
        self._give_up(resend)
        with contextlib.suppress(CloseConnection):  # who follows it looks again
            self._open_gaps(places_of(self._request.body))
        self._request.client.resends.leave(resend)

    def _give_up(self, resend: Resend, code: ErrorCode = NOBODY_LEADS) -> None:
        """What is left of it goes back to its client."""
        for place, sent in resend.refused.items():
            if code is NOBODY_LEADS:
                self._results.refuse_unled(place, sent.topic_id, sent.partition)
            else:
                self._results.refuse(place, sent.partition, code)
        self._request.client.unsettled.on_failed(resend.refused.values(), resend.order)
        resend.refused.clear()

    def _is_behind_failed(self, resend: Resend) -> bool:
        """Whether what came before it was refused for good, and so is what is left of it."""
        gaps, body = self._request.client.gaps, self._request.body
        others = {place for place in places_of(body) if place not in resend.refused}
        if not gaps or not gaps.is_behind(body, others, fills=False):
            return False
        self._is_behind_gap = True
        self._give_up(resend, gaps.code)
        return True

    async def _held(self, finishing: Coroutine[Any, Any, None]) -> None:
        """The node has its share to answer: no more is read of connections that write to it."""
        with self._request.client.held:
            await finishing

    async def _back_off(self) -> None:
        """Clients whose partitions have no leader back off; one that does not is made to, or it would keep us busy."""
        held = self._request.client.held
        if self._elsewhere.is_sent_away:
            return  # what it asks is to be read at once
        if self._is_behind_gap:
            # It was under way when the one before it was refused, and says nothing new of its client: counted, each
            # of five would have it wait longer, and the last be answered when there has long been a leader.
            return
        if not self._results.are_all(NOBODY_LEADS):
            held.on_taken()
            return
        parts, size_bytes = self._request.parts, self._request.times.request_bytes
        # Was it under way when another one was refused, for another partition perhaps? So it is where a node that led
        # many hands over, and no sign of a client that does not back off.
        is_told_already = held.refusals > self._refusals_before
        seconds = max(
            0.0 if is_told_already else held.next_pause_seconds(named_partitions(self._request)),
            parts.refusal_pace.pause_seconds(size_bytes, parts.clock.monotonic()),
        )
        body = self._request.body
        seconds = min(seconds, max(0, milliseconds(body.timeout)) / 1000 + limits.ANSWER_GRACE_SECONDS)
        if body.acks:
            held.mute(seconds)
        elif seconds > 0:
            await asyncio.sleep(seconds)  # it gets no answer, but the end of its connection

    def settle(
        self,
        result: asyncio.Future[AppendResult],
        request: AppendBatches,
        places: list[Place],
        image: MetadataImage,
        order: int,
        resend: Resend | None = None,
        behind_failed: Container[Partition] = NOTHING_FAILED,
    ) -> None:
        """Take over the result of what went to one leader by `image`, as number `order` of its client. What failed
        opens its gap now, before anything else runs, or takes its place among what is sent on.
        """
        try:
            partitions = result.result().partitions
            if len(partitions) != len(places):
                raise OutcomeUnknown("the node answers for other partitions than it was asked for")
        except Unreachable:
            # Certainly not written: the client is to look for the leader again.
            self._fail(places, request, NOBODY_LEADS, resend)
        except OutcomeUnknown:
            # Perhaps written: a code after which idempotent producers send again under the same sequence.
            self._fail(places, request, ErrorCode.request_timed_out, resend)
        else:
            is_sent_on = resend is not None
            for place, sent, got, records in zip(
                places, request.partitions, partitions, request.records, strict=True
            ):
                code = self._code(place, known_code(self._request.version, client_code(got.error_code)))
                is_early = self._came_too_early(code, sent, order, is_sent_on=is_sent_on)
                if is_early:
                    code = NOBODY_LEADS  # so that it comes again, with us or with its client
                is_behind = (sent.topic_id, sent.partition) in behind_failed
                if not is_behind and self._may_be_sent_on(code, got, records, resend):
                    resend = resend or self._resend(result, place, image, order)
                    if resend is not None:
                        resend.refused[place] = sent
                        continue
                self._results.take(place, sent, got, code, "" if is_early else got.error_message)
        codes = self._results.failures(places)
        failed = [sent for place, sent in zip(places, request.partitions, strict=True) if place in codes]
        self._request.client.unsettled.on_failed(failed, order)
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

    def _may_be_sent_on(
        self, code: ErrorCode, got: PartitionAppendResult, records: bytes | memoryview, resend: Resend | None
    ) -> bool:
        """What is in no log, or known by its sequence where it is."""
        if resend is not None and resend.is_over:
            return False
        return code is NOBODY_LEADS and (got.never_appended or is_sequenced(records))

    def _came_too_early(
        self, code: ErrorCode, sent: PartitionAppend, order: int, *, is_sent_on: bool
    ) -> bool:
        """Before what is to come first, which was sent on since; or may be, as nobody has heard yet what came of it:
        also of what was sent on, if others go on by now.
        """
        client = self._request.client
        return code is ErrorCode.out_of_order_sequence_number and (
            client.unsettled.are_before((sent,), order, counts_sent_on=True)
            or (not is_sent_on and client.resends.may_come_too_early(order))
        )

    def _resend(self, result: object, place: Place, image: MetadataImage, order: int) -> Resend | None:
        """For what `result` refuses at `place`: to be sent on. None where the client is to be told at once.

        What comes behind a gap is not sent on: who knows where its forerunners are is the client.
        """
        client, now = self._request.client, asyncio.get_running_loop().time()
        until = min(now + limits.RESEND_SECONDS_MAX, self._until)
        if client.gaps or place in self._behind | self._refused_behind or until <= now:
            return None
        self._request.times.is_resent = True
        joined = self._resends[result] = client.resends.join(order, image, until)
        return joined

    def _fail(
        self, places: list[Place], request: AppendBatches, code: ErrorCode, resend: Resend | None = None
    ) -> None:
        """What is to be sent on stays so where nobody leads now."""
        by_place = zip(places, request.partitions, strict=True)
        if resend is not None and not resend.is_over and code is NOBODY_LEADS:
            resend.refused.update(by_place)
        else:
            for place, sent in by_place:
                self._results.refuse(place, sent.partition, code)


HANDLER = Handler(
    api_key=0,
    versions=(3, 13),
    handle=handle,
    unanswered=NOBODY_LEADS,
    advertised_from=0,
)
