"""A quorum store in memory that keeps to `controller/store/protocol.py`: what all controllers of a simulation share.

`Quorum` is the store's own servers, which never fail and whose time is the event loop's; a `QuorumStore` is one
controller's way to it, which takes time and may be cut.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from barnabas.controller.store.protocol import (
    TRANSACTION_OPERATIONS_MAX,
    Change,
    Changes,
    Compare,
    CompareFailed,
    Delete,
    DeletePrefix,
    KeyAbsent,
    Lease,
    LeaseLost,
    ModRevisionEquals,
    Operation,
    Put,
    RevisionCompacted,
    Snapshot,
    StoredValue,
    StoreError,
    ValueEquals,
)

HISTORY_REVISIONS_MAX: Final = 10_000


class Quorum:
    """Owner of what is stored, of its history, and of the leases."""

    def __init__(self) -> None:
        self.revision = 0
        self.oldest = 1
        self._entries: dict[str, StoredValue] = {}
        self._leased: dict[str, int] = {}
        """The lease of each key that has one."""
        self._history: list[Changes] = []
        self._leases: dict[int, tuple[int, asyncio.TimerHandle]] = {}
        self._next_lease_id = 1
        self._changed = asyncio.Event()
        self._context = contextvars.copy_context()
        """Nobody's: who made a lease may end before it."""

    async def wait(self) -> None:
        """Until something has changed, or somebody wants a look."""
        await self._changed.wait()

    def wake(self) -> None:
        """Have all who wait look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        for compare in compares:
            if not self._holds(compare):
                raise CompareFailed(f"the store changed: {compare} does not hold")
        for operation in operations:
            lease_id = operation.lease_id if isinstance(operation, Put) else 0
            if lease_id and lease_id not in self._leases:
                raise LeaseLost(f"lease {lease_id} is gone")
        changes: dict[str, Change] = {}
        for operation in operations:
            for change in self._changes(operation):
                assert change.key not in changes, f"{change.key} is changed twice in a transaction"
                changes[change.key] = change
        if changes:
            self._store(changes, operations)
        return self.revision

    def _store(self, changes: dict[str, Change], operations: Sequence[Operation]) -> None:
        leases = {each.key: each.lease_id for each in operations if isinstance(each, Put)}
        self.revision += 1
        for key, change in changes.items():
            self._leased.pop(key, None)
            if change.value is None:
                del self._entries[key]
            else:
                self._entries[key] = StoredValue(change.value, self.revision)
                if leases[key]:
                    self._leased[key] = leases[key]
        self._history.append(Changes(self.revision, tuple(changes.values())))
        if len(self._history) > HISTORY_REVISIONS_MAX:
            self._history.pop(0)
            self.oldest = self._history[0].revision
        self.wake()

    def _holds(self, compare: Compare) -> bool:
        found = self._entries.get(compare.key)
        match compare:
            case KeyAbsent():
                return found is None
            case ModRevisionEquals():
                return found is not None and found.mod_revision == compare.revision
            case ValueEquals():
                return found is not None and found.value == compare.value

    def _changes(self, operation: Operation) -> list[Change]:
        match operation:
            case Put(key, value):
                return [Change(key, value)]
            case Delete(key):
                return [Change(key, None)] if key in self._entries else []
            case DeletePrefix(prefix):
                return [Change(key, None) for key in sorted(self._entries) if key.startswith(prefix)]

    def snapshot(self, prefix: str) -> Snapshot:
        return Snapshot(
            self.revision,
            {key: entry for key, entry in sorted(self._entries.items()) if key.startswith(prefix)},
        )

    def read_history(self, start: int, prefix: str) -> list[Changes]:
        if start < self.oldest:
            raise RevisionCompacted(start, self.oldest)
        found = []
        for each in self._history:
            changes = tuple(change for change in each.changes if change.key.startswith(prefix))
            if each.revision >= start and changes:
                found.append(Changes(each.revision, changes))
        return found

    def grant(self, ttl_ms: int) -> Lease:
        lease_id, self._next_lease_id = self._next_lease_id, self._next_lease_id + 1
        self._leases[lease_id] = ttl_ms, self._expire_in(lease_id, ttl_ms)
        return Lease(lease_id, ttl_ms)

    def keep_alive(self, lease_id: int) -> None:
        known = self._leases.get(lease_id)
        if known is None:
            raise LeaseLost(f"lease {lease_id} is gone")
        known[1].cancel()
        self._leases[lease_id] = known[0], self._expire_in(lease_id, known[0])

    def revoke(self, lease_id: int) -> None:
        known = self._leases.pop(lease_id, None)
        if known is not None:
            known[1].cancel()
            self.transact([], [Delete(key) for key, lease in self._leased.items() if lease == lease_id])

    def _expire_in(self, lease_id: int, ttl_ms: int) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(ttl_ms / 1000, self.revoke, lease_id, context=self._context)


Trip = Callable[[], Awaitable[None]]
"""One way between a controller and the quorum. Raises StoreError when it is cut."""


async def at_once() -> None:
    """A way that takes no time."""
    await asyncio.sleep(0)


class QuorumStore:
    """A `controller.store.protocol.Store`. Owns nothing but whether it is open."""

    def __init__(
        self,
        quorum: Quorum,
        trip: Trip = at_once,
        on_write: Callable[[Sequence[Operation]], None] = lambda _: None,
    ) -> None:
        """`on_write` is told of a transaction before it is on its way."""
        self._quorum = quorum
        self._trip = trip
        self._on_write = on_write
        self._is_open = False

    async def open(self) -> None:
        await self._trip()
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False
        self._quorum.wake()

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        assert len(operations) <= TRANSACTION_OPERATIONS_MAX, f"{len(operations)} operations in a transaction"
        self._on_write(operations)
        await self._there()
        revision = self._quorum.transact(compares, operations)
        await self._trip()  # the answer may be lost
        return revision

    async def snapshot(self, prefix: str = "") -> Snapshot:
        await self._there()
        found = self._quorum.snapshot(prefix)
        await self._trip()
        return found

    async def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Changes]:
        next_revision = from_revision
        await self._there()
        while self._is_open:
            seen = self._quorum.revision
            for changes in self._quorum.read_history(next_revision, prefix):
                yield changes
            next_revision = max(next_revision, seen + 1)
            if self._quorum.revision == seen:
                await self._quorum.wait()
                await self._trip()

    async def grant_lease(self, ttl_ms: int) -> Lease:
        await self._there()
        lease = self._quorum.grant(ttl_ms)
        await self._trip()
        return lease

    async def keep_lease_alive(self, lease_id: int) -> None:
        await self._there()
        self._quorum.keep_alive(lease_id)
        await self._trip()

    async def revoke_lease(self, lease_id: int) -> None:
        await self._there()
        self._quorum.revoke(lease_id)
        await self._trip()

    async def _there(self) -> None:
        if not self._is_open:
            raise StoreError("the metadata store is closed")
        await self._trip()
