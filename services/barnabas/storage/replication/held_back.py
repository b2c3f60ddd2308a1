"""What waits until a replication quota allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.storage import limits
from barnabas.storage.replica.replication_quota import ReplicationQuota

ItemT = TypeVar("ItemT", bound=Hashable)


class HeldBack(Generic[ItemT]):
    """Owner of what one stream holds back; all of it is looked at again at once, in the order in which it came.

    No later than after a second: by then the quota may be another one, or an item none of the throttled any more.
    """

    def __init__(self, quota: ReplicationQuota, release: Callable[[ItemT], None]) -> None:
        self._quota = quota
        self._release = release
        self._items: dict[ItemT, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, item: ItemT) -> bool:
        return item in self._items

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more may be taken now."""
        return self._quota.seconds_exceeded(now_ms()) > 0

    def hold(self, item: ItemT) -> None:
        """Have the item released later."""
        self._items[item] = None
        if self._timer is None:
            seconds = self._quota.seconds_exceeded(now_ms())
            seconds = min(max(seconds, limits.HELD_BACK_SECONDS_MIN), limits.HELD_BACK_SECONDS_MAX)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        items, self._items = self._items, {}
        for item in items:
            self._release(item)

    def close(self) -> None:
        """The stream is over: nothing is released any more."""
        self._items = {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def now_ms() -> float:
    """Peers' time, in which quotas are measured."""
    return asyncio.get_running_loop().time() * 1000
