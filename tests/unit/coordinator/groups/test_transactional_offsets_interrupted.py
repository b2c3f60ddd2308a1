"""Offsets inside transactions: logs that take no writes, answers that are lost, coordinators that come and go."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running, until, until_writing
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.records import OffsetRecord
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode

NONE = ErrorCode.none
UNSTABLE = ErrorCode.unstable_offset_commit
LOADING = ErrorCode.coordinator_load_in_progress


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MIN", 1)
    monkeypatch.setattr(limits, "LOAD_RETRY_MS_MAX", 2)
    monkeypatch.setattr(limits, "APPEND_RETRY_MS_MIN", 1)
    monkeypatch.setattr(limits, "APPEND_RETRY_MS_MAX", 2)


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@pytest.fixture
def node(log: LogInMemory) -> Node:
    node = Node("a", log)
    node.see("a")
    return node


async def test_a_log_that_takes_no_writes(node: Node, log: LogInMemory) -> None:
    """What is committed is told: an offset whose marker is on its way is still in an open transaction."""
    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        log.fail_with = ErrorCode.kafka_storage_error
        end = asyncio.ensure_future(node.complete())
        await until(lambda: node.state() is PartitionState.READ_ONLY)
        assert await end is LOADING
        assert await node.fetch() == 3
        assert await node.fetch(stable=True) is UNSTABLE
        asked = len(node.questions.asked)
        assert await node.commit_in_transaction(6, producer=(8, 0)) is LOADING
        assert len(node.questions.asked) == asked
        assert await node.complete() is LOADING
        log.fail_with = None
        await until(lambda: node.state() is PartitionState.SERVING)
        assert await node.fetch(stable=True) == 5  # the marker has landed after all
        assert await node.complete() is NONE  # and is sent again


async def test_a_tombstone_on_its_way_when_the_log_takes_no_writes(node: Node, log: LogInMemory) -> None:
    async with running(node):
        assert await node.commit_in_transaction(5) is NONE
        log.fail_with = ErrorCode.kafka_storage_error
        delete = asyncio.ensure_future(node.delete_offset())
        await until(lambda: node.state() is PartitionState.READ_ONLY)
        assert await delete is LOADING
        assert await node.fetch(stable=True) is UNSTABLE
        log.fail_with = None
        await until(lambda: node.state() is PartitionState.SERVING)
        assert await node.fetch(stable=True) == -1


@pytest.mark.parametrize("committed", [True, False])
async def test_a_coordinator_takes_over_with_pending_offsets(
    node: Node, log: LogInMemory, committed: bool
) -> None:
    other = Node("b", log)
    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5, producer=(7, 2)) is NONE
        assert await node.commit_in_transaction(6, group="h", producer=(8, 2)) is NONE
        assert await node.complete(producer=(8, 2), coordinator_epoch=4) is NONE
    log.epochs[0] = 1
    other.see("b", epoch=1)
    async with running(other):
        await until_writing(other)
        assert await other.fetch(stable=True) is UNSTABLE
        assert await other.fetch(group="h", stable=True) == 6
        # It asks nobody about a transaction that is open in its log, and knows who is fenced.
        assert await other.commit_in_transaction(7, topic="u", producer=(7, 2)) is NONE
        assert other.questions.asked == []
        assert await other.commit_in_transaction(7, producer=(7, 1)) is ErrorCode.invalid_producer_epoch
        fenced = await other.complete(producer=(8, 2), coordinator_epoch=3)
        assert fenced is ErrorCode.transaction_coordinator_fenced
        assert await other.complete(producer=(7, 2), committed=committed) is NONE
        assert await other.fetch(stable=True) == (5 if committed else 3)


async def test_what_compaction_left_out_its_leader_still_knows(node: Node, log: LogInMemory) -> None:
    async with running(node):
        assert await node.complete(producer=(7, 5), coordinator_epoch=3) is NONE
    log.batches[0].clear()
    log.epochs[0] = 1
    other = Node("b", log)
    other.see("b", epoch=1)
    async with running(other):
        await until_writing(other)
        assert await other.commit_in_transaction(1, producer=(7, 4)) is ErrorCode.invalid_producer_epoch
        fenced = await other.complete(producer=(7, 5), coordinator_epoch=2)
        assert fenced is ErrorCode.transaction_coordinator_fenced


async def test_what_the_leader_knows_better_is_learnt_from_it(
    node: Node, log: LogInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that was forgotten here: the log refuses the marker, and the next try is refused for what it is."""
    monkeypatch.setattr(limits, "KNOWN_PRODUCERS_MAX", 1)
    async with running(node):
        assert await node.complete(producer=(7, 5)) is NONE
        assert await node.complete(producer=(8, 0)) is NONE
        assert await node.complete(producer=(7, 4)) is LOADING
        await until(lambda: node.state() is PartitionState.SERVING)
        assert await node.complete(producer=(7, 4)) is ErrorCode.invalid_producer_epoch


async def test_an_answer_of_the_log_that_is_lost(node: Node, log: LogInMemory) -> None:
    async with running(node):
        log.lose_answer = True
        assert await node.commit_in_transaction(5) in (NONE, LOADING)
        await until(lambda: node.state() is PartitionState.SERVING)
        assert await node.commit_in_transaction(5) is NONE
        assert len([record for record in log.records() if isinstance(record, OffsetRecord)]) in (1, 2)
        log.lose_answer = True
        assert await node.complete() in (NONE, LOADING)
        await until(lambda: node.state() is PartitionState.SERVING)
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 5


async def test_offsets_may_be_committed_again_in_the_same_transaction(node: Node) -> None:
    async with running(node):
        for offset in (5, 6, 4):
            assert await node.commit_in_transaction(offset) is NONE
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 4


async def test_a_transactions_coordinator_that_does_not_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_ANSWER_SECONDS", 0.0)
    async with running(node):
        node.questions.gate = asyncio.Event()
        assert await node.commit_in_transaction(5) is LOADING
        node.questions.gate.set()
        monkeypatch.undo()
        assert await node.commit_in_transaction(5) is NONE
