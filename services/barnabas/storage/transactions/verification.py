"""Whether a partition is part of a transaction, before the first of its records is appended (KIP-890).

A transaction that is open in the log needs nothing. For any other a guard is opened in the log. Where the transaction's
coordinator is in the same process and knows of the partition, that is all; else it is asked, and what the producer
sends to the partition meanwhile waits. With the answer all of that is appended in its order, under the guard: should a
marker have come in between, the log refuses it.

What waits is never appended late: who gives it up withdraws it, and a replica that leads no longer, or leads under
another epoch, refuses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.histograms import MILLISECONDS_BUCKETS, Histogram
from barnabas.links.transaction_questions import TransactionQuestions
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.log.producers.verification_guards import (
    NO_GUARD,
    UNGUARDED,
    VerificationGuards,
    is_guard,
)
from barnabas.messages.storage_pb2 import AppendTransaction
from barnabas.metadata.coordinators import coordinator_of
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.records.batch import HEADER_SIZE, BatchHeader, Buffer, parse_header
from barnabas.records.validate import check_framing, checked_tail
from barnabas.storage import limits
from barnabas.storage.transactions.answers import code_of, refusal
from barnabas.storage.transactions.unverified import (
    OnDecided,
    TransactionKey,
    UnverifiedBatch,
    UnverifiedRoom,
)

if TYPE_CHECKING:
    from barnabas.links.network import Network
    from barnabas.log.prepared_batches import AppendInfo
    from barnabas.messages.metadata_pb2 import CoordinatorRecord
    from barnabas.storage.replica.replica import Replica
    from barnabas.storage.replica.replicas import Replicas


class Verification:
    """Owner of how a node asks about transactions, and of how much may wait for it."""

    def __init__(
        self, replicas: Replicas, network: Network, *, bytes_max: int = limits.UNVERIFIED_BYTES_MAX
    ) -> None:
        self._replicas = replicas
        self._room = UnverifiedRoom(bytes_max)
        retry_ms = replicas.broker_value("add.partitions.to.txn.retry.backoff.ms")
        retry_ms_max = replicas.broker_value("add.partitions.to.txn.retry.backoff.max.ms")
        assert isinstance(retry_ms, int) and isinstance(retry_ms_max, int)  # noqa: PT018
        self.questions = TransactionQuestions(
            network, self._coordinator_of, retry_ms=retry_ms, retry_ms_max=retry_ms_max
        )
        self.failures = 0
        """Questions that were not answered with yes."""
        self.times_ms = Histogram(MILLISECONDS_BUCKETS)
        self.guard_unasked = self._read()
        """The guard of records about whose transaction the gateway has said nothing."""

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Follow the newest metadata, behind `Replicas`; for MetadataSubscription.on_change."""
        if new.configs is not old.configs:
            self.guard_unasked = self._read()
        self.questions.keep_links_to(new.coordinators)

    def _coordinator_of(self, transactional_id: str) -> CoordinatorRecord | None:
        return coordinator_of(self._replicas.image, TRANSACTION_STATE_TOPIC, transactional_id)

    def _read(self) -> int:
        is_enabled = self._replicas.broker_value("transaction.partition.verification.enable")
        return NO_GUARD if is_enabled else UNGUARDED

    @property
    def waiting_bytes(self) -> int:
        """What waits for coordinators' answers, all partitions together."""
        return self._room.size_bytes

    def begin(
        self, replica: Replica, records: bytes, transaction: AppendTransaction, on_decided: OnDecided
    ) -> int | UnverifiedBatch:
        """What a client's transactional batch has to wait for: the guard under which it may be appended at once, or the
        batch as it waits, of which `on_decided` will be told.

        Raises KafkaError for what need not be asked about.
        """
        guard = self._guard_at_once(replica, records, transaction)
        if guard is not None and not is_guard(guard):
            return guard
        header = parse_header(records)
        try:
            _check_batch(replica, records, header)
        except KafkaError:
            if guard is not None:
                _guards_of(replica).close(header.producer_id, guard)
            raise
        if guard is not None:
            return guard
        waiting = replica.appending.unverified
        if not waiting.has_room(len(records), self._room):
            raise KafkaError(
                ErrorCode.not_enough_replicas, "too much waits for answers of transaction coordinators"
            )
        batch = UnverifiedBatch(_key_of(header, transaction), header, len(records), on_decided)
        if waiting.add(batch, self._room):
            self._ask(replica, batch.key)
        return batch

    def append_at_once(
        self, replica: Replica, records: memoryview, acks: int, transaction: AppendTransaction
    ) -> AppendInfo | None:
        """Append a client's transactional batch where nobody need be asked about it, and it can be acknowledged when
        this returns; None, with nothing changed, where it cannot, as `Appending.append_at_once`.
        """
        if not replica.appending.may_append_at_once:
            return None
        guard = self._guard_at_once(replica, records, transaction)
        if guard is None:
            return None
        info = replica.appending.append_at_once(records, acks, guard)
        if is_guard(guard) and (info is None or info.duplicate):  # nothing was appended under it
            _guards_of(replica).close(parse_header(records).producer_id, guard)
        return info

    def _guard_at_once(self, replica: Replica, records: Buffer, transaction: AppendTransaction) -> int | None:
        """The guard under which a batch may be appended now; None where its coordinator is to be asked, or it has to
        come behind one that waits. What is wrong with the batch itself the log says.
        """
        if len(records) < HEADER_SIZE:
            return NO_GUARD  # which the log refuses, as it does all that is no batch of a producer
        header = parse_header(records)
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        if producer_id < 0:
            return NO_GUARD
        opened = replica.log
        assert opened is not None, "a leader has its log"
        is_behind = replica.appending.unverified.has(producer_id)
        if not is_behind and opened.producer_state.is_open(producer_id, producer_epoch):
            return NO_GUARD
        if self.guard_unasked == UNGUARDED and not transaction.adds_partitions and not is_behind:
            return UNGUARDED
        if is_behind or transaction.adds_partitions:
            return None
        key = _key_of(header, transaction)
        guard = _open_guard(replica, key)
        if self.questions.verify_nowait(_question(replica, key)):
            return guard
        opened.guards.close(producer_id, guard)
        return None

    def refuse_all(self, replicas: Iterable[Replica], error_code: int) -> None:
        """Nothing that waits is appended to these: nobody else is to find it there."""
        error = KafkaError(ErrorCode(error_code))
        for replica in replicas:
            replica.appending.unverified.refuse_all(error)

    def _ask(self, replica: Replica, key: TransactionKey) -> None:
        guards, guard = _guards_of(replica), _open_guard(replica, key)
        asked_at = asyncio.get_running_loop().time()
        answer = self.questions.ask(_question(replica, key))
        replica.appending.unverified.on_asked(key.producer_id, answer)
        answer.add_done_callback(partial(self._on_answer, replica, key, guards, guard, asked_at))

    def _on_answer(
        self,
        replica: Replica,
        key: TransactionKey,
        guards: VerificationGuards,
        guard: int,
        asked_at: float,
        answer: asyncio.Future[ErrorCode],
    ) -> None:
        waiting = replica.appending.unverified
        code = code_of(answer)
        if not waiting.on_answered(key.producer_id, answer):
            return  # what waited for it was refused
        self.failures += code is not ErrorCode.none
        self.times_ms.observe((asyncio.get_running_loop().time() - asked_at) * 1000)
        refused = refusal(code, adds_partitions=key.adds_partitions)
        is_used = False
        while (batch := waiting.take(key)) is not None:
            is_used = True
            batch.on_decided(guard, refused)
        if refused is not None or not is_used:
            guards.close(key.producer_id, guard)
        following = waiting.first(key.producer_id)
        if following is not None:
            self._ask(replica, following.key)


def _check_batch(replica: Replica, records: Buffer, header: BatchHeader) -> None:
    """Nobody is asked about what changed on its way, or is of an epoch that is over, and no guard is kept for it.

    Raises KafkaError.
    """
    opened = replica.log
    assert opened is not None, "a leader has its log"
    checked_tail(records, check_framing(records))
    known = opened.producer_state.producers.get(header.producer_id)
    if known is not None:
        known.check_epoch(header.producer_epoch)


def _key_of(header: BatchHeader, transaction: AppendTransaction) -> TransactionKey:
    return TransactionKey(
        transaction.transactional_id, header.producer_id, header.producer_epoch, transaction.adds_partitions
    )


def _question(replica: Replica, key: TransactionKey) -> TransactionQuestion:
    return TransactionQuestion(*key, replica.topic, replica.index)


def _guards_of(replica: Replica) -> VerificationGuards:
    opened = replica.log
    assert opened is not None, "a leader has its log"
    return opened.guards


def _open_guard(replica: Replica, key: TransactionKey) -> int:
    """The guard of what is asked now."""
    return _guards_of(replica).open(
        key.producer_id, key.producer_epoch, replica.leader_epoch, is_new_epoch=key.adds_partitions
    )
