"""Produce requests of one connection reach the storage nodes in its order, however long each has to be prepared."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from gateway_harness import FakeStream, Gateway, decode_answer, node_record, topic_records
from produce_connection import EITHER_WAY, PRODUCE, VERSION, Preparing, appended, produce_frame, settle

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import RefusalPace
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.held import Held
from barnabas.gateway.dispatch import Dispatcher
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Answer, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.errors import OutcomeUnknown, Unreachable
from barnabas.messages.storage_pb2 import AppendResult, PartitionAppendResult


@pytest.fixture(autouse=True)
def _no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody takes is refused without a pause, and goes to nobody else (see `test_resends.py`)."""
    monkeypatch.setattr(limits, "RESEND_SECONDS_MAX", 0.0)
    monkeypatch.setattr(Held, "next_pause_seconds", lambda *_: 0.0)
    monkeypatch.setattr(RefusalPace, "pause_seconds", lambda *_: 0.0)


async def test_what_is_prepared_first_waits_for_what_came_first() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(2)
    await run.prepared(3)
    assert (list(run.preparing), run.sent) == ([1, 2, 3], [])
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 2), (1, 3)]
    for name in (3, 2):
        await run.appended(1, name)
    assert run.answers() == [], "answers overlap as well, and leave in order"
    await run.appended(1, 1)
    assert run.answers() == [(0, 1), (0, 2), (0, 3)]
    assert run.budget.used_bytes == 0


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3, 4))))
async def test_the_order_holds_in_whatever_order_requests_are_prepared(order: tuple[int, ...]) -> None:
    run = Preparing()
    await run.produce(1, 2, partitions=(0, 1))
    await run.produce(3, 4, partitions=(1, 0))
    for name in order:
        await run.prepared(name)
    for node in (1, 2):
        assert [name for at, name in run.sent if at == node] == [1, 2, 3, 4]


async def test_one_partition_waits_for_another_of_the_same_connection() -> None:
    """The order is that of the connection: simple, and Kafka's."""
    run = Preparing()
    await run.produce(1)
    await run.produce(2, partitions=(1,))
    await run.prepared(2)
    assert run.sent == []
    await run.prepared(1)
    assert run.sent == [(1, 1), (2, 2)]


async def test_a_request_that_fails_while_it_is_prepared_lets_the_next_go_on() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(3)
    await run.prepared(2, KafkaError(ErrorCode.topic_authorization_failed))
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 3)]
    await run.appended(1, 1)
    await run.appended(1, 3)
    assert run.answers() == [(0, 1), (ErrorCode.topic_authorization_failed, -1), (0, 3)]


async def test_a_fault_of_ours_lets_the_next_go_on() -> None:
    run = Preparing()
    await run.produce(1, 2)
    await run.prepared(2)
    await run.prepared(1, RuntimeError("a bug"))
    assert run.sent == [(1, 2)]


async def test_a_request_that_ends_the_connection_takes_those_behind_it_along() -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    await run.prepared(2)
    await run.prepared(1, CloseConnection("it cannot be answered"))
    assert run.transport.closed
    assert (run.sent, run.cancelled) == ([], [3]), "2 waited for its turn, 3 was being prepared"
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.budget.used_bytes, run.connection._running) == ([], 0, set())


@pytest.mark.parametrize("ready", [(), (2,), (2, 3), (3,)])
async def test_a_client_that_closes_while_requests_are_prepared_has_nothing_sent(
    ready: tuple[int, ...],
) -> None:
    run = Preparing()
    await run.produce(1, 2, 3)
    for name in ready:
        await run.prepared(name)
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.budget.used_bytes, run.connection._running) == ([], 0, set())


async def test_a_client_that_closes_at_the_moment_a_turn_comes_has_nothing_sent() -> None:
    run = Preparing()
    await run.produce(1, 2)
    await run.prepared(2)
    run.preparing[1].set_exception(KafkaError(ErrorCode.invalid_record))
    await asyncio.sleep(0)  # 1 has passed its turn on, 2 has been woken and not run yet
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, run.connection._running) == ([], set())


async def test_unacknowledged_requests_keep_their_order_and_fail_with_the_connection() -> None:
    run = Preparing()
    await run.produce(1, 2, 3, acks=0)
    await run.prepared(2)
    assert run.sent == []
    await run.prepared(1)
    assert run.sent == [(1, 1), (1, 2)]
    await run.appended(1, 1, ErrorCode.message_too_large)
    assert run.transport.closed
    assert (run.sent, run.cancelled, run.transport.written) == ([(1, 1), (1, 2)], [3], [])


