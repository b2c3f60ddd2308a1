"""The clock of a cluster under test: the system's, and further ahead each time that the test says so."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Final

from barnabas.kernel.clock import Listener, SystemClock, wake

SETTLING_SECONDS_MAX: Final = 5.0
"""How long a jump waits for the work that it set off, such as a look for segments past their retention."""

ADVANCED_MS_MAX: Final = 100 * 366 * 24 * 3_600_000
"""A hundred years: timestamps stay within what clients can show."""


class ClockRefused(Exception):
    """The clock cannot be moved like that; the message says why."""


class MovableClock(SystemClock):
    """Owner of how far it is ahead of the system's clock, and of those who sleep.

    Who sleeps is woken by every jump, once, however long the rest would have been and however often it would have been
    over: as on a machine that wakes up after a long sleep, what time decides is looked at with the new time.
    """

    def __init__(self, advanced_ms: int = 0) -> None:
        self.advanced_ms = advanced_ms
        """How far it is ahead, in ms; never less than before."""
        self._sleepers: dict[asyncio.Future[None], None] = {}
        self._listeners: list[Listener] = []
        self._at_work: dict[asyncio.Task[Any], None] = {}
        self._settled = asyncio.Event()

    def now_ms(self) -> int:
        return super().now_ms() + self.advanced_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.advanced_ms / 1000

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._rest(task)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = asyncio.get_running_loop().call_later(seconds, wake, woken)
        self._sleepers[woken] = None
        jumps = self.advanced_ms
        try:
            await woken
        finally:
            handle.cancel()
            del self._sleepers[woken]
        if self.advanced_ms != jumps:
            self._work(task)

    def on_jump(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def advance_to(self, advanced_ms: int) -> None:
        """Be `advanced_ms` ahead of the system's clock; at that already, nothing happens.

        Returns when all whom the jump woke from `sleep` have done their work and sleep again, after
        SETTLING_SECONDS_MAX in any case. Raises ClockRefused.
        """
        if not self.advanced_ms <= advanced_ms <= ADVANCED_MS_MAX:
            raise ClockRefused(
                f"the clock is {self.advanced_ms} ms ahead and cannot be {advanced_ms} ms ahead"
            )
        seconds = (advanced_ms - self.advanced_ms) / 1000
        if not seconds:
            return
        self.advanced_ms = advanced_ms
        for listener in self._listeners:
            listener(seconds)
        for woken in self._sleepers:
            wake(woken)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(_TURNS_TO_WAKE):
            await asyncio.sleep(0)
        self._settled.clear()
        if self._at_work:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SETTLING_SECONDS_MAX):
                    await self._settled.wait()

    def _work(self, task: asyncio.Task[Any]) -> None:
        if task not in self._at_work:
            self._at_work[task] = None
            task.add_done_callback(self._rest)

    def _rest(self, task: asyncio.Task[Any]) -> None:
        if task in self._at_work:
            del self._at_work[task]
            task.remove_done_callback(self._rest)
            if not self._at_work:
                self._settled.set()

    async def answer_http(self, method: str, body: bytes) -> tuple[int, bytes]:
        """`PUT` with a document as `read_advanced_ms` takes it moves the clock."""
        if method != "PUT":
            return 405, b"expected PUT\n"
        try:
            await self.advance_to(read_advanced_ms(body))
        except ClockRefused as error:
            return 400, f"{error}\n".encode()
        return 200, b"ok\n"


_TURNS_TO_WAKE: Final = 3
"""Turns of the event loop until a task that was woken runs, and a little more."""


def advanced_document(advanced_ms: int) -> bytes:
    """What says how far a cluster's clock is ahead, for `/clock` and for the file from which a service starts."""
    return json.dumps({"advanced_ms": advanced_ms}).encode()


def read_advanced_ms(document: bytes) -> int:
    """The inverse of `advanced_document`. Raises ClockRefused."""
    try:
        advanced_ms = json.loads(document)["advanced_ms"]
    except (ValueError, KeyError, TypeError):
        advanced_ms = None
    if type(advanced_ms) is not int or not 0 <= advanced_ms <= ADVANCED_MS_MAX:
        raise ClockRefused('expected {"advanced_ms": milliseconds}, from 0 up to a hundred years')
    return advanced_ms


def load_clock(path: str) -> MovableClock:
    """The clock as the file at `path` says; without one it is not ahead. Raises ClockRefused and OSError."""
    try:
        with open(path, "rb") as file:
            return MovableClock(read_advanced_ms(file.read()))
    except FileNotFoundError:
        return MovableClock()
