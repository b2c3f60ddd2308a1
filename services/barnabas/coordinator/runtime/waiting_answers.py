"""Who waits in a partition for an answer to what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from barnabas.coordinator.runtime.core.decision import Waiter
from barnabas.kernel.errors import KafkaError


class WaitingAnswers:
    """Owns the answers that have not come, each by its waiter, until `forget`."""

    def __init__(self) -> None:
        self._answers: dict[Waiter, asyncio.Future[Any]] = {}
        self._next = 1

    def add(self) -> tuple[Waiter, asyncio.Future[Any]]:
        """One more waits from now on."""
        waiter = Waiter(self._next)
        self._next += 1
        answer = self._answers[waiter] = asyncio.get_running_loop().create_future()
        return waiter, answer

    def forget(self, waiter: Waiter) -> None:
        """It has its answer, or wants none."""
        del self._answers[waiter]

    def forget_once_over(self, waiter: Waiter) -> None:
        """As `forget`, as soon as it has its answer, or was cancelled."""
        answer = self._answers[waiter]
        if answer.done():
            self.forget(waiter)
        else:
            answer.add_done_callback(lambda _: self.forget(waiter))

    def deliver(self, replies: Iterable[tuple[Waiter, Message]]) -> None:
        """Answer those of them who wait still."""
        for waiter, message in replies:
            answer = self._answers.get(waiter)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def fail(self, waiters: Iterable[Waiter], error: KafkaError) -> None:
        """Refuse those of them who wait still."""
        for waiter in waiters:
            answer = self._answers.get(waiter)
            if answer is not None and not answer.done():
                answer.set_exception(error)

    def fail_all(self, error: KafkaError) -> None:
        """Refuse everybody."""
        self.fail(self._answers, error)
