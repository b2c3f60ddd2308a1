"""One connection of a client of Kafka's: requests out, one behind the other, and their answers in the same order."""

from __future__ import annotations

import asyncio
import functools
import io
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from kio.index import load_request_schema
from kio.serial import entity_reader

from barnabas.wire.frames import FrameReader
from barnabas.wire.responses import body_codec
from barnabas.wire.schema import API_VERSIONS_KEY, is_flexible, response_schema

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
CREATE_TOPICS: Final = 19
INIT_PRODUCER_ID: Final = 22

API_VERSIONS_VERSION: Final = 3

FRAME_BYTES_MAX: Final = 10_000_000

_HEADER: Final = struct.Struct(">hhih")
_CORRELATION_ID: Final = struct.Struct(">i")


class Disconnected(Exception):
    """There is no answer, and nobody knows what has become of the request."""


class _Waiting(NamedTuple):
    """A request under way."""

    number: int
    read: Callable[[bytes, int], tuple[Any, int]]
    has_tags: bool
    answer: asyncio.Future[Any]
    timer: asyncio.TimerHandle


@functools.cache
def _request_codec(api_key: int, version: int) -> tuple[Callable[[Any], Any], Callable[[Any, Any], None]]:
    return body_codec(load_request_schema(api_key, version))


@functools.cache
def _response_reader(api_key: int, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
    schema: Any = response_schema(api_key, version)
    return cast(Callable[[bytes, int], tuple[Any, int]], entity_reader(schema))


def encode_request(api_key: int, version: int, number: int, client_id: str, body: Mapping[str, Any]) -> bytes:
    """A whole frame; the fields of `body` as `wire.responses` has them."""
    build, write = _request_codec(api_key, version)
    name = client_id.encode()
    with io.BytesIO() as buffer:
        buffer.write(_HEADER.pack(api_key, version, number, len(name)) + name)
        if is_flexible(api_key, version):
            buffer.write(b"\0")
        write(buffer, build(body))
        frame = buffer.getvalue()
    return _CORRELATION_ID.pack(len(frame)) + frame


class KafkaConnection(asyncio.Protocol):
    """Owner of the requests under way. What is not answered in time ends it, as it does librdkafka's."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._transport: asyncio.Transport
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self._waiting: deque[_Waiting] = deque()
        self._unsent: list[bytes] = []
        self._numbers = 0
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            (number,) = _CORRELATION_ID.unpack_from(frame)
            waiting = self._waiting.popleft()
            assert waiting.number == number, f"answer {number} to request {waiting.number}"
            waiting.timer.cancel()
            if not waiting.answer.done():
                body, _ = waiting.read(bytes(frame), 5 if waiting.has_tags else 4)
                waiting.answer.set_result(body)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc or "the broker closed the connection"))

    def send(
        self, api_key: int, version: int, body: Mapping[str, Any], seconds: float
    ) -> asyncio.Future[Any]:
        """The answer, or Disconnected. Requests are on their way in the order in which they are given."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if not self.is_open:
            answer.set_exception(Disconnected("there is no connection"))
            return answer
        self._numbers += 1
        has_tags = api_key != API_VERSIONS_KEY and is_flexible(api_key, version)
        timer = loop.call_later(seconds, self._on_timeout, api_key)
        self._waiting.append(
            _Waiting(self._numbers, _response_reader(api_key, version), has_tags, answer, timer)
        )
        self._leave_soon(api_key, version, body)
        return answer

    def send_only(self, api_key: int, version: int, body: Mapping[str, Any]) -> None:
        """What the broker does not answer; it is lost where there is no connection."""
        if self.is_open:
            self._numbers += 1
            self._leave_soon(api_key, version, body)

    def _leave_soon(self, api_key: int, version: int, body: Mapping[str, Any]) -> None:
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(encode_request(api_key, version, self._numbers, self._client_id, body))

    def _flush(self) -> None:
        """What was sent at once leaves together."""
        unsent, self._unsent = self._unsent, []
        if self.is_open:
            self._transport.writelines(unsent)

    def _on_timeout(self, api_key: int) -> None:
        self._fail(f"no answer to request {api_key}")
        self._transport.close()

    def close(self) -> None:
        if self.is_open:
            self._fail("closed")
            self._transport.close()

    def _fail(self, reason: str) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.timer.cancel()
            if not each.answer.done():
                each.answer.set_exception(Disconnected(reason))
                each.answer.exception()  # it may be that nobody looks
