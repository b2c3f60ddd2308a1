"""Fetches that a broker answers on the spot: the very bytes of the general way, and sessions in the same state."""

from __future__ import annotations

import os
import random
import struct
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import Gateway, node_record, request_frame
from storage_harness import (
    NOW_MS,
    StorageHarness,
    batch,
    coordinator_record,
    hand_nothing_over,
    make_servicer,
    run_node,
    topic_records,
)

from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.faults.injection import Faults
from barnabas.gateway.metrics import RequestMetrics
from barnabas.gateway.plain_fetch import LaterFetch, PlainFetches
from barnabas.host.local_node import LocalNode
from barnabas.log.segments.segment_file import SegmentFile
from barnabas.records.control import encode_marker

FETCH = 1
VERSIONS = range(4, 19)
SESSIONS_FROM, IDS_FROM = 7, 13
ORDERS, BILLS, ELSEWHERE, FOLLOWED = (
    uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("orders", "bills", "elsewhere", "followed")
)
NAMES = {
    "orders": ORDERS,
    "bills": BILLS,
    "elsewhere": ELSEWHERE,
    "followed": FOLLOWED,
    "unknown": uuid.UUID(int=9),
}
LEADER_EPOCH = 2


class Broker:
    """One storage node under two gateways: `general` knows no short way, `plain` tries it first. Clients reach them by
    the port of this node alone.
    """

    def __init__(self, node: StorageHarness) -> None:
        self.node = node
        self.local = LocalNode(1)
        self.metrics = RequestMetrics()
        records = [node_record(1), node_record(2)]
        records += topic_records("orders", ORDERS, 4, leader_epoch=LEADER_EPOCH)
        records += topic_records("bills", BILLS, 1, leader_epoch=LEADER_EPOCH)
        records += topic_records("elsewhere", ELSEWHERE, 1, leader=2, replicas=(2,))
        records += topic_records("followed", FOLLOWED, 1, leader=2, replicas=(2, 1))
        node.apply(*records)
        self.general, self.plain = Gateway(records), Gateway(records)
        for gateway in (self.general, self.plain):
            gateway.links.nodes[1] = self.local
            config = replace(gateway.parts.config, own_position_only=0)
            object.__setattr__(gateway.parts, "config", config)
        self.faults = Faults()
        self.fetches = PlainFetches(self.plain.parts, self.local, self.metrics, self.faults)

    async def fill(self) -> None:
        """Batches of all sizes, two of them in transactions: one aborted, one open. The last partition stays empty."""
        chance = random.Random(7)
        self.node.apply(coordinator_record("c", "now"))
        self.node.verify_no_transactions()
        for index in range(3):
            for number in range(40):
                records = batch(*[b"v" * chance.choice([0, 10, 300, 5_000])] * chance.randint(1, 4))
                assert (await self.node.append(ORDERS, records, index=index)).error_code == 0
                if index == 1 and number in (10, 30):
                    opened = batch(
                        b"t", producer_id=7, producer_epoch=0, base_sequence=number // 20, transactional=True
                    )
                    assert (await self.node.append(ORDERS, opened, index=index)).error_code == 0
                if index == 1 and number == 20:
                    marker = encode_marker(
                        committed=False,
                        producer_id=7,
                        producer_epoch=0,
                        coordinator_epoch=1,
                        timestamp=NOW_MS,
                    )
                    ended = await self.node.append(ORDERS, marker, index=index, coordinator=("c", "now"))
                    assert ended.error_code == 0
        await self.node.append(BILLS, batch(b"only"))

    async def ask(self, frame: bytes) -> tuple[bytes, bool]:
        """(the answer to a request, which both gateways give alike; whether it was given on the spot)"""
        expected = joined(await self.general.dispatcher.serve(frame, self.general.client))
        pieces: Any = self.fetches.answer(frame, 0.0)
        is_plain = pieces is not None
        if not is_plain:
            pieces = await self.plain.dispatcher.serve(frame, self.plain.client)
        assert joined(pieces) == expected
        assert sessions_of(self.plain) == sessions_of(self.general)
        return expected, is_plain


