"""Leaders that say nothing: every Produce and Fetch has its own limit, and a Fetch gives what the healthy ones have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_harness import FakeStream, Gateway, request_frame
from test_produce_and_fetch import append_all, fetch_all, fetch_body, fetched, produce_body, produced

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import RefusalPace, node_share_bytes
from barnabas.gateway.clients.connection import CloseConnection
from barnabas.gateway.clients.held import Held
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import DeadlinePassed, NotSentInTime
from barnabas.messages.storage_pb2 import DeleteRecordsResponse, DeleteRecordsResult

PRODUCE, FETCH, DELETE_RECORDS = 0, 1, 21
SILENT = None
"""What a FakeStream gives for a request that is never answered."""


def silent(_: Any) -> Any:
    return SILENT


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LATE_LEADER_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (DeadlinePassed("sent, no result"), ErrorCode.request_timed_out),
        (NotSentInTime("queued, not sent"), ErrorCode.not_leader_or_follower),
    ],
)
async def test_produce_is_answered_within_its_own_timeout(failure: Exception, code: ErrorCode) -> None:
    gateway = Gateway()
    frozen, healthy = FakeStream(lambda _: failure), FakeStream(append_all)
    gateway.node(1, frozen)
    gateway.node(2, healthy)
    answer = await gateway.ask(PRODUCE, 9, produce_body({"orders": [0, 1]}, timeout=1_000))
    assert produced(answer) == [[(0, code, -1), (1, 0, 71)]]
    assert frozen.timeouts == healthy.timeouts == [1.0 + limits.ANSWER_GRACE_SECONDS]


async def test_a_negative_timeout_is_none_at_all() -> None:
    gateway = Gateway()
    stream = FakeStream(append_all)
    gateway.node(1, stream)
    await gateway.ask(PRODUCE, 9, produce_body({"bills": [0]}, timeout=-5))
    assert stream.timeouts == [limits.ANSWER_GRACE_SECONDS]


async def test_a_fetch_gives_what_the_healthy_leaders_have() -> None:
    gateway = Gateway()
    frozen, healthy = FakeStream(silent), FakeStream(fetch_all)
    gateway.node(1, fetches=frozen)
    gateway.node(2, fetches=healthy)
    async with asyncio.timeout(5):
        answer = await gateway.ask(FETCH, 11, fetch_body({"orders": [0, 1]}, max_wait=600_000))
    # A fetch that names its partitions is answered for all of them, or clients take the answer for broken.
    assert fetched(answer) == [(0, ErrorCode.not_leader_or_follower, -1, b""), (1, 0, 9, b"r")]
    assert frozen.hurried == frozen.given_up == frozen.requests
    assert frozen.timeouts == [600 + limits.ANSWER_GRACE_SECONDS]


async def test_a_leader_that_was_late_before_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LATE_LEADER_SECONDS", 600.0)
    gateway = Gateway()
    frozen = FakeStream(silent)
    frozen.is_silent = True
    gateway.node(1, fetches=frozen)
    gateway.node(2, fetches=FakeStream(fetch_all))
    async with asyncio.timeout(5):
        answer = await gateway.ask(FETCH, 11, fetch_body({"orders": [0, 1]}, max_wait=600_000))
    assert [(index, records) for index, _, _, records in fetched(answer)] == [(0, b""), (1, b"r")]


async def test_a_late_leader_is_not_asked_for_more_before_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has to say is dropped when it comes late; asked again with each fetch, it would be late for ever."""
    gateway = Gateway()
    late = FakeStream(fetch_all)
    gateway.node(1, fetches=late)
    gateway.node(2, fetches=FakeStream(fetch_all))
    first = await gateway.ask(FETCH, 11, fetch_body({"orders": [0, 1]}, fetch_offset=9, session_epoch=0))
    late.answer, late.is_silent, late.waiting_requests = silent, True, 1
    late.requests.clear()
    for epoch in range(1, 4):
        news = fetch_body({"orders": [1]}, session_epoch=epoch, session_id=first.session_id, max_wait=600_000)
        async with asyncio.timeout(5):
            answer = await gateway.ask(FETCH, 11, news)
        assert fetched(answer) == [(1, 0, 9, b"r")]
    assert late.requests == []
    # It speaks again: the session, which has gone without, waits for what it has, however long the others would not.
    late.is_silent, late.waiting_requests = False, 0
    answers: list[asyncio.Future[Any]] = []

    def send(*_: Any) -> asyncio.Future[Any]:
        answers.append(asyncio.get_running_loop().create_future())
        return answers[-1]

    monkeypatch.setattr(late, "send", send)
    news = fetch_body({"orders": [0, 1]}, session_epoch=4, session_id=first.session_id, max_wait=600_000)
    asked = asyncio.ensure_future(gateway.ask(FETCH, 11, news))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not asked.done()
    (request,) = late.hurried[-1:]
    answers[0].set_result(fetch_all(request))
    async with asyncio.timeout(5):
        assert (0, 0, 9, b"r") in fetched(await asked)


