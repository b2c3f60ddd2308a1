"""Asking transaction coordinators: few calls, each with all that came up while the one before was under way.

What is told CONCURRENT_TRANSACTIONS is asked again at once in a patient call of its own, which is answered when the
transaction before has ended, and holds up no other question.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram
from barnabas.kernel.kafka_values import NEW_EPOCH_VERSION
from barnabas.kernel.logs import get_logger
from barnabas.links.errors import LinkError
from barnabas.messages.transactions_pb2 import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    TransactionPartitions,
)
from barnabas.metadata.coordinators import coordinator_of
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.storage import limits
from barnabas.storage.transactions.questions import Question, TransactionKey

if TYPE_CHECKING:
    from barnabas.links.network import Network
    from barnabas.links.transactions_link import TransactionsLink
    from barnabas.messages.metadata_pb2 import CoordinatorRecord

NOT_AVAILABLE: Final = int(ErrorCode.coordinator_not_available)
NO_ANSWER: Final = int(ErrorCode.network_exception)
CONCURRENT: Final = int(ErrorCode.concurrent_transactions)

log = get_logger("storage.transactions")


class _Peer:
    """One coordinator's process: what waits for it, and whether it is being asked."""

    __slots__ = ("is_asked", "link", "record", "waiting")

    def __init__(self, record: CoordinatorRecord, link: TransactionsLink) -> None:
        self.record = record
        self.link = link
        self.waiting: deque[Question] = deque()
        self.is_asked = False


