"""Offsets inside transactions: commits, markers, what is told meanwhile, and what stops in between."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_node import Node, running, until, until_writing
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.records import MarkerRecord, OffsetRecord
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import coordinator_pb2 as pb

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


async def test_an_offset_counts_once_its_transaction_is_committed(node: Node) -> None:
    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        assert await node.fetch() == 3
        assert await node.fetch(stable=True) is UNSTABLE
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 5


async def test_an_aborted_transaction_leaves_the_old_offset(node: Node) -> None:
    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        assert await node.complete(committed=False) is NONE
        assert await node.fetch(stable=True) == 3


async def test_of_two_offsets_that_which_was_committed_later_counts(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(5) is NONE
        assert await node.commit(3) is NONE
        assert await node.fetch(stable=True) is UNSTABLE
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 3
        assert await node.commit_in_transaction(6, producer=(7, 0)) is NONE
        assert await node.commit_in_transaction(7, producer=(8, 0)) is NONE
        assert await node.complete(producer=(8, 0)) is NONE
        assert await node.fetch(stable=True) is UNSTABLE
        assert await node.complete(producer=(7, 0)) is NONE
        assert await node.fetch(stable=True) == 7


async def test_an_offset_that_nothing_was_committed_for_before(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(5) is NONE
        assert await node.fetch() == -1
        assert await node.fetch(stable=True) is UNSTABLE
        assert (await all_topics(node)).topics == []
        assert await node.commit(3) is NONE
        (topic,) = (await all_topics(node)).topics
        (partition,) = topic.partitions
        assert (partition.error_code, partition.committed_offset) == (UNSTABLE, -1)
        assert (partition.committed_leader_epoch, partition.metadata) == (-1, "")


async def all_topics(node: Node) -> pb.OffsetFetchResponse:
    return await node.calls.OffsetFetch(
        pb.OffsetFetchRequest(group_id="g", all_topics=True, require_stable=True, member_epoch=-1)
    )


# -- asking the transaction's coordinator ---------------------------------------------------------------------------


@pytest.mark.parametrize("adds", [False, True])
async def test_its_coordinator_is_asked_once_a_transaction(node: Node, adds: bool) -> None:
    async with running(node):
        assert await node.commit_in_transaction(5, adds=adds) is NONE
        assert await node.commit_in_transaction(6, group="h", adds=adds) is NONE
        assert node.questions.asked == [
            TransactionQuestion("tx", 7, 0, adds, "__consumer_offsets", partition=0)
        ]
        assert await node.complete() is NONE
        assert await node.commit_in_transaction(7, adds=adds) is NONE
        assert len(node.questions.asked) == 2


async def test_it_is_not_asked_where_it_says_so_at_once(node: Node) -> None:
    async with running(node):
        node.questions.answer = ErrorCode.transaction_abortable
        node.questions.parts.add(TransactionQuestion("tx", 7, 0, False, "__consumer_offsets", partition=0))
        assert await node.commit_in_transaction(5) is NONE
        assert node.questions.asked == []
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == 5
        node.questions.parts.clear()
        assert await node.commit_in_transaction(6) is ErrorCode.transaction_abortable


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ErrorCode.transaction_abortable, ErrorCode.transaction_abortable),
        (ErrorCode.concurrent_transactions, ErrorCode.concurrent_transactions),
        (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping),
        (ErrorCode.coordinator_not_available, ErrorCode.coordinator_not_available),
        (Unreachable("gone"), LOADING),
    ],
)
async def test_what_is_no_part_of_the_transaction_is_not_written(
    node: Node, log: LogInMemory, answer: ErrorCode | Unreachable, told: ErrorCode
) -> None:
    async with running(node):
        await until_writing(node)
        node.questions.answer = answer
        assert await node.commit_in_transaction(5) is told
        assert log.records() == []
        assert await node.fetch(stable=True) == -1
        node.questions.answer = NONE
        assert await node.commit_in_transaction(5) is NONE


async def test_a_marker_between_the_question_and_its_answer_refuses_the_offsets(
    node: Node, log: LogInMemory
) -> None:
    """Else the offsets would be pending for ever, of a transaction that nobody knows (KAFKA-14884)."""
    async with running(node):
        await until_writing(node)
        node.questions.gate = asyncio.Event()
        commit = asyncio.ensure_future(node.commit_in_transaction(5))
        await until(lambda: bool(node.questions.asked))
        assert await node.complete(committed=False) is NONE
        node.questions.gate.set()
        assert await commit is ErrorCode.invalid_txn_state
        assert log.records() == [MarkerRecord(Producer(7, 0), committed=False, coordinator_epoch=0)]
        assert await node.commit_in_transaction(5) is NONE


async def test_a_marker_of_the_next_epoch_fences_who_is_being_asked_about(node: Node) -> None:
    async with running(node):
        node.questions.gate = asyncio.Event()
        commit = asyncio.ensure_future(node.commit_in_transaction(5))
        await until(lambda: bool(node.questions.asked))
        assert await node.complete(producer=(7, 1), committed=False, version=2) is NONE
        node.questions.gate.set()
        assert await commit is ErrorCode.invalid_producer_epoch
        asked = len(node.questions.asked)
        assert await node.commit_in_transaction(5) is ErrorCode.invalid_producer_epoch
        assert len(node.questions.asked) == asked, "nobody needs to be asked about a fenced producer"


async def test_a_reload_between_the_question_and_its_answer(node: Node, log: LogInMemory) -> None:
    """What happened meanwhile is not known: the client asks again, and so is the transaction's coordinator."""
    async with running(node):
        await until_writing(node)
        reads = log.reads
        node.questions.gate = asyncio.Event()
        commit = asyncio.ensure_future(node.commit_in_transaction(5))
        await until(lambda: bool(node.questions.asked))
        log.ends[0] += 1  # a stray record of an earlier coordinator: our next write does not fit
        assert await node.commit(3) is LOADING
        await until(lambda: log.reads > reads and node.state() is PartitionState.SERVING)
        node.questions.gate.set()
        assert await commit is LOADING
        assert await node.commit_in_transaction(5) is NONE