async def test_where_all_leaders_are_late_all_are_asked() -> None:
    """Or the client would be answered at once, with nothing, again and again."""
    gateway = Gateway()
    streams = [FakeStream(lambda _: DeadlinePassed("nothing came")) for _ in range(2)]
    for number, stream in enumerate(streams, start=1):
        gateway.node(number, fetches=stream)
        stream.is_silent, stream.waiting_requests = True, 1
    await gateway.ask(FETCH, 11, fetch_body({"orders": [0, 1]}))
    assert [len(stream.requests) for stream in streams] == [1, 1]


async def test_a_session_asks_again_for_what_was_not_answered() -> None:
    gateway = Gateway()
    frozen, healthy = FakeStream(fetch_all), FakeStream(fetch_all)
    gateway.node(1, fetches=frozen)
    gateway.node(2, fetches=healthy)
    first = await gateway.ask(FETCH, 11, fetch_body({"orders": [0, 1]}, fetch_offset=9, session_epoch=0))
    frozen.answer = silent
    session = {"session_id": first.session_id, "max_wait": 600_000}
    news = fetch_body({"orders": [1]}, session_epoch=1, **session)
    async with asyncio.timeout(5):
        answer = await gateway.ask(FETCH, 11, news)
    assert fetched(answer) == [(1, 0, 9, b"r")], "nothing is said of the partition of which nothing is known"
    frozen.answer = fetch_all
    frozen.requests.clear()
    wanted = fetch_body({"orders": [0]}, session_epoch=2, **session)
    assert (0, 0, 9, b"r") in fetched(await gateway.ask(FETCH, 11, wanted))
    assert [p.partition for p in frozen.requests[0].partitions] == [0]


async def test_a_session_whose_only_leader_is_late_hears_nothing_new() -> None:
    gateway = Gateway()
    stream = FakeStream(fetch_all)
    gateway.node(1, fetches=stream)
    first = await gateway.ask(FETCH, 11, fetch_body({"bills": [0]}, fetch_offset=9, session_epoch=0))
    stream.answer = lambda _: DeadlinePassed("nothing came")
    body = fetch_body({}, session_epoch=1, session_id=first.session_id)
    answer = await gateway.ask(FETCH, 11, body)
    assert (answer.error_code, fetched(answer)) == (0, [])
    named = await gateway.ask(FETCH, 11, fetch_body({"bills": [0]}))
    assert fetched(named) == [(0, ErrorCode.not_leader_or_follower, -1, b"")]


@pytest.mark.parametrize("leaders", [1, 2])
async def test_a_fetch_whose_client_is_gone_is_withdrawn_everywhere(leaders: int) -> None:
    gateway = Gateway()
    streams = [FakeStream(silent), FakeStream(silent)]
    for number, stream in enumerate(streams, start=1):
        gateway.node(number, fetches=stream)
    frame = request_frame(FETCH, 11, fetch_body({"orders": list(range(leaders))}, max_wait=600_000))
    serving = asyncio.ensure_future(gateway.dispatcher.serve(frame, gateway.client))
    while not all(stream.requests for stream in streams[:leaders]):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    for stream in streams[:leaders]:
        assert stream.withdrawn == stream.requests
        assert len(stream.requests) == 1


@pytest.mark.parametrize("timeout_ms", [0, 2_500])
async def test_a_look_up_keeps_the_clients_timeout(timeout_ms: int) -> None:
    gateway = Gateway()
    node = gateway.node(1)
    node.answers["DeleteRecords"] = lambda _: DeleteRecordsResponse(results=[DeleteRecordsResult()])
    partition = {"partition_index": 0, "offset": 1}
    topics = [{"name": "bills", "partitions": [partition]}]
    await gateway.ask(DELETE_RECORDS, 2, {"topics": topics, "timeout": timeout_ms})
    assert node.calls[0][2] == timeout_ms / 1000 + limits.ANSWER_GRACE_SECONDS


async def test_a_full_node_holds_the_connections_that_write_to_it() -> None:
    gateway = Gateway()
    full, other = FakeStream(silent), FakeStream(append_all)
    full.is_full = True
    gateway.node(1, full)
    gateway.node(2, other)
    frame = request_frame(PRODUCE, 9, produce_body({"orders": [0, 1]}))
    serving = asyncio.ensure_future(gateway.dispatcher.serve(frame, gateway.client))
    while not full.requests:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert gateway.client.held.count == 1
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert gateway.client.held.count == 0
    await gateway.ask(PRODUCE, 9, produce_body({"orders": [1]}))
    assert gateway.client.held.count == 0


