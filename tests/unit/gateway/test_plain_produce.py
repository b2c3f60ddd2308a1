"""Produce requests that are answered on the spot, and those that are left to the general way."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

import pytest
from gateway_harness import FakeMetadata, small_cluster, topic_id

from barnabas.gateway.clients.connection import Connection
from barnabas.gateway.clients.held import Held
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.plain_produce import PlainProduces
from barnabas.links.local_storage import Placed
from barnabas.messages.storage_pb2 import AppendTransaction
from barnabas.records.record import encode_batch
from barnabas.wire.produce import ProducedPartition, encode_produce_response

BATCH = encode_batch([(1, b"k", b"v", ())])
OF_A_TRANSACTION = BATCH[:22] + bytes([BATCH[22] | 0x10]) + BATCH[23:]
CORRELATION_ID = 77


class FakeNode:
    """A storage node in the gateway's process, which takes what is for the partitions in `led`."""

    def __init__(self) -> None:
        self.led = {(topic_id("orders"), 0)}
        self.taken: list[tuple[bytes, int, bytes, int]] = []
        self.transactions: list[AppendTransaction | None] = []

    def append_at_once(
        self,
        topic: bytes,
        partition: int,
        records: bytes,
        acks: int,
        transaction: AppendTransaction | None = None,
    ) -> Placed | None:
        if (topic, partition) not in self.led:
            return None
        self.transactions.append(transaction)
        self.taken.append((topic, partition, records, acks))
        return Placed(100 + len(self.taken), -1, 7)


def produce_frame(
    topic: str = "orders",
    *,
    version: int = 9,
    acks: int = -1,
    partition: int = 0,
    records: bytes = BATCH,
    transactional_id: str | None = None,
) -> bytes:
    """A plain Produce request."""
    key = topic_id(topic) if version >= 13 else bytes([len(topic) + 1]) + topic.encode()
    size = len(records) + 1
    varint = bytes([size & 0x7F | 0x80, size >> 7]) if size > 0x7F else bytes([size])
    head = struct.pack(">hhih", 0, version, CORRELATION_ID, 4) + b"mine\0"
    head += (
        b"\0" if transactional_id is None else bytes([len(transactional_id) + 1]) + transactional_id.encode()
    )
    body = struct.pack(">hi", acks, 1000) + b"\x02" + key + b"\x02" + struct.pack(">i", partition)
    return head + body + varint + records + b"\0\0\0"


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def metadata() -> Any:
    return FakeMetadata(small_cluster(), None)


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def metrics() -> RequestMetrics:
    return RequestMetrics()


@pytest.fixture
def produces(metadata: Any, node: FakeNode, metrics: RequestMetrics, faults: Faults) -> PlainProduces:
    return PlainProduces(metadata, node, metrics, faults)


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("acks", [-1, 1])
def test_it_is_answered_as_the_general_way_would(
    produces: PlainProduces, node: FakeNode, version: int, acks: int
) -> None:
    answer = produces.answer(produce_frame(version=version, acks=acks), time.perf_counter())
    topic = topic_id("orders") if version >= 13 else "orders"
    expected = encode_produce_response(
        version, CORRELATION_ID, [(topic, [ProducedPartition(0, 0, 101, -1, 7)])]
    )
    assert answer == expected
    assert node.taken == [(topic_id("orders"), 0, BATCH, acks)]


@pytest.mark.parametrize(
    "frame",
    [
        produce_frame("nobody"),
        produce_frame("orders", partition=1),
        produce_frame(acks=0),
        produce_frame(acks=2),
        produce_frame(version=8),
        produce_frame(records=b"r" * 22),
        produce_frame(records=OF_A_TRANSACTION),
        produce_frame("\udc80".encode("utf-8", "surrogateescape").decode("latin-1")),
        produce_frame()[:-1],
        b"",
    ],
    ids=[
        "unknown",
        "elsewhere",
        "acks 0",
        "acks 2",
        "old",
        "cut batch",
        "transaction without id",
        "name",
        "cut",
        "empty",
    ],
)
def test_what_needs_more_is_left_alone(produces: PlainProduces, node: FakeNode, frame: bytes) -> None:
    assert produces.answer(frame, 0.0) is None
    assert node.taken == []


@pytest.mark.parametrize("version", range(9, 14))
def test_a_batch_of_a_transaction_goes_with_what_it_belongs_to(
    produces: PlainProduces, node: FakeNode, version: int
) -> None:
    for records in (OF_A_TRANSACTION, BATCH):
        frame = produce_frame(version=version, records=records, transactional_id="tx")
        assert produces.answer(frame, 0.0) is not None
    transaction = AppendTransaction(transactional_id="tx", adds_partitions=version >= 12)
    assert node.transactions == [transaction, None]


def test_injected_faults_see_every_request(
    produces: PlainProduces, node: FakeNode, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "is_active", True)
    assert produces.answer(produce_frame(), 0.0) is None
    assert node.taken == []


