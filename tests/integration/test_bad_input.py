"""Bytes that no Kafka client sends: that one connection closes with one line in the log, and nothing else happens."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    RawConnection,
    connections,
    request_frame,
    request_header,
    resident_kib,
    with_length,
)

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.kernel.errors import ErrorCode

pytestmark = pytest.mark.integration

WAIT_SECONDS = 20
SOCKET_REQUEST_MAX_BYTES = 104_857_600
QUICK_CONNECTS = 3_000
GROWTH_KIB_MAX = 8 * 1024
"""Far below what is claimed (100 MB and more), above what a busy process gains by the way."""


@pytest.fixture(autouse=True)
def unharmed(cluster: Any) -> Iterator[None]:
    """After each test every service is the process that it was, and a connection made before still works."""
    before = cluster.services()
    with RawConnection(cluster.port) as bystander:
        assert bystander.ask(API_VERSIONS, 2, {}).error_code == 0
        yield
        assert bystander.ask(API_VERSIONS, 2, {}).error_code == 0
    assert {name: service.pid for name, service in cluster.services().items()} == {
        name: service.pid for name, service in before.items()
    }
    assert all(service.restarts == 0 for service in cluster.services().values())
    cluster.wait_ready(1)


def wait_for_lines(cluster: Any, start: int, count: int) -> list[str]:
    """The lines logged from `start` on, once there are `count`; exactly that many must come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while len(cluster.log_lines(start)) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    lines: list[str] = cluster.log_lines(start)
    assert len(lines) == count, lines
    return lines


def array_of(api_key: int, version: int, claimed: int) -> bytes:
    return with_length(request_header(api_key, version) + struct.pack(">i", claimed) + bytes(20))


SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}
METADATA_FRAME = request_frame(METADATA, 9, {"topics": [{"name": "any"}]})
CLOSING: dict[str, tuple[bytes, str]] = {
    "negative length": (struct.pack(">i", -1), "frame length -1"),
    "most negative length": (struct.pack(">i", -(2**31)), "frame length -2147483648"),
    "length over the limit": (struct.pack(">i", SOCKET_REQUEST_MAX_BYTES + 1), "is not between 0 and"),
    "greatest length": (struct.pack(">i", 2**31 - 1) + b"some", "is not between 0 and"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "frame length"),
    "TLS": (bytes.fromhex("16030100c8010000c4030350") + bytes(200), "frame length"),
    "empty frame": (with_length(b""), "at least 8 bytes"),
    "cut header": (with_length(METADATA_FRAME[:7]), "at least 8 bytes"),
    "cut client id": (with_length(METADATA_FRAME[:11]), "client id length"),
    "cut body": (with_length(METADATA_FRAME[:-3]), "malformed Metadata v9"),
    "client id length": (with_length(struct.pack(">hhih", 3, 9, 1, -7)), "client id length -7"),
    "client id text": (with_length(struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xfe"), "not UTF-8"),
    "unknown api key": (with_length(struct.pack(">hhih", 999, 0, 1, -1)), "api key 999 (unknown)"),
    "negative api key": (with_length(struct.pack(">hhih", -1, 0, 1, -1)), "api key -1 (unknown)"),
    "api of brokers": (with_length(struct.pack(">hhih", 4, 0, 1, -1)), "api key 4"),
    "huge array": (array_of(METADATA, 4, 2**31 - 1), "malformed Metadata v4"),
    "huge array of topics": (array_of(CREATE_TOPICS, 4, 2**30), "malformed CreateTopics v4"),
    "huge compact array": (
        with_length(request_header(METADATA, 12) + b"\xff\xff\xff\xff\x0f" + bytes(20)),
        "malformed Metadata v12",
    ),
    "negative array": (array_of(METADATA, 4, -2), "malformed Metadata v4"),
}


@pytest.mark.parametrize(("data", "reason"), CLOSING.values(), ids=CLOSING)
def test_one_connection_closes_and_one_line_says_why(cluster: Any, data: bytes, reason: str) -> None:
    start = cluster.log_size()
    with RawConnection(cluster.port) as connection:
        connection.send(data)
        assert connection.is_closed()
    (line,) = wait_for_lines(cluster, start, 1)
    assert "WARNING gateway" in line
    assert "connection closed" in line
    assert reason in line


def test_garbage_behind_good_requests_closes_after_their_answers(cluster: Any) -> None:
    start = cluster.log_size()
    with RawConnection(cluster.port) as connection:
        good = with_length(request_frame(API_VERSIONS, 0, {}))
        connection.send(good + with_length(METADATA_FRAME[:-3]))
        assert struct.unpack_from(">i", connection.read_frame()) == (1,)
        assert connection.is_closed()
    wait_for_lines(cluster, start, 1)


def test_random_garbage(cluster: Any) -> None:
    randomness = random.Random(20_26)
    start, closed, sent = cluster.log_size(), 0, 200
    with connections(cluster.port, sent) as opened:
        for number, connection in enumerate(opened):
            garbage = randomness.randbytes(randomness.randint(12, 400))
            if number % 2:  # a right length, a real API, and then anything
                api_key = randomness.choice([key for key in HANDLERS if key not in (0, 1)])
                version = HANDLERS[api_key].versions[1]
                garbage = with_length(request_header(api_key, version) + garbage)
            else:  # claims more than there may be
                garbage = b"\x7f" + garbage
            connection.send(garbage)
        for number, connection in enumerate(opened):
            if not number % 2:
                assert connection.is_closed()
                closed += 1
                continue
            try:  # garbage may happen to be a request: then it has an answer
                connection.read_frame()
            except ConnectionError:
                closed += 1
    assert closed > sent // 2
    assert all("connection closed" in line for line in wait_for_lines(cluster, start, closed))


def test_unsupported_versions_are_answered_where_the_protocol_has_a_place(cluster: Any) -> None:
    start, closed = cluster.log_size(), 0
    for api_key, handler in HANDLERS.items():
        low, high = handler.versions
        for version in (low - 1, high + 1, 32_767, -(2**15)):
            with RawConnection(cluster.port) as connection:
                connection.send(with_length(struct.pack(">hhih", api_key, version, 77, -1)))
                try:
                    frame = connection.read_frame()
                except ConnectionError:
                    closed += 1
                    continue
                assert struct.unpack_from(">i", frame) == (77,)
                assert struct.pack(">h", ErrorCode.unsupported_version) in frame
    lines = wait_for_lines(cluster, start, closed)
    assert all("is not served" in line for line in lines)


def test_unknown_api_versions_are_answered_in_version_0(cluster: Any) -> None:
    with RawConnection(cluster.port) as connection:
        shown = {row.api_key for row in connection.ask(API_VERSIONS, 3, SOFTWARE).api_keys}
        assert shown <= set(HANDLERS)
        for version in (5, 99, 32_767):
            connection.send(with_length(struct.pack(">hhih", API_VERSIONS, version, 7, -1) + b"\0anything"))
            answer = connection.answer(API_VERSIONS, 0, 7)
            assert answer.error_code == ErrorCode.unsupported_version
            assert {row.api_key for row in answer.api_keys} == shown
        # KIP-511: the client then asks again, on the same connection.
        assert connection.ask(API_VERSIONS, 0, {}).error_code == 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", struct.pack(">i", 100), with_length(METADATA_FRAME)[:-2]],
    ids=["nothing", "half a length", "only a length", "half a frame"],
)
def test_silence_holds_up_nobody(cluster: Any, data: bytes) -> None:
    start = cluster.log_size()
    with connections(cluster.port, 50) as silent:
        for connection in silent:
            connection.send(data)
        with RawConnection(cluster.port) as other:
            assert other.ask(METADATA, 9, {"topics": []}).brokers
        assert not silent[0].is_closed(0.05)
    # A client that leaves in the midst of a frame is nothing to warn of: it happens whenever one is killed.
    wait_for_lines(cluster, start, 0)


def test_the_rest_of_half_a_frame_is_answered_when_it_comes(cluster: Any) -> None:
    with RawConnection(cluster.port) as connection:
        for byte in with_length(request_frame(API_VERSIONS, 2, {})):
            connection.send(bytes([byte]))
        assert connection.answer(API_VERSIONS, 2, 1).error_code == 0


def test_thousands_of_quick_connects(cluster: Any) -> None:
    start, pid = cluster.log_size(), cluster.service("gateway-1").pid
    for number in range(QUICK_CONNECTS):
        with socket.create_connection(("127.0.0.1", cluster.port), timeout=WAIT_SECONDS) as quick:
            if number % 3 == 0:  # gone with a reset
                quick.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif number % 3 == 1:
                quick.sendall(b"\0\0")
        if number == QUICK_CONNECTS // 3:
            before = resident_kib(pid)
    assert resident_kib(pid) - before < GROWTH_KIB_MAX
    wait_for(lambda: open_connections(cluster) < 20)
    wait_for_lines(cluster, start, 0)


def test_memory_does_not_follow_a_claimed_length(cluster: Any) -> None:
    pid = cluster.service("gateway-1").pid
    before = resident_kib(pid)
    with connections(cluster.port, 40) as claiming:
        for connection in claiming:
            connection.send(struct.pack(">i", 100_000_000) + METADATA_FRAME)
        with RawConnection(cluster.port) as other:
            assert other.ask(METADATA, 9, {"topics": []}).brokers
        assert resident_kib(pid) - before < GROWTH_KIB_MAX


def test_memory_does_not_follow_a_claimed_array(cluster: Any) -> None:
    pid = cluster.service("gateway-1").pid
    before, start = resident_kib(pid), cluster.log_size()
    for claimed in (2**31 - 1, 2**30, 2**24) * 10:
        with RawConnection(cluster.port) as connection:
            connection.send(array_of(METADATA, 4, claimed))
            assert connection.is_closed()
    assert resident_kib(pid) - before < GROWTH_KIB_MAX
    wait_for_lines(cluster, start, 30)


def test_a_client_that_never_reads_takes_no_memory(cluster: Any) -> None:
    """Requests whose answers nobody takes: the gateway stops reading, and others go on."""
    pid = cluster.service("gateway-1").pid
    request = with_length(request_frame(API_VERSIONS, 2, {}))
    with RawConnection(cluster.port) as deaf, RawConnection(cluster.port) as other:
        before = resident_kib(pid)
        sent = deaf.send_while_taken(request * 1_000, seconds=1.0, bytes_max=256 * 1024 * 1024)
        assert sent < 256 * 1024 * 1024, "the gateway took everything"
        assert other.ask(API_VERSIONS, 2, {}).error_code == 0
        assert resident_kib(pid) - before < 8 * GROWTH_KIB_MAX


def test_pipelined_requests_are_answered_in_order(cluster: Any) -> None:
    with RawConnection(cluster.port) as connection:
        kinds = [(METADATA, 9, {"topics": []}), (API_VERSIONS, 2, {}), (METADATA, 12, {"topics": []})] * 200
        posted = [(key, version, connection.post(key, version, body)) for key, version, body in kinds]
        for key, version, correlation_id in posted:
            connection.answer(key, version, correlation_id)


def test_bad_topics_say_what_to_change(cluster: Any) -> None:
    bad = {
        "partitions 0": ({"num_partitions": 0}, ErrorCode.invalid_partitions),
        "partitions -2": ({"num_partitions": -2}, ErrorCode.invalid_partitions),
        "replication 3": ({"replication_factor": 3}, ErrorCode.invalid_replication_factor),
        "a name/with a slash": ({}, ErrorCode.invalid_topic_exception),
        "": ({}, ErrorCode.invalid_topic_exception),
        "..": ({}, ErrorCode.invalid_topic_exception),
        "n" * 250: ({}, ErrorCode.invalid_topic_exception),
        "config-out-of-range": (
            {"configs": [{"name": "retention.ms", "value": "-5"}]},
            ErrorCode.invalid_config,
        ),
        "config-unknown": ({"configs": [{"name": "no.such", "value": "1"}]}, ErrorCode.invalid_config),
    }
    topics = [
        {"name": name.replace(" ", "-"), "num_partitions": 1, "replication_factor": 1, **fields}
        for name, (fields, _) in bad.items()
    ]
    with RawConnection(cluster.port) as connection:
        answer = connection.ask(CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000})
        got = {topic.name: topic.error_code for topic in answer.topics}
        assert got == {name.replace(" ", "-"): code for name, (_, code) in bad.items()}
        assert all(len(topic.error_message) > 10 for topic in answer.topics)


def open_connections(cluster: Any) -> float:
    lines = cluster.metrics().splitlines()
    name = "kafka_server_socketservermetrics_connection_count{"
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
