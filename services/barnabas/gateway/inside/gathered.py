"""What other services bring for one answer: counted for the gateway's budget, within a limit, and one at a time.

A request of some bytes can ask for descriptions of megabytes, thousands of them. Each request may gather a little; who
has more goes on alone, and who has GATHERED_BYTES_MAX asks for nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from barnabas.gateway import limits
from barnabas.gateway.request import Request
from barnabas.kernel.errors import ErrorCode, KafkaError

KeyT = TypeVar("KeyT")


class Gathered:
    """Owns the count of what one request has gathered; for `async with`, until the answer is encoded."""

    def __init__(self, request: Request) -> None:
        self._budget = request.parts.budget
        self._alone = request.parts.gathering
        self._is_alone = False
        self._end = asyncio.get_running_loop().time() + request.timeout_seconds
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be asked for: it is enough, or the request's time is over."""
        is_over = asyncio.get_running_loop().time() >= self._end
        return is_over or self.size_bytes >= limits.GATHERED_BYTES_MAX

    def add(self, size_bytes: int) -> None:
        """So much was brought."""
        self.size_bytes += size_bytes
        self._budget.take(size_bytes)

    async def may_go_on(self) -> None:
        """Wait until more may be asked for, as long as the request's time is not over."""
        if self.size_bytes > limits.GATHERED_BYTES_FREE and not self._is_alone:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._end):
                    await self._alone.acquire()
                    self._is_alone = True

    def check_repeated(self, sizes_bytes: Mapping[KeyT, int], asked: Iterable[KeyT]) -> None:
        """Raise INVALID_REQUEST where what is told twice, or more often, comes to more than GATHERED_BYTES_FREE: nobody
        needs that, and to encode it takes seconds. `sizes_bytes` is of each that was `asked` for.
        """
        repeated = sum(map(sizes_bytes.__getitem__, asked)) - sum(sizes_bytes.values())
        if repeated > limits.GATHERED_BYTES_FREE:
            raise KafkaError(ErrorCode.invalid_request, "The same is asked for too often: name each once.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give_back(self.size_bytes)
        if self._is_alone:
            self._alone.release()
