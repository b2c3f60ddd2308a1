"""A Kafka client with no manners: frames over a plain socket, requests encoded and answers decoded with kio.

It sends what it is told, whole or broken, and never retries, so a test sees exactly what the gateway does.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import socket
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final, Self

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from barnabas.wire import responses
from barnabas.wire.schema import API_VERSIONS_KEY, is_flexible, response_schema

WAIT_SECONDS: Final = 20.0
CLIENT_ID: Final = b"raw"

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 18, 19, 22


def request_frame(api_key: int, version: int, body: Mapping[str, Any], correlation_id: int = 1) -> bytes:
    """A frame, without its length, for a body of plain data (see `barnabas.wire.responses` for how it is given)."""
    schema: Any = load_request_schema(api_key, version)
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, responses._builder(schema)(body))
    return request_header(api_key, version, correlation_id) + buffer.getvalue()


def request_header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    """Header version 1, or 2 where the request is flexible."""
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return header + (b"\0" if is_flexible(api_key, version) else b"")


def with_length(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


class RawConnection:
    """Owns one socket."""

    def __init__(self, port: int, seconds: float = WAIT_SECONDS) -> None:
        """No step of it takes longer than `seconds`."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._socket.sendall(data)

    def send_while_taken(self, data: bytes, *, seconds: float, bytes_max: int) -> int:
        """Send `data` again and again until nothing is taken for `seconds`; returns how many bytes were."""
        self._socket.settimeout(seconds)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < bytes_max:
                sent += self._socket.send(data[sent % len(data) :])
        self._socket.settimeout(WAIT_SECONDS)
        return sent

    def ask(self, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
        """Send a request and return the decoded answer, whose header and length are checked."""
        correlation_id = self.post(api_key, version, body)
        return self.answer(api_key, version, correlation_id)

    def post(self, api_key: int, version: int, body: Mapping[str, Any]) -> int:
        """Send a request and return its correlation id, without waiting for the answer."""
        correlation_id = next(self._correlation_ids)
        self.send(with_length(request_frame(api_key, version, body, correlation_id)))
        return correlation_id

    def answer(self, api_key: int, version: int, correlation_id: int) -> Any:
        """The next answer, which must be the one to `correlation_id`, read to its last byte."""
        frame = self.read_frame()
        assert struct.unpack_from(">i", frame) == (correlation_id,)
        offset = 5 if api_key != API_VERSIONS_KEY and is_flexible(api_key, version) else 4
        body, size = entity_reader(response_schema(api_key, version))(frame, offset)
        assert offset + size == len(frame), f"{len(frame) - offset - size} bytes follow the answer"
        return body

    def read_frame(self) -> bytes:
        """One frame, without its length; ConnectionError when the gateway closes before its end."""
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def is_closed(self, seconds: float = WAIT_SECONDS) -> bool:
        """Whether the gateway closes the connection, without a byte, within `seconds`."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(1)
        except TimeoutError:
            return False
        except ConnectionResetError:
            return True
        assert data == b"", "an answer came where none was expected"
        return True

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = self._socket.recv(count)
            if not part:
                raise ConnectionError("the gateway closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


class Topic:
    """A topic of a test's own: its name, its id, and produce and fetch by either, as the version wants it."""

    def __init__(
        self, port: int, *, partitions: int = 1, name: str = "", replication_factor: int = 1, **config: str
    ) -> None:
        self.port = port
        self.name = name or f"raw-{uuid.uuid4()}"
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
        topic = {
            "name": self.name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": configs,
        }
        with RawConnection(port) as connection:
            (created,) = connection.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000}).topics
            assert created.error_code == 0, created.error_message
            self.topic_id = created.topic_id.bytes
            deadline = time.monotonic() + WAIT_SECONDS
            while not all(self.is_readable(connection, index) for index in range(partitions)):
                assert time.monotonic() < deadline, f"{self.name} has no leaders"
                time.sleep(0.01)

    def is_readable(self, connection: RawConnection, partition: int) -> bool:
        return self.fetch(connection, 4, {partition: 0}, max_wait=0)[partition].error_code == 0

    def produce(
        self,
        connection: RawConnection,
        batches: Mapping[int, bytes | None] | list[tuple[int, bytes | None]],
        *,
        version: int = 13,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> list[Any]:
        """What became of each batch, in the order sent."""
        body = self.produce_body(batches, acks=acks, transactional_id=transactional_id)
        (topic,) = connection.ask(PRODUCE, version, body).responses
        return list(topic.partition_responses)

    def produce_body(
        self,
        batches: Mapping[int, bytes | None] | list[tuple[int, bytes | None]],
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> dict[str, Any]:
        pairs = list(batches.items()) if isinstance(batches, Mapping) else batches
        data = [{"index": partition, "records": records} for partition, records in pairs]
        topic = {"name": self.name, "topic_id": self.topic_id, "partition_data": data}
        return {
            "acks": acks,
            "timeout": 10_000,
            "transactional_id": transactional_id,
            "topic_data": [topic],
        }

    def fetch(
        self, connection: RawConnection, version: int, offsets: Mapping[int, int], **fields: Any
    ) -> dict[int, Any]:
        """A fetch without a session; the answer's partitions by index."""
        answer = connection.ask(FETCH, version, self.fetch_body(offsets, **fields))
        return self.partitions_of(answer)

    def fetch_body(
        self, offsets: Mapping[int, int], *, partition_max_bytes: int = 1 << 20, **fields: Any
    ) -> dict[str, Any]:
        partitions = [
            {
                "partition": partition,
                "fetch_offset": offset,
                "partition_max_bytes": partition_max_bytes,
                "current_leader_epoch": -1,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
            }
            for partition, offset in offsets.items()
        ]
        topic = {"topic": self.name, "topic_id": self.topic_id, "partitions": partitions}
        return {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 22,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [topic] if partitions else [],
            **fields,
        }

    @staticmethod
    def partitions_of(answer: Any) -> dict[int, Any]:
        return {part.partition_index: part for topic in answer.responses for part in topic.partitions}

    def end_offsets(self, connection: RawConnection, partitions: int) -> list[int]:
        """The high watermark of each partition."""
        asked = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}
            for index in range(partitions)
        ]
        body = {"replica_id": -1, "topics": [{"name": self.name, "partitions": asked}]}
        (topic,) = connection.ask(LIST_OFFSETS, 1, body).topics
        return [part.offset for part in topic.partitions]


def resident_kib(pid: int) -> int:
    """The memory that a process holds now."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


@contextlib.contextmanager
def connections(port: int, count: int) -> Any:
    """Many connections at once, all closed at the end."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(RawConnection(port)) for _ in range(count)]
