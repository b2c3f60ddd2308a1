"""Many connections at once, each of which does little: long polls, and the members of one group.

Requests are written by hand to plain sockets, since a thousand whole clients would measure themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import io
import struct
import sys
import time
from typing import Any, Final

POLL_WAIT_MS: Final = 500
CONNECTS_AT_ONCE: Final = 100
SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
HEARTBEAT_SECONDS: Final = 3.0
"""The default of every client."""

NOT_COORDINATOR_YET: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79

FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 1, 10, 11, 12, 14
VERSIONS: Final = {FETCH: 11, FIND_COORDINATOR: 2, JOIN_GROUP: 5, HEARTBEAT: 3, SYNC_GROUP: 3}
"""None is flexible: their headers have no tagged fields."""


@functools.cache
def _codec(api_key: int) -> tuple[Any, Any, Any]:
    from kio.index import load_request_schema, load_response_schema
    from kio.serial import entity_reader, entity_writer

    request = load_request_schema(api_key, VERSIONS[api_key])
    response = load_response_schema(api_key, VERSIONS[api_key])
    return request, entity_writer(request), entity_reader(response)


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
        decoded, _ = _codec(api_key)[2](answer, 4)
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
    return struct.pack(">i", len(header) + len(body)) + header + body


async def _open_many(host: str, port: int, count: int) -> list[RawConnection]:
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
        opened = await _open_many(host, port, connections)
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


class GroupMember:
    """One member of a classic group: joins, syncs, beats, and joins again when the group is rebalanced."""

    def __init__(self, connection: RawConnection, group_id: str, on_stable: Any) -> None:
        self._connection = connection
        self._group_id = group_id
        self._on_stable = on_stable
        self._member_id = ""

    async def run(self) -> None:
        while True:
            generation = await self._join()
            if generation < 0:
                continue
            self._on_stable(generation)
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                beat = await self._connection.ask(
                    HEARTBEAT,
                    group_id=self._group_id,
                    generation_id=generation,
                    member_id=self._member_id,
                    group_instance_id=None,
                )
                if beat.error_code:
                    break

    async def _join(self) -> int:
        """The generation that this member is in; -1 to try again."""
        request = _codec(JOIN_GROUP)[0]
        protocol = sys.modules[request.__module__].JoinGroupRequestProtocol(name="range", metadata=b"bench")
        joined = await self._connection.ask(
            JOIN_GROUP,
            group_id=self._group_id,
            session_timeout=datetime.timedelta(milliseconds=SESSION_MS),
            rebalance_timeout=datetime.timedelta(milliseconds=REBALANCE_MS),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        if joined.error_code == MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return await self._join()
        if joined.error_code:
            await asyncio.sleep(0.05 if joined.error_code in NOT_COORDINATOR_YET else 0)
            return -1
        self._member_id = joined.member_id
        assignments: tuple[Any, ...] = ()
        if joined.leader == self._member_id:
            entry = sys.modules[_codec(SYNC_GROUP)[0].__module__].SyncGroupRequestAssignment
            assignments = tuple(entry(member_id=m.member_id, assignment=b"some") for m in joined.members)
        synced = await self._connection.ask(
            SYNC_GROUP,
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=None,
            assignments=assignments,
        )
        return -1 if synced.error_code else int(joined.generation_id)


def group_members(host: str, port: int, group_id: str, members: int, seconds: float) -> dict[str, float]:
    """Form a group, let it be for `seconds`, add one member; returns how long each rebalance took.

    `host` and `port` are those of the group's coordinator where there is one broker.
    """
    import uvloop

    async def run() -> dict[str, float]:
        opened = await _open_many(host, port, members + 1)
        while (await opened[0].ask(FIND_COORDINATOR, key=group_id, key_type=0)).error_code:
            await asyncio.sleep(0.1)
        stable_in: dict[int, int] = {}
        all_stable: dict[int, asyncio.Event] = {members: asyncio.Event(), members + 1: asyncio.Event()}

        def on_stable(generation: int) -> None:
            stable_in[generation] = stable_in.get(generation, 0) + 1
            if stable_in[generation] in all_stable:
                all_stable[stable_in[generation]].set()

        started = time.perf_counter()
        running = [
            asyncio.create_task(GroupMember(each, group_id, on_stable).run()) for each in opened[:members]
        ]
        await all_stable[members].wait()
        formed = time.perf_counter() - started
        print("formed", flush=True)
        await asyncio.sleep(seconds)
        print("idle", flush=True)
        started = time.perf_counter()
        running.append(asyncio.create_task(GroupMember(opened[members], group_id, on_stable).run()))
        await all_stable[members + 1].wait()
        joined = time.perf_counter() - started
        for task in running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running)
        for each in opened:
            each.close()
        return {"formed_seconds": formed, "joined_seconds": joined}

    return uvloop.run(run())
