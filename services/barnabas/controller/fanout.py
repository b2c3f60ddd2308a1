"""From one writer to many receivers of the metadata."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from barnabas.controller.core.quorum import UNKNOWN_TIMESTAMP, Progress
from barnabas.controller.limits import STREAM_QUEUED_RECORDS_MAX
from barnabas.kernel.clock import Clock
from barnabas.messages.controller_pb2 import MetadataDelta
from barnabas.metadata.image import MetadataImage


class StreamEnded(Exception):
    """The stream must end; the receiver starts again from a snapshot."""


class Receiver:
    """Owner of what waits to be sent on one stream."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[MetadataDelta] = deque()
        self._queued_records = 0
        self._ended: str | None = None
        self._wake = asyncio.Event()
        self.progress = Progress(-1, UNKNOWN_TIMESTAMP, UNKNOWN_TIMESTAMP)
        """How far the receiver is; a revision of -1 before the first message."""

    def push(self, delta: MetadataDelta) -> None:
        """Queue `delta`; a receiver that is too far behind is ended instead."""
        if self._ended is not None:
            return
        self._queue.append(delta)
        self._queued_records += len(delta.records)
        if self._queued_records > STREAM_QUEUED_RECORDS_MAX and len(self._queue) > 1:
            self.end(f"more than {STREAM_QUEUED_RECORDS_MAX} records wait for this receiver: start again")
        self._wake.set()

    def end(self, reason: str) -> None:
        """Drop what waits and end the stream."""
        if self._ended is None:
            self._ended = reason
            self._queue.clear()
            self._wake.set()

    async def deltas(self) -> AsyncIterator[MetadataDelta]:
        """What was pushed, in order, until the stream is ended. Raises StreamEnded."""
        while True:
            if self._ended is not None:
                raise StreamEnded(self._ended)
            if self._queue:
                delta = self._queue.popleft()
                self._queued_records -= len(delta.records)
                now_ms = self._clock.now_ms()
                caught_up_at_ms = self.progress.caught_up_at_ms if self._queue else now_ms
                self.progress = Progress(delta.revision, now_ms, caught_up_at_ms)
                yield delta
            else:
                self._wake.clear()
                await self._wake.wait()


class Fanout:
    """Owner of the set of receivers that are given every change."""

    def __init__(self) -> None:
        self._receivers: dict[Receiver, None] = {}
        """In the order in which they came: they hear of each change so."""
        self._ended: str | None = None

    def add(self, receiver: Receiver, image: MetadataImage) -> None:
        """Give `receiver` the image as a snapshot, and every change after it."""
        if self._ended is not None:
            receiver.end(self._ended)
            return
        receiver.push(
            MetadataDelta(revision=image.revision, snapshot=True, records=list(image.records.values()))
        )
        self._receivers[receiver] = None

    def discard(self, receiver: Receiver) -> None:
        self._receivers.pop(receiver, None)

    def publish(self, delta: MetadataDelta) -> None:
        for receiver in self._receivers:
            receiver.push(delta)

    def end_all(self, reason: str) -> None:
        """End every stream, those that would be added later too."""
        self._ended = reason
        for receiver in self._receivers:
            receiver.end(reason)
        self._receivers.clear()

    def __len__(self) -> int:
        return len(self._receivers)
