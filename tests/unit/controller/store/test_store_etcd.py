"""What only the etcd store does: members that go away and come back."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from contextlib import aclosing
from typing import Any

import pytest

from barnabas.controller import limits
from barnabas.controller.store import etcd
from barnabas.controller.store.etcd import EtcdStore
from barnabas.controller.store.protocol import Put, RevisionCompacted, StoreError

WAIT_SECONDS_MAX = 20.0


async def test_namespaces_share_an_etcd(etcd_server: Any) -> None:
    one, other = EtcdStore([etcd_server.endpoint], "one/"), EtcdStore([etcd_server.endpoint], "other/")
    for store in (one, other):
        await store.open()
    await one.transact([], [Put("a", b"1")])
    assert not (await other.snapshot()).entries
    for store in (one, other):
        await store.close()


async def test_the_next_endpoint_is_used_when_one_is_not_there(etcd_server: Any, unused_port: int) -> None:
    store = EtcdStore([f"127.0.0.1:{unused_port}", etcd_server.endpoint], "second/")
    await store.open()
    await store.transact([], [Put("a", b"1")])
    assert list((await store.snapshot()).entries) == ["a"]
    await store.close()


async def test_nobody_there_is_one_clear_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = EtcdStore([f"127.0.0.1:{unused.getsockname()[1]}"])
        with pytest.raises(StoreError, match="check that it runs"):
            await store.open()
    with pytest.raises(StoreError, match="closed"):
        await store.snapshot()


async def test_a_watch_goes_on_after_etcd_was_away(own_etcd: Any) -> None:
    store = EtcdStore([own_etcd.endpoint])
    await store.open()
    revision = await store.transact([], [Put("a", b"1")])
    async with aclosing(store.watch(revision)) as watch:  # type: ignore[type-var]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert (await anext(watch)).revision == revision
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.to_thread(own_etcd.stop)
            with pytest.raises(StoreError):
                await store.transact([], [Put("b", b"lost")])
            await asyncio.to_thread(own_etcd.start)
            while True:
                try:
                    revision = await store.transact([], [Put("b", b"2")])
                    break
                except StoreError:
                    await asyncio.sleep(0.1)
            assert (await waiting).revision == revision
    await store.close()


async def test_what_is_under_way_goes_on_when_another_call_gives_the_endpoint_up(own_etcd: Any) -> None:
    store = EtcdStore([own_etcd.endpoint, own_etcd.endpoint])
    await store.open()
    lease = await store.grant_lease(10_000)
    revision = await store.transact([], [Put("a", b"1")])
    async with aclosing(store.watch(revision)) as watch:  # type: ignore[type-var]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert (await anext(watch)).revision == revision
            waiting = asyncio.ensure_future(anext(watch))
            own_etcd.pause()
            reading = asyncio.ensure_future(store.snapshot())
            with pytest.raises(StoreError, match="DEADLINE_EXCEEDED"):
                await store.keep_lease_alive(lease.lease_id)
            own_etcd.resume()
            assert list((await reading).entries) == ["a"]
            revision = await store.transact([], [Put("b", b"2")])
            assert (await waiting).revision == revision
    await store.close()


async def test_a_lease_whose_connection_is_given_up_before_it_stood_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC leaves such a stream hanging: whoever keeps the lease would never hear of it again."""
    monkeypatch.setattr(limits, "ETCD_LEASE_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        store: Any = EtcdStore([address, address])
        store._channel = store._dial()
        for give_up in (lambda: store._turn_from(store._channel), lambda: None):
            keeping = asyncio.ensure_future(store.keep_lease_alive(7))
            await asyncio.sleep(0)
            give_up()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                with pytest.raises(StoreError, match="DEADLINE_EXCEEDED"):
                    await keeping
        await store.close()


@pytest.mark.alone
async def test_an_idle_connection_to_a_silent_member_is_given_up(
    own_etcd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch waits without a limit of its own: only the connection's probes tell that nobody is there."""
    quick = {
        "grpc.keepalive_time_ms": 200,
        # A member that answers must not be given up because the machine is busy.
        "grpc.keepalive_timeout_ms": 1_500,
        "grpc.http2.ping_timeout_ms": 1_500,
    }
    assert quick.keys() <= dict(etcd._CHANNEL_OPTIONS).keys()
    options = tuple((name, quick.get(name, value)) for name, value in etcd._CHANNEL_OPTIONS)
    monkeypatch.setattr(etcd, "_CHANNEL_OPTIONS", options)
    given_up = asyncio.Event()
    store, writer = EtcdStore([own_etcd.endpoint]), EtcdStore([own_etcd.endpoint])
    monkeypatch.setattr(store, "_turn_from", lambda _: given_up.set())
    await store.open()
    revision = await store.transact([], [Put("a", b"1")])
    async with aclosing(store.watch(revision)) as watch:  # type: ignore[type-var]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert (await anext(watch)).revision == revision
            waiting = asyncio.ensure_future(anext(watch))
            own_etcd.pause()
            await given_up.wait()
            own_etcd.resume()
            await writer.open()
            # By another connection: what the silent one was about to end with it may end another call as well.
            revision = await writer.transact([], [Put("b", b"2")])
            assert (await waiting).revision == revision
    await store.close()
    await writer.close()


async def test_compacted_history_says_so(own_etcd: Any) -> None:
    store = EtcdStore([own_etcd.endpoint])
    await store.open()
    revisions = [await store.transact([], [Put("a", b"%d" % number)]) for number in range(5)]
    command = ["etcdctl", f"--endpoints={own_etcd.endpoint}", "compact", str(revisions[3])]
    await asyncio.to_thread(
        subprocess.run, command, check=True, capture_output=True, env={"ETCDCTL_API": "3"}
    )
    async with aclosing(store.watch(revisions[0])) as watch:  # type: ignore[type-var]
        with pytest.raises(RevisionCompacted, match="take a snapshot"):
            await asyncio.wait_for(anext(watch), WAIT_SECONDS_MAX)
    await store.close()


async def test_closing_ends_a_watch(etcd_server: Any) -> None:
    store = EtcdStore([etcd_server.endpoint], "closing/")
    await store.open()
    waiting = asyncio.ensure_future(anext(store.watch((await store.snapshot()).revision + 1)))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await asyncio.wait_for(waiting, WAIT_SECONDS_MAX)
