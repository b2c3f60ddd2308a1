"""Asking transaction coordinators whether partitions are part of transactions, or to make them so (KIP-890).

Whoever takes the first records of a transaction for a partition asks: a partition's leader, a group's coordinator. What
is to be asked of one coordinator while it is answering waits, and goes in one call once the answer is there. What is
told CONCURRENT_TRANSACTIONS is asked again at once in a patient call of its own, which is answered when the transaction
before has ended, and holds up no other question. What becomes of the records is the asker's: nothing here knows of
logs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import NEW_EPOCH_VERSION
from barnabas.kernel.logs import get_logger
from barnabas.links import limits
from barnabas.links.errors import LinkError, OutcomeUnknown, Unreachable
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
    TransactionTopic,
)

if TYPE_CHECKING:
    from barnabas.links.network import Network
    from barnabas.links.transactions_link import TransactionsLink
    from barnabas.messages.metadata_pb2 import CoordinatorRecord

log = get_logger("links.transactions")


class _Asked:
    """A question, and the future that is to have its answer; done where nobody wants to know any more."""

    __slots__ = ("asked_at", "future", "question", "was_patient")

    def __init__(self, question: TransactionQuestion) -> None:
        loop = asyncio.get_running_loop()
        self.question = question
        self.future: asyncio.Future[ErrorCode] = loop.create_future()
        self.asked_at = loop.time()
        self.was_patient = False
        """It has been asked in a call that waits for the transaction before."""

    def answer(self, code: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_result(code)

    def fail(self, error: LinkError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Line:
    """One coordinator's process: what waits for it, and whether it is being asked."""

    __slots__ = ("is_asked", "link", "record", "waiting")

    def __init__(self, record: CoordinatorRecord, link: TransactionsLink) -> None:
        self.record = record
        self.link = link
        self.waiting: deque[_Asked] = deque()
        self.is_asked = False