class TransactionCoordinators:
    """Owner of the links to transaction coordinators, and of the questions that they have not answered.

    A question is answered once, later than `ask` returns: by the coordinator, or by COORDINATOR_NOT_AVAILABLE where the
    metadata names none, or by NETWORK_EXCEPTION where it does not answer in time.
    """

    def __init__(self, network: Network, *, retry_ms: int, retry_ms_max: int) -> None:
        """Who adds a partition waits for `retry_ms_max` where the transaction before is being ended, which takes as
        long as its markers do: once in a patient call, and else by asking every `retry_ms`.
        """
        self._network = network
        self._retry_seconds = retry_ms / 1000
        self._retry_seconds_max = retry_ms_max / 1000
        self._image = MetadataImage()
        self._peers: dict[str, _Peer] = {}
        """By coordinator id."""
        self._to_ask: dict[_Peer, None] = {}
        self._to_ask_patiently: list[tuple[_Peer, Question]] = []
        self._patient = 0
        """Questions in `_to_ask_patiently` or on their way."""
        self._to_close: list[TransactionsLink] = []
        self._wake = asyncio.Event()
        self.failures = 0
        """Questions that were not answered with yes."""
        self.times_ms = Histogram(MILLISECONDS_BUCKETS)

    @property
    def waiting(self) -> int:
        """Questions that nobody has been asked yet."""
        return sum(len(peer.waiting) for peer in self._peers.values())

    def on_image(self, _: MetadataImage, new: MetadataImage) -> None:
        """Follow the newest metadata; for MetadataSubscription.on_change."""
        self._image = new
        gone = [peer for name, peer in self._peers.items() if new.coordinators.get(name) != peer.record]
        for peer in gone:
            del self._peers[peer.record.coordinator_id]
            self._to_ask.pop(peer, None)
            self._to_close.append(peer.link)  # which fails what it is being asked
            self._wake.set()
            waiting = list(peer.waiting)
            peer.waiting.clear()
            for question in waiting:
                self._send(question)

    def ask(self, question: Question) -> None:
        """Have `question` answered, unless it is withdrawn before."""
        question.asked_at = asyncio.get_running_loop().time()
        self._send(question)

    def _send(self, question: Question) -> None:
        if question.is_withdrawn:
            return
        record = coordinator_of(self._image, TRANSACTION_STATE_TOPIC, question.key.transactional_id)
        if record is None:
            asyncio.get_running_loop().call_soon(self._on_answer, question, NOT_AVAILABLE)
            return
        peer = self._peer(record)
        peer.waiting.append(question)
        if not peer.is_asked:
            self._to_ask[peer] = None
            self._wake.set()

    def _send_patiently(self, question: Question) -> None:
        record = coordinator_of(self._image, TRANSACTION_STATE_TOPIC, question.key.transactional_id)
        if record is None:
            self._send(question)
            return
        question.was_patient = True
        self._patient += 1
        self._to_ask_patiently.append((self._peer(record), question))
        self._wake.set()

    def _peer(self, record: CoordinatorRecord) -> _Peer:
        peer = self._peers.get(record.coordinator_id)
        if peer is None:
            link = self._network.connect_transactions(record.address)
            peer = self._peers[record.coordinator_id] = _Peer(record, link)
        return peer

    async def run(self) -> None:
        """Ask, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    to_ask, self._to_ask = self._to_ask, {}
                    for peer in to_ask:
                        peer.is_asked = True
                        tasks.create_task(self._ask_all(peer), name="transaction coordinator")
                    patient, self._to_ask_patiently = self._to_ask_patiently, []
                    for peer, question in patient:
                        tasks.create_task(self._ask_patiently(peer, question), name="patient question")
                    to_close, self._to_close = self._to_close, []
                    for link in to_close:
                        await link.close()
        finally:
            for link in (*self._to_close, *(peer.link for peer in self._peers.values())):
                await link.close()

    async def _ask_all(self, peer: _Peer) -> None:
        while peer.waiting:
            count = min(len(peer.waiting), limits.QUESTIONS_PER_CALL)
            taken = [peer.waiting.popleft() for _ in range(count)]
            await self._ask(peer, [each for each in taken if not each.is_withdrawn])
        peer.is_asked = False

    async def _ask_patiently(self, peer: _Peer, question: Question) -> None:
        left = question.asked_at + self._retry_seconds_max - asyncio.get_running_loop().time()
        try:
            if not question.is_withdrawn:
                await self._ask(peer, [question], wait_ms=max(1, int(left * 1000)))
        finally:
            self._patient -= 1

    async def _ask(self, peer: _Peer, questions: Sequence[Question], *, wait_ms: int = 0) -> None:
        try:
            answered = await _answers(peer.link, questions, wait_ms) if questions else ()
        except Exception:
            log.exception("asking a transaction coordinator failed")
            answered = [(question, NO_ANSWER) for question in questions]
        for question, code in answered:
            self._on_answer(question, code)

    def _on_answer(self, question: Question, code: int) -> None:
        if question.is_withdrawn:
            return
        loop = asyncio.get_running_loop()
        seconds = loop.time() - question.asked_at
        if code == CONCURRENT and question.key.adds_partitions and seconds < self._retry_seconds_max:
            if not question.was_patient and self._patient < limits.PATIENT_QUESTIONS_MAX:
                self._send_patiently(question)
            else:
                loop.call_later(self._retry_seconds, self._send, question)
            return
        self.failures += code != 0
        self.times_ms.observe(seconds * 1000)
        try:
            question.on_answer(code)
        except Exception:
            log.exception("taking a coordinator's answer failed", topic=question.topic)


async def _answers(
    link: TransactionsLink, questions: Sequence[Question], wait_ms: int
) -> Iterable[tuple[Question, int]]:
    """Each question with its answer."""
    by_key: dict[TransactionKey, dict[str, list[Question]]] = {}
    for question in questions:
        by_key.setdefault(question.key, {}).setdefault(question.topic, []).append(question)
    request = AddPartitionsToTxnRequest(
        transactions=[_partitions(key, by_topic, wait_ms) for key, by_topic in by_key.items()]
    )
    try:
        response = await link.AddPartitionsToTxn(request, timeout=limits.VERIFICATION_CALL_SECONDS_MAX)
    except LinkError as error:
        log.debug("a transaction coordinator does not answer", reason=str(error))
        return [(question, NO_ANSWER) for question in questions]
    in_order = [list(itertools.chain.from_iterable(by_topic.values())) for by_topic in by_key.values()]
    return _matched(in_order, response)


def _partitions(
    key: TransactionKey, by_topic: dict[str, list[Question]], wait_ms: int
) -> TransactionPartitions:
    asked = TransactionPartitions(
        transactional_id=key.transactional_id,
        producer_id=key.producer_id,
        producer_epoch=key.producer_epoch,
        verify_only=not key.adds_partitions,
        transaction_version=NEW_EPOCH_VERSION if key.adds_partitions else 0,
        wait_ms=wait_ms,
    )
    for name, questions in by_topic.items():
        asked.topics.add(name=name, partitions=[question.partition for question in questions])
    return asked


def _matched(
    asked: Sequence[Sequence[Question]], response: AddPartitionsToTxnResponse
) -> list[tuple[Question, int]]:
    """The questions of each transaction with what is answered of it; an answer that does not fit them is none."""
    results = response.transactions
    fits = len(results) == len(asked)
    found: list[tuple[Question, int]] = []
    for number, questions in enumerate(asked):
        codes = results[number].error_codes if fits else ()
        if len(codes) != len(questions):
            log.error("a transaction coordinator's answer does not fit what it was asked")
            found += [(question, NO_ANSWER) for question in questions]
        else:
            found += zip(questions, codes, strict=True)
    return found
