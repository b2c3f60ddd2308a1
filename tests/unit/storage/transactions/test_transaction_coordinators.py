"""Questions to transaction coordinators: few calls, one at a time, each question answered once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from fake_coordinators import FakeCoordinators
from storage_harness import CLUSTER_ID, coordinator_record, topic_records

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Refusal, Refused, Unreachable
from barnabas.messages.metadata_pb2 import ClusterRecord, MetadataRecord
from barnabas.messages.transactions_pb2 import AddPartitionsToTxnResponse, TransactionPartitionsResult
from barnabas.metadata.image import MetadataImage
from barnabas.storage import limits
from barnabas.storage.transactions.coordinators import TransactionCoordinators
from barnabas.storage.transactions.questions import Question, TransactionKey, refusal


def image(*coordinators: str) -> MetadataImage:
    """One partition of __transaction_state for each, in this order; it belongs to nobody where the name is empty."""
    state = topic_records("__transaction_state", uuid.UUID(int=1), len(coordinators), internal=True)
    for record, name in zip(state, coordinators, strict=False):
        record.partition.coordinator_id = name
    cluster = MetadataRecord(key="cluster", cluster=ClusterRecord(cluster_id=CLUSTER_ID))
    known = [coordinator_record(name, "process") for name in coordinators if name]
    return MetadataImage().apply([cluster, *known, *state], 1)


class Asking:
    def __init__(self, fake: FakeCoordinators, retry_ms_max: int = 0) -> None:
        self.asking = TransactionCoordinators(fake.network, retry_ms=1, retry_ms_max=retry_ms_max)
        self.asking.on_image(MetadataImage(), image("c"))
        self.answers: list[tuple[int, int]] = []

    def ask(self, partition: int, *, name: str = "t", topic: str = "a", adds: bool = False) -> Question:
        key = TransactionKey(name, 7, 0, adds)
        question = Question(key, topic, partition, lambda code: self.answers.append((partition, code)))
        self.asking.ask(question)
        return question

    async def until_answered(self, count: int) -> list[tuple[int, int]]:
        async with asyncio.timeout(20):
            while len(self.answers) < count:
                await asyncio.sleep(0)
        return self.answers


@pytest.fixture
async def asking(coordinators: FakeCoordinators) -> AsyncIterator[Asking]:
    made = Asking(coordinators)
    running = asyncio.create_task(made.asking.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_comes_up_while_a_call_is_under_way_goes_with_the_next(
    asking: Asking, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    asking.ask(0)
    await coordinators.until_asked(1)
    asking.ask(1)
    asking.ask(2, topic="b")
    asking.ask(3, name="u", adds=True)
    coordinators.codes[2] = [ErrorCode.transaction_abortable]
    await coordinators.release()
    await coordinators.until_asked(2)
    await coordinators.release()
    assert sorted(await asking.until_answered(4)) == [(0, 0), (1, 0), (2, 120), (3, 0)]
    first, second = coordinators.asked[1].transactions
    assert [(topic.name, list(topic.partitions)) for topic in first.topics] == [("a", [1]), ("b", [2])]
    assert (second.transactional_id, second.verify_only, second.transaction_version) == ("u", False, 2)
    assert coordinators.in_flight_max == 1
    assert asking.asking.failures == 1
    assert sum(asking.asking.times_ms.counts) == 4


async def test_one_coordinator_waits_for_no_other(asking: Asking, coordinators: FakeCoordinators) -> None:
    asking.asking.on_image(MetadataImage(), image("c", "d"))
    coordinators.is_held = True
    for number in range(8):
        asking.ask(number, name=f"t{number}")
    await coordinators.until_asked(2)
    assert coordinators.in_flight_max == 2


async def test_a_call_is_bounded(
    asking: Asking, coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUESTIONS_PER_CALL", 3)
    for number in range(7):
        asking.ask(number)
    assert len(await asking.until_answered(7)) == 7
    assert [len(each.transactions[0].topics[0].partitions) for each in coordinators.asked] == [3, 3, 1]


async def test_the_transaction_before_is_waited_for_in_a_call_of_its_own(
    coordinators: FakeCoordinators,
) -> None:
    asking = Asking(coordinators, retry_ms_max=60_000)
    running = asyncio.create_task(asking.asking.run())
    coordinators.codes[0] = [ErrorCode.concurrent_transactions, ErrorCode.none]
    coordinators.is_held = True
    asking.ask(0, adds=True)
    await coordinators.until_asked(1)
    await coordinators.release()
    await coordinators.until_asked(2)
    asking.ask(1, adds=True)
    await coordinators.until_asked(3)
    assert [each.transactions[0].wait_ms for each in (coordinators.asked[0], coordinators.asked[2])] == [0, 0]
    assert 59_000 < coordinators.asked[1].transactions[0].wait_ms <= 60_000
    await coordinators.release()
    assert sorted(await asking.until_answered(2)) == [(0, 0), (1, 0)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_where_many_wait_so_others_ask_again(
    coordinators: FakeCoordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PATIENT_QUESTIONS_MAX", 1)
    asking = Asking(coordinators, retry_ms_max=60_000)
    running = asyncio.create_task(asking.asking.run())
    for partition in range(3):
        coordinators.codes[partition] = [ErrorCode.concurrent_transactions] * 3 + [ErrorCode.none]
        asking.ask(partition, adds=True)
    assert sorted(await asking.until_answered(3)) == [(0, 0), (1, 0), (2, 0)]
    patient = [each for call in coordinators.asked for each in call.transactions if each.wait_ms]
    assert len(patient) >= 2, "once one of them is answered, there is room for another"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("known", [MetadataImage(), image("")])
async def test_where_there_is_no_coordinator_that_is_the_answer_and_comes_later(
    asking: Asking, known: MetadataImage
) -> None:
    asking.asking.on_image(MetadataImage(), known)
    asking.ask(0)
    assert asking.answers == [], "who asks is not called back while it does"
    assert await asking.until_answered(1) == [(0, int(ErrorCode.coordinator_not_available))]


@pytest.mark.parametrize("error", [Unreachable("away"), Refused(Refusal.UNKNOWN_CALL, "an earlier version")])
async def test_a_call_that_fails_is_no_answer_and_the_next_is_made(
    asking: Asking, coordinators: FakeCoordinators, error: Unreachable | Refused
) -> None:
    coordinators.error = error
    asking.ask(0)
    assert await asking.until_answered(1) == [(0, int(ErrorCode.network_exception))]
    coordinators.error = None
    asking.ask(1)
    assert (await asking.until_answered(2))[1:] == [(1, 0)]


@pytest.mark.parametrize(
    "answer",
    [
        AddPartitionsToTxnResponse(),
        AddPartitionsToTxnResponse(transactions=[TransactionPartitionsResult(error_codes=[0, 0])]),
        AddPartitionsToTxnResponse(transactions=[TransactionPartitionsResult()]),
    ],
)
async def test_an_answer_that_does_not_fit_is_none(
    asking: Asking, coordinators: FakeCoordinators, answer: AddPartitionsToTxnResponse
) -> None:
    coordinators.answer = answer
    asking.ask(0)
    assert await asking.until_answered(1) == [(0, int(ErrorCode.network_exception))]


async def test_what_is_withdrawn_is_neither_asked_nor_answered(
    asking: Asking, coordinators: FakeCoordinators
) -> None:
    coordinators.is_held = True
    asked = asking.ask(0)
    await coordinators.until_asked(1)
    waiting = asking.ask(1)
    asked.is_withdrawn = waiting.is_withdrawn = True
    asking.ask(2)
    await coordinators.release()
    await coordinators.release()
    assert await asking.until_answered(1) == [(2, 0)]
    assert list(coordinators.asked[1].transactions[0].topics[0].partitions) == [2]


async def test_who_cannot_take_an_answer_stops_nobody(asking: Asking, coordinators: FakeCoordinators) -> None:
    def fails(_: int) -> None:
        raise RuntimeError("a fault")

    asking.asking.ask(Question(TransactionKey("t", 7, 0, False), "a", 0, fails))
    asking.ask(1)
    assert await asking.until_answered(1) == [(1, 0)]


async def test_its_links_are_closed_with_it(coordinators: FakeCoordinators) -> None:
    made = Asking(coordinators)
    running = asyncio.create_task(made.asking.run())
    made.ask(0)
    await made.until_answered(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert coordinators.closed == ["c"]


def test_an_unknown_code_is_a_fault_of_the_servers() -> None:
    refused = refusal(-77, adds_partitions=False)
    assert refused is not None
    assert refused.code is ErrorCode.unknown_server_error
    assert refusal(0, adds_partitions=True) is None
