"""The order in which batches of one connection that their leader refused go to the one that leads instead.

Where leadership moves, what is under way to the former leader comes back refused, in any order: an answer may wait for
another partition. It is sent on in the order in which it was handed over, one request at a time: the next one goes when
the one before it was taken. What the client sends meanwhile waits until nothing is left to be sent on. So the client
sees a moment's pause and no error. Nor does it see disorder, if its batches have sequences; among batches without,
those that are under way at that moment may change places, as they do with Kafka's producers that try again.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import insort
from collections.abc import Awaitable, Callable

from barnabas.gateway import limits
from barnabas.gateway.clients.sequence_gaps import Place
from barnabas.messages.storage_pb2 import PartitionAppend
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.leaders import current_leader


class Resend:
    """What one leader refused of a request, and may go to another: owns what is left of it."""

    __slots__ = ("image", "is_over", "order", "refused", "until")

    def __init__(self, order: int, image: MetadataImage, until: float) -> None:
        self.order = order
        """Its place among all that its connection handed over."""
        self.image = image
        """By which it was sent last."""
        self.until = until
        """When it is given up, by the event loop's time."""
        self.is_over = False
        """Whether nothing waits for it any more: what comes back from now on is not sent on."""
        self.refused: dict[Place, PartitionAppend] = {}
        """What nobody has, nor is on its way."""

    async def wait_for_other_leader(
        self, wait_until: Callable[[Callable[[MetadataImage], bool]], Awaitable[object]]
    ) -> None:
        """Return when another one leads, as far as the metadata know, what the last one refused; or after a moment:
        the same one may know better by then. `wait_until` returns once some metadata are so.
        """
        partitions = [(sent.topic_id, sent.partition) for sent in self.refused.values()]
        last = self.image
        refused_by = [current_leader(last, *each) for each in partitions]

        def is_other(image: MetadataImage) -> bool:
            return image is not last and [current_leader(image, *each) for each in partitions] != refused_by

        seconds = min(self.until - asyncio.get_running_loop().time(), limits.RESEND_PAUSE_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await wait_until(is_other)


class Resends:
    """Owns the queue of one connection's requests that are to be sent on; empty nearly always."""

    __slots__ = ("_changed", "_is_closed", "_queue", "_sent", "_sent_too_early")

    def __init__(self) -> None:
        self._queue: list[Resend] = []
        self._changed: asyncio.Event | None = None
        self._is_closed = False
        self._sent = 0
        self._sent_too_early = 0
        """The last that was handed over before something that was sent on had left."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    def next_order(self) -> int:
        """The place of what is handed over now."""
        self._sent += 1
        return self._sent

    def join(self, order: int, image: MetadataImage, until: float) -> Resend:
        """Queue up, until it leaves, behind all that was handed over before."""
        resend = Resend(order, image, until)
        if self._is_closed:
            resend.is_over = True
        else:
            insort(self._queue, resend, key=lambda queued: queued.order)
        return resend

    def may_come_too_early(self, order: int) -> bool:
        """Whether what was handed over as `order` may have come to its leader before what is sent on, or was."""
        return bool(self._queue) or order <= self._sent_too_early

    def is_first(self, resend: Resend) -> bool:
        """Whether it is to go now."""
        return bool(self._queue) and self._queue[0] is resend

    def leave(self, resend: Resend) -> None:
        """It was sent on and taken, or refused for good, or has waited for that for so long that others go on."""
        if resend.is_over:
            return
        resend.is_over = True
        if resend in self._queue:
            self._queue.remove(resend)
            self._sent_too_early = self._sent
        self._tell()

    def close(self) -> None:
        """The connection ends: nothing is sent on any more."""
        self._is_closed = True
        for resend in list(self._queue):
            self.leave(resend)

    async def wait_for_turn(self, resend: Resend) -> None:
        """Return when it is to go, or has left."""
        while not resend.is_over and not self.is_first(resend):
            await self._wait()

    async def wait_until_empty(self, look: Callable[[], None], until: float) -> float:
        """Return when nothing is left to be sent on, or at `until` by the event loop's time, with the seconds that this
        took; `look` has joined what was refused by now.
        """
        look()
        if not self._queue:
            return 0.0
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._queue:
                    await self._wait()
                    look()
        return asyncio.get_running_loop().time() - began

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        self._changed.clear()
        await self._changed.wait()
