"""What readers see of transactions that are open, committed and aborted, side by side; and what a scrape shows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from fake_coordinators import FakeCoordinators, Producer, apply_coordinator
from prometheus_client import CollectorRegistry
from storage_harness import NOW_MS, StorageHarness, batch, run_node, topic_config, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segments.transaction_index import AbortedTransaction
from barnabas.messages import storage_pb2 as pb
from barnabas.records.batch import iterate_headers
from barnabas.records.control import encode_marker
from barnabas.storage.transactions.transactions_metrics import LATE_MS, TransactionsCollector


async def write(producer: Producer, sequence: int) -> int:
    result = await producer.send(sequence)
    assert result.error_code == 0
    return result.base_offset


def aborted(result: pb.PartitionFetchResult) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in result.aborted_transactions]


async def latest(node: StorageHarness, producer: Producer, level: int) -> int:
    item = pb.ListOffsetsPartition(
        topic_id=producer.topic.bytes, partition=0, current_leader_epoch=-1, timestamp_ms=-1
    )
    request = pb.ListOffsetsRequest(partitions=[item], isolation_level=level)
    (result,) = (await node.connection.ListOffsets(request)).results
    return result.offset


async def test_interleaved_transactions(node: StorageHarness, producer: Producer) -> None:
    """Scenarios 42 and 44; also over a restart, with and without a clean stop."""
    second = Producer(node, producer.topic, producer_id=8)
    assert [await write(producer, 0), await write(second, 0), await write(producer, 1)] == [0, 1, 2]
    assert await producer.end(committed=False) is ErrorCode.none
    fetched = await node.fetch(producer.topic, isolation_level=1)
    assert (fetched.last_stable_offset, fetched.high_watermark, aborted(fetched)) == (1, 4, [(7, 0)])
    assert [await latest(node, producer, level) for level in (0, 1)] == [4, 1]
    await node.append(producer.topic, batch(b"plain"))
    assert await second.end() is ErrorCode.none
    assert await write(second, 1) == 6
    assert await second.end(committed=False) is ErrorCode.none
    for offset, expected in (
        (0, [(7, 0), (8, 6)]),
        (2, [(7, 0), (8, 6)]),
        (4, [(8, 6)]),
        (7, [(8, 6)]),
        (8, []),
    ):
        fetched = await node.fetch(producer.topic, offset, isolation_level=1)
        assert (fetched.last_stable_offset, aborted(fetched)) == (8, expected), offset
    assert [await latest(node, producer, level) for level in (0, 1)] == [8, 8]


async def test_only_transactions_in_what_was_read_are_listed(
    node: StorageHarness, producer: Producer
) -> None:
    """Else each fetch of a consumer that is far behind would name all that follow."""
    node.apply(topic_config("events", segment_bytes="2000"))
    for sequence in range(60):
        await write(producer, sequence)
        await producer.end(committed=False)
    for offset in (0, 37, 90):
        fetched = await node.fetch(producer.topic, offset, isolation_level=1, partition_max_bytes=500)
        headers = [header for _, header in iterate_headers(fetched.records)]
        assert len(headers) > 1
        assert fetched.last_stable_offset == 120
        data = [each.base_offset for each in headers if not each.is_control]
        assert [first for _, first in aborted(fetched)][-len(data) :] == data
        assert len(aborted(fetched)) <= len(data) + 1


@pytest.mark.parametrize("crash", [False, True])
async def test_after_a_restart(tmp_path: Path, coordinators: FakeCoordinators, crash: bool) -> None:
    data, network = tmp_path / "data", coordinators.network
    async with run_node(data, tmp_path / "s", crash=crash, network=network) as node:
        apply_coordinator(node)
        producer = Producer(node, await node.create_topic())
        hanging = Producer(node, producer.topic, producer_id=8)
        await write(producer, 0)
        await producer.end(committed=False)
        await write(hanging, 0)
        await write(producer, 1)
    async with run_node(data, tmp_path / "t", network=network) as node:
        producer.node = hanging.node = node
        apply_coordinator(node)
        node.apply(*topic_records("events", producer.topic))
        await node.until_open()
        fetched = await node.fetch(producer.topic, isolation_level=1)
        assert (fetched.last_stable_offset, aborted(fetched)) == (2, [(7, 0)])
        asked = len(coordinators.asked)
        assert await write(producer, 2) == 4, "what is open needs no guard"
        assert len(coordinators.asked) == asked
        assert await hanging.end(committed=False) is ErrorCode.none, "ended by an administrator"
        assert (await node.fetch(producer.topic, isolation_level=1)).last_stable_offset == 3


async def test_deleted_records_of_an_open_transaction_hide_nothing(
    node: StorageHarness, producer: Producer
) -> None:
    await write(producer, 0)
    await write(producer, 1)
    item = pb.DeleteRecordsPartition(topic_id=producer.topic.bytes, partition=0, before_offset=1)
    await node.connection.DeleteRecords(pb.DeleteRecordsRequest(partitions=[item], timeout_ms=1000))
    fetched = await node.fetch(producer.topic, 1, isolation_level=1)
    assert (fetched.log_start_offset, fetched.last_stable_offset, fetched.records) == (1, 1, b"")
    assert await producer.end(committed=False) is ErrorCode.none
    fetched = await node.fetch(producer.topic, 1, isolation_level=1)
    assert (fetched.last_stable_offset, aborted(fetched)) == (3, [(7, 0)])


async def test_what_goes_while_it_is_read_is_not_shown_as_committed(
    node: StorageHarness, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before, and listed after a segment with aborted records has gone: they would count."""
    opened = node.replica(producer.topic).log
    assert opened is not None
    for sequence in range(20):
        await write(producer, sequence)
        await producer.end(committed=False)
        if sequence % 5 == 4:
            opened.roll()
    listed = PartitionLog.aborted_transactions

    def after_it_went(
        log: PartitionLog, offset: int, upper_bound_offset: int, *, nowait: bool = False
    ) -> list[AbortedTransaction]:
        monkeypatch.undo()
        log.maybe_increment_log_start_offset(log.segment_base_offsets[1])
        assert log.delete_old_segments(log.log_end_offset) == 1
        return listed(log, offset, upper_bound_offset, nowait=nowait)

    monkeypatch.setattr(PartitionLog, "aborted_transactions", after_it_went)
    fetched = await node.fetch(producer.topic, 0, isolation_level=1, partition_max_bytes=500)
    assert (fetched.error_code, fetched.records) == (ErrorCode.offset_out_of_range, b"")


