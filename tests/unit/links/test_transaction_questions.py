"""Questions about transactions: how they share calls, and what becomes of those that are not answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest

from barnabas.kernel.errors import ErrorCode
from barnabas.links import limits
from barnabas.links.errors import LinkError, OutcomeUnknown, Refusal, Refused, Unreachable
from barnabas.links.network import Network
from barnabas.links.transaction_questions import TransactionQuestions
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages import transactions_pb2 as pb
from barnabas.messages.metadata_pb2 import CoordinatorRecord

NONE = ErrorCode.none
CONCURRENT = ErrorCode.concurrent_transactions


class Coordinator:
    """Fakes the link to one coordinator, which answers each call once the test says so."""

    def __init__(self) -> None:
        self.calls: list[pb.AddPartitionsToTxnRequest] = []
        self.in_flight = self.in_flight_max = 0
        self.gate = asyncio.Event()
        self.codes: dict[tuple[str, int], list[int]] = {}
        """By topic and partition, one after the other, the last again and again; else NONE."""
        self.parts: set[TransactionQuestion] = set()
        """Of which yes is said at once."""
        self.fails: Exception | None = None
        self.answer: pb.AddPartitionsToTxnResponse | None = None
        """Instead of one that fits."""
        self.is_closed = False

    async def AddPartitionsToTxn(
        self, request: pb.AddPartitionsToTxnRequest, *, timeout: float | None = None
    ) -> pb.AddPartitionsToTxnResponse:
        assert timeout == limits.TRANSACTION_CALL_SECONDS + request.transactions[0].wait_ms / 1000
        self.calls.append(request)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight, self.in_flight_max)
        try:
            await self.gate.wait()
        finally:
            self.in_flight -= 1
        if self.is_closed:
            raise OutcomeUnknown("the link is closed")
        if self.fails is not None:
            raise self.fails
        return self.answer or pb.AddPartitionsToTxnResponse(
            transactions=[
                pb.TransactionPartitionsResult(
                    error_codes=[
                        self._code(topic.name, partition)
                        for topic in transaction.topics
                        for partition in topic.partitions
                    ]
                )
                for transaction in request.transactions
            ]
        )

    def _code(self, topic: str, partition: int) -> int:
        codes = self.codes.get((topic, partition), [0])
        return codes.pop(0) if len(codes) > 1 else codes[0]

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        return question in self.parts

    async def close(self) -> None:
        self.is_closed = True
        self.gate.set()


class Coordinators:
    """Fakes the network, and which coordinator has each transactional id."""

    def __init__(self) -> None:
        self.at: dict[str, Coordinator] = {}
        self.owners = {"a": "one", "b": "one", "c": "two"}
        self.incarnations: dict[str, str] = {}

    def connect_transactions(self, address: str) -> Coordinator:
        return self.at.setdefault(address, Coordinator())

    def coordinator_of(self, transactional_id: str) -> CoordinatorRecord | None:
        name = self.owners.get(transactional_id)
        return None if name is None else self.record(name)

    def record(self, name: str) -> CoordinatorRecord:
        incarnation = self.incarnations.get(name, "first")
        return CoordinatorRecord(coordinator_id=name, incarnation_id=incarnation, address=name)

    def records(self) -> dict[str, CoordinatorRecord]:
        return {name: self.record(name) for name in set(self.owners.values())}

    def asking(self, *, retry_ms: int = 1, retry_ms_max: int = 60_000) -> TransactionQuestions:
        return TransactionQuestions(
            cast(Network, self), self.coordinator_of, retry_ms=retry_ms, retry_ms_max=retry_ms_max
        )


@pytest.fixture
def network() -> Coordinators:
    return Coordinators()


@pytest.fixture
async def questions(network: Coordinators) -> AsyncIterator[TransactionQuestions]:
    questions = network.asking()
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


async def settle_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0)


async def test_what_comes_up_during_a_call_goes_with_the_next(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = questions.ask(question())
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
    others = [questions.ask(each) for each in asked]
    await settle()
    one = network.at["one"]
    assert len(one.calls) == 1
    one.codes = {("t", 2): [ErrorCode.transaction_abortable], ("t", 5): [ErrorCode.producer_fenced]}
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
    assert topics == [("t", [1, 2, 1]), ("u", [3])]
    assert one.in_flight_max == 1


async def test_what_is_known_at_once_is_not_asked(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    network.connect_transactions("one").parts = {question(), question(adds=True)}
    assert questions.verify_nowait(question())
    others = [question(adds=True), question(epoch=1), question("c"), question("nobody's")]
    assert not any(map(questions.verify_nowait, others))
    assert not any(each.calls for each in network.at.values())
    del network.at["one"].parts
    assert not questions.verify_nowait(question()), "a fault of the coordinator's is none of who asks"


async def test_each_coordinator_is_asked_for_itself(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    slow = questions.ask(question("a"))
    other = questions.ask(question("c"))
    await settle()
    network.at["two"].gate.set()
    assert await other is NONE
    assert not slow.done()
    network.at["one"].gate.set()
    assert await slow is NONE


async def test_where_there_is_no_coordinator(questions: TransactionQuestions) -> None:
    answer = questions.ask(question("nobody's"))
    told: list[object] = []
    answer.add_done_callback(told.append)
    assert told == [], "who asks is not called back while it does"
    assert await answer is ErrorCode.coordinator_not_available


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (OutcomeUnknown("the connection broke"), OutcomeUnknown),
        (Unreachable("away"), Unreachable),
        (Refused(Refusal.UNKNOWN_CALL, "an earlier version"), Refused),
        (RuntimeError("a fault"), OutcomeUnknown),
    ],
)
async def test_a_call_that_fails_fails_its_questions_only(
    questions: TransactionQuestions, network: Coordinators, fails: Exception, told: type[LinkError]
) -> None:
    asked = questions.ask(question())
    await settle()
    one = network.at["one"]
    one.fails = fails
    behind = questions.ask(question(partition=1))
    await settle()
    one.gate.set()
    for each in (asked, behind):
        with pytest.raises(told):
            await each
    one.fails = None
    assert await questions.ask(question()) is NONE


@pytest.mark.parametrize(
    "answer",
    [
        pb.AddPartitionsToTxnResponse(),
        pb.AddPartitionsToTxnResponse(transactions=[pb.TransactionPartitionsResult(error_codes=[0, 0])]),
        pb.AddPartitionsToTxnResponse(transactions=[pb.TransactionPartitionsResult()]),
    ],
)
async def test_an_answer_that_does_not_fit_is_none(
    questions: TransactionQuestions, network: Coordinators, answer: pb.AddPartitionsToTxnResponse
) -> None:
    asked = questions.ask(question())
    await settle()
    one = network.at["one"]
    one.answer = answer
    one.gate.set()
    with pytest.raises(OutcomeUnknown):
        await asked
    one.answer = None
    one.codes["t", 0] = [30_000]
    assert await questions.ask(question()) is ErrorCode.unknown_server_error, "of a newer coordinator"


async def test_the_transaction_before_is_waited_for_in_a_call_of_its_own(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = questions.ask(question("a", 0, adds=True))
    await settle()
    one = network.at["one"]
    one.codes["t", 0] = [CONCURRENT, NONE]
    one.gate.set()
    await settle_until(lambda: len(one.calls) == 2)
    one.gate.clear()
    second = questions.ask(question("a", 1, adds=True))
    await settle_until(lambda: len(one.calls) == 3)
    one.gate.set()
    assert [await first, await second] == [NONE, NONE]
    waits = [call.transactions[0].wait_ms for call in one.calls]
    assert (waits[0], waits[2]) == (0, 0)
    assert 59_000 < waits[1] <= 60_000


async def test_what_is_only_to_be_verified_waits_for_no_transaction(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    asked = questions.ask(question())
    await settle()
    network.at["one"].codes["t", 0] = [CONCURRENT]
    network.at["one"].gate.set()
    assert await asked is CONCURRENT
    assert len(network.at["one"].calls) == 1


async def test_it_is_not_waited_for_for_ever(network: Coordinators) -> None:
    questions = network.asking(retry_ms_max=0)
    asked = questions.ask(question(adds=True))
    await settle()
    network.at["one"].codes["t", 0] = [CONCURRENT]
    network.at["one"].gate.set()
    assert await asked is CONCURRENT
    await questions.close()


async def test_where_many_wait_so_others_ask_again(
    questions: TransactionQuestions, network: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_WAITED_FOR_MAX", 1)
    asked = [questions.ask(question(partition=each, adds=True)) for each in range(3)]
    await settle()
    one = network.at["one"]
    one.codes = {("t", each): [CONCURRENT, CONCURRENT, CONCURRENT, NONE] for each in range(3)}
    one.gate.set()
    assert await asyncio.gather(*asked) == [NONE] * 3
    patient = [each for call in one.calls for each in call.transactions if each.wait_ms]
    assert len(patient) >= 2, "once one of them is answered, there is room for another"


async def test_nobody_is_asked_what_nobody_wants_to_know_any_more(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    first = questions.ask(question())
    await settle()
    gone, gone_too, still = (questions.ask(question(partition=each)) for each in (1, 2, 2))
    await settle()
    gone.cancel()
    gone_too.cancel()
    network.at["one"].gate.set()
    assert [await first, await still] == [NONE, NONE]
    (_, call) = network.at["one"].calls
    assert list(call.transactions[0].topics[0].partitions) == [2]


async def test_what_waits_for_a_coordinator_that_is_gone_goes_to_the_next(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    asked = questions.ask(question())
    await settle()
    waits, nobodys = questions.ask(question(partition=1)), questions.ask(question("b"))
    await settle()
    one = network.at["one"]
    network.owners = {"a": "two"}
    questions.keep_links_to(network.records())
    with pytest.raises(OutcomeUnknown):
        await asked
    assert await nobodys is ErrorCode.coordinator_not_available
    assert one.is_closed
    network.at["two"].gate.set()
    assert await waits is NONE
    questions.keep_links_to(network.records())
    assert not network.at["two"].is_closed


async def test_a_process_that_took_the_place_of_another_is_reached_anew(
    questions: TransactionQuestions, network: Coordinators
) -> None:
    asked = questions.ask(question())
    await settle()
    former = network.at.pop("one")
    network.incarnations["one"] = "second"
    questions.keep_links_to(network.records())
    with pytest.raises(OutcomeUnknown):
        await asked
    again = questions.ask(question())
    await settle()
    network.at["one"].gate.set()
    assert await again is NONE
    assert former.is_closed


async def test_nothing_is_left_unanswered_at_the_end(network: Coordinators) -> None:
    questions = network.asking()
    asked = questions.ask(question())
    await settle()
    waits = questions.ask(question(partition=1))
    not_begun = questions.ask(question("c"))
    await questions.close()
    for each in (asked, waits, not_begun):
        with pytest.raises(LinkError):
            await each
    assert all(each.is_closed for each in network.at.values())


async def test_so_much_may_wait(
    questions: TransactionQuestions, network: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_QUESTIONS_MAX", 3)
    monkeypatch.setattr(limits, "TRANSACTION_QUESTIONS_AT_ONCE", 2)
    asked = []
    for partition in range(4):
        asked.append(questions.ask(question(partition=partition)))
        await settle()
    with pytest.raises(Unreachable):
        await questions.ask(question(partition=9))
    assert questions.waiting == 3
    network.at["one"].gate.set()
    assert await asyncio.gather(*asked) == [NONE] * 4
    sizes = [len(call.transactions[0].topics[0].partitions) for call in network.at["one"].calls]
    assert sizes == [1, 2, 1]
