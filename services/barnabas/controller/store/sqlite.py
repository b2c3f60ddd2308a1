"""The store of one machine: a SQLite file, held by one process at a time.

The database runs in WAL mode with full synchronisation, so an answered transaction survives a power cut. All SQL
runs in one thread of its own. Recent changes are kept in a table, from which watches are served; leases live in
memory, because they end with the process that holds the file.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from barnabas.controller import limits
from barnabas.controller.store.protocol import (
    TRANSACTION_OPERATIONS_MAX,
    Change,
    Changes,
    Compare,
    Lease,
    LeaseLost,
    Operation,
    RevisionCompacted,
    Snapshot,
    StoreDamaged,
    StoreError,
    StoreInUse,
)
from barnabas.controller.store.sqlite_transaction import Database, check_file, create_schema, prefix_range
from barnabas.kernel.threads import Threads

T = TypeVar("T")


class SqliteStore:
    """Owner of the metadata file `path`: nothing else writes to it while this is open."""

    def __init__(
        self,
        path: Path,
        threads: Threads,
        *,
        history_revisions_max: int = limits.SQLITE_HISTORY_REVISIONS_MAX,
    ) -> None:
        self._path = path
        self._threads = threads
        self._history_revisions_max = history_revisions_max
        self._database: Database | None = None
        self._thread: Executor | None = None
        self._changed = asyncio.Event()
        self._leases: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._next_lease_id = 1
        self._expiries: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        assert self._thread is None, "a store is opened once"
        self._thread = self._threads.executor("metadata-store", 1)
        try:
            self._database = await self._in_thread(self._connect)
        except StoreError:
            self._thread.shutdown()
            self._thread = None
            raise

    async def close(self) -> None:
        if self._thread is None:
            return
        for _, timer in self._leases.values():
            timer.cancel()
        self._leases.clear()
        if self._expiries:
            await asyncio.gather(*self._expiries, return_exceptions=True)
        database, self._database = self._database, None
        if database is not None:
            await self._in_thread(database.close)
        thread, self._thread = self._thread, None
        thread.shutdown()
        self._wake_watches()

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        assert len(operations) <= TRANSACTION_OPERATIONS_MAX, f"{len(operations)} operations in a transaction"
        for operation in operations:
            lease_id = getattr(operation, "lease_id", 0)
            if lease_id and lease_id not in self._leases:
                raise LeaseLost(f"lease {lease_id} is gone")
        revision, changed = await self._on_database(lambda db: db.transact(compares, operations))
        if changed:
            self._wake_watches()
        return revision

    async def snapshot(self, prefix: str = "") -> Snapshot:
        return await self._on_database(lambda db: db.snapshot(prefix))

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Changes]:
        low, high = prefix_range(prefix)
        next_revision = from_revision
        while True:
            changed = self._changed
            oldest, last_read, batch = await self._on_database(
                lambda db, start=next_revision: db.read_history(
                    start, low, high, limits.SQLITE_WATCH_READ_REVISIONS_MAX
                )  # type: ignore[misc]
            )
            if next_revision < oldest:
                raise RevisionCompacted(next_revision, oldest)
            for revision, changes in batch:
                yield Changes(revision, tuple(Change(key, value) for key, value in changes))
            if last_read >= next_revision:
                next_revision = last_read + 1
            else:
                await changed.wait()

    async def grant_lease(self, ttl_ms: int) -> Lease:
        self._opened()
        lease_id = self._next_lease_id
        self._next_lease_id += 1
        self._leases[lease_id] = (ttl_ms, self._expire_in(lease_id, ttl_ms))
        return Lease(lease_id, ttl_ms)

    async def keep_lease_alive(self, lease_id: int) -> None:
        known = self._leases.get(lease_id)
        if known is None:
            raise LeaseLost(f"lease {lease_id} is gone")
        ttl_ms, timer = known
        timer.cancel()
        self._leases[lease_id] = (ttl_ms, self._expire_in(lease_id, ttl_ms))

    async def revoke_lease(self, lease_id: int) -> None:
        known = self._leases.pop(lease_id, None)
        if known is None:
            return
        known[1].cancel()
        await self._on_database(lambda db: db.end_lease(lease_id))
        self._wake_watches()

    def _expire_in(self, lease_id: int, ttl_ms: int) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ttl_ms / 1000, self._on_lease_expired, lease_id)

    def _on_lease_expired(self, lease_id: int) -> None:
        task = asyncio.ensure_future(self.revoke_lease(lease_id))
        self._expiries.add(task)
        task.add_done_callback(self._expiries.discard)

    def _wake_watches(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _connect(self) -> Database:
        """Runs in the store's thread. A file that is in use or damaged is only read, never written to."""
        connection = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=0, check_same_thread=False, cached_statements=64
            )
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            is_new = check_file(connection, self._path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN EXCLUSIVE")
            if is_new:
                create_schema(connection)
            connection.execute("COMMIT")
            database = Database(connection, self._history_revisions_max)
            database.end_all_leases()
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise self._translate(error) from error
            raise
        return database

    def _opened(self) -> Database:
        if self._database is None:
            raise StoreError(f"the metadata store {self._path} is closed")
        return self._database

    async def _on_database(self, work: Callable[[Database], T]) -> T:
        database = self._opened()
        return await self._in_thread(lambda: work(database))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        assert self._thread is not None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._translate(error) from error

    def _translate(self, error: sqlite3.Error | OSError) -> StoreError:
        text = str(error)
        if "locked" in text:
            return StoreInUse(
                f"the metadata store {self._path} is in use by another process: stop it, or set another data_dir"
            )
        if "not a database" in text or "malformed" in text or "corrupt" in text:
            return StoreDamaged(
                f"the metadata store {self._path} is damaged ({text}): restore a backup; nothing was changed"
            )
        return StoreError(f"the metadata store {self._path} cannot be used: {text}")