async def test_what_goes_elsewhere_while_it_is_read_is_not_shown_as_committed(
    tmp_path: Path, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are gone before the list is read from them; the records are there for who has the segment open."""
    data, network = tmp_path / "data", coordinators.network
    async with run_node(data, tmp_path / "s", network=network) as node:
        apply_coordinator(node)
        producer = Producer(node, await node.create_topic())
        await write(producer, 0)
        await producer.end(committed=False)
        opened = node.replica(producer.topic).log
        assert opened is not None
        opened.roll()
        await write(producer, 1)
        await producer.end()
    async with run_node(data, tmp_path / "t", network=network) as node:
        apply_coordinator(node)
        node.apply(*topic_records("events", producer.topic))
        await node.until_open()
        elsewhere = topic_records("events", producer.topic, replicas=(2,), leader=2, leader_epoch=1)
        loop, listed = asyncio.get_running_loop(), PartitionLog.aborted_transactions

        def after_it_went(
            log: PartitionLog, offset: int, upper_bound_offset: int, *, nowait: bool = False
        ) -> list[AbortedTransaction]:
            if not nowait:
                monkeypatch.undo()
                loop.call_soon_threadsafe(node.apply, *elsewhere)
                deadline = time.monotonic() + 0.4  # what is read later than 0.5 s is not answered
                while (data / "events-0").exists() and time.monotonic() < deadline:
                    time.sleep(0.001)
                assert not (data / "events-0").exists()
            return listed(log, offset, upper_bound_offset, nowait=nowait)

        monkeypatch.setattr(PartitionLog, "aborted_transactions", after_it_went)
        fetched = await node.fetch(producer.topic, 0, isolation_level=1)
        assert (fetched.error_code, fetched.records) == (ErrorCode.not_leader_or_follower, b"")


async def test_a_producer_that_is_forgotten_begins_anew(node: StorageHarness, producer: Producer) -> None:
    """Scenario 46."""
    await write(producer, 0)
    opened = node.replica(producer.topic).log
    assert opened is not None
    node.clock.advance(10_000)
    assert opened.expire_producers(1_000) == 0
    assert await producer.end() is ErrorCode.none
    node.clock.advance(10_000)
    assert opened.expire_producers(1_000) == 1
    assert await write(producer, 0) == 2


async def test_who_may_end_transactions(node: StorageHarness, producer: Producer) -> None:
    await write(producer, 0)
    marker = encode_marker(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
    )

    async def code(records: bytes, coordinator: tuple[str, str] | None) -> ErrorCode:
        return ErrorCode((await node.append(producer.topic, records, coordinator=coordinator)).error_code)

    assert await code(marker, None) is ErrorCode.invalid_record
    assert await code(marker, ("c", "former process")) is ErrorCode.cluster_authorization_failed
    assert await code(producer.batch(1), ("c", "process")) is ErrorCode.invalid_record
    assert await code(marker, ("c", "process")) is ErrorCode.none


async def test_what_a_scrape_shows(node: StorageHarness, producer: Producer) -> None:
    registry = CollectorRegistry()
    registry.register(TransactionsCollector(node.replicas, node.verification, node.clock))

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert (shown(late), shown("kafka_server_replicamanager_produceridcount")) == (0, 0)
    await write(producer, 0)
    await node.append(producer.topic, batch(b"plain"))
    lag = "kafka_cluster_partition_laststableoffsetlag"
    assert shown(lag, topic="events", partition="0") == 2
    assert shown(lag, topic="events", partition="1") == 0
    assert shown("kafka_server_replicamanager_produceridcount") == 1
    assert shown("kafka_server_addpartitionstotxnmanager_verificationfailurerate_total") == 0
    assert shown("kafka_server_addpartitionstotxnmanager_verificationtimems_count") == 1
    assert shown("barnabas_storage_unverified_bytes") == 0
    node.clock.advance(900_000 + LATE_MS)
    assert shown(late) == 0
    node.clock.advance(1)
    assert shown(late) == 1
    assert await producer.end() is ErrorCode.none
    assert (shown(late), shown(lag, topic="events", partition="0")) == (0, 0)