def joined(pieces: Any) -> bytes:
    return pieces if isinstance(pieces, bytes) else b"".join(pieces)


def sessions_of(gateway: Gateway) -> Any:
    sessions: FetchSessions = gateway.parts.fetch_sessions
    return [(key, session, list(session.partitions)) for key, session in sessions._sessions.items()]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        made = Broker(node)
        await node.until_open()
        await made.fill()
        async with made.local.serve(make_servicer(node), node.replicas, hand_nothing_over):
            yield made


def fetch_frame(
    version: int,
    wanted: dict[str, list[dict[str, Any]]],
    *,
    session: tuple[int, int] = (0, -1),
    forgotten: dict[str, list[int]] | None = None,
    rack: str = "",
    **limits: int,
) -> bytes:
    """A Fetch request, which waits for nothing unless it is given `max_wait_ms`.

    `wanted` are partitions by topic, `session` an id and an epoch.
    """
    body: dict[str, Any] = {
        "max_wait": limits.get("max_wait_ms", 0),
        "min_bytes": limits.get("min_bytes", 1),
        "max_bytes": limits.get("max_bytes", 1 << 20),
        "isolation_level": limits.get("isolation_level", 0),
        "topics": [named(version, topic) | {"partitions": rows} for topic, rows in wanted.items()],
    }
    if version < 15:
        body["replica_id"] = -1
    if version >= SESSIONS_FROM:
        body["session_id"], body["session_epoch"] = session
        body["forgotten_topics_data"] = [
            named(version, topic) | {"partitions": rows} for topic, rows in (forgotten or {}).items()
        ]
    if version >= 11:
        body["rack_id"] = rack
    return request_frame(FETCH, version, body)


def named(version: int, topic: str) -> dict[str, Any]:
    return {"topic_id": NAMES[topic].bytes} if version >= IDS_FROM else {"topic": topic}


def want(version: int, partition: int = 0, offset: int = 0, **others: int) -> dict[str, Any]:
    """One partition of a request, with the fields of its version."""
    row = {"partition": partition, "fetch_offset": offset}
    row["partition_max_bytes"] = others.get("max_bytes", 1 << 20)
    if version >= 5:
        row["log_start_offset"] = -1
    if version >= 9:
        row["current_leader_epoch"] = others.get("leader_epoch", -1)
    if version >= 12:
        row["last_fetched_epoch"] = others.get("last_epoch", -1)
    return row


def mostly(chance: random.Random, usual: list[int], odd: list[int]) -> int:
    return chance.choice(odd if chance.random() < 0.04 else usual)


def random_wanted(chance: random.Random, version: int) -> dict[str, list[dict[str, Any]]]:
    """Mostly what is there, now and then what is not."""
    topics = ["orders"] * 8 + ["bills"] * 3 + (["elsewhere", "unknown"] if chance.random() < 0.1 else [])
    return {
        topic: [
            want(
                version,
                mostly(chance, [0, 0, 1, 1, 2, 3] if topic == "orders" else [0], [7]),
                mostly(chance, [0, 0, 1, 5, 17, 40] if topic == "orders" else [0, 0, 1], [60, 100, 10_000]),
                max_bytes=mostly(chance, [1, 100, 2_000, 40_000, 1 << 20, 1 << 20], [-1, 0]),
                leader_epoch=mostly(chance, [-1, -2, LEADER_EPOCH], [1, 9]),
                last_epoch=mostly(chance, [-1, LEADER_EPOCH], [0, 9]),
            )
            for _ in range(chance.choice([0, 1, 1, 1, 2, 4]))
        ]
        for topic in dict.fromkeys(chance.choices(topics, k=chance.randint(1, 3)))
    }


