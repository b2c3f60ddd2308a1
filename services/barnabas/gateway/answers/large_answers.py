"""Large answers that are made at the same time take turns, a slice each: a smaller one is done sooner.

What is made of all of them together has a bound; over it the one that began first goes on alone, so that there is room
again. Thus one is always under way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from barnabas.gateway import limits
from barnabas.gateway.clients.budget import ByteBudget


class LargeAnswers:
    """Owner of whose turn it is, and of what is made of answers that are not done yet."""

    def __init__(self) -> None:
        self._begun: dict[LargeAnswer, None] = {}
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self.made_bytes = 0
        """Of all answers that are not done."""

    @property
    def count(self) -> int:
        """Answers that are being made."""
        return len(self._begun)

    @contextlib.contextmanager
    def begin(self, budget: ByteBudget) -> Iterator[LargeAnswer]:
        """One more answer, until it is done or nobody wants it; what is made of it counts in `budget`."""
        answer = LargeAnswer(self, budget)
        self._begun[answer] = None
        try:
            yield answer
        finally:
            del self._begun[answer]
            self._count(answer, -answer.made_bytes)

    async def wait_for_turn(self, answer: LargeAnswer) -> None:
        """Return when the next slice of `answer` may be made, after others were served."""
        while self.made_bytes > limits.LARGE_ANSWERS_BYTES and next(iter(self._begun)) is not answer:
            self._room.clear()
            await self._room.wait()
        async with self._turn:
            await asyncio.sleep(0)

    def _count(self, answer: LargeAnswer, size_bytes: int) -> None:
        self.made_bytes += size_bytes
        answer.made_bytes += size_bytes
        if size_bytes > 0:
            answer.budget.take(size_bytes)
        else:
            answer.budget.give_back(-size_bytes)
            self._room.set()

    def grew(self, answer: LargeAnswer, made_bytes: int) -> None:
        """So much is made of `answer` by now."""
        if made_bytes > answer.made_bytes:
            self._count(answer, made_bytes - answer.made_bytes)


class LargeAnswer:
    """One answer while it is being made."""

    __slots__ = ("_all", "budget", "made_bytes")

    def __init__(self, of_all: LargeAnswers, budget: ByteBudget) -> None:
        self._all = of_all
        self.budget = budget
        self.made_bytes = 0

    async def wait_for_turn(self) -> None:
        """See `LargeAnswers.wait_for_turn`."""
        await self._all.wait_for_turn(self)

    def grew(self, made_bytes: int) -> None:
        """So much is made of it by now."""
        self._all.grew(self, made_bytes)
