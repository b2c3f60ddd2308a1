"""One log directory's way to its disk: where its appends run, and the threads for everything else.

A directory that stalls holds up whoever calls into it, for as long as it likes. So each directory has threads of its
own, and nothing that waits for one of them keeps another directory, or the event loop, from going on.

Appends are the exception that speed asks for. A hand-over to a thread and back costs more than the write to the page
cache itself (a third of the throughput of a few small producers), so a node's only directory is appended to on the
event loop while it proves fast: its last append is a moment ago and took no longer than SLOW_APPEND_SECONDS. When it
was slow, or nothing is known of it because nobody has appended for a while, appends go through the directory's writer
thread until it has been fast for some time. With several directories they always do: what one of them costs the loop
would be taken from the others. Where the records of a batch have to be looked at, that was done before
(`record_checks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from barnabas.kernel.clock import machine_seconds
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.kernel.threads import Threads
from barnabas.storage import limits
from barnabas.storage.directories.disk_refusals import NEVER, DiskRefusals
from barnabas.storage.directories.record_checks import RecordChecks

log = get_logger("storage.directory_lane")

ResultT = TypeVar("ResultT")
Done = Callable[[object, BaseException | None], None]
"""Called on the event loop with what the work returned, or with what it raised."""


class LaneItem:
    """Something that waits for, or runs in, a directory's writer thread."""

    __slots__ = ("on_done", "seconds", "size_bytes", "work")

    def __init__(self, work: Callable[[], object], on_done: Done, size_bytes: int) -> None:
        self.work = work
        self.on_done = on_done
        self.size_bytes = size_bytes
        self.seconds = 0.0
        """How long it took, once it is done."""


