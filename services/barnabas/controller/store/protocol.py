"""What the controller asks of a quorum store, and nothing more: two adapters (SQLite, etcd) keep to it.

Keys are strings, values bytes. Every transaction that changes something gets a revision of its own, higher than
all before it; revisions need not be dense. A key is changed at most once in a transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

TRANSACTION_OPERATIONS_MAX: Final = 100
"""Operations in one transaction, at most. etcd refuses more than 128 by default (`--max-txn-ops`)."""

TRANSACTION_BYTES_MAX: Final = 1024 * 1024
"""Bytes of keys and values in one transaction, at most. etcd refuses requests of more than 1.5 MiB by default
(`--max-request-bytes`)."""


@dataclass(frozen=True, slots=True)
class KeyAbsent:
    """Holds while nothing is stored under `key`."""

    key: str


@dataclass(frozen=True, slots=True)
class ModRevisionEquals:
    """Holds while `key` was last written at `revision`."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ValueEquals:
    """Holds while exactly `value` is stored under `key`."""

    key: str
    value: bytes


Compare = KeyAbsent | ModRevisionEquals | ValueEquals


@dataclass(frozen=True, slots=True)
class Put:
    """Store `value` under `key`; with a lease, the key goes when the lease does."""

    key: str
    value: bytes
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove `key` if it is there."""

    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Remove every key that starts with `prefix`."""

    prefix: str


Operation = Put | Delete | DeletePrefix


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value and the revision at which it was written."""

    value: bytes
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every key of a prefix as it was at one revision."""

    revision: int
    entries: Mapping[str, StoredValue]


@dataclass(frozen=True, slots=True)
class Change:
    """What one transaction did to one key; a value of None means that it is gone."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Changes:
    """All that one transaction changed under the watched prefix."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as granted: the store may make it longer than it was asked to."""

    lease_id: int
    ttl_ms: int


class StoreError(Exception):
    """The store cannot be used now. A write that failed with it may or may not have happened."""


class StoreInUse(StoreError):
    """Another process holds the store's file."""


class StoreDamaged(StoreError):
    """The store's file is not what this program wrote. It is left as it was found."""


class CompareFailed(StoreError):
    """A compare did not hold, so the transaction changed nothing."""


class RevisionCompacted(StoreError):
    """The history asked for is gone: take a snapshot and watch from there."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} was compacted away, the oldest kept is {oldest}: take a snapshot")
        self.oldest = oldest


class LeaseLost(StoreError):
    """The lease expired or was revoked, and its keys are gone."""


class Store(Protocol):
    """The quorum store as the controller sees it."""

    async def open(self) -> None:
        """Connect. Raises StoreError with one line for the operator."""
        ...

    async def close(self) -> None:
        """Let go of files and connections; watches end."""
        ...

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int:
        """Make all changes, or none when a compare fails; the store's revision after it.

        At most TRANSACTION_OPERATIONS_MAX operations of TRANSACTION_BYTES_MAX together, no two of which touch the
        same key. Raises CompareFailed when nothing was changed, LeaseLost for a put under an unknown lease, StoreError
        when it is not known.
        """
        ...

    async def snapshot(self, prefix: str = "") -> Snapshot:
        """All keys that start with `prefix`, at one revision, which no transaction answered before is newer than."""
        ...

    def watch(self, from_revision: int, prefix: str = "") -> AsyncIterator[Changes]:
        """Every transaction from `from_revision` on that touched `prefix`, in order, then those to come.

        Raises RevisionCompacted when the history does not reach back that far.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> Lease:
        """A new lease that lives for `ttl_ms` milliseconds or a little longer unless it is kept alive."""
        ...

    async def keep_lease_alive(self, lease_id: int) -> None:
        """Give the lease its full time again. Raises LeaseLost when there is no such lease any more."""
        ...

    async def revoke_lease(self, lease_id: int) -> None:
        """End the lease and delete its keys; nothing happens when it is gone already."""
        ...
