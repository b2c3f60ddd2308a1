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

    watchers: dict[WaitingFetch, int]
    """Those who wait, and the offset that each wants."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...


class WaitingFetch:
    """What the purgatory knows of a fetch: for how much it waits and how long, and what is there by now."""

    __slots__ = (
        "available_bytes",
        "committed",
        "hurried",
        "is_held_back",
        "is_waiting",
        "max_wait_ms",
        "min_bytes",
        "timer",
        "watched",
    )

    def __init__(self, min_bytes: int, max_wait_ms: int, *, committed: bool) -> None:
        self.min_bytes = min_bytes
        self.max_wait_ms = max_wait_ms
        self.committed = committed
        self.available_bytes = 0
        self.hurried = False
        """Answer with whatever there is: the time is over, or the sender asked for it."""
        self.is_held_back = False
        """Under read committed: open transactions hide bytes that are not in the sum."""
        self.is_waiting = False
        self.timer: asyncio.TimerHandle | None = None
        """Hurries it when its time is over; it has one from its first wait, for bytes or for a disk, to its end."""
        self.watched: list[Watched] = []

    def limit_wait(self) -> None:
        """Its time runs from now on, unless it does already."""
        if self.timer is None and not self.hurried:
            wait_ms = min(self.max_wait_ms, limits.WAIT_MS_MAX)
            self.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.hurry)

    def hurry(self) -> None:
        """Answer with what there is."""
        self.hurried = True
        self.complete()

    def complete(self) -> None:
        """Stop waiting and have the fetch read again."""
        if self.is_waiting:
            self.stop_waiting()
            self.read_again()

    def read_again(self) -> None:
        """It waits no longer. This may be called in the middle of anything: it is not to be read at once."""
        raise NotImplementedError

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


class DelayedFetch(WaitingFetch):
    """One fetch request from its arrival to its answer; `on_complete` puts it back among those to be read, once."""

    __slots__ = ("is_withdrawn", "on_complete", "request", "span")

    def __init__(self, request: FetchRequest, on_complete: Callable[[DelayedFetch], None]) -> None:
        committed = request.isolation_level == READ_COMMITTED
        super().__init__(request.min_bytes, request.max_wait_ms, committed=committed)
        self.request = request
        self.on_complete = on_complete
        self.is_withdrawn = False
        """Nobody wants the answer any more."""
        self.span: Span | None = None

    def read_again(self) -> None:
        self.on_complete(self)

    def end(self) -> None:
        super().end()
        if self.span is not None:
            self.span.end()


def _nothing() -> None:
    """Nobody waits."""


class WaitingRead(WaitingFetch):
    """A read by function calls that found too little (`links.local_storage.ReadWait`)."""

    __slots__ = ("_purgatory", "on_over")

    def __init__(
        self, purgatory: FetchPurgatory, min_bytes: int, max_wait_ms: int, *, committed: bool
    ) -> None:
        super().__init__(min_bytes, max_wait_ms, committed=committed)
        self._purgatory = purgatory
        self.on_over: Callable[[], None] = _nothing

    def read_again(self) -> None:
        self._purgatory.forget(self)
        asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self.on_over()

    def end(self) -> None:
        super().end()
        self._purgatory.forget(self)
        self.on_over = _nothing


class FetchPurgatory:
    """Owner of the set of partitions that grew in this turn of the loop, and of the count of waiting fetches."""

    def __init__(self, *, fetches_max: int = limits.WAITING_FETCHES_MAX) -> None:
        self._fetches_max = fetches_max
        self._waiting: set[WaitingFetch] = set()
        self._grown: dict[Watched, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self, fetch: WaitingFetch, available_bytes: int, replicas: Sequence[tuple[Watched, int]]
    ) -> bool:
        """Let `fetch` wait for its `replicas`, given with the offset wanted of each; `available_bytes` are there.

        False when too many wait already: then the caller answers at once.
        """
        if len(self._waiting) >= self._fetches_max:
            return False
        fetch.available_bytes = available_bytes
        fetch.is_waiting = True
        fetch.watched = [replica for replica, _ in replicas]
        fetch.is_held_back = False
        for replica, fetch_offset in replicas:
            replica.watchers[fetch] = fetch_offset
            if fetch.committed and replica.last_stable_offset < replica.high_watermark:
                fetch.is_held_back = True
        fetch.limit_wait()
        self._waiting.add(fetch)
        return True

    def forget(self, fetch: WaitingFetch) -> None:
        """The fetch is on its way to its answer, or its stream is gone."""
        self._waiting.discard(fetch)

    def end_reads(self) -> None:
        """No read by function calls waits any longer: each is to be made again, and told what there is to tell."""
        for fetch in list(self._waiting):
            if isinstance(fetch, WaitingRead):
                fetch.complete()

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

    def _add(self, fetch: WaitingFetch, replica: Watched, fetch_offset: int, size_bytes: int) -> None:
        if fetch.committed:
            stable = replica.last_stable_offset
            if stable < replica.high_watermark:
                fetch.is_held_back = True
            if stable <= fetch_offset:
                return
            if fetch.is_held_back:
                # A marker made earlier records visible as well: how many bytes, only a read can tell.
                size_bytes = fetch.min_bytes
        fetch.available_bytes += size_bytes
        if fetch.available_bytes >= fetch.min_bytes:
            fetch.complete()
