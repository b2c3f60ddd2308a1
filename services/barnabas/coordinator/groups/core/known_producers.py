"""Producers that write offsets within transactions: which epochs they have, and whose transaction is open.

The partition's leader refuses what a fenced producer or a deposed transaction coordinator writes. Decisions are taken
ahead of the log, and one that the log refuses would cost a reload; so the same is decided here first, from the same
facts: records and markers as they are replayed, and at start what the leader itself knows, of which compaction may have
left less in the log.

`Question` is to a group's coordinator what a guard (`log/producers/verification_guards`) is to a partition's leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.coordinator import limits
from barnabas.coordinator.runtime.core.producers import LogProducer, Producer
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import NEW_EPOCH_VERSION, PRODUCER_EPOCH_MAX

_NO_COORDINATOR_EPOCH: Final = -1


@dataclass(slots=True)
class _Known:
    epoch: int
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    is_open: bool = False


class Question:
    """What a transaction coordinator is being asked: whether a partition is part of a producer's transaction. Its
    answer is good for a write as long as no marker has ended that transaction meanwhile (KIP-890).
    """

    __slots__ = ("asked_by", "producer", "stands")

    def __init__(self, producer: Producer, asked_by: KnownProducers) -> None:
        self.producer = producer
        self.asked_by = asked_by
        self.stands = True


class KnownProducers:
    """Owns what is known of the producers in one partition of __consumer_offsets, and the questions about them."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        """By id; who wrote last, or was ended last, is last."""
        self._open = 0
        self._questions: dict[int, list[Question]] = {}

    @property
    def open_count(self) -> int:
        """Producers whose transaction is open."""
        return self._open

    def is_open(self, producer: Producer) -> bool:
        """Whether a transaction of the producer is open in this epoch."""
        known = self._known.get(producer.producer_id)
        return known is not None and known.is_open and known.epoch == producer.producer_epoch

    # -- what the log says --------------------------------------------------------------------------------------

    def replay_record(self, producer: Producer) -> None:
        """A record of the producer's transaction stands in the log."""
        known = self._renewed(producer)
        self._open += not known.is_open
        known.is_open = True

    def replay_marker(self, producer: Producer, coordinator_epoch: int) -> None:
        """A marker stands in the log that ends the producer's transaction, if one was open."""
        known = self._renewed(producer)
        self._open -= known.is_open
        known.is_open = False
        known.coordinator_epoch = coordinator_epoch

    def restore(self, producers: Sequence[LogProducer]) -> None:
        """The log has been replayed, and its leader knows these."""
        self._known = {
            each.producer.producer_id: _Known(
                each.producer.producer_epoch, each.coordinator_epoch, each.is_open
            )
            for each in producers
        }
        self._open = sum(each.is_open for each in producers)

    def _renewed(self, producer: Producer) -> _Known:
        known = self._known.pop(producer.producer_id, None)
        if known is None:
            known = _Known(producer.producer_epoch)
            self._forget_one_if_too_many()
        known.epoch = producer.producer_epoch
        self._known[producer.producer_id] = known
        return known

    def _forget_one_if_too_many(self) -> None:
        """What is forgotten here the leader still knows: it only costs a reload where it matters."""
        if len(self._known) >= limits.KNOWN_PRODUCERS_MAX:
            idle = next((each for each, known in self._known.items() if not known.is_open), None)
            if idle is not None:
                del self._known[idle]

    # -- deciding -----------------------------------------------------------------------------------------------

    def ask(self, producer: Producer) -> Question:
        """A question that `verdict` is told of, and `forget` at its end."""
        question = Question(producer, self)
        self._questions.setdefault(producer.producer_id, []).append(question)
        return question

    def forget(self, question: Question) -> None:
        """Nothing will be written because of `question` any more."""
        asked = self._questions.get(question.producer.producer_id, [])
        if question in asked:
            asked.remove(question)
            if not asked:
                del self._questions[question.producer.producer_id]

    def verdict_on_epoch(self, producer: Producer) -> ErrorCode:
        """Whether records of the producer's transaction can be written at all."""
        known = self._known.get(producer.producer_id)
        if known is not None and producer.producer_epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch
        return ErrorCode.none

    def verdict(self, question: Question) -> ErrorCode:
        """Whether records may be written now that their partition is part of the transaction, or was when it was asked
        for."""
        code = self.verdict_on_epoch(question.producer)
        if code is not ErrorCode.none:
            return code
        if question.asked_by is not self:
            # The partition was loaded anew meanwhile: what happened since the question is not known.
            return ErrorCode.coordinator_load_in_progress
        if not question.stands:
            return ErrorCode.invalid_txn_state
        if not self.is_open(question.producer) and self._open >= limits.OPEN_PRODUCERS_MAX:
            return ErrorCode.coordinator_load_in_progress
        return ErrorCode.none

    def verdict_on_marker(
        self, producer: Producer, coordinator_epoch: int, transaction_version: int
    ) -> ErrorCode:
        """Whether a marker may be written, by the rules of the transaction's version (KIP-1228). One that repeats the
        last may: its answer was lost."""
        known = self._known.get(producer.producer_id)
        if known is None:
            return ErrorCode.none
        if producer.producer_epoch < known.epoch:
            return ErrorCode.invalid_producer_epoch
        is_last = producer.producer_epoch == known.epoch and producer.producer_epoch != PRODUCER_EPOCH_MAX
        if is_last and known.is_open and transaction_version >= NEW_EPOCH_VERSION:
            # Of the transaction before the one that is open: that began in the epoch which this marker brought.
            return ErrorCode.invalid_producer_epoch
        if coordinator_epoch < known.coordinator_epoch:
            return ErrorCode.transaction_coordinator_fenced
        return ErrorCode.none

    def on_marker(self, producer: Producer, transaction_version: int) -> None:
        """A marker is decided: what was asked about the transaction that it ends was asked in vain. Not so what was
        asked about the next one, which has the epoch that the marker brings."""
        for question in self._questions.get(producer.producer_id, ()):
            is_of_next = transaction_version >= NEW_EPOCH_VERSION and question.producer == producer
            question.stands = question.stands and is_of_next
