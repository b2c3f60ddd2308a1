"""The one place that writes metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

from barnabas.controller.core.decision import Decision
from barnabas.controller.counts import ControllerCounts
from barnabas.controller.election import Leadership, LeadershipLost
from barnabas.controller.limits import WAITING_REQUESTS_MAX
from barnabas.controller.store.protocol import (
    TRANSACTION_OPERATIONS_MAX,
    CompareFailed,
    Delete,
    DeletePrefix,
    Operation,
    Put,
    Store,
    StoreError,
)
from barnabas.metadata.image import MetadataImage
from barnabas.rpc.v1.controller_pb2 import MetadataDelta
from barnabas.rpc.v1.metadata_pb2 import MetadataRecord

T = TypeVar("T")
Decide = Callable[[MetadataImage], Decision[T]]


class TooManyRequests(Exception):
    """The queue of requests is full; the caller may try again later."""


@dataclass(slots=True)
class _Waiting:
    decide: Decide[Any]
    answer: asyncio.Future[Any]
    asked: float = field(default_factory=perf_counter)


@dataclass(slots=True)
class _Step:
    """One operation of the store and the records of the image that it stands for."""

    operation: Operation
    records: list[MetadataRecord]


class MetadataWriter:
    """Owner of the active controller's image, and the only writer of the store's metadata.

    Requests are decided one after another; those that wait at the same time are decided on one another's outcome
    and stored together. An answer is given once its records are stored and published.
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
        await self._commit(decided)

    async def _commit(self, decided: Sequence[tuple[_Waiting, Decision[Any]]]) -> None:
        merged: dict[str, MetadataRecord] = {}
        prefixes: list[str] = []
        for _, decision in decided:
            prefixes += decision.deleted_prefixes
            for record in decision.records:
                merged.pop(record.key, None)
                merged[record.key] = record
        for steps in _transactions(_steps(merged.values(), prefixes)):
            await self._write(steps)
        for waiting, decision in decided:
            if not waiting.answer.done():
                waiting.answer.set_result(decision.response)

    async def _write(self, steps: Sequence[_Step]) -> None:
        operations = [step.operation for step in steps]
        started = perf_counter()
        try:
            revision = await self._store.transact([self._leadership.compare], operations)
        except CompareFailed as error:
            raise LeadershipLost("another controller is active") from error
        except StoreError as error:
            raise LeadershipLost(
                f"a write failed, and it is not known whether it happened: {error}"
            ) from error
        records = [record for step in steps for record in step.records]
        self._counts.on_stored(self._image, records, (perf_counter() - started) * 1000)
        self._image = self._image.apply(records, revision)
        self._publish(MetadataDelta(revision=revision, records=records))


def _steps(records: Iterable[MetadataRecord], prefixes: Sequence[str]) -> Iterator[_Step]:
    """Operations in the order of the records; the deletions under a prefix become one."""
    by_prefix: dict[str, _Step] = {}
    for record in records:
        if record.WhichOneof("value") is not None:
            yield _Step(Put(record.key, record.SerializeToString()), [record])
            continue
        prefix = next((prefix for prefix in prefixes if record.key.startswith(prefix)), None)
        if prefix is None:
            yield _Step(Delete(record.key), [record])
        elif prefix in by_prefix:
            by_prefix[prefix].records.append(record)
        else:
            by_prefix[prefix] = _Step(DeletePrefix(prefix), [record])
            yield by_prefix[prefix]


def _transactions(steps: Iterable[_Step]) -> Iterator[list[_Step]]:
    listed = list(steps)
    for start in range(0, len(listed), TRANSACTION_OPERATIONS_MAX):
        yield listed[start : start + TRANSACTION_OPERATIONS_MAX]