async def test_what_a_closed_connection_still_prepares_is_not_sent() -> None:
    """Even if it does not listen to its cancellation."""
    run = Preparing()
    stubborn: list[asyncio.Task[Any]] = []

    async def handle(request: Request) -> Answer:
        stubborn.append(asyncio.ensure_future(HANDLERS[PRODUCE].handle(request)))
        return await asyncio.shield(stubborn[-1])

    async def prepare(request: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await handle(request)
        raise AssertionError

    run._handle = prepare  # type: ignore[method-assign]
    handlers = {PRODUCE: replace(HANDLERS[PRODUCE], handle=prepare)}
    run.connection._serve = Dispatcher(handlers, run.gateway.parts, RequestMetrics()).serve
    await run.produce(1)
    run.connection.connection_lost(None)
    await settle()
    assert (run.sent, [each.cancelled() for each in stubborn]) == ([], [True])


async def test_other_requests_are_in_nobodys_way() -> None:
    gateway = Gateway()
    gateway.node(1, FakeStream(lambda _: AppendResult(partitions=[PartitionAppendResult(base_offset=3)])))
    frame = produce_frame(1, (0,), -1)
    for _ in range(2):
        pieces = await gateway.dispatcher.serve(frame, gateway.client)
        assert isinstance(pieces, bytes)
        answer = decode_answer(PRODUCE, VERSION, pieces)
        assert answer.responses[0].partition_responses[0].base_offset == 3


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Unreachable("the stream broke"), ErrorCode.not_leader_or_follower),
        (OutcomeUnknown("the stream broke"), ErrorCode.request_timed_out),
        (appended(-1, ErrorCode.not_leader_or_follower), ErrorCode.not_leader_or_follower),
    ],
    ids=["not sent", "perhaps written", "refused"],
)
async def test_what_starts_at_the_moment_a_batch_fails_does_not_leave_before_it(
    outcome: Exception | AppendResult, code: ErrorCode
) -> None:
    run = Preparing(prepares=False)
    await run.produce(1)
    run.receive(2)  # its task runs before that of 1 is woken
    if isinstance(outcome, Exception):
        run.appends[1, 1].set_exception(outcome)
    else:
        run.appends[1, 1].set_result(outcome)
    await settle()
    assert (run.sent, run.answers()) == ([(1, 1)], [(code, -1), (code, -1)])
    await run.produce(1, 2)
    assert run.sent == [(1, 1)] * 2 + [(1, 2)], "sent again, in order"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Unreachable("the stream broke"), ErrorCode.not_leader_or_follower),
        (OutcomeUnknown("the stream broke"), ErrorCode.request_timed_out),
        (appended(-1, ErrorCode.not_leader_or_follower), ErrorCode.not_leader_or_follower),
    ],
    ids=["not sent", "perhaps written", "refused"],
)
async def test_what_is_read_at_the_moment_a_batch_fails_does_not_leave_before_it(
    outcome: Exception | AppendResult, code: ErrorCode
) -> None:
    run = Preparing(prepares=False, forwards=True)
    await run.produce(1)
    if isinstance(outcome, Exception):
        run.appends[1, 1].set_exception(outcome)
    else:
        run.appends[1, 1].set_result(outcome)
    run.receive(2)  # before anybody was told of the failure
    await settle()
    assert (run.sent, run.answers()) == ([(1, 1)], [(code, -1), (code, -1)])
    await run.produce(1, 2)
    assert run.sent == [(1, 1)] * 2 + [(1, 2)], "sent again, in order"


async def test_what_was_under_way_behind_a_refused_batch_makes_nobody_wait_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, muted = Preparing(prepares=False), list[float]()
    monkeypatch.setattr(Held, "mute", lambda _, seconds: muted.append(seconds))
    await run.produce(1)
    run.receive(2)
    run.receive(3)
    run.appends[1, 1].set_result(appended(-1, ErrorCode.not_leader_or_follower))
    await settle()
    refused = (ErrorCode.not_leader_or_follower, -1)
    assert (run.answers(), len(muted)) == ([refused] * 3, 1), "once, for the one that nobody took"


async def test_what_is_plain_does_not_overtake_what_is_still_prepared() -> None:
    run = Preparing(forwards=True)
    await run.produce(1, partitions=(0, 1))
    await run.produce(2)
    assert run.sent == []
    await run.prepared(1)
    await run.prepared(2)
    assert run.sent == [(1, 1), (2, 1), (1, 2)]