async def test_a_move_between_the_question_and_its_answer(node: Node, log: LogInMemory) -> None:
    async with running(node):
        node.questions.gate = asyncio.Event()
        commit = asyncio.ensure_future(node.commit_in_transaction(5))
        await until(lambda: bool(node.questions.asked))
        log.epochs[0] = 1
        node.see("b", epoch=1)
        node.questions.gate.set()
        assert await commit is ErrorCode.not_coordinator


async def test_a_caller_that_goes_away_leaves_no_question(node: Node) -> None:
    async with running(node):
        node.questions.gate = asyncio.Event()
        commit = asyncio.ensure_future(node.commit_in_transaction(5))
        await until(lambda: bool(node.questions.asked))
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        (shard,) = node.coordinator.partitions.shards()
        assert shard.producers._questions == {}


# -- who may commit -------------------------------------------------------------------------------------------------


async def test_members_are_checked_if_they_are_named(node: Node) -> None:
    """Requests before version 3 name none, and commit whatever state the group is in."""
    async with running(node):
        joined = await node.join()
        member, generation = joined.member_id, joined.generation_id
        assert (await node.sync("g", member, generation)).error_code == 0
        assert await node.commit_in_transaction(1) is NONE
        stale = await node.commit_in_transaction(1, member_id=member, generation=generation - 1)
        assert stale is ErrorCode.illegal_generation
        assert await node.commit_in_transaction(1, member_id=member) is ErrorCode.illegal_generation
        unknown = await node.commit_in_transaction(1, member_id="who", generation=generation)
        assert unknown is ErrorCode.unknown_member_id
        static = await node.commit_in_transaction(1, instance_id="i", member_id=member, generation=generation)
        assert static is ErrorCode.unknown_member_id
        assert await node.commit_in_transaction(2, member_id=member, generation=generation) is NONE
        # While the group rebalances, too: the transaction belongs to the generation that is named.
        joining = asyncio.ensure_future(node.join())
        (shard,) = node.coordinator.partitions.shards()
        await until(lambda: shard.groups["g"].state is GroupState.PREPARING_REBALANCE)
        assert await node.commit_in_transaction(3, member_id=member, generation=generation) is NONE
        joining.cancel()