@pytest.mark.parametrize("seed", range(12))
async def test_both_ways_give_the_same_bytes(broker: Broker, seed: int) -> None:
    chance = random.Random(seed)
    plain = 0
    open_sessions: dict[int, list[int]] = {version: [0, 0] for version in VERSIONS}
    for _ in range(150):
        version = chance.choice(VERSIONS)
        session = open_sessions[version]
        if chance.random() < 0.1:
            session[:] = chance.choice([[0, -1], [0, 0], [session[0], -1], [session[0], 7], [9, 1]])
        frame = fetch_frame(
            version,
            random_wanted(chance, version),
            session=(session[0], session[1]),
            forgotten={"orders": [0]} if chance.random() < 0.1 else None,
            min_bytes=mostly(chance, [-1, 0, 1, 500], [50_000, 1 << 30]),
            max_bytes=mostly(chance, [1, 5_000, 1 << 20, 1 << 30], [-1, 0]),
            isolation_level=mostly(chance, [0, 1], [2]),
            rack="east" if chance.random() < 0.3 else "",
        )
        answer, is_plain = await broker.ask(frame)
        plain += is_plain
        if version >= SESSIONS_FROM:
            at = 13 if version >= 12 else 12
            error, session_id = struct.unpack_from(">hi", answer, at)
            # As a client does: on with the session that it was given, or anew.
            session[:] = [0, 0] if error or not session_id else [session_id, session[1] + 1]
    assert 15 < plain < 145


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_consumer_that_reads_what_is_there_is_answered_on_the_spot(
    broker: Broker, version: int
) -> None:
    wanted = {"orders": [want(version, 0), want(version, 3)], "bills": [want(version, 0)]}
    answer, is_plain = await broker.ask(fetch_frame(version, wanted))
    assert is_plain
    assert len(answer) > 50_000
    assert broker.node.replica(ORDERS).counts.bytes_out > 100_000  # the two answers were counted


async def test_a_consumer_with_a_rack_is_read_for_by_a_follower_on_the_spot(broker: Broker) -> None:
    """It was sent here (KIP-392); one without a rack is read for by the leader, which is not there."""
    wanted = {"orders": [want(17, 0)], "followed": [want(17)]}
    assert (await broker.ask(fetch_frame(17, wanted, rack="east")))[1]
    _, is_plain = await broker.ask(fetch_frame(17, wanted))
    assert not is_plain
    replica = broker.node.replica(FOLLOWED)
    replica.record.isr[:] = [2]
    assert broker.fetches.answer(fetch_frame(17, wanted, rack="east"), 0.0) is None


async def test_a_rack_is_left_to_the_general_way_where_clients_mean_any_node(broker: Broker) -> None:
    object.__setattr__(broker.plain.parts, "config", replace(broker.plain.parts.config, own_position_only=-1))
    fetches = PlainFetches(broker.plain.parts, broker.local, broker.metrics, broker.faults)
    wanted = {"orders": [want(17, 0)]}
    assert fetches.answer(fetch_frame(17, wanted, rack="east"), 0.0) is None
    assert fetches.answer(fetch_frame(17, wanted), 0.0) is not None


async def test_a_session_goes_on(broker: Broker) -> None:
    wanted = {"orders": [want(17, 0), want(17, 2)]}
    first, is_plain = await broker.ask(fetch_frame(17, wanted, session=(0, 0)))
    assert not is_plain
    (session_id,) = struct.unpack_from(">i", first, 15)
    more = {"orders": [want(17, 0, 12)]}
    assert (await broker.ask(fetch_frame(17, more, session=(session_id, 1))))[1]
    assert (await broker.ask(fetch_frame(17, {}, session=(session_id, 2))))[1]
    assert not (await broker.ask(fetch_frame(17, {}, session=(session_id, 2))))[1], "an old epoch"
    assert not (await broker.ask(fetch_frame(17, {}, session=(session_id, -1))))[1], "farewell"
    assert not sessions_of(broker.plain)


async def test_a_session_that_grows_too_large_is_ended_the_general_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.gateway.limits.FETCH_SESSIONS_PARTITIONS_MAX", 2)
    first, _ = await broker.ask(fetch_frame(17, {"orders": [want(17, 0)]}, session=(0, 0)))
    (session_id,) = struct.unpack_from(">i", first, 15)
    more = {"orders": [want(17, 0), want(17, 2)]}
    assert (await broker.ask(fetch_frame(17, more, session=(session_id, 1))))[1]
    assert broker.plain.parts.fetch_sessions._partition_count == 2
    more = {"orders": [want(17, 1)]}
    assert not (await broker.ask(fetch_frame(17, more, session=(session_id, 2))))[1]
    assert not sessions_of(broker.plain)