def test_a_topic_made_anew_gets_its_own_records(
    produces: PlainProduces, node: FakeNode, metadata: Any
) -> None:
    from gateway_harness import topic_records

    assert produces.answer(produce_frame(), 0.0) is not None
    anew = b"another-topic-id"
    node.led = {(anew, 0)}
    assert produces.answer(produce_frame(), 0.0) is None
    metadata.apply(*topic_records("orders", [1], identity=anew))
    assert produces.answer(produce_frame(), 0.0) is not None
    assert [topic for topic, *_ in node.taken] == [topic_id("orders"), anew]


def test_the_requests_are_counted(produces: PlainProduces, metrics: RequestMetrics) -> None:
    for _ in range(3000):
        assert produces.answer(produce_frame(), time.perf_counter()) is not None
    samples = {
        (sample.name, sample.labels.get("version", sample.labels.get("le", ""))): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.labels.get("request") == "Produce"
    }
    assert samples["kafka_network_requestmetrics_requests_total", "9"] == 3000
    for stage in ("totaltimems", "requestqueuetimems", "remotetimems"):
        assert samples[f"kafka_network_requestmetrics_{stage}_count", ""] == 3000


class FakeTransport(asyncio.Transport):
    """What a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.written.append(b"".join(pieces))

    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


async def test_answers_leave_in_order_whichever_way_the_requests_took() -> None:
    """The second waits; so the third, which could be answered at once, must not overtake it."""
    from barnabas.gateway.clients.budget import ByteBudget
    from barnabas.gateway.clients.connection_metrics import ConnectionMetrics

    budget = ByteBudget(1 << 20, lambda: None)
    released = asyncio.Event()
    seen: list[bytes] = []

    def at_once(frame: bytes, *_: Any) -> bytes | None:
        seen.append(frame)
        return None if frame.endswith(b"slow") else b"<" + frame[2:] + b">"

    async def serve(frame: bytes, *_: Any) -> bytes:
        if frame.endswith(b"slow"):
            await released.wait()
        return b"(" + frame[2:] + b")"

    client: Any = type("Client", (), {"connection_id": 1, "host": "here", "held": Held(), "gaps": []})()
    connection = Connection(
        lambda _: client,
        serve,
        budget,
        lambda _: None,
        1000,
        RequestMetrics(),
        ConnectionMetrics(budget, ["PLAINTEXT"]),
        {b"\0\0": at_once},
    )
    transport = FakeTransport()
    connection.connection_made(transport)
    frames = [b"\0\0" + name for name in (b"one", b"slow", b"three")]
    connection.data_received(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    await asyncio.sleep(0)
    assert transport.written == [b"<one>"]
    assert seen == frames[:2]
    connection.data_received(struct.pack(">i", 6) + b"\0\0four")
    released.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert b"".join(transport.written) == b"<one>(slow)(three)(four)"
    connection.data_received(struct.pack(">i", 6) + b"\0\0five")
    assert transport.written[-1] == b"<five>"
    client.gaps = ["something was refused: what is behind it has to be looked at"]
    connection.data_received(struct.pack(">i", 5) + b"\0\0six")
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.written[-1] == b"(six)"


async def test_what_a_client_does_not_read_is_kept_for_it_once() -> None:
    """Of many large answers that could be given at once the next waits until the one before has left."""
    from barnabas.gateway.clients.budget import ByteBudget
    from barnabas.gateway.clients.connection_metrics import ConnectionMetrics

    budget = ByteBudget(1 << 20, lambda: None)
    seen: list[bytes] = []

    def at_once(frame: bytes, *_: Any) -> bytes | list[bytes | memoryview]:
        seen.append(frame)
        return b"<small>" if frame.endswith(b"small") else [b"<", memoryview(frame)[2:], b">"]

    async def serve(frame: bytes, *_: Any) -> bytes:
        return b"(" + frame[2:] + b")"

    class FullTransport(FakeTransport):
        def get_write_buffer_size(self) -> int:
            return 0

        def writelines(self, pieces: Any) -> None:
            super().writelines(pieces)
            connection.pause_writing()

    client: Any = type("Client", (), {"connection_id": 1, "host": "here", "held": Held(), "gaps": []})()
    connection = Connection(
        lambda _: client,
        serve,
        budget,
        lambda _: None,
        1000,
        RequestMetrics(),
        ConnectionMetrics(budget, ["PLAINTEXT"]),
        {b"\0\1": at_once},
    )
    transport = FullTransport()
    connection.connection_made(transport)
    frames = [b"\0\1" + name for name in (b"small", b"one", b"two", b"three")]
    connection.data_received(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert transport.written == [b"<small><one>"]
    assert seen == frames[:2]
    for _ in range(3):
        await asyncio.sleep(0)
    assert transport.written == [b"<small><one>"]
    connection.resume_writing()
    for _ in range(5):
        await asyncio.sleep(0)
    assert b"".join(transport.written) == b"<small><one>(two)(three)"
