"""Questions about transactions: how they share calls, and what becomes of those that are not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.links import limits
from barnabas.links.errors import DeadlinePassed, LinkError, OutcomeUnknown, Unreachable
from barnabas.links.network import Network
from barnabas.links.transaction_questions import TransactionQuestion, TransactionQuestions
from barnabas.messages import transactions_pb2 as pb

NONE = ErrorCode.none


class Coordinator:
    """Fakes the link to one coordinator, which answers each call once the test says so."""

    def __init__(self) -> None:
        self.calls: list[pb.AddPartitionsToTxnRequest] = []
        self.gate = asyncio.Event()
        self.codes: dict[tuple[str, int], int] = {}
        """By topic and partition; else NONE."""
        self.fails: LinkError | None = None
        self.answers_nonsense = False
        self.is_closed = False

    async def AddPartitionsToTxn(
        self, request: pb.AddPartitionsToTxnRequest, *, timeout: float | None = None
    ) -> pb.AddPartitionsToTxnResponse:
        assert timeout == 5.0
        self.calls.append(request)
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        results = [
            pb.TransactionPartitionsResult(
                error_codes=[
                    self.codes.get((topic.name, partition), 0)
                    for topic in transaction.topics
                    for partition in topic.partitions
                ]
            )
            for transaction in request.transactions
        ]
        if self.answers_nonsense:
            results[0].error_codes.append(0)
        return pb.AddPartitionsToTxnResponse(transactions=results)

    async def close(self) -> None:
        self.is_closed = True


class Coordinators:
    """Fakes the network."""

    def __init__(self) -> None:
        self.at: dict[str, Coordinator] = {}

    def connect_transactions(self, address: str) -> Coordinator:
        return self.at.setdefault(address, Coordinator())


@pytest.fixture
def network() -> Coordinators:
    return Coordinators()


@pytest.fixture
async def questions(network: Coordinators) -> AsyncIterator[TransactionQuestions]:
    addresses = {"a": "one", "b": "one", "c": "two"}
    questions = TransactionQuestions(cast(Network, network), addresses.get, 5.0)
    yield questions
    await questions.close()
    assert all(each.is_closed for each in network.at.values())


def question(
    transactional_id: str = "a", partition: int = 0, *, topic: str = "t", epoch: int = 0, adds: bool = False
) -> TransactionQuestion:
    return TransactionQuestion(transactional_id, 7, epoch, adds, topic, partition)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_comes_up_during_a_call_goes_with_the_next(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = asyncio.ensure_future(questions.ask(question()))
    await settle()
    asked = [
        question(partition=1),
        question("b", 5),
        question(partition=2),
        question(partition=3, topic="u"),
        question(epoch=1),
        question(adds=True),
        question(partition=1),
    ]
    others = [asyncio.ensure_future(questions.ask(each)) for each in asked]
    await settle()
    one = network.at["one"]
    assert len(one.calls) == 1
    one.codes = {("t", 2): int(ErrorCode.transaction_abortable), ("t", 5): int(ErrorCode.producer_fenced)}
    one.gate.set()
    assert await first is NONE
    codes = [NONE, ErrorCode.producer_fenced, ErrorCode.transaction_abortable, NONE, NONE, NONE, NONE]
    assert await asyncio.gather(*others) == codes
    (_, call) = one.calls
    assert [
        (each.transactional_id, each.producer_epoch, each.verify_only, each.transaction_version)
        for each in call.transactions
    ] == [("a", 0, True, 0), ("b", 0, True, 0), ("a", 1, True, 0), ("a", 0, False, 2)]
    topics = [(topic.name, list(topic.partitions)) for topic in call.transactions[0].topics]
    assert topics == [("t", [1, 2]), ("u", [3])]


async def test_each_coordinator_is_asked_for_itself(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    slow = asyncio.ensure_future(questions.ask(question("a")))
    other = asyncio.ensure_future(questions.ask(question("c")))
    await settle()
    network.at["two"].gate.set()
    assert await other is NONE
    assert not slow.done()
    network.at["one"].gate.set()
    assert await slow is NONE


async def test_where_there_is_no_coordinator(questions: TransactionQuestions) -> None:
    assert await questions.ask(question("nobody's")) is ErrorCode.coordinator_not_available


async def test_a_call_that_fails_fails_its_questions_only(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    asked = asyncio.ensure_future(questions.ask(question()))
    await settle()
    one = network.at["one"]
    one.fails = OutcomeUnknown("the connection broke")
    behind = asyncio.ensure_future(questions.ask(question(partition=1)))
    await settle()
    one.gate.set()
    with pytest.raises(OutcomeUnknown):
        await asked
    with pytest.raises(OutcomeUnknown):
        await behind
    one.fails = None
    assert await questions.ask(question()) is NONE
    one.answers_nonsense = True
    with pytest.raises(Unreachable):
        await questions.ask(question())
    one.answers_nonsense = False
    one.codes[("t", 0)] = 30_000
    assert await questions.ask(question()) is ErrorCode.unknown_server_error


async def test_what_must_wait_for_another_transaction_is_asked_again_alone(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = asyncio.create_task(questions.ask(question("a", 0, adds=True)))
    await settle()
    coordinator = network.at["one"]
    coordinator.codes["t", 0] = ErrorCode.concurrent_transactions
    second = asyncio.create_task(questions.ask(question("a", 1, adds=True)))
    coordinator.gate.set()
    assert await second is NONE
    assert await first is ErrorCode.concurrent_transactions
    waits = [[each.wait_ms for each in call.transactions] for call in coordinator.calls]
    assert sorted(waits) == [[0], [0], [limits.CONCURRENT_WAIT_MS]]
    assert await questions.ask(question("a", 0)) is ErrorCode.concurrent_transactions
    assert len(coordinator.calls) == 4, "what is only to be verified does not wait"


async def test_a_coordinator_that_does_not_answer(network: Coordinators) -> None:
    questions = TransactionQuestions(cast(Network, network), {"a": "one"}.get, 0.0)
    with pytest.raises(DeadlinePassed):
        await questions.ask(question())
    await questions.close()


async def test_nobody_is_asked_what_nobody_wants_to_know_any_more(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = asyncio.ensure_future(questions.ask(question()))
    await settle()
    gone, gone_too, still = (
        asyncio.ensure_future(questions.ask(question(partition=each))) for each in (1, 2, 2)
    )
    await settle()
    gone.cancel()
    gone_too.cancel()
    network.at["one"].gate.set()
    assert [await first, await still] == [NONE, NONE]
    (_, call) = network.at["one"].calls
    assert list(call.transactions[0].topics[0].partitions) == [2]


async def test_a_coordinator_that_is_gone(questions: TransactionQuestions, network: Coordinators) -> None:
    asked = asyncio.ensure_future(questions.ask(question()))
    await settle()
    waits = asyncio.ensure_future(questions.ask(question(partition=1)))
    await settle()
    one = network.at.pop("one")
    questions.keep_links_to({"two"})
    for each in (asked, waits):
        with pytest.raises(Unreachable):
            await each
    await settle()
    assert one.is_closed
    again = asyncio.ensure_future(questions.ask(question()))
    await settle()
    network.at["one"].gate.set()
    assert await again is NONE
    questions.keep_links_to({"one"})
    assert not network.at["one"].is_closed


async def test_so_much_may_wait(
    questions: TransactionQuestions, network: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_QUESTIONS_MAX", 3)
    monkeypatch.setattr(limits, "TRANSACTION_QUESTIONS_AT_ONCE", 2)
    asked = []
    for partition in range(4):
        asked.append(asyncio.ensure_future(questions.ask(question(partition=partition))))
        await settle()
    with pytest.raises(Unreachable):
        await questions.ask(question(partition=9))
    network.at["one"].gate.set()
    assert await asyncio.gather(*asked) == [NONE] * 4
    sizes = [len(call.transactions[0].topics[0].partitions) for call in network.at["one"].calls]
    assert sizes == [1, 2, 1]
