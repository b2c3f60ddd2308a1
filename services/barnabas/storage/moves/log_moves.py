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

from barnabas.kernel.cordoned import cordoned_directories
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.files import Files
from barnabas.kernel.logs import get_logger
from barnabas.log.checkpoints.checkpoint_file import PartitionKey
from barnabas.log.moving.future_directory import create_future, future_name, remove_future
from barnabas.log.moving.future_log import remove_unclear_former, remove_unclear_home, retire
from barnabas.metadata.validators import ConfigValue
from barnabas.storage import limits
from barnabas.storage.directories.directory_lane import DirectoryLane
from barnabas.storage.directories.found_on_disk import FoundFuture
from barnabas.storage.directories.log_directories import LogDirectories
from barnabas.storage.moves.log_move import LogMove
from barnabas.storage.moves.pace import Pace
from barnabas.storage.replica.replica import Replica
from barnabas.storage.replica.replication_quota import ReplicationQuota

log = get_logger("storage.moves")


class _Departure:
    """A replica has left while its places changed: what waits until it is known where it is."""

    def __init__(self, replica: Replica, remove: Callable[[], None], is_order: bool) -> None:
        """`remove` has it removed from where it is then."""
        self.replica = replica
        self.remove = remove
        self.is_order = is_order
        self.waiting: list[Callable[[], None]] = []
        """What begins replicas of the same partition afterwards."""


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
        self.pace = Pace(self._rate, self._measure())
        """That of all moves."""
        self._moves: dict[Replica, LogMove] = {}
        """The last that was asked for of each replica, until it has ended."""
        self._waiting: dict[str, list[LogMove]] = {path: [] for path in lanes}
        """By the directory that they go to."""
        self._wake: dict[str, asyncio.Event] = {path: asyncio.Event() for path in lanes}
        self._found: dict[PartitionKey, list[FoundFuture]] = {}
        self._preferred: dict[PartitionKey, str] = {}
        self._unclear: dict[Replica, LogMove] = {}
        """Those of which only the next start can tell where the replica is."""
        self._leaving: dict[PartitionKey, _Departure] = {}
        """Replicas that have left while they moved."""
        self._failed: set[Replica] = set()
        """Those whose last move has failed, and that nobody has asked to move since."""
        self._given_up: set[PartitionKey] = set()
        """Partitions that left while it was unclear where they are, and may be in two places until the next start."""
        self._creating: set[asyncio.Task[dict[LogMove, KafkaError]]] = set()
        self._copied_bytes = 0
        for found in directories.futures:
            self._found.setdefault((found.topic, found.partition), []).append(found)

    # -- what is set ---------------------------------------------------------------------------------------------

    @property
    def cordoned(self) -> set[str]:
        """The paths of the log directories into which nothing new comes (KIP-1066)."""
        value = self._broker_value("cordoned.log.dirs")
        assert isinstance(value, tuple)
        return cordoned_directories(list(self._lanes), value)

    def _rate(self) -> int:
        value = self._broker_value("replica.alter.log.dirs.io.max.bytes.per.second")
        assert isinstance(value, int)
        return value

    def _measure(self) -> ReplicationQuota:
        samples = self._broker_value("alter.log.dirs.replication.quota.window.num")
        window_seconds = self._broker_value("alter.log.dirs.replication.quota.window.size.seconds")
        assert isinstance(samples, int) and isinstance(window_seconds, int)  # noqa: PT018
        return ReplicationQuota(samples, window_seconds * 1000)

    # -- what there is ------------------------------------------------------------------------------------------

    @property
    def copied_bytes(self) -> int:
        """Record bytes that all moves have copied."""
        return self._copied_bytes + sum(move.copied_bytes for move in self._moves.values())

    @property
    def left_bytes(self) -> int:
        """What all moves together have still to copy."""
        return sum(move.left_bytes for move in self.under_way())

    @property
    def lag_max(self) -> int:
        """How many offsets the future replica furthest behind is behind."""
        return max((move.lag for move in self.under_way()), default=0)

    @property
    def failed_count(self) -> int:
        """Replicas whose last move has failed, and that nobody has asked to move since."""
        return len(self._failed)

    def under_way(self, lane: DirectoryLane | None = None) -> Iterator[LogMove]:
        """The moves to one directory, or to all, of which the future replica has not taken its place."""
        for move in list(self._moves.values()):
            if move.is_wanted and move.moved_from is None and lane in (None, move.lane):
                yield move

    @property
    def targets(self) -> set[str]:
        """The paths of the directories that replicas may be coming to, or may have come to."""
        return {move.lane.path for move in (*self._moves.values(), *self._unclear.values())}

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
        former = self._moves.get(replica)
        if former is not None and former.is_wanted:
            if former.lane.path == path:
                return None
            if not former.is_changing:
                self._call_off(former)
        if path == self._place_to_be(replica):
            return None
        if not may_move:
            raise KafkaError(ErrorCode.kafka_storage_error, "a log directory is offline")
        return self._add(replica, path, self._new_name(replica, path), former)

    def _place_to_be(self, replica: Replica) -> str:
        """Where it is, or will be whatever is asked for now."""
        for move in self._moves_of(replica):
            if move.is_changing:
                return move.lane.path
        assert replica.lane is not None, "what moves has its log"
        return replica.lane.path

    def _moves_of(self, replica: Replica) -> Iterator[LogMove]:
        """Those that have not ended, the last first."""
        move = self._moves.get(replica)
        while move is not None:
            yield move
            move = move.former

    def _call_off(self, move: LogMove) -> None:
        move.call_off()
        self._wake[move.lane.path].set()

    def _new_name(self, replica: Replica, path: str) -> str:
        unique = self._directories.at(path).environment.new_id()
        return future_name(replica.topic, replica.index, unique)

    def _add(self, replica: Replica, path: str, name: str, former: LogMove | None = None) -> LogMove:
        move = LogMove(replica, self._lanes[path], self._directories, name, self.pace, former=former)
        self._moves[replica] = move
        self._failed.discard(replica)
        self._waiting[path].append(move)
        return move

    async def create(self, path: str, moves: Iterable[LogMove]) -> dict[LogMove, KafkaError]:
        """Make the directories of the future replicas in the directory of the path; those that cannot be made are
        forgotten, and returned with the reason. Goes on where nobody waits for it any longer.
        """
        creating = asyncio.create_task(self._create(path, list(moves)), name="future replicas")
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        return await asyncio.shield(creating)

    async def _create(self, path: str, made: list[LogMove]) -> dict[LogMove, KafkaError]:
        lane = self._lanes[path]
        try:
            failed = await lane.run(lane.opening, partial(self._create_all, path, made))
        except KafkaError as error:  # it does not answer
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
                if move.is_wanted:
                    create_future(files, path, move.name, uuid.UUID(bytes=move.replica.topic_id))
                if not move.is_wanted:  # it was refused meanwhile, for this took too long: nobody may find it
                    remove_future(files, path, move.name)
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

    def leave(self, replica: Replica, remove: Callable[[], None], *, is_order: bool) -> None:
        """The replica is not here any more: `remove`, which removes it where it is then, is called at once, or when its
        places have changed. Unless by an order nothing is removed whose place is unclear.
        """
        self._failed.discard(replica)
        moves = list(self._moves_of(replica))
        for move in moves:
            self._call_off(move)
            self._retire(move)
        is_changing = any(move.is_changing and move.moved_from is None for move in moves)
        if not is_changing and replica not in self._unclear:
            remove()
            return
        departure = _Departure(replica, remove, is_order)
        self._leaving[replica.topic, replica.index] = departure
        if not is_changing:
            self._on_still(departure)

    def when_clear(self, key: PartitionKey, action: Callable[[], None]) -> None:
        """Call `action`, which gives the partition a place here, once it is known where a replica of it was that has
        left.
        """
        departure = self._leaving.get(key)
        if departure is None:
            action()
        else:
            departure.waiting.append(action)

    @property
    def is_clear(self) -> bool:
        """Whether no removal waits for the moves of a replica that has left."""
        return not self._leaving

    @property
    def is_waited_for(self) -> bool:
        """Whether a replica that has come waits for the moves of one that has left."""
        return any(departure.waiting for departure in self._leaving.values())

    def is_given_up(self, key: PartitionKey) -> bool:
        """Whether the partition may be in two places, and is not to be begun in either before the next start."""
        return key in self._given_up

    def _on_still(self, departure: _Departure) -> None:
        """The places of a replica that has left change no more."""
        key = (departure.replica.topic, departure.replica.index)
        unclear = self._unclear.pop(departure.replica, None)
        if unclear is None:
            self._clear(key)
        elif departure.is_order:
            self._remove_unclear(key, unclear)
        else:
            self._give_up(key)

    def _remove_unclear(self, key: PartitionKey, move: LogMove) -> None:
        """What a change of places may have put into the one directory, and left in the other, goes, durably."""
        former, left = move.unclear_from, move.left
        assert former is not None and left is not None, "it is unclear"  # noqa: PT018
        source, home = self._directories.at(former.path), self._directories.at(move.lane.path)

        def then() -> None:
            self._clear_up_unclear(
                former, key, partial(remove_unclear_former, source, left), lambda: self._clear(key)
            )

        self._clear_up_unclear(move.lane, key, partial(remove_unclear_home, home, key, move.name), then)

    def _clear_up_unclear(
        self, lane: DirectoryLane, key: PartitionKey, remove: Callable[[], None], then: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            settled = then
            try:
                remove()
            except KafkaError as error:
                lane.lines.error("a partition stays until the next start", lane.path, reason=error.message)
                settled = partial(self._give_up, key)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                loop.call_soon_threadsafe(settled)

        self._clear_up(lane.path, work)

    def _clear(self, key: PartitionKey) -> None:
        departure = self._leaving.pop(key)
        departure.remove()
        for action in departure.waiting:
            action()

    def _give_up(self, key: PartitionKey) -> None:
        self._given_up.add(key)
        for action in self._leaving.pop(key).waiting:
            action()

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
                tasks.create_task(self._drop_called_off(path), name="log moves")

    async def _run_for(self, path: str, tasks: asyncio.TaskGroup) -> None:
        while True:
            move = await self._take(path, is_wanted=True)
            await self._carry_out(move)
            self._on_carried_out(move)
            if move.moved_from is None:
                self._end(move)
            else:
                tasks.create_task(self._retire_later(move), name="former log")

    def _on_carried_out(self, move: LogMove) -> None:
        replica = move.replica
        if move.unclear_from is not None:
            self._unclear[replica] = move
        departure = self._leaving.get((replica.topic, replica.index))
        if departure is not None and departure.replica is replica:
            self._on_still(departure)
        elif move.has_failed and move.is_wanted:
            self._failed.add(replica)

    async def _drop_called_off(self, path: str) -> None:
        """What is wanted no longer before its turn came ends at once, whatever is carried out meanwhile."""
        while True:
            move = await self._take(path, is_wanted=False)
            await self._carry_out(move)
            self._end(move)

    async def _carry_out(self, move: LogMove) -> None:
        await move.carry_out(partial(self._on_moved, move.replica, move.lane.path))

    async def _take(self, path: str, *, is_wanted: bool) -> LogMove:
        """The next that is wanted, or was called off, once there is one; it does not wait any more."""
        while (move := self._next(path, is_wanted=is_wanted)) is None:
            self._wake[path].clear()
            await self._wake[path].wait()
        self._waiting[path].remove(move)
        return move

    def _next(self, path: str, *, is_wanted: bool) -> LogMove | None:
        """The first by name, as in Kafka, of those that may begin."""
        may_begin = [
            move
            for move in self._waiting[path]
            if move.is_ready
            and move.is_wanted == is_wanted
            and move.former is None
            and (not is_wanted or (move.replica.log is not None and not move.replica.is_offline))
        ]
        return min(may_begin, key=lambda move: (move.replica.topic, move.replica.index), default=None)

    def _end(self, move: LogMove) -> None:
        self._copied_bytes += move.copied_bytes
        move.copied_bytes = 0
        for later in self._moves_of(move.replica):
            if later.former is move:
                later.former = None
        if self._moves.get(move.replica) is move:
            del self._moves[move.replica]
        for wake in self._wake.values():
            wake.set()

    async def _retire_later(self, move: LogMove) -> None:
        if move.is_wanted:  # else nobody reads it any more
            await asyncio.sleep(limits.FORMER_LOG_SECONDS)
        self._retire(move)

    def _retire(self, move: LogMove) -> None:
        """What the replica has left behind goes. Before that the move has not ended, and no other of it begins: of two
        things left behind a start could not tell which is the older one.
        """
        former, left = move.moved_from, move.left
        if former is None or left is None or move.is_retired:
            return
        move.is_retired = True
        loop, source = asyncio.get_running_loop(), self._directories.at(former.path)

        def work() -> None:
            then: Callable[[], object] = partial(self._end, move)
            try:
                retire(source, left)
            except KafkaError as error:
                former.lines.error("cannot clear up behind a move", former.path, reason=error.message)
                then = partial(loop.call_later, limits.RETIRE_AGAIN_SECONDS, clear_up)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                loop.call_soon_threadsafe(then)

        clear_up = partial(self._clear_up, former.path, work)
        clear_up()


def _remove(lane: DirectoryLane, files: Files, found: FoundFuture) -> None:
    try:
        remove_future(files, found.path, found.name)
    except KafkaError as error:
        lane.lines.error("cannot remove a future replica", lane.path, reason=error.message)