async def test_of_a_lost_connection_nothing_is_answered_and_no_result_is_waited_for() -> None:
    run = Preparing(forwards=True)
    await run.produce(1, 2)
    assert (run.sent, run.preparing) == ([(1, 1), (1, 2)], {})
    run.appends[1, 1].set_exception(OutcomeUnknown("the stream broke"))
    run.connection.connection_lost(None)
    await settle()
    assert (run.connection._running, run.budget.used_bytes, run.transport.written) == (set(), 0, [])
    assert run.appends[1, 2].cancelled(), "the stream keeps nothing for it"


@EITHER_WAY
async def test_a_batch_that_failed_holds_up_what_is_behind_it_while_other_leaders_still_append(
    forwards: bool,
) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1, partitions=(0, 1))
    run.appends[1, 1].set_exception(Unreachable("the stream broke"))
    await settle()
    await run.produce(2)
    assert run.sent == [(1, 1), (2, 1)]
    await run.appended(2, 1)
    code = ErrorCode.not_leader_or_follower
    assert run.answers() == [(code, -1), (code, -1)]


@EITHER_WAY
async def test_what_goes_to_another_leader_waits_for_what_is_under_way_to_the_former(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1)
    await run.produce(1, partitions=(1,))
    run.gateway.metadata.apply(*topic_records("orders", [2, 2, -1]))
    await run.produce(2)
    await run.produce(2, partitions=(1,))
    await run.produce(3)
    assert run.sent == [(1, 1), (2, 1), (2, 2)], "the other partition has kept its leader"
    await run.appended(1, 1)
    await run.produce(2, 3)
    assert run.sent[3:] == [(2, 2), (2, 3)], "in order, when the client sends them again"


@EITHER_WAY
async def test_what_goes_to_a_node_that_came_back_waits_for_what_is_under_way_to_the_former_one(
    forwards: bool,
) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1)
    run.connect(1)
    run.gateway.metadata.apply(node_record(1, rack="elsewhere"))
    await run.produce(2)
    assert run.sent == [(1, 1)]
    run.appends[1, 1].set_exception(OutcomeUnknown("the stream broke"))
    await settle()
    assert [code for code, _ in run.answers()] == [
        ErrorCode.request_timed_out,
        ErrorCode.not_leader_or_follower,
    ]
    await run.produce(2)
    assert run.sent == [(1, 1)], "1 comes first"
    await run.produce(1, 2)
    assert run.sent[1:] == [(1, 1), (1, 2)]


@EITHER_WAY
async def test_who_looks_for_failures_first_does_not_end_the_wait_of_others(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1, 2)
    run.receive(3)
    run.appends[1, 2].set_result(appended(2))
    await settle()
    assert (run.sent, run.answers()) == ([(1, 1), (1, 2), (1, 3)], [])
    await run.appended(1, 1)
    await run.appended(1, 3)
    assert run.answers() == [(0, 1), (0, 2), (0, 3)]
    assert run.gateway.client.unsettled._sends == {}


@EITHER_WAY
async def test_a_lost_connection_goes_at_once_with_the_requests_that_it_had_under_way(forwards: bool) -> None:
    client = Preparing(prepares=False, forwards=forwards)
    await client.produce(0, 1)
    await client.produce(2, 3, partitions=(0, 1))
    client.prepares = True
    await client.produce(4)
    assert (len(client.sent), client.gateway.client.unsettled._sends != {}) == (6 + forwards, True)
    left = weakref.ref(client.connection)
    gc.collect()
    gc.disable()
    try:
        client.connection.connection_lost(None)
        del client.connection
        await settle()
        assert left() is None
        assert client.gateway.client.unsettled._sends == {}  # they know the records
    finally:
        gc.enable()


