"""Which replicas of the node move to another of its log directories, and where those to come are wanted (KIP-113).

What is asked for outlives the process: the future replica's directory is made before the answer, and a start that finds
one goes on with the move. Where a replica is belongs to its node alone; the metadata know nothing of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.moving.future_directory import create_future, future_name, remove_future
from barnabas.log.moving.future_log import retire
from barnabas.metadata.validators import ConfigValue
from barnabas.storage import limits
from barnabas.storage.directories.cordoned import cordoned
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.found_on_disk import FoundFuture
from barnabas.storage.directories.log_directories import LogDirectories, PartitionKey
from barnabas.storage.moves.log_move import LogMove
from barnabas.storage.moves.pace import Pace
from barnabas.storage.replica.replica import Replica

log = get_logger("storage.moves")


class LogMoves:
    """Owner of the moves of a node, and of the directories that partitions to come are wanted in."""

    def __init__(
        self,
        directories: LogDirectories,
        lanes: Mapping[str, DirectoryLane],
        *,
        broker_value: Callable[[str], ConfigValue],
        on_moved: Callable[[Replica, str], None],
        clear_up: Callable[[str, Callable[[], None]], None],
    ) -> None:
        """`broker_value` is a broker setting's value now. `on_moved` is called with a replica and the directory that it
        is in from then on; `clear_up` has something done in the directory of the path before anything else there.
        """
        self._directories = directories
        self._lanes = lanes
        self._on_moved = on_moved
        self._clear_up = clear_up
        self._broker_value = broker_value
        self._pace = Pace(self._rate)
        self._moves: dict[Replica, LogMove] = {}
        """The last that was asked for of each replica, until it has ended."""
        self._waiting: dict[str, list[LogMove]] = {path: [] for path in lanes}
        """By the directory that they go to."""
        self._wake: dict[str, asyncio.Event] = {path: asyncio.Event() for path in lanes}
        self._found: dict[PartitionKey, list[FoundFuture]] = {}
        self._preferred: dict[PartitionKey, str] = {}
        self._copied_bytes = 0
        for found in directories.futures:
            self._found.setdefault((found.topic, found.partition), []).append(found)

    # -- what is set ---------------------------------------------------------------------------------------------

    @property
    def cordoned(self) -> set[str]:
        """The paths of the log directories into which nothing new comes (KIP-1066)."""
        value = self._broker_value("cordoned.log.dirs")
        assert isinstance(value, tuple)
        return cordoned(self._lanes, value)

    def _rate(self) -> int:
        value = self._broker_value("replica.alter.log.dirs.io.max.bytes.per.second")
        assert isinstance(value, int)
        return value

    # -- what there is ------------------------------------------------------------------------------------------

    @property
    def copied_bytes(self) -> int:
        """Record bytes that all moves have copied."""
        return self._copied_bytes + sum(move.copied_bytes for move in self._moves.values())

    @property
    def lag_max(self) -> int:
        """How many offsets the future replica furthest behind is behind."""
        return max((move.lag for move in self.under_way()), default=0)

    def under_way(self, lane: DirectoryLane | None = None) -> Iterator[LogMove]:
        """The moves to one directory, or to all, of which the future replica has not taken its place."""
        for move in list(self._moves.values()):
            if move.is_wanted and move.moved_from is None and lane in (None, move.lane):
                yield move

    def is_moving(self, replica: Replica) -> bool:
        """Whether its log is to be left as it is by whoever takes records from its middle."""
        return replica in self._moves or (replica.topic, replica.index) in self._found

    # -- what is asked for --------------------------------------------------------------------------------------

    def prefer(self, topic: str, index: int, path: str) -> None:
        """The partition is not here yet: it is wanted in the directory of the path once it comes."""
        self._preferred.pop((topic, index), None)
        if len(self._preferred) >= limits.PREFERRED_DIRECTORIES_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, index] = path

    def take_preferred(self, topic: str, index: int) -> str:
        """The directory that it is wanted in, which is forgotten; empty for none."""
        return self._preferred.pop((topic, index), "")

    def begin(self, replica: Replica, path: str, *, may_move: bool = True) -> LogMove | None:
        """Have the replica move to the directory of the path; None where nothing has to be done for that. What is
        returned is to be `create`d.

        Another move of it is called off, unless the places are changing: then this one begins where that one ends.
        Raises KAFKA_STORAGE_ERROR where something has to be done, and it may not move.
        """
        assert replica.lane is not None, "what moves has its log"
        present, former = replica.lane.path, self._moves.get(replica)
        if former is not None and former.is_wanted:
            if former.lane.path == path:
                return None
            if former.is_changing:
                present = former.lane.path
            else:
                former.call_off()
        if path == present:
            return None
        if not may_move:
            raise KafkaError(ErrorCode.kafka_storage_error, "a log directory is offline")
        return self._add(replica, path, self._new_name(replica, path), former)

    def _new_name(self, replica: Replica, path: str) -> str:
        unique = self._directories.at(path).environment.new_id()
        return future_name(replica.topic, replica.index, unique)

    def _add(self, replica: Replica, path: str, name: str, former: LogMove | None = None) -> LogMove:
        home, lane = self._directories.at(path), self._lanes[path]
        move = self._moves[replica] = LogMove(replica, lane, home, name, self._pace, former=former)
        self._waiting[path].append(move)
        return move

    async def create(self, path: str, moves: Iterable[LogMove]) -> dict[LogMove, KafkaError]:
        """Make the directories of the future replicas in the directory of the path; those that cannot be made are
        forgotten, and returned with the reason.
        """
        lane = self._lanes[path]
        made = list(moves)
        try:
            failed = await lane.run(lane.opening, partial(self._create_all, path, made))
        except KafkaError as error:  # it does not answer: what it makes of them later is in nobody's way
            failed = dict.fromkeys(made, error)
        for move in made:
            move.is_ready = True
            if move in failed:
                move.call_off()
        self._wake[path].set()
        return failed

    def _create_all(self, path: str, moves: Iterable[LogMove]) -> dict[LogMove, KafkaError]:
        failed = {}
        files = self._directories.at(path).environment.files
        for move in moves:
            try:
                create_future(files, path, move.name, uuid.UUID(bytes=move.replica.topic_id))
            except KafkaError as error:
                failed[move] = error
        return failed

    # -- what becomes of the replicas ---------------------------------------------------------------------------

    def on_opened(self, replica: Replica) -> None:
        """The log is open: what was left of a move by a former process goes on."""
        found = self._found.pop((replica.topic, replica.index), ())
        for each in found:
            if replica.lane is None or each.path == replica.lane.path or replica in self._moves:
                self._forget(each)
            else:
                self._add(replica, each.path, each.name).is_ready = True
        for path in {each.path for each in found} | {each.lane.path for each in self._moves.values()}:
            self._wake[path].set()

    def on_left(self, replica: Replica) -> None:
        """The replica is not here any more."""
        move = self._moves.get(replica)
        if move is not None:
            move.call_off()
            if move.moved_from is not None:
                self._retire(move)

    def forget_unclaimed(self, here: Container[PartitionKey]) -> None:
        """The metadata are known: future replicas of partitions that are not `here` are of no use."""
        if self._directories.offline:
            return
        for key in [key for key in self._found if key not in here]:
            for found in self._found.pop(key):
                self._forget(found)

    def _forget(self, found: FoundFuture) -> None:
        log.info("a future replica is of no use", log_dir=found.path, directory=found.name)
        files = self._directories.at(found.path).environment.files
        self._clear_up(found.path, partial(_remove, self._lanes[found.path], files, found))

    # -- carrying it out ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out moves until cancelled: to each directory one at a time."""
        async with asyncio.TaskGroup() as tasks:
            for path in self._lanes:
                tasks.create_task(self._run_for(path, tasks), name="log moves")

    async def _run_for(self, path: str, tasks: asyncio.TaskGroup) -> None:
        while True:
            move = self._next(path)
            if move is None:
                await self._wake[path].wait()
                self._wake[path].clear()
                continue
            self._waiting[path].remove(move)
            await move.carry_out(partial(self._on_moved, move.replica, path))
            if move.moved_from is None:
                self._end(move)
            else:
                tasks.create_task(self._retire_later(move), name="former log")

    def _next(self, path: str) -> LogMove | None:
        """The first by name, as in Kafka, of those that may begin."""
        may_begin = [
            move
            for move in self._waiting[path]
            if move.is_ready
            and (move.former is None or move.former.ended.is_set())
            and (not move.is_wanted or (move.replica.log is not None and not move.replica.is_offline))
        ]
        return min(may_begin, key=lambda move: (move.replica.topic, move.replica.index), default=None)

    def _end(self, move: LogMove) -> None:
        move.ended.set()
        self._copied_bytes += move.copied_bytes
        move.copied_bytes = 0
        if self._moves.get(move.replica) is move:
            del self._moves[move.replica]
        for wake in self._wake.values():
            wake.set()

    async def _retire_later(self, move: LogMove) -> None:
        await asyncio.sleep(limits.FORMER_LOG_SECONDS)
        self._retire(move)

    def _retire(self, move: LogMove) -> None:
        """What the replica has left behind goes."""
        former, replica = move.moved_from, move.replica
        if former is None or move.is_retired:
            return
        move.is_retired = True
        loop = asyncio.get_running_loop()
        source, home = self._directories.at(former.path), self._directories.at(move.lane.path)
        files, is_last = home.environment.files, not self._directories.offline

        def work() -> None:
            try:
                retire(files, source, home, replica.topic, replica.index, is_last=is_last)
            except KafkaError as error:
                former.lines.error(
                    "what a move left is removed at the next start", former.path, reason=error.message
                )
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                    loop.call_soon_threadsafe(self._end, move)

        self._clear_up(former.path, work)


def _remove(lane: DirectoryLane, files: Files, found: FoundFuture) -> None:
    try:
        remove_future(files, found.path, found.name)
    except KafkaError as error:
        lane.lines.error("cannot remove a future replica", lane.path, reason=error.message)