async def test_a_group_that_is_not_there(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(1, generation=3) is ErrorCode.illegal_generation
        assert await node.commit_in_transaction(1, group="") is ErrorCode.invalid_group_id
        assert await node.commit_in_transaction(1) is NONE
        assert await node.commit_in_transaction(1, member_id="m") is NONE  # empty, and no generation is named
        stale = await node.commit_in_transaction(1, member_id="m", generation=0)
        assert stale is ErrorCode.unknown_member_id


async def test_metadata_is_checked_for_each_offset(node: Node, log: LogInMemory) -> None:
    async with running(node):
        partitions = [
            pb.OffsetCommitPartition(partition=0, committed_offset=4, metadata="x" * 4097),
            pb.OffsetCommitPartition(partition=1, committed_offset=5, committed_leader_epoch=2, metadata="x"),
        ]
        request = pb.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=7,
            generation_id=-1,
            topics=[pb.OffsetCommitTopic(name="t", partitions=partitions)],
        )
        response = await node.calls.TxnOffsetCommit(request)
        codes = [partition.error_code for partition in response.topics[0].partitions]
        assert codes == [ErrorCode.offset_metadata_too_large, NONE]
        (record,) = log.records()
        assert isinstance(record, OffsetRecord)
        assert record.value is not None
        assert (record.partition, record.producer) == (1, Producer(7, 0))
        assert (record.value.offset, record.value.leader_epoch, record.value.metadata) == (5, 2, "x")


@pytest.mark.parametrize("producer", [(-1, 0), (7, -1), (7, 32_768)])
async def test_producers_that_are_none(node: Node, producer: tuple[int, int]) -> None:
    async with running(node):
        assert await node.commit_in_transaction(1, producer=producer) is ErrorCode.invalid_producer_id_mapping
        assert await node.complete(producer=producer) is ErrorCode.invalid_producer_id_mapping


async def test_a_transaction_may_have_so_many_offsets(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_OFFSETS_MAX", 2)
    async with running(node):
        assert await node.commit_in_transaction(1) is NONE
        assert await node.commit_in_transaction(1, topic="u") is NONE
        assert await node.commit_in_transaction(1, topic="v") is ErrorCode.transaction_abortable
        assert await node.commit_in_transaction(1, topic="v", producer=(8, 0)) is NONE


# -- ending transactions --------------------------------------------------------------------------------------------


async def test_who_may_not_end_a_transaction(node: Node) -> None:
    async with running(node):
        assert await node.commit_in_transaction(1, producer=(7, 3)) is NONE
        assert await node.complete(producer=(7, 2)) is ErrorCode.invalid_producer_epoch
        assert await node.complete(producer=(7, 3), version=2) is ErrorCode.invalid_producer_epoch
        assert await node.fetch(stable=True) is UNSTABLE
        assert await node.complete(producer=(7, 4), version=2, coordinator_epoch=5) is NONE
        fenced = await node.complete(producer=(7, 5), version=2, coordinator_epoch=4)
        assert fenced is ErrorCode.transaction_coordinator_fenced
        assert await node.fetch(stable=True) == 1


async def test_a_marker_may_come_again(node: Node, log: LogInMemory) -> None:
    """Its answer was lost; also under version 2, where its epoch is the producer's own by then (KAFKA-19999)."""
    async with running(node):
        assert await node.commit_in_transaction(1) is NONE
        for _ in range(2):
            assert await node.complete(producer=(7, 1), version=2) is NONE
        assert await node.fetch(stable=True) == 1
        assert await node.commit_in_transaction(2, producer=(7, 1)) is NONE
        # Now it would end the next transaction.
        assert await node.complete(producer=(7, 1), version=2) is ErrorCode.invalid_producer_epoch
        assert await node.fetch(stable=True) is UNSTABLE


async def test_a_marker_where_nothing_is_pending_is_written_too(node: Node, log: LogInMemory) -> None:
    async with running(node):
        assert await node.complete(producer=(9, 4), coordinator_epoch=2) is NONE
        assert log.records() == [MarkerRecord(Producer(9, 4), committed=True, coordinator_epoch=2)]
        assert await node.commit_in_transaction(1, producer=(9, 3)) is ErrorCode.invalid_producer_epoch


async def test_partitions_of_others(node: Node) -> None:
    assert await Node("c", LogInMemory()).complete() is ErrorCode.not_coordinator
    node.see("b", epoch=1)
    assert await node.complete() is ErrorCode.not_coordinator
    assert await node.complete(partition=5) is ErrorCode.not_coordinator
    assert await node.commit_in_transaction(1) is ErrorCode.not_coordinator


async def test_a_partition_that_is_not_loaded_yet(log: LogInMemory) -> None:
    node = Node("a", log, CoordinatorConfig(coordinator_id="a", coordinator_load_wait_ms=1))
    node.see("a")
    assert await node.complete() is LOADING
    assert await node.commit_in_transaction(1) is LOADING
    assert node.questions.asked == []


async def test_the_end_is_told_once_everybody_sees_it(node: Node, log: LogInMemory) -> None:
    """A fetch that comes before the marker is in the log waits for it (KAFKA-17507)."""
    async with running(node):
        assert await node.commit_in_transaction(5) is NONE
        log.gate = asyncio.Event()
        end = asyncio.ensure_future(node.complete())
        fetch = asyncio.ensure_future(node.fetch(stable=True))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not end.done()
        assert not fetch.done()
        log.gate.set()
        assert await end is NONE
        assert await fetch == 5


# -- what is deleted meanwhile --------------------------------------------------------------------------------------


async def test_nothing_comes_back_that_was_deleted_meanwhile(node: Node, log: LogInMemory) -> None:
    async with running(node):
        node.see("a", topics=("t", "v"))
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        assert await node.commit_in_transaction(5, topic="u") is NONE
        assert await node.commit_in_transaction(5, topic="v") is NONE
        assert await node.delete_offset("u") is NONE
        node.see("a", deleted=("t", "v"))
        await until(lambda: len(log.records()) == 7)
        assert await node.complete() is NONE
        assert await node.fetch(stable=True) == -1
        assert (await all_topics(node)).topics == []


async def test_a_deleted_group_does_not_come_back(node: Node, log: LogInMemory) -> None:
    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        assert await node.commit_in_transaction(5, topic="u") is NONE
        response = await node.calls.DeleteGroups(pb.DeleteGroupsRequest(group_ids=["g"]))
        assert response.groups[0].error_code == 0
        assert await node.complete() is NONE
        assert (await node.calls.ListGroups(pb.ListGroupsRequest())).groups == []
        (shard,) = node.coordinator.partitions.shards()
        assert shard.offsets == {}


async def test_what_is_counted(node: Node) -> None:
    def value(name: str) -> float | None:
        return node.registry.get_sample_value(name)

    async with running(node):
        assert await node.commit(3) is NONE
        assert await node.commit_in_transaction(5) is NONE
        assert value("barnabas_coordinator_offset_commits_total") == 2
        assert value("barnabas_coordinator_transactional_offset_commits_total") == 1
        assert value("barnabas_coordinator_pending_offsets") == 1
        assert value("barnabas_coordinator_open_transactions") == 1
        assert await node.complete() is NONE
        assert value("barnabas_coordinator_pending_offsets") == 0
        assert value("barnabas_coordinator_open_transactions") == 0
