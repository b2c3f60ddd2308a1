"""The writer and the streams: one owner of the image, groups, depositions, slow receivers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from barnabas.controller import fanout as fanout_module
from barnabas.controller import limits
from barnabas.controller.core.decision import Decision
from barnabas.controller.election import ELECTION_KEY, Election, Leadership, LeadershipLost
from barnabas.controller.fanout import Fanout, Receiver, StreamEnded
from barnabas.controller.store.protocol import Compare, Operation, Put, Snapshot, Store
from barnabas.controller.whole_decisions import DECISION_PREFIX
from barnabas.controller.writer import MetadataWriter
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import KafkaError
from barnabas.messages.controller_pb2 import MetadataDelta
from barnabas.messages.metadata_pb2 import GatewayRecord, MetadataRecord, PartitionRecord, TopicRecord
from barnabas.metadata.image import MetadataImage, partition_key, topic_key

StoreFactory = Callable[[], Awaitable[Store]]


def gateway(name: str, rack: str = "") -> MetadataRecord:
    return MetadataRecord(key=f"gateways/{name}", gateway=GatewayRecord(gateway_id=name, rack=rack))


def storing(*records: MetadataRecord, response: str = "done") -> Callable[[MetadataImage], Decision[str]]:
    return lambda image: Decision(records, response)


async def elected(store: Store, address: str = "here", process_id: str = "one") -> Leadership:
    return await Election(store, address, 1000, time.monotonic, process_id).campaign()


@asynccontextmanager
async def writing(
    store: Store, leadership: Leadership
) -> AsyncIterator[tuple[MetadataWriter, list[MetadataDelta]]]:
    published: list[MetadataDelta] = []
    writer = MetadataWriter(store, leadership, MetadataImage(), published.append)
    task = asyncio.create_task(writer.run())
    try:
        yield writer, published
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, LeadershipLost):
            await task


async def test_leaders_that_may_lack_records_are_named(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def partitions(leader: int, count: int) -> list[MetadataRecord]:
        return [
            MetadataRecord(
                key=partition_key(b"t" * 16, index),
                partition=PartitionRecord(
                    topic_id=b"t" * 16, partition=index, leader=leader, replicas=(1, 2), isr=(leader,)
                ),
            )
            for index in range(count)
        ]

    count = limits.UNCLEAN_LEADERS_TOLD_MAX + 3
    topic = MetadataRecord(
        key=topic_key("t"), topic=TopicRecord(name="t", topic_id=b"t" * 16, partition_count=count)
    )
    async with writing(store, await elected(store)) as (writer, _):
        await writer.submit(storing(topic, *partitions(1, count)))
        assert not caplog.records
        await writer.submit(storing(*partitions(2, count)))
    told = [vars(record)["fields"] for record in caplog.records]
    assert len(told) == limits.UNCLEAN_LEADERS_TOLD_MAX + 1
    assert told[0] == {"partition": "t-0", "leader": 2, "leader_epoch": 0}
    assert told[-1] == {"partitions": 3}


async def test_what_waits_together_is_stored_together_and_in_order(store: Store) -> None:
    async with writing(store, await elected(store)) as (writer, published):
        seen: list[int] = []

        def count(image: MetadataImage) -> Decision[None]:
            seen.append(len(image.gateways))
            return Decision((gateway(f"g{len(image.gateways)}"),), None)

        await asyncio.gather(*(writer.submit(count) for _ in range(20)))
        assert seen == list(range(20))
        assert len(writer.image.gateways) == 20
        assert len(published) <= 2
        assert [delta.revision for delta in published] == sorted({delta.revision for delta in published})
        assert published[-1].revision == writer.image.revision == (await store.snapshot()).revision


async def test_the_last_word_on_a_key_counts(store: Store) -> None:
    async with writing(store, await elected(store)) as (writer, _):
        await asyncio.gather(
            writer.submit(storing(gateway("a", "1"), gateway("b"))),
            writer.submit(storing(gateway("a", "2"), MetadataRecord(key="gateways/b"))),
        )
        assert {name: g.rack for name, g in writer.image.gateways.items()} == {"a": "2"}
        assert set((await store.snapshot("gateways/")).entries) == {"gateways/a"}


async def test_a_big_decision_is_one_change(store: Store) -> None:
    async with writing(store, await elected(store)) as (writer, published):
        await writer.submit(storing(*(gateway(f"g{n:03}") for n in range(250))))
        assert [r.key for d in published for r in d.records] == [f"gateways/g{n:03}" for n in range(250)]
        assert len(published) == 1
        await writer.submit(storing(gateway("last")))
        assert len((await store.snapshot("gateways/")).entries) == 251
        assert not (await store.snapshot(DECISION_PREFIX)).entries
        deletions = [MetadataRecord(key=f"gateways/g{n:03}") for n in range(250)]
        await writer.submit(lambda image: Decision(deletions, None, ("gateways/g",)))
        assert len(published) == 3
        assert set(writer.image.gateways) == {"last"}
        assert set((await store.snapshot("gateways/")).entries) == {"gateways/last"}


async def test_a_decision_of_many_bytes_is_stored_and_a_record_too_large_is_refused(store: Store) -> None:
    async with writing(store, await elected(store)) as (writer, published):
        large = "x" * 400_000
        await writer.submit(storing(*(gateway(f"g{n}", large) for n in range(8))))
        await writer.submit(storing(gateway("last")))
        assert len(published) == 2
        assert len((await store.snapshot("gateways/")).entries) == 9
        with pytest.raises(KafkaError, match="the metadata store takes"):
            await writer.submit(storing(gateway("huge", "x" * 600_000)))
        await writer.submit(storing(gateway("more")))
        assert len(writer.image.gateways) == 10


async def test_a_decision_that_fails_touches_no_other(store: Store) -> None:
    def fail(image: MetadataImage) -> Decision[str]:
        raise ValueError("no")

    async with writing(store, await elected(store)) as (writer, _):
        results = await asyncio.gather(
            writer.submit(storing(gateway("a"))),
            writer.submit(fail),
            writer.submit(storing(gateway("b"))),
            return_exceptions=True,
        )
        assert [str(result) for result in results] == ["done", "no", "done"]
        assert set(writer.image.gateways) == {"a", "b"}


async def test_a_deposed_controller_can_write_nothing(open_store: StoreFactory) -> None:
    store = await open_store()
    leadership = await elected(store)
    async with writing(store, leadership) as (writer, published):
        await writer.submit(storing(gateway("a")))
        await store.transact([], [Put(ELECTION_KEY, b"somebody else")])
        with pytest.raises(LeadershipLost):
            await writer.submit(storing())
        with pytest.raises(LeadershipLost):
            await writer.submit(storing(gateway("b")))
        with pytest.raises(LeadershipLost):
            await writer.submit(storing(gateway("c")))
        assert len(published) == 1
        assert set((await store.snapshot("gateways/")).entries) == {"gateways/a"}


class RestoredStore:
    """A store that was restored from a backup of this very term: the election key is as it was, the revision older."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def snapshot(self, prefix: str = "") -> Snapshot:
        return replace(await self._store.snapshot(prefix), revision=2)

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        await self._store.transact(compares, operations)
        return 3


