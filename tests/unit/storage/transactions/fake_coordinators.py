"""Transaction coordinators that say what a test wants, when it wants; and a producer's transactional batches."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, cast

from storage_harness import (
    NOW_MS,
    StorageHarness,
    batch,
    coordinator_record,
    topic_records,
)

from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import LinkError, OutcomeUnknown
from barnabas.links.network import Network
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages.storage_pb2 import AppendTransaction, PartitionAppendResult
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitionsResult,
)
from barnabas.records.control import encode_marker

STATE = uuid.UUID(int=99)
COORDINATOR = ("c", "process")
VERIFIES = AppendTransaction(transactional_id="t")
ADDS = AppendTransaction(transactional_id="t", adds_partitions=True)


class FakeCoordinators:
    """Owner of what was asked. Answers at once with `codes`, by partition; where `is_held` is set, when told to."""

    def __init__(self) -> None:
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.codes: dict[int, list[ErrorCode]] = {}
        """What is answered of a partition, one after the other; the last again and again. Else: yes."""
        self.parts: set[TransactionQuestion] = set()
        """Of which yes is said at once."""
        self.is_held = False
        self.error: LinkError | None = None
        self.answer: AddPartitionsToTxnResponse | None = None
        """Instead of one that fits."""
        self.held: list[asyncio.Future[None]] = []
        self.in_flight = self.in_flight_max = 0
        self.closed: list[str] = []

    @property
    def network(self) -> Network:
        return cast(Network, self)

    def connect_transactions(self, address: str) -> Any:
        return _FakeLink(self, address)

    async def release(self) -> None:
        """Answer what is held, once something is."""
        async with asyncio.timeout(20):
            while not self.held:
                await asyncio.sleep(0)
        held, self.held = self.held, []
        for future in held:
            if not future.done():
                future.set_result(None)

    def result(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        results = []
        for transaction in request.transactions:
            places = [index for topic in transaction.topics for index in topic.partitions]
            results.append(TransactionPartitionsResult(error_codes=map(self._code, places)))
        return self.answer or AddPartitionsToTxnResponse(transactions=results)

    def _code(self, partition: int) -> int:
        codes = self.codes.get(partition, [ErrorCode.none])
        return int(codes.pop(0) if len(codes) > 1 else codes[0])

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.asked) < count:
                await asyncio.sleep(0)


class _FakeLink:
    def __init__(self, owner: FakeCoordinators, address: str) -> None:
        self._owner = owner
        self._address = address

    async def AddPartitionsToTxn(
        self, request: AddPartitionsToTxnRequest, *, timeout: float | None = None
    ) -> AddPartitionsToTxnResponse:
        owner = self._owner
        assert timeout is not None
        owner.asked.append(request)
        owner.in_flight += 1
        owner.in_flight_max = max(owner.in_flight_max, owner.in_flight)
        try:
            if owner.is_held:
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                owner.held.append(future)
                await future
            if owner.error is not None:
                raise owner.error
            return owner.result(request)
        finally:
            owner.in_flight -= 1

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        return question in self._owner.parts

    async def close(self) -> None:
        self._owner.closed.append(self._address)
        for future in self._owner.held:
            if not future.done():
                future.set_exception(OutcomeUnknown("closed"))


class Producer:
    """One transactional producer, which writes to one topic."""

    def __init__(
        self, node: StorageHarness, topic: uuid.UUID, *, producer_id: int = 7, epoch: int = 0
    ) -> None:
        self.node = node
        self.topic = topic
        self.producer_id = producer_id
        self.epoch = epoch

    def batch(self, sequence: int, value: bytes = b"v", *, transactional: bool = True) -> bytes:
        return batch(
            value,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def send(
        self, sequence: int, transaction: AppendTransaction | None = VERIFIES, **options: Any
    ) -> asyncio.Task[PartitionAppendResult]:
        """Sent when this returns: what is sent next comes behind it."""
        future = self.node.send_append(self.topic, self.batch(sequence), transaction=transaction, **options)

        async def result() -> PartitionAppendResult:
            async with asyncio.timeout(20):
                return (await future).partitions[0]

        return asyncio.create_task(result())

    async def end(self, *, committed: bool = True, epoch: int | None = None, version: int = 0) -> ErrorCode:
        marker = encode_marker(
            committed=committed,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            coordinator_epoch=1,
            timestamp=NOW_MS,
        )
        result = await self.node.append(
            self.topic, marker, coordinator=COORDINATOR, marker_transaction_version=version
        )
        return ErrorCode(result.error_code)


def apply_coordinator(node: StorageHarness, name: str = "c", incarnation: str = "process") -> None:
    """All transactional ids belong to this coordinator from now on."""
    node.apply(
        coordinator_record(name, incarnation),
        *topic_records(
            "__transaction_state", STATE, leader=2, replicas=(2,), internal=True, coordinator_id=name
        ),
    )


def code(result: PartitionAppendResult) -> ErrorCode:
    return ErrorCode(result.error_code)


async def until_waiting(producer: Producer, count: int, index: int = 0) -> None:
    """Return once so many batches of the partition wait for answers, and all questions are asked."""
    unverified = producer.node.replica(producer.topic, index).appending.unverified
    async with asyncio.timeout(20):
        while len(unverified) != count or (index == 0 and producer.node.verification.questions.waiting):
            await asyncio.sleep(0)
