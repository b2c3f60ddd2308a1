"""A decision is stored whole or not at all, however many records it has.

What fits into one transaction of the store is one. Of a larger decision, the records are first stored as parts under
keys of their own; the transaction that stores the last part marks them as decided, and that is the moment of truth.
Then the records are stored under the keys that they belong to, and the parts are deleted. Whoever becomes active
finishes what is marked and drops what is not, before it reads the metadata: nobody ever reads half a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.controller.store.protocol import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_OPERATIONS_MAX,
    Compare,
    Delete,
    DeletePrefix,
    Operation,
    Put,
    Snapshot,
    Store,
)
from barnabas.kernel.logs import get_logger
from barnabas.messages.metadata_pb2 import DecisionPart, MetadataRecord

DECISION_PREFIX: Final = "decision/"
"""Parts of the decision that is being stored; not part of the metadata."""

DECIDED_KEY: Final = f"{DECISION_PREFIX}decided"
"""Holds the number of parts, once all of them are stored."""

RECORD_BYTES_MAX: Final = TRANSACTION_BYTES_MAX // 2
"""The largest record: with its key it must fit into one transaction."""

PART_BYTES_MAX: Final = TRANSACTION_BYTES_MAX - 64 * 1024
"""Records in one part; the rest of the transaction is for keys and framing."""

log = get_logger("controller.decisions")


@dataclass(frozen=True, slots=True)
class PlannedDecision:
    """The operations that store a decision's records under their keys, in transactions that the store takes."""

    records: Sequence[MetadataRecord]
    transactions: Sequence[Sequence[Operation]]


def plan_decision(records: Iterable[MetadataRecord], deleted_prefixes: Sequence[str] = ()) -> PlannedDecision:
    """Operations in the order of the records; the deletions under one of `deleted_prefixes` become one operation."""
    listed = list(records)
    return PlannedDecision(listed, list(_transactions(_operations(listed, deleted_prefixes))))


async def decide(store: Store, compare: Compare, planned: PlannedDecision) -> int:
    """Make the decision true; the store's revision with it. Call `apply_decision` next when it was too large.

    Raises CompareFailed when nothing was decided, StoreError when it is not known.
    """
    if len(planned.transactions) <= 1:
        operations = planned.transactions[0] if planned.transactions else ()
        return await store.transact([compare], operations)
    parts = list(_parts(planned.records))
    revision = 0
    for number, part in enumerate(parts, start=1):
        operations = [Put(f"{DECISION_PREFIX}parts/{number:08}", part)]
        if number == len(parts):
            operations.append(Put(DECIDED_KEY, b"%d" % len(parts)))
        revision = await store.transact([compare], operations)
    return revision


async def apply_decision(store: Store, compare: Compare, planned: PlannedDecision) -> None:
    """Store the records of a decision under their keys, where `decide` has not done so. Raises StoreError."""
    if len(planned.transactions) > 1:
        for operations in planned.transactions:
            await store.transact([compare], operations)
        await store.transact([compare], [DeletePrefix(DECISION_PREFIX)])


async def settle_decision(store: Store, compare: Compare) -> None:
    """Finish the decision that a former controller left, or drop it if it was not decided. Raises StoreError."""
    left = await store.snapshot(DECISION_PREFIX)
    if not left.entries:
        return
    decided = left.entries.get(DECIDED_KEY)
    if decided is None:
        log.info("dropped what a former controller did not finish deciding", parts=len(left.entries))
        await store.transact([compare], [DeletePrefix(DECISION_PREFIX)])
        return
    planned = plan_decision(_records_of(left, int(decided.value)))
    log.info("storing what a former controller decided", records=len(planned.records))
    for operations in planned.transactions:
        await store.transact([compare], operations)
    await store.transact([compare], [DeletePrefix(DECISION_PREFIX)])


def _records_of(left: Snapshot, parts: int) -> Iterator[MetadataRecord]:
    for number in range(1, parts + 1):
        entry = left.entries[f"{DECISION_PREFIX}parts/{number:08}"]
        yield from DecisionPart.FromString(entry.value).records


def _parts(records: Iterable[MetadataRecord]) -> Iterator[bytes]:
    part, size = DecisionPart(), 0
    for record in records:
        record_bytes = record.ByteSize() + 8
        if size and size + record_bytes > PART_BYTES_MAX:
            yield part.SerializeToString()
            part, size = DecisionPart(), 0
        part.records.append(record)
        size += record_bytes
    yield part.SerializeToString()


def _operations(records: Iterable[MetadataRecord], prefixes: Sequence[str]) -> Iterator[Operation]:
    deleted = set()
    for record in records:
        if record.WhichOneof("value") is not None:
            yield Put(record.key, record.SerializeToString())
            continue
        prefix = next((prefix for prefix in prefixes if record.key.startswith(prefix)), None)
        if prefix is None:
            yield Delete(record.key)
        elif prefix not in deleted:
            deleted.add(prefix)
            yield DeletePrefix(prefix)


def _transactions(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    taken: list[Operation] = []
    size = 0
    for operation in operations:
        operation_bytes = _size(operation)
        if taken and (
            len(taken) == TRANSACTION_OPERATIONS_MAX or size + operation_bytes > TRANSACTION_BYTES_MAX
        ):
            yield taken
            taken, size = [], 0
        taken.append(operation)
        size += operation_bytes
    if taken:
        yield taken


def _size(operation: Operation) -> int:
    match operation:
        case Put(key, value):
            return len(key) + len(value)
        case Delete(key) | DeletePrefix(key):
            return len(key)
