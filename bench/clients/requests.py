"""Requests by hand over plain sockets: for what a whole client would hide behind its own work."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

SMALL_RECORD_BYTES: Final = 100
CONNECT_PAUSE_SECONDS: Final = 0.002
ANSWER_SECONDS_MAX: Final = 30.0

_CLIENT_ID: Final = b"bench"


def produce_request(topic: str, record_bytes: int = SMALL_RECORD_BYTES) -> bytes:
    """A Produce v9 request of one record with acks=all, as a frame."""
    return produce_to_all({topic: [0]}, record_bytes)


def produce_to_all(partitions: Mapping[str, Iterable[int]], record_bytes: int = SMALL_RECORD_BYTES) -> bytes:
    """A Produce v9 request of one record for each of these partitions with acks=all, as a frame."""
    from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
    from kio.serial import entity_writer
    from kio.static.primitive import i32Timedelta

    from barnabas.records.record import encode_batch

    batch = encode_batch([(int(time.time() * 1000), None, os.urandom(record_bytes), ())])
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=i32Timedelta.parse(datetime.timedelta(seconds=30)),
        topic_data=tuple(
            TopicProduceData(
                name=topic,
                partition_data=tuple(PartitionProduceData(index=index, records=batch) for index in indexes),
            )
            for topic, indexes in partitions.items()
        ),
    )
    buffer = io.BytesIO()
    entity_writer(ProduceRequest)(buffer, request)
    return frame(0, 9, b"\0" + buffer.getvalue())


def produce_error(answer: bytes) -> int:
    """The error code of the one partition in a Produce v9 answer, whose length field is included."""
    # After the topic's name come the partition count, the index and the error code.
    name_bytes = answer[10] - 1
    return int.from_bytes(answer[16 + name_bytes : 18 + name_bytes], "big", signed=True)


def frame(api_key: int, version: int, rest: bytes) -> bytes:
    body = struct.pack(">hhih", api_key, version, 1, len(_CLIENT_ID)) + _CLIENT_ID + rest
    return struct.pack(">i", len(body)) + body


def first_acknowledged(host: str, port: int, topic: str, seconds_max: float) -> None:
    """Return once a record was acknowledged with acks=all by a server that is starting, in a topic made on the way.

    Tries again every 2 ms, as the most impatient of clients would; raises TimeoutError.
    """
    name = topic.encode()
    # Metadata v4 for one topic, which may be created.
    metadata = frame(3, 4, struct.pack(">ih", 1, len(name)) + name + b"\x01")
    produce = produce_request(topic)
    end = time.perf_counter() + seconds_max
    while time.perf_counter() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1) as sock:
            sock.settimeout(ANSWER_SECONDS_MAX)
            while time.perf_counter() < end:
                sock.sendall(metadata)
                read_answer(sock)
                sock.sendall(produce)
                if produce_error(read_answer(sock)) == 0:
                    return
                time.sleep(CONNECT_PAUSE_SECONDS)
        time.sleep(CONNECT_PAUSE_SECONDS)
    raise TimeoutError(f"nothing was acknowledged at {host}:{port} in {seconds_max:.0f} s")


def read_answer(sock: socket.socket) -> bytes:
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        data = sock.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        received += data
    return received


class _RequestLoop(asyncio.Protocol):
    """Sends one request after another on one connection, each after the answer to the one before."""

    def __init__(self, frame: bytes, on_answer: Callable[[float], bool]) -> None:
        self._frame = frame
        self._on_answer = on_answer
        self._buffer = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < 4 or len(self._buffer) - 4 < int.from_bytes(self._buffer[:4], "big"):
            return
        error = produce_error(self._buffer)
        self._buffer = b""
        if error:
            self.done.set_exception(RuntimeError(f"produce failed with error code {error}"))
            self._transport.close()
        elif self._on_answer(time.perf_counter() - self._sent_at):
            self._send()
        else:
            self.done.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionResetError("the server closed the connection"))


def request_rate(host: str, port: int, topic: str, connections: int, seconds: float) -> dict[str, float]:
    """Requests/s and latency of produce requests of one record, with one in flight on each of `connections`."""
    import uvloop

    async def run() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        frame = produce_request(topic)
        latencies: list[float] = []
        started = time.perf_counter()
        end = started + seconds

        def on_answer(latency: float) -> bool:
            latencies.append(latency)
            return time.perf_counter() < end

        protocols = []
        for _ in range(connections):
            _, protocol = await loop.create_connection(lambda: _RequestLoop(frame, on_answer), host, port)
            protocols.append(protocol)
        await asyncio.gather(*(protocol.done for protocol in protocols))
        elapsed = time.perf_counter() - started
        return {"requests": len(latencies), "seconds": elapsed, **percentiles_ms(latencies)}

    return uvloop.run(run())


def percentiles_ms(latencies: list[float]) -> dict[str, float]:
    """p50, p99 and p99.9 in milliseconds of latencies in seconds."""
    ordered = sorted(latencies)
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }
