"""A coordinator of transactions that another one has replaced, and that has not heard of it; and what costs a no."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from log_in_memory import LogInMemory
from transaction_node import (
    COMMITTED,
    FIRST_PRODUCER,
    TransactionNode,
    World,
    a_world,
    an_addition,
    running,
    settle,
    states,
    until_complete,
)

from barnabas.coordinator import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import transactions_pb2 as pb
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC


@pytest.fixture
def world() -> World:
    return a_world()


@pytest.fixture(autouse=True)
def _retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOAD_RETRY_MS_MIN", "APPEND_RETRY_MS_MIN", "APPEND_RETRY_MS_MAX"):
        monkeypatch.setattr(f"barnabas.coordinator.limits.{name}", 0)


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda node: node.end(epoch=1), id="commit"),
        pytest.param(lambda node: node.end(epoch=1, committed=False, version=0), id="abort"),
        pytest.param(lambda node: node.add("t-1", epoch=1, verify=True), id="verify"),
        pytest.param(lambda node: node.add("t-1", epoch=2), id="add"),
        pytest.param(lambda node: node.init(producer_id=FIRST_PRODUCER, epoch=3), id="init"),
    ],
)
async def test_a_coordinator_that_another_one_replaced_ends_nobody(
    log: LogInMemory, world: World, ask: Callable[[TransactionNode], Awaitable[str]]
) -> None:
    """It was frozen, or is cut off, and has not heard of it: by what it knows it would refuse what is right."""
    former = TransactionNode("a", world, log)
    async with running(former):
        await former.open("t-0")
        assert await former.end() == "1000/1"
        await until_complete(log)
        log.epochs[0] = 1
        newer = a_world()
        newer.own(TRANSACTION_STATE_TOPIC, "b", 1)
        present = TransactionNode("b", newer, log)
        async with running(present):
            assert await present.add("t-0", "t-1", epoch=1) == "none,none"
            assert await ask(former) in ("not_coordinator", "coordinator_load_in_progress")


@pytest.mark.parametrize("committed", [True, False])
async def test_a_coordinator_that_another_one_replaced_takes_no_transaction_for_the_one_before(
    log: LogInMemory, world: World, committed: bool
) -> None:
    """By the rules of versions 0 and 1 both have the same epoch."""
    former = TransactionNode("a", world, log)
    async with running(former):
        await former.init()
        assert await former.add("t-0", version=0) == "none"
        assert await former.end(committed=committed, version=0) == "-1/-1"
        await settle()
        log.epochs[0] = 1
        newer = a_world()
        newer.own(TRANSACTION_STATE_TOPIC, "b", 1)
        present = TransactionNode("b", newer, log)
        async with running(present):
            assert await present.add("t-0", version=0) == "none"
            assert await former.end(committed=committed, version=0) == "not_coordinator"
            assert await present.describe() == "Ongoing t-0"


async def test_a_coordinator_that_another_one_replaced_adds_nothing_again(
    log: LogInMemory, world: World
) -> None:
    former = TransactionNode("a", world, log)
    async with running(former):
        await former.init()
        assert await former.add("t-0", version=0) == "none"
        assert await former.add("t-0", version=0) == "none"
        log.epochs[0] = 1
        newer = a_world()
        newer.own(TRANSACTION_STATE_TOPIC, "b", 1)
        present = TransactionNode("b", newer, log)
        async with running(present):
            assert await present.end(version=0) == "-1/-1"
            await settle()
            assert await present.add("t-1", version=0) == "none"
            assert await former.add("t-0", version=0) == "not_coordinator"


async def test_a_no_to_a_leader_does_not_keep_its_other_questions_waiting(
    log: LogInMemory, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NO_WAIT_SECONDS_MAX", 0.01)
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        log.gate = asyncio.Event()
        items = [an_addition("t-0", verify=True), an_addition("t-1", verify=True)]
        answer = await node.calls.AddPartitionsToTxn(pb.AddPartitionsToTxnRequest(transactions=items))
        codes = [list(each.error_codes) for each in answer.transactions]
        assert codes == [[ErrorCode.none], [ErrorCode.coordinator_load_in_progress]]
        log.gate.set()
        assert await node.add("t-1", verify=True) == "transaction_abortable"


async def test_who_is_refused_is_refused_by_the_owner(log: LogInMemory, world: World) -> None:
    """What a producer gets wrong is told as ever, and leaves no trace among the transactions."""
    node = TransactionNode("a", world, log)
    async with running(node):
        await node.open("t-0")
        assert await node.end("nobody") == "invalid_producer_id_mapping"
        assert await node.add("t-0", epoch=7) == "producer_fenced"
        assert await node.init(producer_id=5, epoch=7) == "producer_fenced"
        assert await node.end() == "1000/1"
        await until_complete(log)
        assert await node.end(epoch=1) == "invalid_txn_state"
        assert states(log) == list(COMMITTED)
