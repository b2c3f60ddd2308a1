"""Many connections at once, each of which does little: long polls; and, for `groups`, the members of one group.

Requests are written by hand to plain sockets, since a thousand whole clients would measure themselves.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import io
import struct
import sys
import time
from typing import Any, Final

POLL_WAIT_MS: Final = 500
CONNECTS_AT_ONCE: Final = 100

FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 1, 10, 11, 12, 14, 68
VERSIONS: Final = {
    FETCH: 11,
    FIND_COORDINATOR: 2,
    JOIN_GROUP: 5,
    HEARTBEAT: 3,
    SYNC_GROUP: 3,
    CONSUMER_GROUP_HEARTBEAT: 1,
}
FLEXIBLE: Final = frozenset({CONSUMER_GROUP_HEARTBEAT})
"""Their headers have tagged fields; those of the others' versions have none."""


@functools.cache
def _codec(api_key: int) -> tuple[Any, Any, Any]:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    request = load_request_schema(api_key, VERSIONS[api_key])
    response = load_response_schema(api_key, VERSIONS[api_key])
    return request, entity_writer(request), entity_reader(response)


def request_of(api_key: int) -> Any:
    """The class of its requests, in the version that is used here."""
    return _codec(api_key)[0]


class RawConnection:
    """One connection with one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> RawConnection:
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, api_key: int, **fields: Any) -> Any:
        request, write, _ = _codec(api_key)
        body = io.BytesIO()
        write(body, request(**fields))
        return await self.ask_encoded(api_key, body.getvalue())

    async def ask_encoded(self, api_key: int, body: bytes) -> Any:
        """The decoded answer to an encoded request body."""
        answer = await self.exchange(frame_of(api_key, body))
        decoded, _ = _codec(api_key)[2](answer, 5 if api_key in FLEXIBLE else 4)
        return decoded

    async def exchange(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


def frame_of(api_key: int, body: bytes) -> bytes:
    """A whole frame, length and request header included."""
    header = struct.pack(">hhih", api_key, VERSIONS[api_key], 1, 5) + b"bench"
    if api_key in FLEXIBLE:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


async def open_many(host: str, port: int, count: int) -> list[RawConnection]:
    found: list[RawConnection] = []
    while len(found) < count:
        some = min(CONNECTS_AT_ONCE, count - len(found))
        found += await asyncio.gather(*(RawConnection.open(host, port) for _ in range(some)))
    return found


def long_polls(host: str, port: int, topic: str, connections: int, seconds: float) -> dict[str, float]:
    """Every connection waits in a Fetch for records that do not come, again and again."""
    import uvloop

    request, write, _ = _codec(FETCH)
    module = sys.modules[request.__module__]
    body = io.BytesIO()
    partition = module.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1 << 20
    )
    write(
        body,
        request(
            replica_id=-1,
            max_wait=datetime.timedelta(milliseconds=POLL_WAIT_MS),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(module.FetchTopic(topic=topic, partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        ),
    )
    frame = frame_of(FETCH, body.getvalue())

    async def poll(connection: RawConnection, end: float, late_ms: list[float]) -> None:
        while (asked := time.perf_counter()) < end:
            await connection.exchange(frame)
            late_ms.append((time.perf_counter() - asked) * 1000 - POLL_WAIT_MS)

    async def run() -> dict[str, float]:
        started = time.perf_counter()
        opened = await open_many(host, port, connections)
        connect_seconds = time.perf_counter() - started
        late_ms: list[float] = []
        began = time.perf_counter()
        await asyncio.gather(*(poll(each, began + seconds, late_ms) for each in opened))
        elapsed = time.perf_counter() - began
        for each in opened:
            each.close()
        late_ms.sort()
        return {
            "polls": len(late_ms),
            "seconds": elapsed,
            "connect_seconds": connect_seconds,
            "late_p50": late_ms[len(late_ms) // 2],
            "late_p99": late_ms[int(len(late_ms) * 0.99)],
        }

    return uvloop.run(run())
