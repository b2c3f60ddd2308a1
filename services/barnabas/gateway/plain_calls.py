"""Requests that are one call of a coordinator in this very process, as plain calls from bytes to bytes.

The members of a large group beat, join and sync together, and producers end their transactions one after the other.
What such a request asks for is little; a task, a time-out and a dozen coroutines around it cost more. So where the
coordinator can decide at once (`links.begun`), it does, before `data_received` returns; what has to wait, for other
members or for the log, waits by function calls as well. Whatever is not so is left to the general way before anything
has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter

from barnabas.gateway import limits
from barnabas.gateway.answers.in_slices import encode_answer, encode_small
from barnabas.gateway.clients.decoded_requests import decoded_size
from barnabas.gateway.clients.later import Pieces
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.inside.coordinator_call import CoordinatorCall
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.parts import GatewayParts
from barnabas.gateway.request import Client, Handler, Request
from barnabas.gateway.request_times import RequestTimes
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.links.begun import Begun
from barnabas.links.errors import LinkError
from barnabas.wire.requests import MalformedRequest, check_body, decode_body, read_header
from barnabas.wire.responses import Body

log = get_logger("gateway.plain_calls")


class PlainCalls:
    """Owns nothing: what waits is owned by its connection."""

    def __init__(
        self, handlers: Mapping[int, Handler], parts: GatewayParts, metrics: RequestMetrics, faults: Faults
    ) -> None:
        self._calls = {key: handler for key, handler in handlers.items() if handler.call is not None}
        self._parts = parts
        self._observe = metrics.observe_at_once
        self._faults = faults

    def keys(self) -> list[bytes]:
        """What the frames begin with that may be answered here."""
        return [key.to_bytes(2) for key in self._calls]

    def answer(self, frame: bytes, received: float, client: Client) -> bytes | LaterCall | None:
        """The answer to the request in `frame`, which was read at `received` (perf_counter), or the wait for it. None,
        with nothing changed, when it must go the general way.
        """
        if self._faults.is_active:
            return None
        try:
            later = self._begin(frame, client)
            if later is None or not later.is_over:
                return later
            answer = later.encode(later.request.times)
        except (MalformedRequest, KafkaError, LinkError):
            return None
        except Exception:
            log.exception("a request cannot be answered at once")
            return None
        if answer is None:
            return later
        header, errors = later.request.header, later.request.times.errors
        self._observe(header.api_key, header.api_version, len(frame), received, errors)
        return answer

    def _begin(self, frame: bytes, client: Client) -> LaterCall | None:
        header = read_header(frame)
        handler = self._calls[header.api_key]
        call = handler.call
        if call is None or not handler.versions[0] <= header.api_version <= handler.versions[1]:
            return None
        checked = check_body(frame, header)
        if decoded_size(header.api_key, len(frame), checked.items).bytes > limits.DECODED_BYTES_FREE:
            return None
        request = Request(header, decode_body(checked, header), client, self._parts)
        message = call.message(request)
        begun = call.begin(request, message)
        return None if begun is None else LaterCall(call, request, message, begun)


class LaterCall:
    """The wait for one answer (`clients.later.Later`)."""

    __slots__ = ("_begun", "_call", "_encoding", "_large", "_message", "_on_answer", "_times", "request")

    def __init__(self, call: CoordinatorCall, request: Request, message: object, begun: Begun) -> None:
        self._call = call
        self.request = request
        self._message = message
        self._begun = begun
        self._large: Body = {}
        """An answer that is encoded in turns with others."""
        self._encoding: asyncio.Task[bytes] | None = None
        self._times: RequestTimes
        self._on_answer: Callable[[Pieces], None]

    @property
    def is_over(self) -> bool:
        """Whether what was begun has an answer."""
        return self._begun.is_over

    def encode(self, times: RequestTimes) -> bytes | None:
        """The answer, once what was begun is over; None where it is large. The errors in it are counted."""
        body = self._call.answer_begun(self.request, self._message, self._begun)
        encoded = encode_small(self.request.header, body, times)
        if encoded is None:
            self._large = body
        return encoded

    def start(self, times: RequestTimes, on_answer: Callable[[Pieces], None]) -> None:
        """See `Later`."""
        header = self.request.header
        times.api_key, times.api_version = header.api_key, header.api_version
        times.started = times.received
        times.local_seconds = perf_counter() - times.received
        self._times, self._on_answer = times, on_answer
        if self._large:
            self._encode_in_turns()
        else:
            self._begun.on_over(self._on_over)

    def _on_over(self) -> None:
        began = perf_counter()
        times = self._times
        try:
            answer = self.encode(times)
        except Exception:
            self._give_up()
            return
        times.local_seconds += perf_counter() - began
        if answer is None:
            self._encode_in_turns()
        else:
            times.answered = perf_counter()
            self._on_answer(answer)

    def _encode_in_turns(self) -> None:
        encoding = encode_answer(replace(self.request, times=self._times), self._large)
        self._encoding = asyncio.get_running_loop().create_task(encoding)
        self._encoding.add_done_callback(self._on_encoded)

    def _on_encoded(self, encoding: asyncio.Task[bytes]) -> None:
        if encoding.cancelled():
            return
        try:
            answer = encoding.result()
        except Exception:
            self._give_up()
            return
        self._times.answered = perf_counter()
        self._on_answer(answer)

    def _give_up(self) -> None:
        """A fault of ours: the general way tells the client of it."""
        log.exception("a call that was begun has no answer")
        self._on_answer(None)

    def stop(self) -> None:
        """See `Later`."""
        if self._encoding is None:
            self._begun.leave()
        else:
            self._encoding.cancel()
