"""What only the SQLite store does: files that outlive it, that others hold, that are damaged."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing
from pathlib import Path

import pytest

from barnabas.controller.store.protocol import (
    KeyAbsent,
    Put,
    RevisionCompacted,
    StoreDamaged,
    StoreError,
    StoreInUse,
)
from barnabas.controller.store.sqlite import SqliteStore
from barnabas.kernel.threads import SystemThreads


async def stored(path: Path) -> SqliteStore:
    store = SqliteStore(path, SystemThreads())
    await store.open()
    await store.transact([KeyAbsent("a")], [Put("a", b"1")])
    return store


async def test_what_was_stored_is_there_after_a_restart_and_leases_are_not(tmp_path: Path) -> None:
    store = await stored(tmp_path / "deep" / "metadata.db")
    lease = await store.grant_lease(60_000)
    revision = await store.transact([], [Put("election", b"me", lease.lease_id)])
    await store.close()
    again = SqliteStore(tmp_path / "deep" / "metadata.db", SystemThreads())
    await again.open()
    snapshot = await again.snapshot()
    assert list(snapshot.entries) == ["a"]
    assert snapshot.revision == revision + 1
    await again.close()


async def test_a_file_in_use_is_refused_in_one_line_and_its_owner_goes_on(tmp_path: Path) -> None:
    store = await stored(tmp_path / "metadata.db")
    with pytest.raises(StoreInUse, match="in use by another process: stop it") as caught:
        await SqliteStore(tmp_path / "metadata.db", SystemThreads()).open()
    assert "\n" not in str(caught.value)
    await store.transact([], [Put("b", b"2")])
    assert len((await store.snapshot()).entries) == 2
    await store.close()


async def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    store = await stored(path)
    for number in range(50):
        await store.transact([], [Put(f"k/{number}", bytes(1000))])
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        await SqliteStore(path, SystemThreads()).open()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"this is not a database at all" * 100, b"SQLite format 3\0" + b"\1" * 500]
)
async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "metadata.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        await SqliteStore(path, SystemThreads()).open()
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    content = path.read_bytes()
    with pytest.raises(StoreDamaged, match="another program"):
        await SqliteStore(path, SystemThreads()).open()
    assert path.read_bytes() == content


async def test_an_impossible_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be used"):
        await SqliteStore(tmp_path / "file" / "metadata.db", SystemThreads()).open()


async def test_history_is_bounded_and_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata.db", SystemThreads(), history_revisions_max=5)
    await store.open()
    revisions = [await store.transact([], [Put("a", b"%d" % number)]) for number in range(12)]
    with pytest.raises(RevisionCompacted, match="take a snapshot") as caught:
        async with aclosing(store.watch(revisions[0])) as watch:  # type: ignore[type-var]
            await anext(watch)
    assert caught.value.oldest == revisions[-5]
    async with aclosing(store.watch(caught.value.oldest)) as watch:  # type: ignore[type-var]
        assert [(await anext(watch)).revision for _ in range(5)] == revisions[-5:]
    await store.close()


async def test_a_watch_ends_when_the_store_closes(tmp_path: Path) -> None:
    store = await stored(tmp_path / "metadata.db")
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.snapshot()
    with pytest.raises(StoreError, match="closed"):
        await anext(store.watch(1))
