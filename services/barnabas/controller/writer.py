"""The one place that writes metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from barnabas.controller.core.decision import Decision
from barnabas.controller.counts import ControllerCounts
from barnabas.controller.election import Leadership, LeadershipLost
from barnabas.controller.limits import UNCLEAN_LEADERS_TOLD_MAX, WAITING_REQUESTS_MAX
from barnabas.controller.store.protocol import (
    TRANSACTION_OPERATIONS_MAX,
    CompareFailed,
    Store,
    StoreError,
)
from barnabas.controller.whole_decisions import (
    RECORD_BYTES_MAX,
    PlannedDecision,
    apply_decision,
    decide,
    plan_decision,
)
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.messages.controller_pb2 import MetadataDelta
from barnabas.messages.metadata_pb2 import MetadataRecord, PartitionRecord
from barnabas.metadata.image import MetadataImage

log = get_logger("controller.writer")

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision[T]]


class TooManyRequests(Exception):
    """The queue of requests is full; the caller may try again later."""


@dataclass(slots=True)
class _Waiting:
    decide: Decide[Any]
    answer: asyncio.Future[Any]
    asked: float = field(default_factory=perf_counter)


class MetadataWriter:
    """Owner of the active controller's image, and the only writer of the store's metadata.

    Requests are decided one after another; those that wait at the same time are decided on one another's outcome
    and stored together, all or nothing (`whole_decisions`). An answer is given once its records are stored and
    published; one without records, once the store has confirmed that this controller is still the active one.
    """

    def __init__(
        self,
        store: Store,
        leadership: Leadership,
        image: MetadataImage,
        publish: Callable[[MetadataDelta], None],
        counts: ControllerCounts | None = None,
    ) -> None:
        self._counts = ControllerCounts() if counts is None else counts
        self._store = store
        self._leadership = leadership
        self._image = image
        self._publish = publish
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(WAITING_REQUESTS_MAX)
        self._closed = False

    @property
    def image(self) -> MetadataImage:
        """All that is stored."""
        return self._image

    async def submit(self, decide: Decide[T]) -> T:
        """Decide, store, and return the response.

        Raises what `decide` raises, TooManyRequests, or LeadershipLost, after which the outcome is not known.
        """
        if self._closed:
            raise LeadershipLost("this controller stepped down")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait(_Waiting(decide, answer))
        except asyncio.QueueFull:
            raise TooManyRequests(f"{WAITING_REQUESTS_MAX} requests are waiting: try again later") from None
        return await answer

    async def run(self) -> None:
        """Serve requests until cancelled. Raises LeadershipLost when a write failed."""
        group: list[_Waiting] = []
        try:
            while True:
                group = [await self._queue.get()]
                while not self._queue.empty():
                    group.append(self._queue.get_nowait())
                started = perf_counter()
                for waiting in group:
                    self._counts.queue_times.observe((started - waiting.asked) * 1000)
                await self._serve(group)
                self._counts.processing_times.observe((perf_counter() - started) * 1000)
        finally:
            self._closed = True
            while not self._queue.empty():
                group.append(self._queue.get_nowait())
            for waiting in group:
                if not waiting.answer.done():
                    waiting.answer.set_exception(LeadershipLost("this controller stepped down"))

    async def _serve(self, group: Iterable[_Waiting]) -> None:
        draft = self._image
        decided: list[tuple[_Waiting, Decision[Any]]] = []
        size = 0
        for waiting in group:
            try:
                decision = waiting.decide(draft)
                _check_sizes(decision)
            except Exception as error:
                if not waiting.answer.done():
                    waiting.answer.set_exception(error)
                continue
            if decided and size + len(decision.records) > TRANSACTION_OPERATIONS_MAX:
                await self._commit(decided)
                decided, size = [], 0
            decided.append((waiting, decision))
            size += len(decision.records)
            if decision.records:
                draft = draft.apply(decision.records, draft.revision + 1)
        if decided:
            await self._commit(decided)

    async def _commit(self, decided: Sequence[tuple[_Waiting, Decision[Any]]]) -> None:
        merged: dict[str, MetadataRecord] = {}
        prefixes: list[str] = []
        for _, decision in decided:
            prefixes += decision.deleted_prefixes
            for record in decision.records:
                merged.pop(record.key, None)
                merged[record.key] = record
        planned = plan_decision(merged.values(), prefixes)
        try:
            if planned.records:
                await self._decide(planned)
            elif not await self._is_confirmed(decided):
                return
            for waiting, decision in decided:
                if not waiting.answer.done():
                    waiting.answer.set_result(decision.response)
            await apply_decision(self._store, self._leadership.compare, planned)
        except CompareFailed as error:
            raise LeadershipLost("another controller is active") from error
        except StoreError as error:
            raise LeadershipLost(
                f"a write failed, and it is not known whether it happened: {error}"
            ) from error

    async def _decide(self, planned: PlannedDecision) -> None:
        started = perf_counter()
        revision = await decide(self._store, self._leadership.compare, planned)
        self._check_continues(revision)
        unclean = self._counts.on_stored(self._image, planned.records, (perf_counter() - started) * 1000)
        self._image = self._image.apply(planned.records, revision)
        self._tell_of_unclean_leaders(unclean)
        self._publish(MetadataDelta(revision=revision, records=planned.records))

    def _tell_of_unclean_leaders(self, partitions: Sequence[PartitionRecord]) -> None:
        for partition in partitions[:UNCLEAN_LEADERS_TOLD_MAX]:
            topic = self._image.topics_by_id.get(partition.topic_id)
            log.warning(
                "a leader may lack records that were acknowledged: nobody could lead who was known to have all",
                partition=f"{topic.name if topic else partition.topic_id.hex()}-{partition.partition}",
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
            )
        if len(partitions) > UNCLEAN_LEADERS_TOLD_MAX:
            log.warning("so may the leaders of others", partitions=len(partitions) - UNCLEAN_LEADERS_TOLD_MAX)

    async def _is_confirmed(self, decided: Sequence[tuple[_Waiting, Decision[Any]]]) -> bool:
        """Whether nothing is to be stored and the answers hold; while the store is silent nobody can say."""
        try:
            await self.confirm()
        except StoreError as error:
            for waiting, _ in decided:
                if not waiting.answer.done():
                    silent = f"the metadata store does not answer: {error}"
                    waiting.answer.set_exception(LeadershipLost(silent))
            return False
        return True

    async def confirm(self) -> None:
        """Return if the store says that this controller is the active one. Raises LeadershipLost, StoreError.

        A controller that was deposed while it was stopped or cut off does not know, and has an old image.
        """
        key = self._leadership.compare.key
        snapshot = await self._store.snapshot(key)
        holder = snapshot.entries.get(key)
        if holder is None or holder.mod_revision != self._leadership.revision:
            raise LeadershipLost("another controller is active")
        self._check_continues(snapshot.revision)

    def _check_continues(self, revision: int) -> None:
        """Raise LeadershipLost if the store is not where this controller left it.

        A backup that was made in this very term knows the election key as it is.
        """
        if revision < self._image.revision:
            raise LeadershipLost(
                f"the metadata store is at revision {revision}, and was at {self._image.revision}: it was restored"
            )


def _check_sizes(decision: Decision[Any]) -> None:
    """Raises KafkaError POLICY_VIOLATION for a record that the store cannot take."""
    for record in decision.records:
        if record.ByteSize() > RECORD_BYTES_MAX:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"{record.key} would have {record.ByteSize()} bytes, the metadata store takes {RECORD_BYTES_MAX}",
            )