class DirectoryLane:
    """Owner of one log directory's threads, and of the order of what waits for its writer thread.

    Its methods are for the event loop; items run in the order given, one at a time.
    """

    def __init__(
        self,
        path: str,
        threads: Threads,
        *,
        checks: RecordChecks,
        is_alone: bool,
        now: Callable[[], float] = machine_seconds,
        opening_threads: int = 2,
        bytes_max: int = limits.LANE_BYTES_MAX,
    ) -> None:
        """`checks` are the node's. `is_alone`: whether it is the node's only directory. `now` in seconds."""
        self.path = path
        self.checks = checks
        """Where the records of appends are looked at before they come here."""
        self.waiting_bytes = 0
        """Record bytes of appends that wait for the writer thread or run in it."""
        self.late_reads = 0
        """Reads for fetches that are still in their threads although nobody waits for them any more."""
        self.has_new_high_watermarks = False
        """Whether a high watermark here has moved, or a partition has come or gone, since they were last written down.
        The replicas set it; upkeep takes it back, and sets it again where writing fails.
        """
        # Threads of a pool start when they are first needed. Apart by what they wait for, so that a slow read
        # delays no sync.
        self.opening = threads.executor("disk", opening_threads)
        self.flush = threads.executor("flush", limits.FLUSH_THREADS)
        self.read = threads.executor("read", limits.READ_THREADS)
        self.upkeep = threads.executor("upkeep", 1)
        self.cleaner = threads.executor("log-cleaner", 1)
        self.mover = threads.executor("log-mover", 1)
        self._writer = threads.executor("append", 1)
        self._is_alone = is_alone
        self._now = now
        self._bytes_max = bytes_max
        self._proven_at = NEVER
        self._slow_until = NEVER
        self._rest_seconds = limits.DIRECT_AGAIN_SECONDS
        self._refused_at = NEVER
        self.is_refusing = False
        self.refusals = DiskRefusals()
        self.given_up = asyncio.Event()
        """Set while the directory is given up."""
        self.log_given_up = asyncio.Event()
        """Set when a log in it is given up, and it is not: until `RefusingLogs` has seen that."""
        self.lines = RareLines(log, now)
        """For what fails again and again in this directory."""
        self._lock = threading.Lock()
        """For the three below; never held over a call to the disk."""
        self._waiting: OrderedDict[LaneItem, None] = OrderedDict()
        self._done: list[tuple[LaneItem, object, BaseException | None]] = []
        self._began_at = NEVER
        """When the item that runs now began; NEVER while none does."""
        self._is_running = False
        """Whether the writer thread looks for more once it has done what it does."""
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- where appends run --------------------------------------------------------------------------------------

    def is_direct(self, now: float) -> bool:
        """Whether an append may run on the event loop: it is known not to wait."""
        return self._is_alone and now - self._proven_at < limits.PROVEN_SECONDS and now >= self._slow_until

    def on_append(self, began: float, ended: float) -> None:
        """An append ran on the event loop from `began` to `ended`."""
        self._proven_at = ended
        if ended - began > limits.SLOW_APPEND_SECONDS:
            self._on_slow(ended, ended - began)

    def on_threaded_append(self, seconds: float, *, has_written: bool) -> None:
        """An append took so long in the writer thread. What was refused, or was there already, proves nothing well."""
        now = self._now()
        if has_written:
            self._proven_at = now
        # A thread of a busy process also waits for the interpreter: that does not make the disk slow.
        if seconds > limits.SLOW_IN_THREAD_SECONDS:
            self._on_slow(now, seconds)

    def _on_slow(self, now: float, seconds: float) -> None:
        if now - self._slow_until > limits.DIRECT_AGAIN_SECONDS_MAX:
            self._rest_seconds = limits.DIRECT_AGAIN_SECONDS
            if self._is_alone:
                log.warning(
                    "a log directory is slow: its appends leave the event loop",
                    log_dir=self.path,
                    seconds=round(seconds, 3),
                )
        elif now >= self._slow_until:
            # It looked well only for a moment: look longer this time.
            self._rest_seconds = min(2 * self._rest_seconds, limits.DIRECT_AGAIN_SECONDS_MAX)
        self._slow_until = now + self._rest_seconds

    # -- the writer thread --------------------------------------------------------------------------------------

    @property
    def is_stalled(self) -> bool:
        """Whether what runs in the writer thread has run for so long that nobody should wait behind it."""
        began = self._began_at  # once: the thread may go on in between
        return began != NEVER and self._now() - began > limits.STALLED_SECONDS

    @property
    def is_unwell(self) -> bool:
        """Whether a new partition is better off in another directory."""
        return self.is_stalled or self.is_refusing

    def submit(self, work: Callable[[], object], on_done: Done, size_bytes: int = 0) -> LaneItem:
        """Run `work` in the writer thread, as `put` says."""
        item = LaneItem(work, on_done, size_bytes)
        self.put(item)
        return item

    def put(self, item: LaneItem) -> None:
        """Run the item's work in the writer thread, after all that came before.

        Raises KAFKA_STORAGE_ERROR when too many bytes wait already; work of 0 bytes is always taken.
        """
        size_bytes = item.size_bytes
        if size_bytes and self.waiting_bytes + size_bytes > self._bytes_max and self.waiting_bytes:
            self.on_overdue()
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{self.path} is slow: {self.waiting_bytes} bytes of appends wait for it",
            )
        self.waiting_bytes += size_bytes
        self._loop = asyncio.get_running_loop()
        with self._lock:
            self._waiting[item] = None
            is_running, self._is_running = self._is_running, True
        if not is_running:
            self._writer.submit(self._run)

    def withdraw(self, item: LaneItem) -> bool:
        """Take back what has not begun: it never runs, and `on_done` is not called. False when it has."""
        with self._lock:
            if item not in self._waiting:
                return False
            del self._waiting[item]
        self.waiting_bytes -= item.size_bytes
        return True

    def _run(self) -> None:
        """In the writer thread: do what waits until nothing does."""
        while True:
            with self._lock:
                self._began_at = NEVER
                if not self._waiting:
                    self._is_running = False
                    return
                item, _ = self._waiting.popitem(last=False)
                began = self._began_at = self._now()
            result: object = None
            failure: BaseException | None = None
            try:
                result = item.work()
            except KafkaError as error:
                failure = error
            except BaseException as error:
                failure = error
                log.exception("work on a log directory failed", log_dir=self.path)
            item.seconds = self._now() - began
            with self._lock:
                self._done.append((item, result, failure))
                is_first = len(self._done) == 1
            if is_first and self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                    self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for item, result, failure in done:
            self.waiting_bytes -= item.size_bytes
            try:
                item.on_done(result, failure)
            except Exception:
                log.exception("an append's end failed", log_dir=self.path)

    # -- the other threads --------------------------------------------------------------------------------------

    async def run(
        self, pool: Executor, work: Callable[[], ResultT], *, wait_ms: int = limits.LOOK_UP_MS_MAX
    ) -> ResultT:
        """What `work` returns, from one of the pools; KAFKA_STORAGE_ERROR when it takes longer than `wait_ms`.

        What has begun by then goes on, unheard.
        """
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await asyncio.get_running_loop().run_in_executor(pool, work)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"{self.path} did not answer within {wait_ms} ms"
            ) from None

    # -- what the log says of it --------------------------------------------------------------------------------

    def on_refusal(self, reason: str) -> None:
        """The disk refused an append. One line, however many appends and partitions it refuses."""
        now = self._refused_at = self._now()
        if not self.is_refusing:
            self.is_refusing = True
            log.error("cannot append: the disk refuses", log_dir=self.path, reason=reason)
        if self.refusals.on_refusal(now):
            self.given_up.set()
            log.error(
                "a log directory is given up: others in sync are to lead what is in it",
                log_dir=self.path,
                reason=reason,
            )

    def on_probe(self) -> None:
        """The disk took a probe: where nothing is refused any more the directory is taken back."""
        if self.refusals.on_probe(self._now()):
            self.given_up.clear()
            self.is_refusing = False
            log.info("the disk takes appends again: the log directory is taken back", log_dir=self.path)

    @property
    def is_to_be_probed(self) -> bool:
        """Whether it is given up, and has refused nothing for a while: because it is well, or because nothing came."""
        return self.refusals.is_quiet(self._now())

    @property
    def hands_over(self) -> bool:
        """Whether others are about to lead what is in it, where they can."""
        return self.refusals.is_given_up and self.refusals.hands_over(self._now())

    def on_success(self) -> None:
        """The disk took an append; where small ones fit and large ones do not, that alone ends no trouble."""
        if self.refusals.is_given_up or not self.is_refusing:
            return
        if self._now() - self._refused_at >= limits.TROUBLE_OVER_SECONDS:
            self.is_refusing = False
            log.info("the disk takes appends again", log_dir=self.path)

    def on_overdue(self) -> None:
        """Somebody has waited too long for this directory."""
        began = self._began_at
        self.lines.warning(
            "a log directory holds up its appends",
            log_dir=self.path,
            waiting=len(self._waiting),
            waiting_bytes=self.waiting_bytes,
            seconds=0.0 if began == NEVER else round(self._now() - began, 1),
        )

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Begin nothing more but what waits for the writer thread; what runs may finish."""
        self._writer.shutdown(wait=False)
        for pool in (self.opening, self.flush, self.read, self.upkeep, self.cleaner, self.mover):
            pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait until nothing runs any more; in a thread, after `close`."""
        for pool in (
            self._writer,
            self.opening,
            self.flush,
            self.read,
            self.upkeep,
            self.cleaner,
            self.mover,
        ):
            pool.shutdown()


@contextlib.contextmanager
def open_lanes(
    paths: Iterable[str], threads: Threads, *, opening_threads: int = 2
) -> Iterator[dict[str, DirectoryLane]]:
    """A lane for each log directory, by its path; closed with the context."""
    known = list(paths)
    checks = RecordChecks(threads)
    lanes = {
        path: DirectoryLane(
            path, threads, checks=checks, is_alone=len(known) == 1, opening_threads=opening_threads
        )
        for path in known
    }
    try:
        yield lanes
    finally:
        for lane in lanes.values():
            lane.close()
        checks.close()
