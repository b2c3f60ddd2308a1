"""What every metadata store must do: the same tests for SQLite and for a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from barnabas.controller.store.protocol import (
    TRANSACTION_BYTES_MAX,
    Change,
    Changes,
    CompareFailed,
    Delete,
    DeletePrefix,
    KeyAbsent,
    LeaseLost,
    ModRevisionEquals,
    Put,
    Store,
    ValueEquals,
)

WAIT_SECONDS_MAX = 15.0


async def next_change(watch: AsyncIterator[Changes]) -> Changes:
    return await asyncio.wait_for(anext(watch), WAIT_SECONDS_MAX)


async def values(store: Store, prefix: str = "") -> dict[str, bytes]:
    return {key: entry.value for key, entry in (await store.snapshot(prefix)).entries.items()}


async def test_revisions_rise_and_snapshot_tells_the_last_write(store: Store) -> None:
    first = await store.transact([], [Put("a", b"1"), Put("b", b"2")])
    second = await store.transact([], [Put("a", b"3")])
    snapshot = await store.snapshot()
    assert second > first
    assert snapshot.revision == second
    assert {k: (e.value, e.mod_revision) for k, e in snapshot.entries.items()} == {
        "a": (b"3", second),
        "b": (b"2", first),
    }


async def test_snapshot_of_a_prefix_holds_nothing_else(store: Store) -> None:
    await store.transact(
        [], [Put("topics/a", b"1"), Put("topics/b", b"2"), Put("topic", b"3"), Put("u", b"4")]
    )
    assert await values(store, "topics/") == {"topics/a": b"1", "topics/b": b"2"}


async def test_keys_and_values_are_any_text_and_bytes(store: Store) -> None:
    awkward = {"configs/2/ä%_'\"": b"\x00\xff", "configs/4/": b""}
    await store.transact([], [Put(key, value) for key, value in awkward.items()])
    assert await values(store, "configs/") == awkward


async def test_key_absent(store: Store) -> None:
    await store.transact([KeyAbsent("a")], [Put("a", b"1")])
    with pytest.raises(CompareFailed):
        await store.transact([KeyAbsent("a")], [Put("a", b"2")])
    assert await values(store) == {"a": b"1"}


async def test_mod_revision_equals(store: Store) -> None:
    with pytest.raises(CompareFailed):
        await store.transact([ModRevisionEquals("a", 1)], [Put("b", b"1")])
    first = await store.transact([], [Put("a", b"1")])
    await store.transact([ModRevisionEquals("a", first)], [Put("a", b"1")])
    with pytest.raises(CompareFailed):
        await store.transact([ModRevisionEquals("a", first)], [Put("b", b"1")])
    assert await values(store) == {"a": b"1"}


async def test_value_equals(store: Store) -> None:
    await store.transact([], [Put("a", b"1")])
    await store.transact([ValueEquals("a", b"1")], [Put("b", b"1")])
    with pytest.raises(CompareFailed):
        await store.transact([ValueEquals("a", b"2")], [Put("c", b"1")])
    with pytest.raises(CompareFailed):
        await store.transact([ValueEquals("nobody", b"")], [Put("c", b"1")])
    assert await values(store) == {"a": b"1", "b": b"1"}


async def test_a_failed_compare_changes_nothing_and_takes_no_revision(store: Store) -> None:
    revision = await store.transact([], [Put("a", b"1")])
    with pytest.raises(CompareFailed):
        await store.transact([KeyAbsent("b"), KeyAbsent("a")], [Put("b", b"1"), Delete("a")])
    snapshot = await store.snapshot()
    assert snapshot.revision == revision
    assert list(snapshot.entries) == ["a"]


async def test_deletes(store: Store) -> None:
    await store.transact([], [Put(key, b"x") for key in ("p/1/0", "p/1/1", "p/10/0", "q")])
    await store.transact([], [DeletePrefix("p/1/"), Delete("q"), Delete("nobody"), Put("r", b"y")])
    assert await values(store) == {"p/10/0": b"x", "r": b"y"}


async def test_a_hundred_operations_in_one_transaction(store: Store) -> None:
    await store.transact([KeyAbsent("k/0")], [Put(f"k/{n}", b"v") for n in range(100)])
    assert len(await values(store, "k/")) == 100


async def test_as_many_bytes_in_one_transaction_as_the_protocol_allows(store: Store) -> None:
    half = b"x" * (TRANSACTION_BYTES_MAX // 2 - 8)
    await store.transact([KeyAbsent("k/0")], [Put("k/0", half), Put("k/1", half)])
    assert await values(store, "k/") == {"k/0": half, "k/1": half}


async def test_a_transaction_may_be_made_again(store: Store) -> None:
    """What a controller did not live to hear of, its successor does again."""
    operations = [DeletePrefix("p/"), Delete("q"), Put("r", b"1")]
    await store.transact([], [Put("p/1", b"x"), Put("q", b"x")])
    first = await store.transact([], operations)
    assert await store.transact([], operations) > first
    assert await values(store) == {"r": b"1"}


async def test_a_long_snapshot_is_complete(store: Store) -> None:
    for start in range(0, 2300, 100):
        await store.transact([], [Put(f"k/{n}", b"%d" % n) for n in range(start, start + 100)])
    snapshot = await store.snapshot("k/")
    assert {key: entry.value for key, entry in snapshot.entries.items()} == {
        f"k/{n}": b"%d" % n for n in range(2300)
    }


async def test_watch_gives_history_then_what_comes_grouped_by_transaction(store: Store) -> None:
    first = await store.transact([], [Put("a", b"1")])
    second = await store.transact([], [Put("b", b"2"), Delete("a")])
    async with aclosing(store.watch(first)) as watch:  # type: ignore[type-var]
        assert await next_change(watch) == Changes(first, (Change("a", b"1"),))
        both = await next_change(watch)
        assert both.revision == second
        assert set(both.changes) == {Change("a", None), Change("b", b"2")}
        waiting = asyncio.ensure_future(next_change(watch))
        third = await store.transact([], [Put("c", b"3")])
        assert await waiting == Changes(third, (Change("c", b"3"),))


async def test_watch_of_a_prefix_skips_other_keys(store: Store) -> None:
    start = (await store.snapshot()).revision + 1
    await store.transact([], [Put("b/1", b"no")])
    revision = await store.transact([], [Put("a/1", b"yes"), Put("b/2", b"no")])
    async with aclosing(store.watch(start, "a/")) as watch:  # type: ignore[type-var]
        assert await next_change(watch) == Changes(revision, (Change("a/1", b"yes"),))


async def test_watch_reports_each_key_of_a_deleted_prefix(store: Store) -> None:
    await store.transact([], [Put("p/1", b"x"), Put("p/2", b"x")])
    revision = await store.transact([], [DeletePrefix("p/")])
    async with aclosing(store.watch(revision)) as watch:  # type: ignore[type-var]
        changes = await next_change(watch)
    assert set(changes.changes) == {Change("p/1", None), Change("p/2", None)}


async def test_a_key_goes_with_its_revoked_lease(store: Store) -> None:
    lease = await store.grant_lease(60_000)
    revision = await store.transact([KeyAbsent("leader")], [Put("leader", b"me", lease.lease_id)])
    await store.revoke_lease(lease.lease_id)
    assert await values(store) == {}
    async with aclosing(store.watch(revision + 1)) as watch:  # type: ignore[type-var]
        assert (await next_change(watch)).changes == (Change("leader", None),)
    await store.revoke_lease(lease.lease_id)
    with pytest.raises(LeaseLost):
        await store.keep_lease_alive(lease.lease_id)
    with pytest.raises(LeaseLost):
        await store.transact([], [Put("leader", b"me", lease.lease_id)])


async def test_a_lease_expires_when_it_is_not_kept_alive(store: Store) -> None:
    lease = await store.grant_lease(1000)
    assert lease.ttl_ms >= 1000
    await store.keep_lease_alive(lease.lease_id)
    revision = await store.transact([], [Put("leader", b"me", lease.lease_id)])
    async with aclosing(store.watch(revision + 1)) as watch:  # type: ignore[type-var]
        assert (await next_change(watch)).changes == (Change("leader", None),)
    with pytest.raises(LeaseLost):
        await store.keep_lease_alive(lease.lease_id)


async def test_only_one_of_two_racing_writers_wins(store: Store) -> None:
    async def write(name: bytes) -> bool:
        try:
            await store.transact([KeyAbsent("election")], [Put("election", name)])
        except CompareFailed:
            return False
        return True

    won = await asyncio.gather(*(write(b"%d" % n) for n in range(8)))
    assert sum(won) == 1
    assert await values(store) == {"election": b"%d" % won.index(True)}
