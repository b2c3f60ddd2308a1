"""Deletions of records that wait until no replica has the records that may come to lead (KIP-107).

Else the next leader might show them again. A replica whose node is fenced or about to stop is not waited for, as it
hears where the log begins before it is in sync again; unless it is eligible (KIP-966), for then it may be elected with
what it has as soon as its node is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.kernel.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.storage.replica.replica import Replica


class PendingDeletions:
    """Owner of those who wait for the low watermark of one replica, while it leads."""

    __slots__ = ("_replica", "_waiting")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: dict[asyncio.Future[tuple[int, int]], int] = {}

    def _low_watermark(self, eligible: Mapping[int, int]) -> int:
        leader, opened = self._replica.leader, self._replica.log
        assert leader is not None and opened is not None, "who waits here, waits for a leader"  # noqa: PT018
        return leader.low_watermark(opened.log_start_offset, eligible)

    async def wait(self, offset: int, eligible: Mapping[int, int], seconds: float) -> int:
        """Wait until the low watermark has come to `offset`, for so long, and return it. Raises KafkaError."""
        if self._replica.error:
            raise KafkaError(ErrorCode(self._replica.error))
        low_watermark = self._low_watermark(eligible)
        if low_watermark >= offset:
            return low_watermark
        decided: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._waiting[decided] = offset
        try:
            async with asyncio.timeout(seconds):
                error_code, low_watermark = await decided
        except TimeoutError:
            raise KafkaError(ErrorCode.request_timed_out, "a replica has not heard of it in time") from None
        finally:
            self._waiting.pop(decided, None)
        if error_code:
            raise KafkaError(ErrorCode(error_code))
        return low_watermark

    def look(self, eligible: Mapping[int, int]) -> None:
        """A follower has fetched, or the metadata have changed."""
        if self._waiting:
            low_watermark = self._low_watermark(eligible)
            reached = [decided for decided, offset in self._waiting.items() if offset <= low_watermark]
            self._decide(reached, (0, low_watermark))

    def fail(self, error_code: int) -> None:
        """The replica leads no longer."""
        self._decide(list(self._waiting), (error_code, -1))

    def _decide(self, waiting: list[asyncio.Future[tuple[int, int]]], result: tuple[int, int]) -> None:
        for decided in waiting:
            del self._waiting[decided]
            if not decided.done():
                decided.set_result(result)