@pytest.mark.parametrize("records", [(), (gateway("late"),)], ids=["an answer", "a change"])
async def test_a_controller_whose_store_was_restored_steps_down(
    store: Store, monkeypatch: pytest.MonkeyPatch, records: tuple[MetadataRecord, ...]
) -> None:
    async with writing(store, await elected(store)) as (writer, published):
        for name in "abcde":
            await writer.submit(storing(gateway(name)))
        monkeypatch.setattr(writer, "_store", RestoredStore(store))
        with pytest.raises(LeadershipLost, match=r"restored|stepped down"):
            await writer.submit(storing(*records))
        with pytest.raises(LeadershipLost):
            await writer.submit(storing(gateway("f")))
        assert len(published) == 5


async def test_election_has_one_winner_and_a_successor(open_store: StoreFactory) -> None:
    first, second = [
        Election(await open_store(), name, 1000, time.monotonic, name) for name in ("one", "two")
    ]
    leadership = await first.campaign()
    waiting = asyncio.create_task(second.campaign())
    async with asyncio.timeout(15):
        while second.active_address != "one":
            await asyncio.sleep(0.005)
        assert not waiting.done()
        await first.resign(leadership)
        await waiting
        assert second.active_address == "two"
        with pytest.raises(LeadershipLost):
            await first.keep(leadership)


async def test_a_process_succeeds_its_own_former_term_at_once(store: Store) -> None:
    former = await elected(store)
    successor = await asyncio.wait_for(elected(store), 0.9)
    assert successor.revision > former.revision


async def test_two_processes_of_one_address_do_not_take_the_election_from_each_other(
    open_store: StoreFactory, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = [
        Election(await open_store(), "same:1", lease_ms, time.monotonic, process_id)
        for process_id, lease_ms in (("a", 60_000), ("b", 10))
    ]
    leadership = await first.campaign()
    waiting = asyncio.create_task(second.campaign())
    async with asyncio.timeout(15):
        while second.active_address != "same:1":
            await asyncio.sleep(0.005)
        assert not waiting.done()
        held = (await (await open_store()).snapshot(ELECTION_KEY)).entries[ELECTION_KEY]
        assert held.mod_revision == leadership.revision
        while "advertised_address" not in caplog.text:
            await asyncio.sleep(0.005)
        await first.resign(leadership)
        await waiting


async def test_a_slow_receiver_is_ended_and_a_quick_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout_module, "STREAM_QUEUED_RECORDS_MAX", 3)
    fanout, slow, quick = Fanout(), Receiver(ManualClock()), Receiver(ManualClock())
    image = MetadataImage().apply([gateway(str(n)) for n in range(10)], 1)
    for receiver in (slow, quick):
        fanout.add(receiver, image)
    deltas = quick.deltas()
    assert (await anext(deltas)).snapshot
    for revision in range(2, 9):
        fanout.publish(MetadataDelta(revision=revision, records=[gateway("x")]))
        assert (await anext(deltas)).revision == revision
    with pytest.raises(StreamEnded, match="start again"):
        await anext(slow.deltas())
    fanout.end_all("stepping down")
    late = Receiver(ManualClock())
    fanout.add(late, image)
    for stream in (deltas, late.deltas()):
        with pytest.raises(StreamEnded, match="stepping down"):
            await anext(stream)
