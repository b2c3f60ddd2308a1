"""The clock of a cluster under test: the system's, and further ahead each time that the test says so."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Any, Final

from barnabas.kernel.clock import Listener, SystemClock, Timer

SETTLING_SECONDS_MAX: Final = 5.0
"""How long a jump waits for the work that it set off, such as a look for segments past their retention."""

ADVANCED_MS_MAX: Final = 100 * 366 * 24 * 3_600_000
"""A hundred years: timestamps stay within what clients can show."""


class ClockRefused(Exception):
    """The clock cannot be moved like that; the message says why."""


class MovableClock(SystemClock):
    """Owner of how far it is ahead of the system's clock, and of its timers, which follow each jump.

    Timers that a jump makes due are called in the order of their times, when the clock shows its new time already:
    as on a machine that wakes up after a long sleep.
    """

    def __init__(self, advanced_ms: int = 0) -> None:
        self.advanced_ms = advanced_ms
        """How far it is ahead, in ms; never less than before."""
        self._timers: dict[int, _MovableTimer] = {}
        self._numbers = itertools.count()
        self._listeners: list[Listener] = []
        self._at_work: set[asyncio.Task[Any]] = set()
        self._settled = asyncio.Event()

    def now_ms(self) -> int:
        return super().now_ms() + self.advanced_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.advanced_ms / 1000

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        number = next(self._numbers)

        def fire() -> None:
            del self._timers[number]
            callback()

        timer = _MovableTimer(
            self.monotonic() + seconds,
            fire,
            asyncio.get_running_loop().call_later(seconds, fire),
            lambda: self._timers.pop(number, None),
        )
        self._timers[number] = timer
        return timer

    async def sleep(self, seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._rest(task)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        jumps = self.advanced_ms
        try:
            await woken
        finally:
            timer.cancel()
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
        now, loop = self.monotonic(), asyncio.get_running_loop()
        for timer in sorted(self._timers.values(), key=lambda timer: timer.due):
            timer.handle.cancel()
            if timer.due <= now:
                timer.handle = loop.call_soon(timer.fire)
            else:
                timer.handle = loop.call_later(timer.due - now, timer.fire)
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
            self._at_work.add(task)
            task.add_done_callback(self._rest)

    def _rest(self, task: asyncio.Task[Any]) -> None:
        if task in self._at_work:
            self._at_work.discard(task)
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
"""Turns of the event loop until a task whose timer is due runs: the timer, the future, the task."""


class _MovableTimer:
    def __init__(
        self, due: float, fire: Callable[[], None], handle: asyncio.Handle, forget: Callable[[], object]
    ) -> None:
        self.due = due
        self.fire = fire
        self.handle = handle
        self._forget = forget

    def cancel(self) -> None:
        self.handle.cancel()
        self._forget()


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
