"""Asking transaction coordinators whether partitions are part of transactions, or to make them so (KIP-890).

Whoever takes the first records of a transaction for a partition asks: a partition's leader, a group's coordinator. What
is to be asked of one coordinator while it is answering waits, and goes in one call once the answer is there. The same
question asked twice is sent once. Where the transaction before is not over yet, the question is asked once more, alone,
so that the answer may wait for that and holds up no other. What becomes of the records is the asker's: nothing here
knows of logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import NEW_EPOCH_VERSION
from barnabas.links import limits
from barnabas.links.errors import DeadlinePassed, LinkError, Unreachable
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionTopic,
)

if TYPE_CHECKING:
    from barnabas.links.network import Network
    from barnabas.links.transactions_link import TransactionsLink


class TransactionQuestion(NamedTuple):
    """Is the partition part of the transaction?"""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds_partition: bool
    """Whether to make it part of the transaction, where it is not."""
    topic: str
    partition: int


_Asked = dict[TransactionQuestion, list[asyncio.Future[ErrorCode]]]


class TransactionQuestions:
    """Owns the links to transaction coordinators, and the questions that wait for one.

    `address_of` gives the address of a transactional id's coordinator; None while there is none.
    """

    def __init__(
        self, network: Network, address_of: Callable[[str], str | None], timeout_seconds: float
    ) -> None:
        self._network = network
        self._address_of = address_of
        self._timeout_seconds = timeout_seconds
        self._lines: dict[str, _Line] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def ask(self, question: TransactionQuestion) -> ErrorCode:
        """Kafka's code, `none` for yes; COORDINATOR_NOT_AVAILABLE where nobody can be asked. Raises LinkError where no
        answer came in time: the partition may be part of the transaction by now."""
        address = self._address_of(question.transactional_id)
        if address is None:
            return ErrorCode.coordinator_not_available
        line = self._lines.get(address)
        if line is None:
            link = self._network.connect_transactions(address)
            line = self._lines[address] = _Line(link, self._timeout_seconds)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                code = await line.ask(question)
                if code is ErrorCode.concurrent_transactions and question.adds_partition:
                    code = await line.ask_alone(question)
                return code
        except TimeoutError as error:
            raise DeadlinePassed(f"the transaction coordinator at {address} does not answer") from error

    def keep_links_to(self, addresses: Collection[str]) -> None:
        """Nobody is at any other address any more; who waits for an answer from there has none."""
        for address in list(self._lines):
            if address not in addresses:
                task = asyncio.get_running_loop().create_task(self._lines.pop(address).close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """What waits fails."""
        self.keep_links_to(())
        await asyncio.gather(*self._closing)


class _Line:
    """Owns what waits for one coordinator, and the task that asks."""

    def __init__(self, link: TransactionsLink, timeout_seconds: float) -> None:
        self._link = link
        self._timeout_seconds = timeout_seconds
        self._waiting: _Asked = {}
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, question: TransactionQuestion) -> ErrorCode:
        if question not in self._waiting and len(self._waiting) >= limits.TRANSACTION_QUESTIONS_MAX:
            raise Unreachable("too many questions wait for the transaction coordinator")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ErrorCode] = loop.create_future()
        self._waiting.setdefault(question, []).append(future)
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask_all())
        return await future

    async def ask_alone(self, question: TransactionQuestion) -> ErrorCode:
        """With the answer waiting for the transaction before."""
        request, _ = request_for([question], wait_ms=limits.CONCURRENT_WAIT_MS)
        response = await self._link.AddPartitionsToTxn(request, timeout=self._timeout_seconds)
        (code,) = codes_in(response, request)
        return code

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        _fail(self._waiting, Unreachable("the transaction coordinator is gone"))
        self._waiting = {}
        await self._link.close()

    async def _ask_all(self) -> None:
        while self._waiting:
            asked = self._take()
            try:
                await self._call(asked)
            except LinkError as error:
                _fail(asked, error)
            finally:
                # Cancelled, or an answer that is none: nobody is to wait for another.
                _fail(asked, Unreachable("the transaction coordinator was not asked to the end"))

    def _take(self) -> _Asked:
        """The next questions; those that nobody waits for any more are dropped."""
        taken: _Asked = {}
        for question in list(self._waiting):
            if len(taken) == limits.TRANSACTION_QUESTIONS_AT_ONCE:
                break
            futures = self._waiting.pop(question)
            if not all(future.done() for future in futures):
                taken[question] = futures
        return taken

    async def _call(self, asked: _Asked) -> None:
        if not asked:
            return
        request, order = request_for(list(asked))
        response = await self._link.AddPartitionsToTxn(request, timeout=self._timeout_seconds)
        for question, code in zip(order, codes_in(response, request), strict=True):
            for future in asked[question]:
                if not future.done():
                    future.set_result(code)


def _fail(asked: _Asked, error: LinkError) -> None:
    for futures in asked.values():
        for future in futures:
            if not future.done():
                future.set_exception(error)


def request_for(
    questions: Sequence[TransactionQuestion], *, wait_ms: int = 0
) -> tuple[AddPartitionsToTxnRequest, list[TransactionQuestion]]:
    """One call for all of them, and the order in which its answer has their codes."""
    transactions: dict[tuple[str, int, int, bool], dict[str, list[TransactionQuestion]]] = {}
    for question in questions:
        topics = transactions.setdefault(question[:4], {})
        topics.setdefault(question.topic, []).append(question)
    request = AddPartitionsToTxnRequest(
        transactions=[
            TransactionPartitions(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds_partition,
                transaction_version=NEW_EPOCH_VERSION if adds_partition else 0,
                topics=[
                    TransactionTopic(name=name, partitions=[each.partition for each in asked])
                    for name, asked in topics.items()
                ],
                wait_ms=wait_ms,
            )
            for (
                transactional_id,
                producer_id,
                producer_epoch,
                adds_partition,
            ), topics in transactions.items()
        ]
    )
    order = [each for topics in transactions.values() for asked in topics.values() for each in asked]
    return request, order


def codes_in(response: AddPartitionsToTxnResponse, request: AddPartitionsToTxnRequest) -> list[ErrorCode]:
    """The codes of all partitions, in the order of the request. Raises Unreachable where the answer is to something
    else."""
    codes: list[ErrorCode] = []
    results = response.transactions
    if len(results) != len(request.transactions):
        raise Unreachable(f"asked about {len(request.transactions)} transactions, told of {len(results)}")
    for result, transaction in zip(results, request.transactions, strict=True):
        partitions = sum(len(topic.partitions) for topic in transaction.topics)
        if len(result.error_codes) != partitions:
            raise Unreachable(f"asked about {partitions} partitions, told of {len(result.error_codes)}")
        codes.extend(_code(number) for number in result.error_codes)
    return codes


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error  # of a coordinator that is newer
