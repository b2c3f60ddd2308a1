"""Fetch and ListOffsets over a real socket: sizes, waits, sessions and special timestamps, version by version."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from raw_client import FETCH, LIST_OFFSETS, RawConnection, Topic

from barnabas.kernel.errors import ErrorCode
from barnabas.records.batch import parse_header
from barnabas.records.record import decode_records, encode_batch

pytestmark = pytest.mark.integration

FETCH_VERSIONS = range(4, 19)
SESSION_VERSIONS = range(7, 19)
BATCHES, RECORDS = 4, 3
T0 = 1_700_000_000_000
EARLY_SECONDS_MAX = 0.02
"""A timer may fire this much before its time by another clock."""


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    """Four batches of three records, of about a kilobyte each; offset n was written at T0 + 10 n."""
    made = Topic(cluster.port, partitions=2)
    with RawConnection(cluster.port) as connection:
        for number in range(BATCHES):
            first = number * RECORDS
            records = [(T0 + 10 * (first + n), None, bytes(330), ()) for n in range(RECORDS)]
            (result,) = made.produce(connection, {0: encode_batch(records)})
            assert (result.error_code, result.base_offset) == (0, first)
    return made


@pytest.fixture
def connection(cluster: Any) -> Iterator[RawConnection]:
    with RawConnection(cluster.port) as opened:
        yield opened


def offsets(partition: Any) -> list[int]:
    """The offsets of all records of an answer, which is made of whole batches here."""
    data, found = partition.records or b"", []
    while data:
        found += [record.offset for record in decode_records(data[: parse_header(data).size_in_bytes])]
        data = data[parse_header(data).size_in_bytes :]
    return found


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_sizes_and_ends(connection: RawConnection, topic: Topic, version: int) -> None:
    end = BATCHES * RECORDS
    whole = topic.fetch(connection, version, {0: 0})[0]
    assert offsets(whole) == list(range(end))
    assert (whole.high_watermark, whole.last_stable_offset) == (end, end)
    middle = topic.fetch(connection, version, {0: 4}, partition_max_bytes=1)[0]
    assert offsets(middle) == [3, 4, 5], (
        "the whole batch, though the offset is in its middle and it is too large"
    )
    least = topic.fetch(connection, version, {0: 0}, max_bytes=1)[0]
    assert offsets(least) == [0, 1, 2], "the first batch, however small the limit"
    assert offsets(topic.fetch(connection, version, {0: end})[0]) == []
    for beyond in (end + 1, 2**62, -1, -5):
        partition = topic.fetch(connection, version, {0: beyond})[0]
        assert partition.error_code == ErrorCode.offset_out_of_range
        assert not partition.records
    assert topic.fetch(connection, version, {9: 0})[9].error_code == ErrorCode.unknown_topic_or_partition


def test_only_the_first_batch_of_a_request_may_be_too_large(cluster: Any, connection: RawConnection) -> None:
    two = Topic(cluster.port, partitions=2)
    batch = encode_batch([(T0, None, bytes(1000), ())])
    two.produce(connection, {0: batch, 1: batch})
    got = two.fetch(connection, 12, {0: 0, 1: 0}, max_bytes=10, partition_max_bytes=10)
    assert sorted(len(offsets(partition)) for partition in got.values()) == [0, 1]


@pytest.mark.parametrize("version", [4, 11, 18])
def test_a_fetch_waits_for_its_time_and_no_longer(
    connection: RawConnection, topic: Topic, version: int
) -> None:
    started = time.monotonic()
    partition = topic.fetch(connection, version, {1: 0}, max_wait=300)[1]
    assert 0.3 - EARLY_SECONDS_MAX <= time.monotonic() - started < 5
    assert (partition.error_code, offsets(partition)) == (0, [])
    started = time.monotonic()
    topic.fetch(connection, version, {0: 0}, max_wait=10_000, min_bytes=1)
    topic.fetch(connection, version, {0: 0, 1: 0}, max_wait=10_000, min_bytes=1_000)
    topic.fetch(connection, version, {1: 0}, max_wait=10_000, min_bytes=0)
    topic.fetch(connection, version, {0: 99, 1: 0}, max_wait=10_000, min_bytes=1_000_000)
    assert time.monotonic() - started < 5, "what there is enough of, and errors, come at once"
    started = time.monotonic()
    got = topic.fetch(connection, version, {0: 0}, max_wait=300, min_bytes=1_000_000)[0]
    assert time.monotonic() - started >= 0.3 - EARLY_SECONDS_MAX
    assert len(offsets(got)) == BATCHES * RECORDS, "when the time is over, what there is"


def test_a_waiting_fetch_hears_of_an_append(cluster: Any, connection: RawConnection) -> None:
    fresh = Topic(cluster.port)
    small = encode_batch([(T0, None, bytes(100), ())])
    waiting = connection.post(FETCH, 12, fresh.fetch_body({0: 0}, max_wait=15_000, min_bytes=2 * len(small)))
    with RawConnection(cluster.port) as other:
        fresh.produce(other, {0: small})
        assert not connection.is_closed(0.2), "half of min_bytes is not enough"
        started = time.monotonic()
        fresh.produce(other, {0: small})
    partition = fresh.partitions_of(connection.answer(FETCH, 12, waiting))[0]
    assert time.monotonic() - started < 5
    assert offsets(partition) == [0, 1]


@pytest.mark.parametrize("version", SESSION_VERSIONS)
def test_incremental_sessions(cluster: Any, version: int) -> None:
    fresh = Topic(cluster.port, partitions=3)
    batch = encode_batch([(T0, None, b"v", ())])
    with RawConnection(cluster.port) as connection:

        def fetch(session: int, epoch: int, wanted: dict[int, int], **fields: Any) -> Any:
            body = fresh.fetch_body(wanted, session_id=session, session_epoch=epoch, **fields)
            return connection.ask(FETCH, version, body)

        opened = fetch(0, 0, {0: 0, 1: 0, 2: 0})
        session = opened.session_id
        assert session > 0
        assert set(fresh.partitions_of(opened)) == {0, 1, 2}
        assert fresh.partitions_of(fetch(session, 1, {})) == {}, "no news, no partitions"
        fresh.produce(connection, {1: batch})
        news = fresh.partitions_of(fetch(session, 2, {}))
        assert {index: offsets(partition) for index, partition in news.items()} == {1: [0]}
        assert fresh.partitions_of(fetch(session, 3, {1: 1})) == {}
        forgotten = {"topic": fresh.name, "topic_id": fresh.topic_id, "partitions": [2]}
        fresh.produce(connection, {2: batch})
        assert fresh.partitions_of(fetch(session, 4, {}, forgotten_topics_data=[forgotten])) == {}
        assert fetch(session, 9, {}).error_code == ErrorCode.invalid_fetch_session_epoch
        assert fetch(session + 1, 5, {}).error_code == ErrorCode.fetch_session_id_not_found
        closed = fetch(session, -1, {0: 0})
        assert (closed.error_code, closed.session_id) == (0, 0)
        assert fetch(session, 6, {}).error_code == ErrorCode.fetch_session_id_not_found


def list_offset(connection: RawConnection, topic: Topic, version: int, timestamp: int, partition: int) -> Any:
    wanted = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
    body = {"replica_id": -1, "topics": [{"name": topic.name, "partitions": [wanted]}], "timeout": 10_000}
    (found,) = connection.ask(LIST_OFFSETS, version, body).topics
    return found.partitions[0]


NOTHING, UNSUPPORTED = -1, ErrorCode.unsupported_version
SPECIAL: list[tuple[int, int, int]] = [
    # timestamp, the first version that knows it, the offset in the topic above
    (-1, 1, BATCHES * RECORDS),
    (-2, 1, 0),
    (-3, 7, BATCHES * RECORDS - 1),
    (-4, 8, 0),
    (-5, 9, NOTHING),
    (-6, 11, NOTHING),
]


@pytest.mark.parametrize("version", range(1, 12))
def test_special_timestamps(connection: RawConnection, topic: Topic, version: int) -> None:
    for timestamp, known_from, offset in SPECIAL:
        found = list_offset(connection, topic, version, timestamp, 0)
        if version >= known_from:
            assert (found.error_code, found.offset) == (0, offset), (timestamp, found)
        else:
            assert (found.error_code, found.offset) == (UNSUPPORTED, -1), (timestamp, found)
    assert list_offset(connection, topic, version, -7, 0).error_code == UNSUPPORTED
    assert list_offset(connection, topic, version, -1, 1).offset == 0
    assert list_offset(connection, topic, version, T0, 1).offset == NOTHING


@pytest.mark.parametrize("version", range(1, 12))
def test_timestamps_are_exact_to_the_record(connection: RawConnection, topic: Topic, version: int) -> None:
    for timestamp, offset in ((0, 0), (T0, 0), (T0 + 1, 1), (T0 + 40, 4), (T0 + 41, 5), (T0 + 110, 11)):
        found = list_offset(connection, topic, version, timestamp, 0)
        assert (found.error_code, found.offset) == (0, offset)
        assert _milliseconds(found.timestamp) == T0 + 10 * offset
    beyond = list_offset(connection, topic, version, T0 + 111, 0)
    assert (beyond.error_code, beyond.offset) == (0, NOTHING)


def _milliseconds(timestamp: Any) -> int:
    return round(timestamp.timestamp() * 1000) if hasattr(timestamp, "timestamp") else int(timestamp)
