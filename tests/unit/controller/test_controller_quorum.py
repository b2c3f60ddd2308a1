"""DescribeQuorum: the answer as data, the progress of streams, and who the controllers are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from barnabas.controller.core.quorum import Progress, describe_quorum
from barnabas.controller.fanout import Receiver
from barnabas.controller.limits import LEASES_OF_THE_FORMER_MAX
from barnabas.controller.presence import FIRST_ID, PRESENCE_PREFIX, RENEWALS_PER_LEASE, Presence
from barnabas.controller.store.protocol import Store
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.kafka_values import INT_MAX
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.messages.controller_pb2 import MetadataDelta

StoreFactory = Callable[[], Awaitable[Store]]


def test_who_is_how_far() -> None:
    answer = describe_quorum(
        leader_id=3000,
        elected_at_revision=7,
        revision=42,
        voters={3001: "b:1", 3000: "a:1"},
        observers=[(2, Progress(40, 900, 800)), (1, Progress(42, 500, 500))],
        now_ms=1000,
    )
    assert (answer.leader_id, answer.leader_epoch, answer.high_watermark) == (3000, 7, 42)
    assert [(voter.replica_id, voter.log_end_offset, voter.address) for voter in answer.voters] == [
        (3000, 42, "a:1"),
        (3001, 42, "b:1"),
    ]
    times = {
        observer.replica_id: (
            observer.log_end_offset,
            observer.last_fetch_timestamp_ms,
            observer.last_caught_up_timestamp_ms,
        )
        for observer in answer.observers
    }
    assert times == {1: (42, 1000, 1000), 2: (40, 900, 800)}


def test_the_epoch_fits_kafkas_field() -> None:
    answer = describe_quorum(
        leader_id=1, elected_at_revision=2**40, revision=2**40, voters={}, observers=[], now_ms=0
    )
    assert answer.leader_epoch == INT_MAX


async def test_a_receiver_knows_how_far_it_is() -> None:
    clock = ManualClock(now_ms=1000)
    receiver = Receiver(clock)
    deltas = receiver.deltas()
    receiver.push(MetadataDelta(revision=5, snapshot=True))
    assert receiver.progress == Progress(-1, -1, -1)
    await anext(deltas)
    assert receiver.progress == Progress(5, 1000, 1000)
    receiver.push(MetadataDelta(revision=6))
    receiver.push(MetadataDelta(revision=7))
    clock.advance(10)
    await anext(deltas)
    assert receiver.progress == Progress(6, 1010, 1000), "one more waits: it is not caught up"
    await anext(deltas)
    assert receiver.progress == Progress(7, 1010, 1010)


def presence(store: Store, address: str, wanted_id: int = -1, *, shared: bool = True) -> Presence:
    lines = RareLines(get_logger("controller"), time.monotonic)
    return Presence(store, address, wanted_id, 1000, lines, shared=shared)


async def stored(store: Store) -> dict[int, str]:
    """Who is present, as others see it."""
    found = await store.snapshot(PRESENCE_PREFIX)
    return {
        int(key.removeprefix(PRESENCE_PREFIX)): each.value.decode() for key, each in found.entries.items()
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


async def test_controllers_of_one_store_take_different_ids(open_store: StoreFactory) -> None:
    store = await open_store()
    first, second, third = presence(store, "a:1"), presence(store, "b:1"), presence(store, "c:1", 7)
    for each in (first, second, third):
        await each.join()
    assert [each.controller_id for each in (first, second, third)] == [FIRST_ID, FIRST_ID + 1, 7]
    assert await first.everyone() == {7: "c:1", FIRST_ID: "a:1", FIRST_ID + 1: "b:1"}
    await first.leave()
    assert set(await second.everyone()) == {7, FIRST_ID + 1}


async def test_a_controller_that_starts_again_takes_its_id_again(store: Store) -> None:
    await presence(store, "a:1").join()
    again = presence(store, "a:1")
    await again.join()
    assert again.controller_id == FIRST_ID


async def test_a_former_process_under_another_address_is_no_reason_to_warn(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It crashed: its key stays for as long as its lease."""
    former, again = presence(store, "a:1", 7), presence(store, "b:1", 7)
    await former.join()
    await again.join()
    assert again.controller_id == 7
    await again.renew()
    assert await stored(store) == {7: "a:1"}, "it may live"
    await former.leave()
    await again.renew()
    assert await stored(store) == {7: "b:1"}
    assert not warnings(caplog)


async def test_a_controller_that_outlives_its_lease_has_the_same_id(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = presence(store, "a:1", 7), presence(store, "b:1", 7)
    await first.join()
    await second.join()
    for renewals in range(3 * LEASES_OF_THE_FORMER_MAX * RENEWALS_PER_LEASE):
        assert len(warnings(caplog)) == (renewals >= LEASES_OF_THE_FORMER_MAX * RENEWALS_PER_LEASE)
        await first.renew()
        await second.renew()
    assert await stored(store) == {7: "a:1"}, "they do not take it from one another"
    assert await second.everyone() == {7: "b:1"}


async def test_presence_outlives_its_lease_while_it_is_kept(store: Store) -> None:
    one = presence(store, "a:1")
    await one.join()
    keeping = asyncio.create_task(one.keep())
    for lease in (one._lease,):
        assert lease is not None
        await store.revoke_lease(lease.lease_id)
    assert not (await store.snapshot(PRESENCE_PREFIX)).entries
    async with asyncio.timeout(10):
        while not (await store.snapshot(PRESENCE_PREFIX)).entries:
            await asyncio.sleep(0.02)
    keeping.cancel()


async def test_the_only_controller_of_a_store_writes_nothing(store: Store) -> None:
    alone = presence(store, "a:1", shared=False)
    await alone.join()
    assert await alone.everyone() == {FIRST_ID: "a:1"}
    assert not (await store.snapshot(PRESENCE_PREFIX)).entries