async def test_what_is_counted_is_the_same(broker: Broker) -> None:
    counts = broker.node.replica(ORDERS).counts
    frame = fetch_frame(12, {"orders": [want(12, 0), want(12, 1)]})
    steps = []
    for ask in (
        lambda: broker.general.dispatcher.serve(frame, broker.general.client),
        lambda: broker.fetches.answer(frame, 0.0),
    ):
        before = counts.reads, counts.bytes_out, sum(broker.node.replicas.counts.read_times.counts)
        answered = ask()
        if not isinstance(answered, list):
            await answered
        after = counts.reads, counts.bytes_out, sum(broker.node.replicas.counts.read_times.counts)
        steps.append([new - old for new, old in zip(after, before, strict=True)])
    assert steps[0] == steps[1]
    assert steps[0][0] == 2
    requests = {
        sample.labels["version"]: sample.value
        for family in broker.metrics.collect()
        for sample in family.samples
        if sample.name.endswith("_requests_total") and "version" in sample.labels
    }
    assert requests == {"12": 1}


async def test_nothing_is_counted_of_what_is_left_to_the_general_way(broker: Broker) -> None:
    counts = broker.node.replica(ORDERS).counts
    before = counts.reads, counts.bytes_out, counts.failed_reads
    wanted = {"orders": [want(12, 0), want(12, 1, 10_000)]}
    assert broker.fetches.answer(fetch_frame(12, wanted), 0.0) is None
    waiting = fetch_frame(12, {"orders": [want(12, 0)]}, min_bytes=1 << 20, max_wait_ms=9_000)
    later = broker.fetches.answer(waiting, 0.0)
    assert isinstance(later, LaterFetch)
    later.stop()
    assert (counts.reads, counts.bytes_out, counts.failed_reads) == before


async def test_injected_faults_see_every_request(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = fetch_frame(12, {"orders": [want(12)]})
    monkeypatch.setattr(broker.faults, "is_active", True)
    assert broker.fetches.answer(frame, 0.0) is None
    monkeypatch.setattr(broker.faults, "is_active", False)
    assert broker.fetches.answer(frame, 0.0) is not None


async def test_what_is_not_in_memory_is_left_to_the_threads(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SegmentFile.read

    def cold(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> Any:
        if nowait:
            raise BlockingIOError
        return read(file, position, length)

    monkeypatch.setattr(SegmentFile, "read", cold)
    _, is_plain = await broker.ask(fetch_frame(12, {"orders": [want(12)]}))
    assert not is_plain


async def test_a_disk_that_fails_is_told_by_the_general_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(SegmentFile, "read", failing)
    _, is_plain = await broker.ask(fetch_frame(12, {"orders": [want(12)]}))
    assert not is_plain


async def test_a_log_truncated_between_finding_and_reading_gives_nothing_of_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = broker.node.replica(ORDERS).log
    assert opened is not None
    known = opened.locate(0, 1)
    assert known is not None
    read = SegmentFile.read

    def truncated_meanwhile(file: SegmentFile, position: int, length: int, *, nowait: bool = False) -> Any:
        known.truncations.count += 1
        return read(file, position, length, nowait=nowait)

    frame = fetch_frame(12, {"orders": [want(12, 1), want(12, 0)]})
    monkeypatch.setattr(SegmentFile, "read", truncated_meanwhile)
    assert broker.fetches.answer(frame, 0.0) is None


async def test_without_a_node_that_serves_nothing_is_answered(broker: Broker) -> None:
    idle = PlainFetches(broker.plain.parts, LocalNode(1), broker.metrics, broker.faults)
    assert idle.answer(fetch_frame(12, {"orders": [want(12)]}), 0.0) is None
