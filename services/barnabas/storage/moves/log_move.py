"""One replica moves to another log directory: its log is copied, then the two change places.

Everything that touches the disk is done in the mover's thread of the directory that it moves to, one move at a time.
Appends wait only while the places change: the replica's queue is held, and goes on in the lane of the other directory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.log.errors import LogStoreError
from barnabas.log.log_directory import LogDirectory
from barnabas.log.moving.future_directory import remove_future
from barnabas.log.moving.future_log import FutureLog, PlaceUnclear, SourceFailed
from barnabas.log.partition_log import PartitionLog
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.lane_queue import LaneQueue
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.moves.beginning import Beginning
from barnabas.storage.moves.pace import Pace
from barnabas.storage.replica.replica import Replica

log = get_logger("storage.moves")

ResultT = TypeVar("ResultT")


class _CalledOff(Exception):
    """Nobody wants the move any more."""


class LogMove:
    """Owner of one move: its future log, how far it has come, and whether it is still wanted. For the event loop."""

    def __init__(
        self,
        replica: Replica,
        lane: DirectoryLane,
        directories: LogDirectories,
        name: str,
        pace: Pace,
        *,
        former: LogMove | None = None,
    ) -> None:
        """`replica` moves to the directory of `lane` by way of the directory `name` there, once its `former` move has
        ended.
        """
        self.replica = replica
        self.lane = lane
        self.name = name
        self.former = former
        self.is_ready = False
        """Whether the directory is there: it may begin."""
        self.has_failed = False
        """Whether it has ended otherwise than by its replica's moving or somebody's wish."""
        self.unclear_from: DirectoryLane | None = None
        """Where the replica was, if only the next start can tell whether it has moved."""
        self.moved_from: DirectoryLane | None = None
        """Where the replica was, once it has moved."""
        self.left: PartitionLog | None = None
        """What it left there, or is about to."""
        self.is_retired = False
        """Whether what it left there goes already."""
        self.copied_bytes = 0
        self._directories = directories
        self._home = directories.at(lane.path)
        self._pace = pace
        self._future: FutureLog | None = None
        self._beginning = Beginning()
        self._called_off = asyncio.Event()

    @property
    def is_changing(self) -> bool:
        """Whether the places are changing, or have changed: it can be called off no longer."""
        if self.has_failed:
            return self.moved_from is not None or self.unclear_from is not None
        return self._beginning.has_begun

    @property
    def is_wanted(self) -> bool:
        return not self._called_off.is_set()

    @property
    def size_bytes(self) -> int:
        """Of the future log."""
        return 0 if self._future is None else self._future.size

    @property
    def left_bytes(self) -> int:
        """What is still to be copied."""
        opened = self.replica.log
        return 0 if opened is None else max(opened.size - self.size_bytes, 0)

    @property
    def lag(self) -> int:
        """How many offsets the future log is behind."""
        opened = self.replica.log
        if self._future is not None or opened is None:
            return 0 if self._future is None else self._future.lag
        return opened.log_end_offset - opened.log_start_offset

    def call_off(self) -> None:
        """It is wanted no longer, or its replica is not here any more: it ends as soon as the directory that it goes to
        lets it, or with the places changed if that `is_changing`.
        """
        self._beginning.prevent()
        self._called_off.set()

    # -- carrying it out ----------------------------------------------------------------------------------------

    async def carry_out(self, on_moved: Callable[[], None]) -> None:
        """All of it, with the future log's end whatever comes: it took its place, and `on_moved` was called before its
        replica went on with it; or it is gone; or it is left for the next start.
        """
        name, lane = self.replica.name, self.lane
        try:
            self._check_wanted()
            current = self.replica.log
            assert current is not None, "what moves has its log"
            log.info("a partition moves", partition=name, log_dir=lane.path, bytes=current.size)
            self._future = future = await self._in_thread(partial(FutureLog, self._home, self.name, current))
            while not await self._change_places(future, current, on_moved):
                await self._wait(limits.MOVE_AGAIN_SECONDS)
            log.info(
                "a partition has moved", partition=name, log_dir=lane.path, copied_bytes=self.copied_bytes
            )
        except _CalledOff:
            log.info("a move is called off", partition=name, log_dir=lane.path)
            await self._drop()
        except SourceFailed as error:
            self.has_failed = True
            log.error("a move ends: the log cannot be read", partition=name, reason=error.message)
            await (self._leave() if self.is_wanted else self._drop())
        except PlaceUnclear as error:
            self.has_failed = True
            log.error("the next start says where a partition is", partition=name, reason=error.message)
        except (KafkaError, LogStoreError) as error:
            self.has_failed = True
            log.error("a move has failed", partition=name, log_dir=lane.path, reason=str(error))
            await self._drop()
        except Exception:
            self.has_failed = True
            log.exception("a move has failed", partition=name, log_dir=lane.path)
            await self._leave()

    async def _change_places(
        self, future: FutureLog, current: PartitionLog, on_moved: Callable[[], None]
    ) -> bool:
        """Copy, and have them change places; False where that has to be tried again."""
        for _ in range(limits.MOVE_ROUNDS):
            await self._copy(future, current)
            await self._in_thread(future.flush)
        replica, queue = self.replica, self.replica.queue
        assert queue is not None and replica.lane is not None, "what moves has its log"  # noqa: PT018
        held, hold = asyncio.Event(), Held(queue, replica.lane)
        queue.hold(held.set)
        with hold:
            try:
                async with asyncio.timeout(limits.MOVE_HOLD_SECONDS_MAX):
                    await held.wait()
            except TimeoutError:
                return False
            self._check_wanted()
            if replica.is_offline or replica.log is not current:
                raise _CalledOff
            try:
                opened = await self._changed(future, current, hold)
                self.moved_from, self.left = hold.lane, current
                hold.lane = self.lane
                on_moved()
                if self.is_wanted and not replica.is_offline:
                    replica.on_moved(opened, self.lane)
            except Exception as error:
                self._on_change_failed(error, current, hold.lane)
                raise
        self._future = None  # it is the replica's log now
        await self._in_thread(future.clear_up)
        return True

    async def _changed(self, future: FutureLog, current: PartitionLog, hold: Held) -> PartitionLog:
        """Have them change places; what is held back waits for that, but for a directory that does not answer no longer
        than MOVE_CHANGE_SECONDS_MAX before they change, and as long while they do.
        """
        source, step_bytes = self._directories.at(hold.lane.path), self._pace.step_bytes()
        change = partial(
            _change, future, source, step_bytes, self.replica.high_watermark, self._beginning.begin
        )
        hold.must_stay = True
        changing = asyncio.ensure_future(self._in_thread(change))
        await asyncio.wait({changing}, timeout=limits.MOVE_CHANGE_SECONDS_MAX)
        if changing.done() or not self._beginning.prevent():
            await self._until_changed(changing, current, hold)
            return changing.result()
        hold.end()
        await asyncio.wait({changing})
        self._check_wanted()
        raise KafkaError(
            ErrorCode.kafka_storage_error, f"{self.lane.path} does not answer"
        ) from changing.exception()

    async def _until_changed(
        self, changing: asyncio.Future[PartitionLog], current: PartitionLog, hold: Held
    ) -> None:
        """Wait for a change that has begun. Raises PlaceUnclear where a directory did not answer, and the replica is
        offline: whatever becomes of the change, what was held back was refused.
        """
        await asyncio.wait({changing}, timeout=limits.MOVE_CHANGE_SECONDS_MAX)
        late = None
        if not changing.done():
            reason = f"{hold.lane.path} or {self.lane.path} does not answer"
            late = PlaceUnclear(ErrorCode.kafka_storage_error, reason)
            self._on_change_failed(late, current, hold.lane)
        await asyncio.wait({changing})  # who waits may be cancelled: what he waits for goes on
        hold.must_stay = False
        if late is not None:
            raise late from changing.exception()

    def _on_change_failed(self, error: Exception, current: PartitionLog, lane: DirectoryLane) -> None:
        """Before anything that is held back goes on."""
        is_in_place = isinstance(error, KafkaError | LogStoreError | _CalledOff)
        if self._beginning.has_begun and (not is_in_place or isinstance(error, PlaceUnclear)):
            if self.moved_from is None:
                self.unclear_from, self.left = lane, current
            self.replica.go_offline(error)

    async def _copy(self, future: FutureLog, current: PartitionLog) -> None:
        """Copy until it has what was there when this began."""
        end_offset = current.log_end_offset
        while True:
            self._check_wanted()
            copied = await self._in_thread(partial(future.copy, self._pace.step_bytes()))
            self.copied_bytes += copied
            self._pace.on_copied(copied)
            while (seconds := self._pace.seconds_ahead()) > 0:
                await self._wait(seconds)
            if future.log_end_offset >= min(end_offset, current.log_end_offset):
                return

    # -- its end ------------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        future, self._future = self._future, None
        try:
            is_gone = await self._in_thread(self._remove if future is None else future.drop)
        except KafkaError as error:
            self.lane.lines.error("cannot remove a future replica", self.lane.path, reason=error.message)
            is_gone = False
        if not is_gone:
            self._remove_later()

    def _remove(self) -> bool:
        return remove_future(self._home.environment.files, self._home.path, self.name)

    def _remove_later(self) -> None:
        """It takes room that a full disk may lack. No other future replica ever has its name."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                is_gone = self._remove()
            except KafkaError as error:
                self.lane.lines.error("cannot remove a future replica", self.lane.path, reason=error.message)
                is_gone = False
            if not is_gone:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                    loop.call_soon_threadsafe(self._remove_later)

        def begin() -> None:
            with contextlib.suppress(RuntimeError):  # the node has stopped
                loop.run_in_executor(self.lane.mover, work)

        loop.call_later(limits.RETIRE_AGAIN_SECONDS, begin)

    async def _leave(self) -> None:
        future, self._future = self._future, None
        if future is not None:
            await self._in_thread(future.leave)

    def _check_wanted(self) -> None:
        if not self.is_wanted:
            raise _CalledOff

    async def _wait(self, seconds: float) -> None:
        """Wait that long. Raises _CalledOff."""
        try:
            async with asyncio.timeout(seconds):
                await self._called_off.wait()
        except TimeoutError:
            return
        raise _CalledOff

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self.lane.mover, work)


class Held:
    """Owner of a queue that is held back, and of the lane in which it goes on at the end of the block."""

    def __init__(self, queue: LaneQueue, lane: DirectoryLane) -> None:
        self.lane = lane
        self.must_stay = False
        """Whether what is held back must go into no log: the node stops in the midst of a change of places."""
        self._queue: LaneQueue | None = queue

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if not self.must_stay:
            self.end()

    def end(self) -> None:
        """What was held back goes on."""
        queue, self._queue, self.must_stay = self._queue, None, False
        if queue is not None:
            queue.go_on(self.lane)


def _change(
    future: FutureLog,
    source: LogDirectory,
    step_bytes: int,
    high_watermark: int,
    begin: Callable[[], bool],
) -> PartitionLog:
    future.complete(step_bytes)
    future.prepare(high_watermark)
    if not begin():
        raise _CalledOff
    return future.promote(source)
