"""What the idempotent producers of a connection have under way, so that nothing overtakes what is lost there.

A batch that failed has to come before the next one of its producer (`sequence_gaps.py`). That it failed is known to the
link before the request that waits for it runs again, and a later one may run in between. So whoever hands over settles
first what has failed by then. And what goes to another node than the batch before it, which is still under way to
the former leader, is not handed over at all: nobody could keep the two in order.

What is under way behind a batch that failed is not sent on either, should it come back refused: its client sends both
again, the failed one perhaps before the other has come back, and the one that leads by then may know nothing of the
producer, and take whatever it sees first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from typing import Any, Final, NamedTuple

Partition = tuple[bytes, int]
"""(topic id, partition)."""

NOTHING_FAILED: Final[frozenset[Partition]] = frozenset()
"""For a request with none before it that failed."""

_FAILED_KEPT: Final = 64
"""Partitions in which something failed, before it is looked which of them nothing is behind any more."""

Settle = Callable[[Container[Partition]], None]
"""What is to be done with a result, given the partitions of which an earlier batch failed when this one was under way.
"""


class _Send:
    """What went to one node, and what is to be done with its result."""

    __slots__ = ("is_sent_on", "metadata", "node", "order", "partitions", "settle")

    def __init__(
        self,
        settle: Settle,
        node: object,
        metadata: object,
        partitions: Iterable[Any],
        order: int,
        is_sent_on: bool,
    ) -> None:
        self.settle = settle
        self.node = node
        self.metadata = metadata
        """The metadata by which it was sent there."""
        self.partitions = partitions
        self.order = order
        self.is_sent_on = is_sent_on


class _Failed(NamedTuple):
    """What failed in a partition, by its order: from the lowest on, all that was under way is behind it."""

    lowest: int
    last_under_way: int


class Unsettled:
    """Owns the sends of one connection whose result nobody has looked at, and which of them are behind a failed one."""

    def __init__(self) -> None:
        self._sends: dict[asyncio.Future[Any], _Send] = {}
        self._last_order = 0
        self._failed: dict[Partition, _Failed] = {}
        """While anything is under way."""
        self._forget_above = _FAILED_KEPT

    def add(
        self,
        result: asyncio.Future[Any],
        settle: Settle,
        node: object,
        metadata: object,
        partitions: Iterable[Any],
        order: int,
        *,
        is_sent_on: bool = False,
    ) -> None:
        """`settle` is to be called once, when there is a `result`: by who waits for it, or by who comes after it.
        `order` is its place among all that was handed over, also of what is sent on.
        """
        self._sends[result] = _Send(settle, node, metadata, partitions, order, is_sent_on)
        self._last_order = max(self._last_order, order)

    def settle(self, result: asyncio.Future[Any]) -> None:
        """It is there; somebody may have settled it already."""
        send = self._sends.pop(result, None)
        if send is not None and not result.cancelled():
            send.settle(self._failed_before(send))
            if not self._sends:
                self._failed.clear()

    def settle_all(self) -> None:
        """Settle whatever has a result by now, in the order of the connection."""
        if self._sends:
            for result in [result for result in self._sends if result.done()]:
                self.settle(result)

    def on_failed(self, partitions: Iterable[Any], order: int) -> None:
        """What was handed over as `order` for `partitions` failed, and is not sent on: that is left to its client."""
        if not self._sends:
            return
        for key in _keys(partitions):
            known = self._failed.get(key)
            lowest = order if known is None else min(order, known.lowest)
            self._failed[key] = _Failed(lowest, self._last_order)
        if len(self._failed) > self._forget_above:
            self._forget()

    def _forget(self) -> None:
        """What failed before all that is under way now, on a connection that is never idle."""
        oldest = min(send.order for send in self._sends.values())
        self._failed = {key: each for key, each in self._failed.items() if each.last_under_way >= oldest}
        self._forget_above = max(_FAILED_KEPT, 2 * len(self._failed))

    def _failed_before(self, send: _Send) -> frozenset[Partition]:
        """The partitions of `send` of which an earlier batch failed when it was under way."""
        if not self._failed:
            return NOTHING_FAILED
        failed = ((key, self._failed.get(key)) for key in _keys(send.partitions))
        return frozenset(
            key
            for key, each in failed
            if each is not None and each.lowest < send.order <= each.last_under_way
        )

    def clear(self) -> None:
        """The connection has ended: nobody comes after what is under way, and its records are to go with it."""
        self._sends.clear()
        self._failed.clear()

    def are_elsewhere(self, partitions: Iterable[Any], node: object, metadata: object) -> bool:
        """Whether batches for one of `partitions` are under way to another node than `node`."""
        if not self._sends:
            return False
        moved = [
            send for send in self._sends.values() if send.metadata is not metadata and send.node is not node
        ]
        if not moved:
            return False
        wanted = set(_keys(partitions))
        return any(not wanted.isdisjoint(_keys(send.partitions)) for send in moved)

    def are_before(self, partitions: Iterable[Any], order: int, *, counts_sent_on: bool) -> bool:
        """Whether batches for one of `partitions` that were handed over before `order` have not come back, or, if that
        `counts_sent_on`, not from who they were sent on to.
        """
        before = [
            send
            for send in self._sends.values()
            if send.order < order and (counts_sent_on or not send.is_sent_on)
        ]
        if not before:
            return False
        wanted = set(_keys(partitions))
        return any(not wanted.isdisjoint(_keys(send.partitions)) for send in before)


def _keys(partitions: Iterable[Any]) -> Iterable[Partition]:
    return ((each.topic_id, each.partition) for each in partitions)
