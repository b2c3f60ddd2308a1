"""The parts of a simulation: time, processes, threads, and the store, which keeps to its contract."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio
from test_store_contract import *  # noqa: F403
from trace_of_run import Trace
from virtual_channel import VirtualChannel
from virtual_disk import DiskHealth, ProcessFiles, VirtualDisk
from virtual_loop import Life, NothingLeftError, VirtualLoop
from virtual_network import TO_CLIENT, VirtualNetwork
from virtual_sockets import connect, listen
from virtual_store import Quorum, QuorumStore
from virtual_threads import Halt, VirtualThreads

from barnabas.links.errors import ConnectionRefused, LinkError, OutcomeUnknown
from barnabas.messages.storage_pb2 import OffsetForLeaderEpochRequest
from barnabas.rpc.network import GrpcNetwork


@pytest_asyncio.fixture
async def store() -> AsyncIterator[QuorumStore]:
    """The one to which all of `test_store_contract` is put here."""
    opened = QuorumStore(Quorum())
    await opened.open()
    yield opened
    await opened.close()


def test_time_jumps_to_the_next_timer() -> None:
    loop = VirtualLoop()

    async def sleep_long() -> list[str]:
        order: list[str] = []
        loop.call_at(2_000, order.append, "second")
        loop.call_at(1_000, order.append, "first")
        loop.call_at(2_000, order.append, "at the same time as the second")
        await asyncio.sleep(3_000)
        return order

    assert loop.run_until_complete(sleep_long()) == ["first", "second", "at the same time as the second"]
    assert 3_000 <= loop.time() < 3_000.1


def test_who_waits_for_nothing_is_noticed() -> None:
    with pytest.raises(NothingLeftError):
        VirtualLoop().run_until_complete(asyncio.Event().wait())


def test_a_paused_process_does_later_what_a_dead_one_never_does() -> None:
    loop, life = VirtualLoop(), Life("process")
    done: list[float] = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                done.append(round(loop.time(), 1))
        finally:
            done.append(-1.0)

    async def outside() -> None:
        task = loop.create_task(work(), context=life.context)
        await asyncio.sleep(1.5)
        life.is_paused = True
        await asyncio.sleep(5)
        loop.resume(life)
        await asyncio.sleep(1.2)
        life.is_ended = True
        await asyncio.sleep(5)
        assert not task.done()
        task.cancel()
        await asyncio.sleep(5)

    loop.run_until_complete(outside())
    assert done == [1.0, 6.5, 7.5]
    for task in life.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_work_in_threads_takes_its_time_and_lets_others_go_on() -> None:
    loop = VirtualLoop()

    async def work() -> list[str]:
        order: list[str] = []
        pool = VirtualThreads(lambda: 0.5).executor("pool", 1)
        first = loop.run_in_executor(pool, order.append, "first")
        second = loop.run_in_executor(pool, order.append, "second")
        await asyncio.sleep(0.4)
        order.append("meanwhile")
        await first
        assert loop.time() >= 1.0
        await second
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(pool, lambda: 1 / 0)
        late = loop.run_in_executor(pool, order.append, "late")
        pool.shutdown()
        order.append("after the shutdown")
        await late
        return order

    assert loop.run_until_complete(work()) == [
        "meanwhile",
        "first",
        "second",
        "late",
        "after the shutdown",
    ]


def test_work_that_halts_goes_on_when_that_is_over_or_somebody_cannot_wait() -> None:
    loop = VirtualLoop()

    async def work() -> list[str]:
        order: list[str] = []

        def halting(halt: Halt, name: str) -> str:
            order.append(f"{name} begins")
            halt.pause()
            order.append(f"{name} ends at {asyncio.get_running_loop().time():.0f}")
            return name

        threads, first, second = VirtualThreads(lambda: 0.5, lambda: True), Halt(), Halt()
        awaited = loop.run_in_executor(threads.executor("pool", 1), halting, first, "first")
        pool = threads.executor("pool", 1)
        unawaited = pool.submit(halting, second, "second")
        pool.submit(order.append, "what is behind second")
        await asyncio.sleep(3.0)
        assert len(first) == len(second) == 1
        assert unawaited.result() == "second"
        first.end()
        assert await awaited == "first"
        second.end()
        await asyncio.sleep(1.0)
        return order

    assert loop.run_until_complete(work()) == [
        "first begins",
        "second begins",
        "second ends at 3",
        "what is behind second",
        "first ends at 3",
    ]


def test_a_process_that_has_ended_writes_nothing_and_holds_no_lock() -> None:
    disk, first, second = VirtualDisk(), Life("first"), Life("second")
    files = ProcessFiles(disk, first)
    files.makedirs("/data")
    fd = files.open("/data/lock", os.O_RDWR | os.O_CREAT)
    files.flock(fd, 0)
    files.pwrite(fd, b"written", 0)
    others = ProcessFiles(disk, second)
    with pytest.raises(BlockingIOError):
        others.flock(others.open("/data/lock", os.O_RDWR), 0)
    first.is_ended = True
    files.on_end()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.pwrite(fd, b"too late", 0)
    found = others.open("/data/lock", os.O_RDWR)
    others.flock(found, 0)
    assert others.pread(found, 100, 0) == b"written"


def test_a_full_disk_takes_nothing_new() -> None:
    disk = VirtualDisk()
    files = ProcessFiles(disk, Life("process"))
    fd = files.open("/file", os.O_RDWR | os.O_CREAT)
    disk.healths[-1].is_full = True
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.pwrite(fd, b"more", 0)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.open("/another", os.O_RDWR | os.O_CREAT)
    files.open("/file", os.O_RDWR | os.O_CREAT)


def test_a_disk_that_fails_leaves_the_others_alone() -> None:
    disk = VirtualDisk(("/more",))
    files = ProcessFiles(disk, Life("process"))
    paths = ("/file", "/more/file")
    first, second = (files.open(path, os.O_RDWR | os.O_CREAT) for path in paths)
    failing, _ = disk.healths
    failing.fails_syncs = failing.is_full = True
    for refused in (lambda: files.fsync(second), lambda: files.pwrite(second, b"x", 0)):
        with pytest.raises(OSError, match="Errno"):
            refused()
    files.pwrite(first, b"x", 0)
    files.fsync(first)


@pytest.mark.parametrize("fault", ["is_full", "fails_syncs", "fails_writes"])
def test_a_disk_is_well_that_takes_all_that_is_written_to_it(fault: str) -> None:
    health = DiskHealth("/")
    assert health.is_well
    setattr(health, fault, True)
    assert not health.is_well


def test_only_an_address_without_a_process_refuses_connections() -> None:
    loop, world = VirtualLoop(), VirtualNetwork(random.Random(1), Trace())
    life = Life("asking")
    network = GrpcNetwork(lambda address: cast(Any, VirtualChannel(world, "a", life, address)))

    async def outcome() -> LinkError:
        link = network.connect_storage("b:1")
        with pytest.raises(LinkError) as failed:
            await link.OffsetForLeaderEpoch(OffsetForLeaderEpochRequest(), timeout=5)
        await link.close()
        return failed.value

    async def outcomes() -> list[type[LinkError]]:
        nobody = await outcome()
        world.cut("b", "a")
        return [type(nobody), type(await outcome())]

    assert loop.run_until_complete(outcomes()) == [ConnectionRefused, OutcomeUnknown]


class Heard(asyncio.Protocol):
    """Keeps what comes; a server says it back."""

    def __init__(self, *, says_back: bool = False) -> None:
        self.data = b""
        self.is_lost = False
        self.transport: asyncio.Transport
        self._says_back = says_back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self._says_back:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def test_sockets_bring_bytes_in_their_order_and_late_where_the_way_was_cut() -> None:
    loop, network = VirtualLoop(), VirtualNetwork(random.Random(1), Trace())
    serving, asking = Life("serving"), Life("asking")
    said = [b"%d " % number for number in range(200)]
    server, client = Heard(says_back=True), Heard()

    async def serve() -> None:
        port = await listen(network, lambda: server, "serving:9092", starts_serving=False)
        with pytest.raises(ConnectionError):
            await connect(network, "serving:9092", Heard())
        await port.start_serving()

    async def ask() -> None:
        await connect(network, "serving:9092", client)
        for each in said:
            client.transport.write(each)
        await asyncio.sleep(1)
        assert client.data == server.data == b"".join(said)
        network.cut("asking", "serving")
        client.transport.write(b"late")
        client.transport.close()
        await asyncio.sleep(60)
        assert client.is_lost
        assert not server.is_lost, "nobody asks after a silent peer"
        network.mend("asking", "serving")
        await asyncio.sleep(1)
        assert server.data.endswith(b"late")
        assert server.is_lost

    async def both() -> None:
        await loop.create_task(serve(), context=serving.context)
        await loop.create_task(ask(), context=asking.context)

    loop.run_until_complete(both())


def test_a_message_that_is_kept_back_comes_behind_what_was_sent_later() -> None:
    loop, network = VirtualLoop(), VirtualNetwork(random.Random(1), Trace())
    serving, asking = Life("serving"), Life("asking")
    heard: list[Heard] = []

    def accept() -> Heard:
        heard.append(Heard())
        return heard[-1]

    async def serve() -> None:
        port = await listen(network, accept, "serving:9092", starts_serving=False)
        await port.start_serving()

    async def ask() -> None:
        first, second = Heard(), Heard()
        await connect(network, "serving:9092", first)
        keeping = loop.create_task(network.keep_back("asking", "serving", ""))
        await asyncio.sleep(0)
        first.transport.write(b"late")
        late = await keeping
        await asyncio.sleep(1)
        assert first.is_lost
        await connect(network, "serving:9092", second)
        second.transport.write(b"again")
        await asyncio.sleep(10)
        assert [(each.data, each.is_lost) for each in heard] == [(b"", False), (b"again", False)]
        assert late.deliver()
        await asyncio.sleep(5)
        assert [(each.data, each.is_lost) for each in heard] == [(b"late", True), (b"again", False)]
        assert not late.deliver(), "nobody is there any more"

    async def both() -> None:
        await loop.create_task(serve(), context=serving.context)
        await loop.create_task(ask(), context=asking.context)

    loop.run_until_complete(both())


def test_two_who_keep_messages_of_one_way_back_get_one_each() -> None:
    loop, network = VirtualLoop(), VirtualNetwork(random.Random(1), Trace())
    serving, asking = Life("serving"), Life("asking")

    async def serve() -> None:
        port = await listen(network, Heard, "serving:9092", starts_serving=False)
        await port.start_serving()

    async def ask() -> None:
        keeping = [loop.create_task(network.keep_back("asking", "serving", "")) for _ in range(2)]
        for keeps in keeping:
            client = Heard()
            await connect(network, "serving:9092", client)
            client.transport.write(b"late")
            await keeps
        last = Heard()
        await connect(network, "serving:9092", last)
        last.transport.write(b"in time")
        await asyncio.sleep(10)
        assert not last.is_lost, "nobody waits for this one"

    async def both() -> None:
        await loop.create_task(serve(), context=serving.context)
        await loop.create_task(ask(), context=asking.context)

    loop.run_until_complete(both())


def test_a_connection_stands_still_in_one_direction_while_another_one_goes_on() -> None:
    loop, network = VirtualLoop(), VirtualNetwork(random.Random(1), Trace())
    first, second = Life("first"), Life("second")
    ends = {"first": Heard(says_back=True), "second": Heard(says_back=True)}

    async def serve(name: str) -> None:
        port = await listen(network, lambda: ends[name], f"{name}:9092", starts_serving=False)
        await port.start_serving()

    async def ask(name: str) -> Heard:
        client = Heard()
        await connect(network, f"{name}:9092", client)
        return client

    async def both() -> None:
        await loop.create_task(serve("first"), context=first.context)
        await loop.create_task(serve("second"), context=second.context)
        there = await loop.create_task(ask("second"), context=first.context)
        back = await loop.create_task(ask("first"), context=second.context)
        with network.standstill("first", "second", TO_CLIENT):
            for each in (there, back):
                each.transport.write(b"said")
            await asyncio.sleep(1)
            assert ends["second"].data == back.data == b"said", "neither this direction nor that connection"
            assert not there.data
        await asyncio.sleep(1)
        assert there.data == b"said"

    loop.run_until_complete(both())


def test_lives_are_told_apart_by_their_context() -> None:
    first, second = Life("first"), Life("second")
    from virtual_loop import OWNER

    assert first.context[OWNER] is first
    assert second.context[OWNER] is second
    assert OWNER not in contextvars.copy_context()
