"""Streams to peers that say nothing, take nothing, or go away: who fails how, and what is held meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.links.errors import DeadlinePassed, NotSentInTime, OutcomeUnknown, Unreachable
from barnabas.rpc import limits
from barnabas.rpc.answers import AnswerQueue, PeerStalled
from barnabas.rpc.coalesced import CoalescedStream


@dataclass
class Message:
    """A request or a result."""

    name: str = ""
    correlation_id: int = 0


@dataclass
class Frame:
    requests: list[str]
    hurried: list[int]
    withdrawn: list[int]


@dataclass
class FakeCall:
    """The gRPC call: what was written, and whatever a test answers. `takes_writes` False: a full socket.

    `has_ended`: the peer is gone, and what it has written before is still to be read.
    """

    frames: list[Frame] = field(default_factory=list)
    takes_writes: bool = True
    has_ended: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    async def wait_for_connection(self) -> None:
        await self.is_open.wait()

    async def write(self, frame: Frame) -> None:
        if self.has_ended:
            raise asyncio.InvalidStateError("RPC already finished.")
        self.frames.append(frame)
        if not self.takes_writes:
            await asyncio.Event().wait()

    def cancel(self) -> None:
        """The stream gave the call up."""

    async def __aiter__(self) -> AsyncIterator[list[Message]]:
        while (answer := await self.answers.get()) is not None:
            yield answer


class Peer:
    """A stream to a fake peer that is connected and silent until a test answers."""

    def __init__(self, *, unanswered_bytes_max: int = 1_000_000, is_ordered: bool = False) -> None:
        self.call = FakeCall()
        self.call.is_open.set()
        self.stream: CoalescedStream[Message, Message] = CoalescedStream(
            lambda: self.call,
            self._frame,
            lambda results: results,
            name="test",
            unanswered_bytes_max=unanswered_bytes_max,
            is_ordered=is_ordered,
        )

    @staticmethod
    def _frame(requests: Sequence[Message], hurried: Sequence[int], withdrawn: Sequence[int]) -> Frame:
        return Frame([request.name for request in requests], list(hurried), list(withdrawn))

    @property
    def written(self) -> list[str]:
        return [name for frame in self.call.frames for name in frame.requests]

    async def answer(self, *futures_ids: int) -> None:
        await self.call.answers.put([Message("result", number) for number in futures_ids])
        await settle()

    async def end(self) -> None:
        await self.call.answers.put(None)
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    made = Peer()
    yield made
    await made.stream.close()


async def test_of_a_stream_that_breaks_only_what_was_written_is_unknown(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 10)
    first = peer.stream.send(Message("first"), 8)
    await settle()
    second = peer.stream.send(Message("second"), 8)
    await settle()
    assert peer.written == ["first"], "the second waits for the first one's answer"
    await peer.end()
    with pytest.raises(OutcomeUnknown):
        await first
    with pytest.raises(Unreachable):
        await second
    assert (peer.stream.unanswered_bytes, peer.stream.waiting_requests) == (0, 0)


async def test_what_a_peer_answered_before_it_ended_the_stream_is_read(peer: Peer) -> None:
    answered = peer.stream.send(Message("answered"))
    await settle()
    peer.call.has_ended = True
    not_taken = peer.stream.send(Message("not taken"))
    await settle()
    await peer.answer(1)
    assert (await answered).name == "result"
    await peer.end()
    with pytest.raises(OutcomeUnknown):
        await not_taken


async def test_a_peer_that_takes_nothing_and_ends_nothing_is_given_up(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LAST_RESULTS_SECONDS_MAX", 0)
    peer.call.has_ended = True
    with pytest.raises(OutcomeUnknown):
        await peer.stream.send(Message("not taken"))


async def test_the_bytes_on_their_way_to_a_silent_peer_are_bounded(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 100)
    futures = [peer.stream.send(Message(str(number)), 30) for number in range(10)]
    await settle()
    assert peer.written == ["0", "1", "2"]
    await peer.answer(1)
    assert peer.written == ["0", "1", "2", "3"], "an answer makes room for one more"
    await peer.answer(2, 3, 4)
    assert len(peer.written) == 7
    await peer.answer(5, 6, 7)
    await peer.answer(8, 9, 10)
    assert [(await future).correlation_id for future in futures] == list(range(1, 11))
    assert peer.stream.unanswered_bytes == 0


async def test_one_request_larger_than_the_bound_travels_alone(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 100)
    peer.stream.send(Message("large"), 5_000)
    await settle()
    small = peer.stream.send(Message("small"), 1)
    await settle()
    assert peer.written == ["large"]
    await peer.answer(1, 2)
    await settle()
    await peer.answer(2)
    assert (await small).correlation_id == 2


async def test_what_is_sent_after_the_end_hears_of_the_end(peer: Peer) -> None:
    await peer.stream.close()
    with pytest.raises(Unreachable, match="the connection is closed"):
        await peer.stream.send(Message("late"), 1)


async def test_more_than_the_peers_share_is_refused_at_once() -> None:
    peer = Peer(unanswered_bytes_max=100)
    peer.stream.send(Message("taken"), 99)
    await settle()
    with pytest.raises(Unreachable, match="too much is waiting"):
        await peer.stream.send(Message("refused"), 2)
    assert not peer.stream.is_full
    peer.stream.send(Message("fits"), 1)
    assert peer.stream.is_full
    await settle()
    await peer.answer(1, 2)
    large = peer.stream.send(Message("larger than the share, but alone"), 500)
    await settle()
    await peer.answer(3)
    assert (await large).correlation_id == 3
    await peer.stream.close()


async def test_a_written_request_whose_time_is_over_still_counts_until_its_answer(peer: Peer) -> None:
    future = peer.stream.send(Message("asked"), 70, timeout_seconds=60)
    await settle()
    peer.stream._on_passed([1])
    with pytest.raises(DeadlinePassed):
        await future
    assert peer.stream.is_silent
    assert peer.stream.unanswered_bytes == 70, "it still lies in some buffer"
    await peer.answer(1)
    assert (peer.stream.unanswered_bytes, peer.stream.is_silent) == (0, False)


async def test_a_request_that_was_not_sent_in_time_is_never_sent(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 10)
    peer.stream.send(Message("first"), 10)
    late = peer.stream.send(Message("late"), 10, timeout_seconds=60)
    third = peer.stream.send(Message("third"), 10)
    await settle()
    peer.stream._on_passed([2])
    with pytest.raises(NotSentInTime):
        await late
    assert peer.stream.queued_bytes == 10
    await peer.answer(1)
    await peer.answer(3)
    assert (await third).correlation_id == 3
    assert peer.written == ["first", "third"]


async def test_where_order_matters_nothing_overtakes_a_request_that_was_not_sent_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 10)
    peer = Peer(is_ordered=True)
    sent = [
        peer.stream.send(Message(text), 10, timeout_seconds=60)
        for text in ("first", "second", "late", "behind", "too")
    ]
    await settle()
    peer.stream._on_passed([3, 4])
    for future in sent[2:]:
        with pytest.raises(NotSentInTime):
            await future
    assert peer.stream.queued_bytes == 10
    await peer.answer(1)
    await peer.answer(2)
    assert (await sent[1]).correlation_id == 2
    assert peer.written == ["first", "second"]
    assert peer.stream.waiting_requests == 0
    await peer.stream.close()


async def test_a_deadline_passes_by_itself_while_the_peer_is_being_connected() -> None:
    peer = Peer()
    peer.call.is_open.clear()
    async with asyncio.timeout(10):
        with pytest.raises(NotSentInTime):
            await peer.stream.send(Message("asked"), timeout_seconds=0)
    await peer.stream.close()


async def test_a_peer_that_takes_nothing_is_given_up(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALLED_WRITE_SECONDS_MAX", 0.0)
    peer.call.takes_writes = False
    async with asyncio.timeout(10):
        with pytest.raises(OutcomeUnknown, match="takes nothing"):
            await peer.stream.send(Message("asked"), 1)


async def test_a_withdrawn_request_is_forgotten_here_and_there(peer: Peer) -> None:
    request = Message("long poll")
    future = peer.stream.send(request, 5, timeout_seconds=60)
    await settle()
    peer.stream.withdraw(request)
    peer.stream.withdraw(request)
    await settle()
    assert future.cancelled()
    assert peer.call.frames[1:] == [Frame([], [], [1])]
    assert (peer.stream.waiting_requests, peer.stream.unanswered_bytes) == (0, 0)
    assert len(peer.stream._deadlines) == 0
    await peer.answer(1)  # it crossed the withdrawal


async def test_a_request_withdrawn_before_it_was_sent_is_not_sent(peer: Peer) -> None:
    peer.call.is_open.clear()
    kept, dropped = Message("kept"), Message("dropped")
    peer.stream.send(dropped, 5)
    future = peer.stream.send(kept, 5)
    peer.stream.withdraw(dropped)
    peer.call.is_open.set()
    await settle()
    await peer.answer(2)
    assert (await future).correlation_id == 2
    assert peer.call.frames == [Frame(["kept"], [], [])]


async def test_a_request_is_hurried_once_it_was_written(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_IN_FLIGHT_BYTES_MAX", 10)
    waiting = Message("waits for room")
    peer.stream.send(Message("first"), 10)
    peer.stream.send(waiting, 10)
    await settle()
    peer.stream.hurry(waiting)
    await settle()
    assert peer.call.frames == [Frame(["first"], [], [])]
    await peer.answer(1)
    assert peer.call.frames[1:] == [Frame(["waits for room"], [2], [])]


async def test_a_caller_that_goes_on_alone_marks_the_peer_until_it_speaks(peer: Peer) -> None:
    request = Message("asked")
    peer.stream.send(request)
    await settle()
    peer.stream.give_up(request)
    assert peer.stream.is_silent
    await peer.answer(1)
    assert not peer.stream.is_silent
    peer.stream.give_up(request)
    assert not peer.stream.is_silent, "it was answered"


async def test_a_peer_that_takes_no_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALLED_WRITE_SECONDS_MAX", 0.0)
    queue: AnswerQueue[int] = AnswerQueue(list, bytes_max=10)
    queue.put(1)

    async def write(_: list[int]) -> None:
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        with pytest.RaisesGroup(PeerStalled):
            await queue.write_forever(write)
