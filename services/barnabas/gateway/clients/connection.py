"""One client connection: bytes in, frames, requests started in order, answers out in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Mapping
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final, cast

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget
from barnabas.gateway.clients.connection_metrics import ConnectionMetrics
from barnabas.gateway.clients.held import Reason
from barnabas.gateway.clients.later import Forwarded, Later, Pieces
from barnabas.gateway.clients.reading_pause import ReadingPause, peer_has_ended
from barnabas.gateway.clients.slot import Frame, Slot
from barnabas.gateway.clients.turns import Turn, Turns
from barnabas.gateway.clients.unread_answers import UnreadAnswers
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.request import Client
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.logs import StructuredLogger, get_logger
from barnabas.wire.frames import FrameError, FrameReader
from barnabas.wire.requests import MalformedRequest

PRODUCE_KEY: Final = b"\0\0"

Serve = Callable[[Frame, Client, RequestTimes, Turn], Awaitable[Pieces]]
AnswerAtOnce = Callable[[Frame, float, Client], bytes | list[bytes | memoryview] | Later | None]
"""(frame, when it was read, client) to its whole answer, for a request that needs no task; None for all others."""
Forward = Callable[[Frame, Client, RequestTimes], Forwarded | None]
"""Hands over a Produce request, unless it must go the general way. Raises CloseConnection."""


class CloseConnection(Exception):
    """The request cannot be answered: the connection must end. The message is logged, with the request's identity."""

    def __init__(self, reason: str, identity: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__(reason)
        self.identity = identity


class Connection(asyncio.Protocol):
    """Owns a socket, the frames not yet started and the answers not yet sent.

    As in Kafka, a request starts when the one before it has been answered, so that a client's pipelined requests take
    effect in its order. Produce requests alone overlap, as waiting for each answer would cost a round trip a batch;
    they take turns in handing their batches over. Answers leave in the order of the requests. While nothing is under
    way, a request that needs no task (`answers_at_once`) is answered on the spot, or as soon as its wait is over.
    """

    def __init__(
        self,
        make_client: Callable[[asyncio.Transport], Client],
        serve: Serve,
        budget: ByteBudget,
        on_lost: Callable[[Connection], None],
        frame_bytes_max: int,
        requests: RequestMetrics,
        pauses: ConnectionMetrics,
        answers_at_once: Mapping[bytes, AnswerAtOnce] = MappingProxyType({}),
        unread: UnreadAnswers | None = None,
        forward: Forward | None = None,
        waiting_keys: Container[bytes] = (),
    ) -> None:
        """`answers_at_once` by the API key that a frame begins with; `waiting_keys`: see `Handler.may_wait`."""
        self._make_client = make_client
        self._serve = serve
        self._budget = budget
        self._unread = UnreadAnswers() if unread is None else unread
        self._on_lost = on_lost
        self._requests = requests
        self._pauses = pauses
        self._answers_at_once = answers_at_once
        self._forward = forward
        self._waiting_keys = waiting_keys
        self._reader = FrameReader(frame_bytes_max)
        self._frames: deque[tuple[Frame, float]] = deque()
        """Frames and when they were read, by perf_counter."""
        self._slots: deque[Slot] = deque()
        self._turns = Turns()
        self._unfinished = self._unfinished_others = 0
        self._unanswered_bytes = 0
        self.partial_bytes = 0
        """Of a frame that has not come whole; they count for the gateway's budget as well."""
        self._running: set[asyncio.Future[Any]] = set()
        """The tasks of requests, and the results of those that were forwarded."""
        self._later: Later | None = None
        """The answer that is waited for without a task; then nothing else is under way."""
        self._writable = True
        self._unread_bytes = 0
        """Of the answers that the client does not take: they count until all of them have left."""
        self._writing_paused_at = 0.0
        self._reading = ReadingPause(pauses.reading)
        self._draining = False
        self._closing = False
        self._abort: asyncio.TimerHandle | None = None
        """Set while the connection is being closed."""
        self._now: Callable[[], float]
        """The event loop's time, in seconds."""
        self.last_activity = 0.0
        self._last_bytes_at = 0.0
        self._transport: asyncio.Transport
        self._client: Client
        self._log: StructuredLogger = get_logger("gateway.connection")

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._client = self._make_client(self._transport)
        del self._make_client  # it may know this connection, which is to go with its last use
        self._client.held.on_mute = self._on_mute
        self._log = self._log.bind(connection=self._client.connection_id, client=self._client.host)
        self._now = asyncio.get_running_loop().time
        self.last_activity = self._last_bytes_at = self._now()

    def data_received(self, data: bytes) -> None:
        if self._closing or self._draining:
            return
        self.last_activity = self._last_bytes_at = self._now()
        try:
            frames = self._reader.feed(data)
        except FrameError as error:
            self._give_up(str(error))
            return
        if frames:
            received = perf_counter()
            if self._writable and not (
                self._slots or self._frames or self._reading.reason or self._client.gaps
            ):
                frames = self._write_at_once(frames, received)
                if not frames and self._writable and self._reader.buffered_bytes == self.partial_bytes:
                    return  # nothing else has changed
            for frame in frames:
                self._unanswered_bytes += len(frame)
                self._budget.take(len(frame))
                self._frames.append((frame, received))
            self._start_requests()
        self._count_partial()
        self._pause_or_resume()

    def pause_writing(self) -> None:
        self._writable = False
        self._writing_paused_at = self._pauses.writing.start(perf_counter())

    def resume_writing(self) -> None:
        self._writable = True
        self._give_back_unread()
        self._pauses.writing.end(self._writing_paused_at, perf_counter())
        self._send_answers()
        self._start_requests()

    def eof_received(self) -> bool:
        return False  # a client that stops sending does not want the answers either

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        if self._abort is not None:
            self._abort.cancel()
        self._client.held.close()
        self._reading.change(None, self._now())
        if not self._writable:
            self._pauses.writing.end(self._writing_paused_at, perf_counter())
        self._budget.give_back(self._unanswered_bytes + self.partial_bytes)
        self._unanswered_bytes = self.partial_bytes = 0
        self._give_back_unread()
        self._reader.clear()
        self._frames.clear()
        self._slots.clear()
        self._stop_requests()
        self._client.unsettled.clear()
        self._on_lost(self)

    # --- what the gateway calls

    @property
    def client(self) -> Client:
        """Who is at the other end."""
        return self._client

    @property
    def is_idle(self) -> bool:
        """Whether the gateway waits for the client, not the client for it."""
        return not self._writable or not (self._slots or self._frames or self._reading.reason)

    @property
    def silent_seconds(self) -> float:
        """How long nothing was read of it. Who waits to bring the rest of a frame can send on to the kernel."""
        return self._now() - self._last_bytes_at

    @property
    def unsent_bytes(self) -> int:
        """What the socket has not taken of the answers that were written."""
        return self._transport.get_write_buffer_size()

    def drain(self) -> None:
        """Start nothing more, answer what is under way, then close; what comes meanwhile is read and dropped."""
        self._draining = True
        dropped = sum(len(frame) for frame, _ in self._frames)
        self._frames.clear()
        self._unanswered_bytes -= dropped
        self._budget.give_back(dropped)
        self._pause_or_resume()
        self._close_once_drained()

    def _close_once_drained(self) -> None:
        # With an end of file the client reads its answers, then closes. To close with bytes unread would reset the
        # connection, and answers on their way with it.
        if not self._closing and all(slot.may_wait for slot in self._slots):
            self._end(self._transport.write_eof)

    def close(self) -> None:
        """Close after what is written has left, or after CLOSING_SECONDS_MAX."""
        if not self._closing:
            self._end(self._transport.close)

    def cut_off(self) -> None:
        """Close now, whatever the client has not read or sent; a stop waits for nobody any longer."""
        self.close()
        self._transport.abort()

    def _end(self, end_transport: Callable[[], None]) -> None:
        self._closing = True
        self._stop_requests()
        end_transport()
        loop = asyncio.get_running_loop()
        self._abort = loop.call_later(limits.CLOSING_SECONDS_MAX, self._transport.abort)

    def budget_has_room(self) -> None:
        """The gateway as a whole may take bytes again, or has another take the rest of its frame first."""
        self._pause_or_resume()

    def give_up_mid_frame(self) -> None:
        """Too many bytes wait for the rest of frames that does not come, that of this one among them."""
        self._give_up("the rest of a request did not come while others had to wait for it")

    def give_up_unread(self) -> None:
        """The client does not take its answers, and others have to wait for the memory that they are in."""
        self._give_up("the client does not read its answers, and too much waits for clients that do not")
        self._transport.abort()

    # --- requests

    def _write_at_once(self, frames: list[Frame], received: float) -> list[Frame]:
        """Answer the first frames, as far as that needs no waiting and the client takes it; returns the others."""
        small: list[bytes] = []
        answered = 0
        for frame in frames:
            answer_at_once = self._answers_at_once.get(frame[:2])
            answer = None if answer_at_once is None else answer_at_once(frame, received, self._client)
            if answer is None:
                break
            answered += 1
            if isinstance(answer, bytes):
                small.append(answer)
                continue
            if not isinstance(answer, list):
                self._wait_for(answer, frame, received)
                break
            # It may be large: what the client does not read of it is the most that is kept for it.
            pieces = [*small, *answer]
            self._transport.writelines(pieces)
            small = []
            if not self._writable:
                self._count_unread(_size_of(pieces))
                break
        if small:
            joined = small[0] if len(small) == 1 else b"".join(small)
            self._transport.write(joined)
            if not self._writable:
                self._count_unread(len(joined))
        return frames[answered:]

    def _wait_for(self, later: Later, frame: Frame, received: float) -> None:
        """Its answer comes by itself; nothing else is started until then."""
        slot = Slot(frame, received, self._waiting_keys, is_produce=False)
        self._unanswered_bytes += slot.held_bytes
        self._budget.take(slot.held_bytes)
        self._slots.append(slot)
        self._unfinished += 1
        self._unfinished_others += 1
        self._later = later
        later.start(slot.times, self._on_later)

    def _on_later(self, answer: Pieces) -> None:
        """The answer that was waited for; None: the request has to take the general way."""
        self._later = None
        (slot,) = self._slots
        if answer is None:
            self._start(slot)
            return
        slot.frame = b""
        slot.pieces = answer
        self._on_answer(slot)

    def _count_unread(self, answer_bytes: int) -> None:
        """The socket did not take all of an answer of this size: it counts until that has."""
        self._unread_bytes = max(answer_bytes, self.unsent_bytes)
        self._budget.take(self._unread_bytes)
        self._unread.take(self._unread_bytes, self)

    def _give_back_unread(self) -> None:
        unread, self._unread_bytes = self._unread_bytes, 0
        if unread:
            self._unread.give_back(unread, self)
            self._budget.give_back(unread)

    def _start_requests(self) -> None:
        held = self._client.held
        while self._frames and self._writable and not (self._closing or held.count or held.is_muted):
            is_produce = self._frames[0][0].startswith(PRODUCE_KEY)
            if self._unfinished and (not is_produce or self._unfinished_others or held.refusals):
                return
            frame, received = self._frames.popleft()
            slot = Slot(frame, received, self._waiting_keys, is_produce=is_produce)
            del frame  # the request is to hold its bytes no longer than it needs them
            self._slots.append(slot)
            self._unfinished += 1
            if not is_produce:
                self._unfinished_others += 1
            elif self._forward is not None and not self._turns.queue and self._is_forwarded(slot):
                continue
            else:
                slot.turn = Turn(self._turns)
            self._start(slot)

    def _is_forwarded(self, slot: Slot) -> bool:
        """Whether the request was handed over and needs no task; so it is where the connection ends, too."""
        assert self._forward is not None
        try:
            forwarded = self._forward(slot.frame, self._client, slot.times)
        except CloseConnection as error:
            self._give_up(str(error), error.identity)
            return True
        if forwarded is None:
            return False
        slot.take_frame()
        self._running.add(forwarded.result)
        forwarded.result.add_done_callback(partial(self._on_result, slot, forwarded))
        return True

    def _on_result(self, slot: Slot, forwarded: Forwarded, result: asyncio.Future[Any]) -> None:
        """There is a result for a request that was forwarded, or the connection has ended."""
        self._running.discard(result)
        if self._closing or result.cancelled():
            return
        slot.pieces = forwarded.answer()
        if slot.pieces is None:
            self._start(slot, forwarded)
        else:
            self._on_answer(slot)

    def _start(self, slot: Slot, forwarded: Forwarded | None = None) -> None:
        task = asyncio.get_running_loop().create_task(self._run(slot, forwarded))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, slot: Slot, forwarded: Forwarded | None) -> None:
        try:
            if forwarded is None:
                slot.pieces = await self._serve(slot.take_frame(), self._client, slot.times, slot.turn)
            else:
                slot.pieces = await forwarded.finish()
        except CloseConnection as error:
            self._give_up(str(error), error.identity)
            return
        except MalformedRequest as error:
            self._give_up(str(error))
            return
        except asyncio.CancelledError:
            # By something inside: of a connection that ends it is no news.
            self._give_up("a request was cancelled")
            raise
        except Exception as error:
            # Its answer will never come, nor could any behind it leave.
            if not self._closing:
                self._log.exception("connection closed", reason=f"{type(error).__name__}: {error}")
                self.close()
            return
        finally:
            slot.turn.pass_on()
        self._on_answer(slot)

    def _on_answer(self, slot: Slot) -> None:
        slot.is_done = True
        if slot.pieces is not None and not self._closing and self._slots[0] is not slot:
            self._hold(slot, _size_of(slot.pieces))
        self._unfinished -= 1
        self._unfinished_others -= not slot.is_produce
        self._send_answers()
        self._start_requests()
        if self._client.held.refusals:
            self._pause_or_resume()  # the next one has started

    def _hold(self, slot: Slot, answer_bytes: int) -> None:
        """The answer has to wait for those before it."""
        slot.held_bytes += answer_bytes
        self._unanswered_bytes += answer_bytes
        self._budget.take(answer_bytes)

    def _send_answers(self) -> None:
        sent = perf_counter()
        while self._slots and self._slots[0].is_done and self._writable and not self._closing:
            slot, written = self._slots.popleft(), sent
            if isinstance(slot.pieces, bytes):
                self._transport.write(slot.pieces)
            elif slot.pieces is not None:
                self._transport.writelines(slot.pieces)
            if slot.pieces is not None and not self._writable:
                self._count_unread(_size_of(slot.pieces))
            self._unanswered_bytes -= slot.held_bytes
            self._budget.give_back(slot.held_bytes)
            sent = perf_counter()
            slot.times.left_at = self._now()
            self._requests.observe(slot.times, written, sent)
        if self._draining:
            self._close_once_drained()
        self._pause_or_resume()

    # --- limits

    def _count_partial(self) -> None:
        partial = self._reader.buffered_bytes
        more = partial - self.partial_bytes
        self.partial_bytes = partial
        if more > 0:
            self._budget.take(more)
            if partial > limits.MID_FRAME_BYTES_FREE:
                self._budget.mid_frame.join(self)
        elif more:
            self._budget.give_back(-more)
            self._budget.mid_frame.leave(self)  # its frame is whole

    def _why_not_read(self) -> Reason | None:
        held = self._client.held
        if self._draining:
            return None
        if held.is_muted:
            return Reason.MUTED
        if not self._writable:
            return Reason.ANSWERS_UNREAD
        unanswered = len(self._slots) + len(self._frames)
        if not unanswered:
            # A connection that waits for nothing may always send its next request, or the gateway could never drain.
            # The rest of a large one has to wait until others have brought theirs.
            if self.partial_bytes <= limits.MID_FRAME_BYTES_FREE or not self._budget.is_exhausted:
                return None
            return None if self._budget.mid_frame.is_first(self) else Reason.GATEWAY_BYTES
        if held.count:
            return Reason.NODE_FULL
        if held.refusals and self._unfinished:
            return Reason.NOBODY_LEADS  # one burst may be read before it is refused
        if self._unanswered_bytes > limits.CONNECTION_IN_FLIGHT_BYTES_MAX:
            return Reason.CONNECTION_BYTES
        if unanswered > limits.CONNECTION_IN_FLIGHT_REQUESTS_MAX:
            return Reason.CONNECTION_REQUESTS
        return Reason.GATEWAY_BYTES if self._budget.is_exhausted else None

    def _pause_or_resume(self) -> None:
        if self._closing:
            return
        was, reason = self._reading.reason, self._why_not_read()
        if reason is was:
            return
        self.last_activity += self._reading.change(reason, self._now())  # it could not show that it is used
        if was is None:
            self._transport.pause_reading()
        elif reason is None:
            self._transport.resume_reading()

    def _on_mute(self) -> None:
        """It is muted, or no longer. What a client has given up meanwhile, it may have sent again to somebody else."""
        if not self._client.held.is_muted and peer_has_ended(self._transport):
            self.close()
        self._start_requests()
        self._pause_or_resume()

    def _give_up(self, reason: str, identity: Mapping[str, object] = MappingProxyType({})) -> None:
        if not self._closing:
            self._log.bind(**identity).warning("connection closed", reason=reason)
            self.close()

    def _stop_requests(self) -> None:
        """The connection ends: nothing more is handed over, and nobody waits for an answer."""
        self._turns.close()
        if self._later is not None:
            self._later.stop()
            self._later = None
        self._budget.mid_frame.leave(self)
        for running in self._running:
            running.cancel()
        self._client.resends.close()


def _size_of(answer: bytes | list[bytes | memoryview]) -> int:
    return len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
