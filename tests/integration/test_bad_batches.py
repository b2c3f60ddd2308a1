"""Produce requests over a real socket: each bad batch is refused for its own partition with Kafka 4's code."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import INIT_PRODUCER_ID, PRODUCE, RawConnection, Topic

from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import CRC_START, crc_of_tail
from barnabas.records.record import decode_records, encode_batch

pytestmark = pytest.mark.integration

NOW_MS = int(time.time() * 1000)
MAX_MESSAGE_BYTES = 10_000
PRODUCE_VERSIONS = range(3, 14)


def batch(*values: bytes, **fields: Any) -> bytes:
    return encode_batch([(NOW_MS, b"key", value, ()) for value in values or (b"value",)], **fields)


def patched(form: str, at: int, *values: int, count: int = 2) -> bytes:
    """A good batch of `count` records with a header field changed and the CRC right again."""
    data = bytearray(batch(*[b"value"] * count))
    struct.pack_into(form, data, at, *values)
    struct.pack_into(">I", data, 17, crc_of_tail(bytes(data[CRC_START:])))
    return bytes(data)


GOOD = batch(b"one", b"two")
CORRUPT, INVALID = ErrorCode.corrupt_message, ErrorCode.invalid_record
REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "null": (None, INVALID),
    "empty": (b"", INVALID),
    "cut in its header": (GOOD[:40], INVALID),
    "cut in its records": (GOOD[:-1], INVALID),
    "wrong CRC": (GOOD[:-1] + b"!", CORRUPT),
    "magic 0": (patched(">b", 16, 0), INVALID),
    "magic 1": (patched(">b", 16, 1), INVALID),
    "magic 3": (patched(">b", 16, 3), CORRUPT),
    "length too small": (patched(">i", 8, 10), CORRUPT),
    "length negative": (patched(">i", 8, -1), CORRUPT),
    "length too large": (patched(">i", 8, len(GOOD)), INVALID),
    "length far too large": (patched(">i", 8, 2**31 - 1), INVALID),
    "two batches": (GOOD + GOOD, INVALID),
    "no records": (patched(">i", 57, 0), INVALID),
    "records uncounted": (patched(">i", 57, -1), INVALID),
    "more records than offsets": (patched(">i", 57, 3), INVALID),
    "more offsets than records": (patched(">i", 23, 7), INVALID),
    "negative offsets": (patched(">i", 23, -2), INVALID),
    "base offset": (patched(">q", 0, 5), INVALID),
    "control": (patched(">h", 21, 0x20), INVALID),
    "unknown codec": (patched(">h", 21, 5), ErrorCode.unsupported_compression_type),
    "producer without sequence": (patched(">q", 43, 99), INVALID),
    "too large": (batch(bytes(MAX_MESSAGE_BYTES)), ErrorCode.message_too_large),
}


@pytest.fixture
def connection(cluster: Any) -> Iterator[RawConnection]:
    with RawConnection(cluster.port) as opened:
        yield opened


@pytest.fixture(scope="module")
def wide(cluster: Any) -> Topic:
    """A topic with a partition for every bad batch, and one for good ones."""
    return Topic(cluster.port, partitions=len(REFUSED) + 1, max_message_bytes=str(MAX_MESSAGE_BYTES))


def codes(results: list[Any]) -> list[ErrorCode]:
    return [result.error_code for result in results]


def values(partition: Any) -> list[bytes | None]:
    return [record.value for record in decode_records(partition.records)] if partition.records else []


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_bad_batches_are_refused_and_good_ones_beside_them_appended(
    connection: RawConnection, wide: Topic, version: int
) -> None:
    good = len(REFUSED)
    before = wide.end_offsets(connection, good + 1)
    batches: list[tuple[int, bytes | None]] = [(good, GOOD)]
    batches += [(partition, records) for partition, (records, _) in enumerate(REFUSED.values())]
    results = wide.produce(connection, batches, version=version)
    assert [result.index for result in results] == [partition for partition, _ in batches]
    assert dict(zip(REFUSED, codes(results[1:]), strict=True)) == {
        name: code for name, (_, code) in REFUSED.items()
    }
    assert (results[0].error_code, results[0].base_offset) == (0, before[good])
    assert all(result.base_offset == -1 for result in results[1:])
    if version >= 8:
        assert all(result.error_message for result in results[1:]), "a refusal says what is wrong"
    after = wide.end_offsets(connection, good + 1)
    assert after == [*before[:good], before[good] + 2]


def test_an_unknown_partition_and_topic_touch_no_other(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    results = topic.produce(connection, [(0, GOOD), (7, GOOD), (-1, GOOD), (2**31 - 1, GOOD)], version=9)
    assert codes(results) == [0, 3, 3, 3]
    body = topic.produce_body({0: GOOD})
    body["topic_data"].append(
        {**body["topic_data"][0], "name": "no-such-topic", "topic_id": bytes(15) + b"1"}
    )
    for version, code in ((12, ErrorCode.unknown_topic_or_partition), (13, ErrorCode.unknown_topic_id)):
        answers = connection.ask(PRODUCE, version, body).responses
        assert [codes(answer.partition_responses) for answer in answers] == [[0], [code]]


def test_the_same_partition_twice_in_one_request(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    results = topic.produce(connection, [(0, GOOD), (0, patched(">b", 16, 3)), (0, batch(b"three"))])
    # Whatever a double entry means, each is answered and what is acknowledged can be read.
    assert len(results) == 3
    acknowledged = [result.base_offset for result in results if not result.error_code]
    assert acknowledged == [0, 2]
    assert topic.end_offsets(connection, 1) == [3]


def test_transactional_batches_without_an_id_are_refused_as_a_whole(
    connection: RawConnection, cluster: Any
) -> None:
    topic = Topic(cluster.port, partitions=2)
    transactional = batch(producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
    refused = ErrorCode.transactional_id_authorization_failed
    for version in PRODUCE_VERSIONS:
        results = topic.produce(connection, {0: GOOD, 1: transactional}, version=version)
        assert codes(results) == [refused, refused]
    assert topic.end_offsets(connection, 2) == [0, 0]


def test_a_transactional_id_says_nothing_of_other_batches(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    for version in PRODUCE_VERSIONS:
        results = topic.produce(connection, {0: GOOD}, version=version, transactional_id="someone")
        assert codes(results) == [0]


def test_zstd_needs_produce_7(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    zstd = batch(compression=4)
    for version in PRODUCE_VERSIONS:
        (result,) = topic.produce(connection, {0: zstd}, version=version)
        assert result.error_code == (0 if version >= 7 else ErrorCode.unsupported_compression_type)


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_unknown_acks_are_refused(connection: RawConnection, cluster: Any, acks: int) -> None:
    topic = Topic(cluster.port)
    (result,) = topic.produce(connection, {0: GOOD}, acks=acks)
    assert result.error_code == ErrorCode.invalid_required_acks
    assert topic.end_offsets(connection, 1) == [0]


def test_produce_without_acknowledgement_is_appended_and_never_answered(
    connection: RawConnection, cluster: Any
) -> None:
    topic = Topic(cluster.port)
    for version in PRODUCE_VERSIONS:
        connection.post(PRODUCE, version, topic.produce_body({0: GOOD}, acks=0))
    # The next answer on the connection is that of the next request, and it comes after the appends.
    assert topic.end_offsets(connection, 1) == [2 * len(PRODUCE_VERSIONS)]


def test_a_failure_without_acknowledgement_closes_the_connection(cluster: Any) -> None:
    topic, start = Topic(cluster.port), cluster.log_size()
    with RawConnection(cluster.port) as connection:
        connection.post(PRODUCE, 9, topic.produce_body({0: GOOD[:-1] + b"!"}, acks=0))
        assert connection.is_closed()
    (line,) = cluster.log_lines(start)
    assert "CORRUPT_MESSAGE" in line


def new_producer_id(connection: RawConnection) -> int:
    body = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    answer = connection.ask(INIT_PRODUCER_ID, 5, body)
    assert answer.error_code == 0
    return int(answer.producer_id)


class Sequenced:
    """An idempotent producer by hand: it chooses its sequence numbers and epoch itself."""

    def __init__(self, connection: RawConnection, topic: Topic) -> None:
        self._connection, self._topic = connection, topic
        self.producer_id = new_producer_id(connection)

    def send(self, sequence: int, *values: bytes, epoch: int = 0) -> tuple[ErrorCode, int]:
        records = batch(*values, producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence)
        (result,) = self._topic.produce(self._connection, {0: records})
        return result.error_code, result.base_offset


OUT_OF_ORDER = (ErrorCode.out_of_order_sequence_number, -1)


def test_sequences(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    producer = Sequenced(connection, topic)
    assert producer.send(0, b"a", b"b") == (0, 0)
    assert producer.send(2, b"c") == (0, 2)
    assert producer.send(4, b"too early") == OUT_OF_ORDER
    assert producer.send(0, b"a", b"b") == (0, 0), "a repeated batch has its first offset"
    assert producer.send(2, b"c") == (0, 2)
    assert producer.send(1, b"b") == OUT_OF_ORDER, "half of a batch is not a repeated batch"
    assert producer.send(3, b"d") == (0, 3)
    assert producer.send(1, b"wrong start", epoch=1) == OUT_OF_ORDER, "a new epoch starts at sequence 0"
    assert producer.send(0, b"e", epoch=1) == (0, 4)
    assert producer.send(4, b"old", epoch=0) == (ErrorCode.invalid_producer_epoch, -1)
    fetched = topic.fetch(connection, 12, {0: 0})[0]
    assert fetched.high_watermark == 5


def test_the_last_five_batches_are_recognised_and_an_older_one_is_out_of_order(
    connection: RawConnection, cluster: Any
) -> None:
    topic = Topic(cluster.port)
    producer = Sequenced(connection, topic)
    for sequence in range(6):
        assert producer.send(sequence, b"x") == (0, sequence)
    for sequence in range(1, 6):
        assert producer.send(sequence, b"x") == (0, sequence)
    assert producer.send(0, b"x")[0] in (
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.duplicate_sequence_number,
    )
    assert topic.end_offsets(connection, 1) == [6]


def test_what_was_appended_comes_back(connection: RawConnection, cluster: Any) -> None:
    topic = Topic(cluster.port)
    for codec in range(5):
        (result,) = topic.produce(connection, {0: batch(b"a", b"b", compression=codec)})
        assert (result.error_code, result.base_offset) == (0, 2 * codec)
    for codec in range(5):
        fetched = topic.fetch(connection, 18, {0: 2 * codec}, partition_max_bytes=1)[0]
        assert values(fetched) == [b"a", b"b"]