@EITHER_WAY
async def test_a_connection_with_too_many_gaps_is_closed(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To forget one would let pass what is behind it."""
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 2)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1, 2, partitions=(7, 8))  # there are no such partitions
    assert (run.transport.closed, len(run.answers())) == (False, 2)
    await run.produce(3, partitions=(9,))
    assert (run.transport.closed, len(run.answers())) == (True, 2)


@EITHER_WAY
async def test_what_is_refused_behind_a_gap_counts_as_well(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 2)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1, partitions=(7,))
    await run.produce(2, partitions=(7, 0, 1))
    assert (run.transport.closed, run.sent, len(run.answers())) == (True, [], 1)


@EITHER_WAY
async def test_nothing_gets_past_the_gap_that_closes_the_connection(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAPS_MAX", 0)
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1)
    run.appends[1, 1].set_result(appended(0, ErrorCode.not_leader_or_follower))
    run.receive(2, 3)
    await settle()
    assert (run.transport.closed, run.sent, run.answers()) == (True, [(1, 1)], [])


class LateBatches(Preparing):
    """A connection on which every gap was opened long before what comes next; knows what leaders are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, forwards: bool) -> None:
        monkeypatch.setattr("barnabas.gateway.limits.SEQUENCE_GAP_SECONDS", -1.0)
        super().__init__(prepares=False, forwards=forwards)
        self.told: list[bool] = []

    def _stream(self, node: int) -> Callable[..., asyncio.Future[Any]]:
        send = super()._stream(node)

        def told(request: Any, *others: Any) -> asyncio.Future[Any]:
            self.told += [each.behind_refused for each in request.partitions]
            return send(request, *others)

        return told

    def codes(self) -> list[int]:
        return [code for code, _ in self.answers()]

    async def refused(self, name: int, code: ErrorCode = ErrorCode.not_leader_or_follower) -> None:
        await self.produce(name)
        await self.appended(1, name, code)


NOT_LEADER: Final = ErrorCode.not_leader_or_follower


@EITHER_WAY
async def test_what_comes_long_after_a_refused_batch_is_left_to_its_leader(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused batch was sent again on another connection: the leader has it, and takes what follows."""
    run = LateBatches(monkeypatch, forwards=forwards)
    await run.refused(1)
    await run.produce(5)
    assert (run.sent, run.told) == ([(1, 1), (1, 5)], [False, True])
    await run.appended(1, 5)
    assert (run.codes(), bool(run.gateway.client.gaps)) == ([NOT_LEADER, 0], False)
    await run.produce(6)
    assert run.told == [False, True, False], "nothing is missing any more"


@EITHER_WAY
async def test_what_a_leader_refuses_behind_another_batch_is_sent_again_with_that(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LateBatches(monkeypatch, forwards=forwards)
    await run.refused(1)
    await run.refused(2, ErrorCode.out_of_order_sequence_number)
    assert run.codes() == [NOT_LEADER] * 2, "an error of sequence would be the end of the producer"
    assert run.gateway.client.gaps
    await run.produce(1)
    assert (run.told, bool(run.gateway.client.gaps)) == ([False, True, False], False), "it fills the gap"


@EITHER_WAY
async def test_a_log_that_has_forgotten_the_producer_refuses_only_what_may_be_under_way(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LateBatches(monkeypatch, forwards=forwards)
    await run.refused(1)
    for name in range(2, 7):
        await run.refused(name, ErrorCode.out_of_order_sequence_number)
    await run.produce(7)
    assert run.told == [False, *[True] * 5, False]


@EITHER_WAY
async def test_what_fails_otherwise_long_after_a_refused_batch_opens_its_own_gap(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LateBatches(monkeypatch, forwards=forwards)
    await run.refused(1)
    await run.refused(5, ErrorCode.not_leader_or_follower)
    await run.produce(5)
    assert run.told == [False, True, True], "1 was refused as well, and may be missing"
    await run.appended(1, 5)
    assert not run.gateway.client.gaps


@EITHER_WAY
async def test_a_partition_that_lacks_nothing_is_taken_beside_one_that_may(
    forwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LateBatches(monkeypatch, forwards=forwards)
    await run.refused(1)
    await run.produce(2, partitions=(0, 1))
    assert run.told == [False, True, False]


@EITHER_WAY
async def test_what_was_under_way_to_a_node_that_came_to_lead_in_between_is_no_error_of_sequence(
    forwards: bool,
) -> None:
    """The first came a moment too early for the new leader, the second did not; the client may not hear of that."""
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1, 2)
    await run.appended(1, 1, ErrorCode.not_leader_or_follower)
    await run.appended(1, 2, ErrorCode.out_of_order_sequence_number)
    assert [code for code, _ in run.answers()] == [NOT_LEADER] * 2
    await run.produce(1, 2)
    assert run.sent[2:] == [(1, 1), (1, 2)]


@EITHER_WAY
async def test_an_error_of_sequence_of_its_own_is_told(forwards: bool) -> None:
    run = Preparing(prepares=False, forwards=forwards)
    await run.produce(1)
    await run.appended(1, 1, ErrorCode.out_of_order_sequence_number)
    assert [code for code, _ in run.answers()] == [ErrorCode.out_of_order_sequence_number]
