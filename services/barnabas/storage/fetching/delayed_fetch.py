"""The fetch purgatory: fetches that wait until enough bytes are there.

Nothing is polled or read again while it waits. A waiting fetch stands in the `watchers` of each of its partitions;
when a partition's high watermark moves, the bytes that became visible are added up, and only a fetch whose sum
reaches its min_bytes is answered (and read). What grew in one turn of the event loop wakes its watchers together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from barnabas.kernel.kafka_values import READ_COMMITTED
from barnabas.storage import limits

if TYPE_CHECKING:
    from barnabas.kernel.tracing import Span
    from barnabas.messages.storage_pb2 import FetchRequest


class Watched(Protocol):
    """What a fetch waits for: a replica."""

    watchers: dict[DelayedFetch, int]
    """Those who wait, and the offset that each wants."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


class DelayedFetch:
    """One fetch from its arrival to its answer; `complete` puts it back among those to be read, once."""

    __slots__ = (
        "available_bytes",
        "hurried",
        "is_held_back",
        "is_waiting",
        "is_withdrawn",
        "on_complete",
        "request",
        "span",
        "timer",
        "watched",
    )

    def __init__(self, request: FetchRequest, on_complete: Callable[[DelayedFetch], None]) -> None:
        self.request = request
        self.on_complete = on_complete
        self.available_bytes = 0
        self.hurried = False
        """Answer with whatever there is: the time is over, or the sender asked for it."""
        self.is_held_back = False
        """Under read committed: open transactions hide bytes that are not in the sum."""
        self.is_waiting = False
        self.is_withdrawn = False
        """Nobody wants the answer any more."""
        self.span: Span | None = None
        self.timer: asyncio.TimerHandle | None = None
        """Hurries it when its time is over; it has one from its first wait, for bytes or for a disk, to its end."""
        self.watched: list[Watched] = []

    def limit_wait(self) -> None:
        """Its time runs from now on, unless it does already."""
        if self.timer is None and not self.hurried:
            wait_ms = min(self.request.max_wait_ms, limits.WAIT_MS_MAX)
            self.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.hurry)

    def hurry(self) -> None:
        """Answer with what there is."""
        self.hurried = True
        self.complete()

    def complete(self) -> None:
        """Stop waiting and have the fetch read again."""
        if self.is_waiting:
            self.stop_waiting()
            self.on_complete(self)

    def stop_waiting(self) -> None:
        """Leave the purgatory."""
        self.is_waiting = False
        for replica in self.watched:
            replica.watchers.pop(self, None)
        self.watched = []

    def end(self) -> None:
        """It has its answer, or nobody wants one."""
        self.stop_waiting()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.span is not None:
            self.span.end()


class FetchPurgatory:
    """Owner of the set of partitions that grew in this turn of the loop, and of the count of waiting fetches."""

    def __init__(self, *, fetches_max: int = limits.WAITING_FETCHES_MAX) -> None:
        self._fetches_max = fetches_max
        self._waiting: set[DelayedFetch] = set()
        self._grown: dict[Watched, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self, fetch: DelayedFetch, available_bytes: int, replicas: Sequence[tuple[Watched, int]]
    ) -> bool:
        """Let `fetch` wait for its `replicas`, given with the offset wanted of each; `available_bytes` are there.

        False when too many wait already: then the caller answers at once.
        """
        if len(self._waiting) >= self._fetches_max:
            return False
        fetch.available_bytes = available_bytes
        fetch.is_waiting = True
        fetch.watched = [replica for replica, _ in replicas]
        committed = fetch.request.isolation_level == READ_COMMITTED
        fetch.is_held_back = False
        for replica, fetch_offset in replicas:
            replica.watchers[fetch] = fetch_offset
            if committed and replica.last_stable_offset < replica.high_watermark:
                fetch.is_held_back = True
        fetch.limit_wait()
        self._waiting.add(fetch)
        return True

    def forget(self, fetch: DelayedFetch) -> None:
        """The fetch is on its way to its answer, or its stream is gone."""
        self._waiting.discard(fetch)

    def on_growth(self, replica: Watched, size_bytes: int) -> None:
        """`size_bytes` more may be read from `replica`, which has watchers; they hear of it in this loop turn."""
        grown = self._grown
        if not grown:
            asyncio.get_running_loop().call_soon(self._wake)
        grown[replica] = grown.get(replica, 0) + size_bytes

    def _wake(self) -> None:
        grown, self._grown = self._grown, {}
        for replica, size_bytes in grown.items():
            for fetch, fetch_offset in list(replica.watchers.items()):
                self._add(fetch, replica, fetch_offset, size_bytes)

    def _add(self, fetch: DelayedFetch, replica: Watched, fetch_offset: int, size_bytes: int) -> None:
        request = fetch.request
        if request.isolation_level == READ_COMMITTED:
            stable = replica.last_stable_offset
            if stable < replica.high_watermark:
                fetch.is_held_back = True
            if stable <= fetch_offset:
                return
            if fetch.is_held_back:
                # A marker made earlier records visible as well: how many bytes, only a read can tell.
                size_bytes = request.min_bytes
        fetch.available_bytes += size_bytes
        if fetch.available_bytes >= request.min_bytes:
            fetch.complete()