class TransactionQuestions:
    """Owns the links to transaction coordinators, and the questions that they have not answered."""

    def __init__(
        self,
        network: Network,
        coordinator_of: Callable[[str], CoordinatorRecord | None],
        *,
        retry_ms: int,
        retry_ms_max: int,
    ) -> None:
        """`coordinator_of` gives a transactional id's coordinator; None while there is none.

        Who adds a partition waits for `retry_ms_max` where the transaction before is being ended, which takes as long
        as its markers do: once in a patient call, and else by asking every `retry_ms`.
        """
        self._network = network
        self._coordinator_of = coordinator_of
        self._retry_seconds = retry_ms / 1000
        self._retry_seconds_max = retry_ms_max / 1000
        self._lines: dict[str, _Line] = {}
        """By coordinator id."""
        self._open: set[asyncio.Future[ErrorCode]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._patient = 0
        """Calls that wait for the transaction before."""

    @property
    def waiting(self) -> int:
        """Questions that nobody has been asked yet."""
        return sum(len(line.waiting) for line in self._lines.values())

    def verify_nowait(self, question: TransactionQuestion) -> bool:
        """Whether a yes is had at once, of a coordinator in the same process; False: `ask`.

        What would have to be added is not, also where that was done before: that answer waits for the log.
        """
        if question.adds_partition:
            return False
        line = self._line_of(question.transactional_id)
        try:
            return line is not None and line.link.verify_nowait(question)
        except Exception:
            log.exception("a transaction coordinator in this process cannot say yes")
            return False

    def ask(self, question: TransactionQuestion) -> asyncio.Future[ErrorCode]:
        """Have it answered, unless the future is cancelled before.

        The answer is Kafka's code, `none` for yes; COORDINATOR_NOT_AVAILABLE where nobody can be asked. It is a
        LinkError where no answer came in time: the partition may be part of the transaction by now.
        """
        asked = _Asked(question)
        self._open.add(asked.future)
        asked.future.add_done_callback(self._open.discard)
        self._send(asked)
        return asked.future

    def keep_links_to(self, coordinators: Mapping[str, CoordinatorRecord]) -> None:
        """There are no other coordinators any more. What one of the others is being asked has no answer; what waits for
        it goes to who owns the transactional id now.
        """
        gone = [line for name, line in self._lines.items() if coordinators.get(name) != line.record]
        for line in gone:
            del self._lines[line.record.coordinator_id]
            self._begin(line.link.close())  # which fails what it is being asked
            waiting = list(line.waiting)
            line.waiting.clear()
            for asked in waiting:
                self._send(asked)

    async def close(self) -> None:
        """What is not answered fails."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.link.close()
        for future in list(self._open):
            if not future.done():
                future.set_exception(OutcomeUnknown("nobody asks transaction coordinators any more"))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, asked: _Asked) -> None:
        if asked.future.done():
            return
        line = self._line_of(asked.question.transactional_id)
        if line is None:
            asked.answer(ErrorCode.coordinator_not_available)
        elif len(line.waiting) >= limits.TRANSACTION_QUESTIONS_MAX:
            asked.fail(Unreachable("too many questions wait for the transaction coordinator"))
        else:
            line.waiting.append(asked)
            if not line.is_asked:
                line.is_asked = True
                self._begin(self._ask_all(line))

    def _line_of(self, transactional_id: str) -> _Line | None:
        record = self._coordinator_of(transactional_id)
        if record is None:
            return None
        line = self._lines.get(record.coordinator_id)
        if line is None:
            link = self._network.connect_transactions(record.address)
            line = self._lines[record.coordinator_id] = _Line(record, link)
        return line

    async def _ask_all(self, line: _Line) -> None:
        while line.waiting:
            count = min(len(line.waiting), limits.TRANSACTION_QUESTIONS_AT_ONCE)
            taken = [line.waiting.popleft() for _ in range(count)]
            await self._ask(line.link, [each for each in taken if not each.future.done()])
        line.is_asked = False

    async def _ask_patiently(self, line: _Line, asked: _Asked, wait_ms: int) -> None:
        try:
            if not asked.future.done():
                await self._ask(line.link, [asked], wait_ms=wait_ms)
        finally:
            self._patient -= 1

    async def _ask(self, link: TransactionsLink, asked: Sequence[_Asked], *, wait_ms: int = 0) -> None:
        if not asked:
            return
        seconds = limits.TRANSACTION_CALL_SECONDS + wait_ms / 1000
        try:
            request, order = _request_for(asked, wait_ms)
            response = await link.AddPartitionsToTxn(request, timeout=seconds)
            codes = _codes_in(response, request)
        except LinkError as error:
            for each in asked:
                each.fail(error)
        except Exception:
            log.exception("asking a transaction coordinator failed")
            for each in asked:
                each.fail(OutcomeUnknown("the transaction coordinator was not asked to the end"))
        else:
            for each, code in zip(order, codes, strict=True):
                self._on_answer(each, code)

    def _on_answer(self, asked: _Asked, code: ErrorCode) -> None:
        loop = asyncio.get_running_loop()
        seconds = asked.asked_at + self._retry_seconds_max - loop.time()
        if code is not ErrorCode.concurrent_transactions or not asked.question.adds_partition or seconds <= 0:
            asked.answer(code)
            return
        line = self._line_of(asked.question.transactional_id)
        if line is None or asked.was_patient or self._patient >= limits.TRANSACTIONS_WAITED_FOR_MAX:
            loop.call_later(self._retry_seconds, self._send, asked)
            return
        asked.was_patient = True
        self._patient += 1
        self._begin(self._ask_patiently(line, asked, max(1, int(seconds * 1000))))


def _request_for(asked: Sequence[_Asked], wait_ms: int) -> tuple[AddPartitionsToTxnRequest, list[_Asked]]:
    """One call for all of them, and the order in which its answer has their codes."""
    transactions: dict[tuple[str, int, int, bool], dict[str, list[_Asked]]] = {}
    for each in asked:
        topics = transactions.setdefault(each.question[:4], {})
        topics.setdefault(each.question.topic, []).append(each)
    request = AddPartitionsToTxnRequest(
        transactions=[
            TransactionPartitions(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                verify_only=not adds_partition,
                transaction_version=NEW_EPOCH_VERSION if adds_partition else 0,
                topics=[
                    TransactionTopic(name=name, partitions=[each.question.partition for each in of_topic])
                    for name, of_topic in topics.items()
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
    order = [each for topics in transactions.values() for of_topic in topics.values() for each in of_topic]
    return request, order


def _codes_in(response: AddPartitionsToTxnResponse, request: AddPartitionsToTxnRequest) -> list[ErrorCode]:
    """The codes of all partitions, in the order of the request. Raises OutcomeUnknown where the answer is to something
    else."""
    codes: list[ErrorCode] = []
    results = response.transactions
    if len(results) != len(request.transactions):
        raise OutcomeUnknown(f"asked about {len(request.transactions)} transactions, told of {len(results)}")
    for result, transaction in zip(results, request.transactions, strict=True):
        partitions = sum(len(topic.partitions) for topic in transaction.topics)
        if len(result.error_codes) != partitions:
            raise OutcomeUnknown(f"asked about {partitions} partitions, told of {len(result.error_codes)}")
        codes.extend(_code(number) for number in result.error_codes)
    return codes


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error  # of a coordinator that is newer