async def test_a_producer_that_does_not_back_off_is_made_to(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()
    full, other = FakeStream(append_all), FakeStream(append_all)
    full.room_bytes = 4
    gateway.node(1, full)
    gateway.node(2, other)
    pauses: list[float] = []
    monkeypatch.setattr(Held, "mute", lambda _, seconds: pauses.append(seconds))
    for _ in range(7):
        answer = await gateway.ask(PRODUCE, 9, produce_body({"orders": [0, 2]}))
        refused = ErrorCode.not_leader_or_follower
        assert produced(answer) == [[(0, refused, -1), (2, refused, -1)]]
    assert full.requests == []
    assert [seconds for seconds in pauses if seconds] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], "not the first time"
    pauses.clear()
    answer = await gateway.ask(PRODUCE, 9, produce_body({"orders": [0, 1]}))
    assert produced(answer) == [[(0, ErrorCode.not_leader_or_follower, -1), (1, 0, 71)]]
    assert (pauses, gateway.client.held.refusals) == ([], 0), "what a leader took ends it"


async def test_requests_that_were_under_way_together_when_a_leader_went_are_refused_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer has a request under way for each partition that a stopping node led; none of them says that it does
    not back off, and were it muted for them, it would hear late who leads the last one now.
    """
    gateway, stream, gone = Gateway(), FakeStream(), list[asyncio.Future[Any]]()

    def send(*_: Any) -> asyncio.Future[Any]:
        gone.append(asyncio.get_running_loop().create_future())
        return gone[-1]

    stream.send = send  # type: ignore[method-assign]
    gateway.node(1, stream)
    pauses: list[float] = []
    monkeypatch.setattr(Held, "mute", lambda _, seconds: pauses.append(seconds))

    async def refused(*topics: str) -> None:
        before = len(gone)
        asked = [
            asyncio.ensure_future(gateway.ask(PRODUCE, 9, produce_body({topic: [0]}))) for topic in topics
        ]
        async with asyncio.timeout(10):
            while len(gone) < before + len(asked):
                await asyncio.sleep(0)
        for result in gone[before:]:
            result.set_exception(NotSentInTime("it has gone"))
        for answer in asked:
            assert produced(await answer)[0][0][1] == ErrorCode.not_leader_or_follower

    await refused("orders", "bills", "orders")
    assert (list(filter(None, pauses)), gateway.client.held.refusals) == ([], 1)
    await refused("orders")
    assert list(filter(None, pauses)) == [0.1], "and this one came although it was refused"


async def test_of_each_partition_that_is_led_elsewhere_a_producer_hears_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its request for the next one says nothing of whether it backs off: it could not know."""
    gateway, pauses = Gateway(), list[float]()
    monkeypatch.setattr(Held, "mute", lambda _, seconds: pauses.append(seconds))
    for topic, partition in [("orders", 0), ("orders", 1), ("bills", 0)]:
        answer = await gateway.ask(PRODUCE, 9, produce_body({topic: [partition]}))
        assert produced(answer)[0][0][1] == ErrorCode.not_leader_or_follower
    assert (list(filter(None, pauses)), gateway.client.held.refusals) == ([], 3)
    await gateway.ask(PRODUCE, 9, produce_body({"orders": [1]}))
    assert list(filter(None, pauses)) == [0.1], "this one it knew of"


async def test_a_request_without_partitions_was_not_refused() -> None:
    gateway = Gateway()
    for _ in range(3):
        await gateway.ask(PRODUCE, 9, produce_body({}))
    assert (gateway.client.held.refusals, gateway.client.held.is_muted) == (0, False)


async def test_a_producer_that_asks_for_no_answer_is_made_to_back_off_before_its_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway, pauses = Gateway(), list[float]()
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("barnabas.gateway.handlers.produce.asyncio.sleep", pause)
    frame = request_frame(PRODUCE, 9, produce_body({"orders": [2]}) | {"acks": 0})
    for _ in range(3):
        with pytest.raises(CloseConnection, match="NOT_LEADER_OR_FOLLOWER"):
            await gateway.dispatcher.serve(frame, gateway.client)
    assert (pauses, gateway.client.held.is_muted) == ([0.1, 0.2], False)


def test_all_refused_records_together_have_a_pace() -> None:
    pace, second = RefusalPace(), limits.REFUSED_BYTES_PER_SECOND
    assert pace.pause_seconds(second, now=5.0) == 0.0, "whoever comes first need not wait"
    assert [pace.pause_seconds(second, now=5.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert pace.pause_seconds(second, now=8.5) == 0.5
    for _ in range(100):
        last = pace.pause_seconds(second, now=8.5)
    assert last == limits.REFUSAL_PACE_SECONDS_MAX
    assert pace.pause_seconds(1, now=60.0) == 0.0


def test_a_node_has_a_share_of_the_gateways_budget() -> None:
    assert node_share_bytes(1_000) == 1_000 // limits.NODE_ONE_PART_IN
    assert node_share_bytes(-1) > 0
