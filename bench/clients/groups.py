"""The members of one large group, of either protocol: they join, beat, and take what they are given.

Requests are written by hand to plain sockets, since a thousand whole clients would measure themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from clients.crowds import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
    RawConnection,
    open_many,
    request_of,
)

SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
HEARTBEAT_SECONDS: Final = 3.0
"""The default of every client."""
CONSUMER_HEARTBEAT_SECONDS: Final = 5.0
"""What servers ask for of the newer protocol's members, as they come."""
ROUND_ENDS_SECONDS: Final = 0.3
"""Members that joined together beat together; after such a pause they all have."""

NOT_COORDINATOR_YET: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
MEMBER_ID_REQUIRED: Final = 79


class Beats:
    """When the last heartbeat of any member was answered, and how far apart those of one member are."""

    def __init__(self, interval_seconds: float) -> None:
        self._interval_seconds = interval_seconds
        self._last = time.perf_counter()

    def note(self) -> None:
        """One was answered."""
        self._last = time.perf_counter()

    async def until_between_rounds(self) -> None:
        """Return half an interval after the end of a round, or in any case after two intervals and a half.

        How long it takes until the members have heard of something is above all how long ago they beat: in a group that
        is stable early in a round, the others of that round beat later than its end by the clock.
        """
        end = time.perf_counter() + 2 * self._interval_seconds
        while (now := time.perf_counter()) < end and now - self._last > ROUND_ENDS_SECONDS:
            await asyncio.sleep(0.01)  # until the next round
        while (now := time.perf_counter()) < end and now - self._last <= ROUND_ENDS_SECONDS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(max(0.0, self._last + self._interval_seconds / 2 - now))


class GroupMember:
    """One member of a classic group: joins, syncs, beats, and joins again when the group is rebalanced."""

    def __init__(self, connection: RawConnection, group_id: str, beats: Beats, on_stable: Any) -> None:
        self._connection = connection
        self._group_id = group_id
        self._beats = beats
        self._on_stable = on_stable
        self._member_id = ""

    async def run(self) -> None:
        while True:
            generation = await self._join()
            if generation < 0:
                continue
            self._on_stable(generation)
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                beat = await self._connection.ask(
                    HEARTBEAT,
                    group_id=self._group_id,
                    generation_id=generation,
                    member_id=self._member_id,
                    group_instance_id=None,
                )
                self._beats.note()
                if beat.error_code:
                    break

    async def _join(self) -> int:
        """The generation that this member is in; -1 to try again."""
        request = request_of(JOIN_GROUP)
        protocol = sys.modules[request.__module__].JoinGroupRequestProtocol(name="range", metadata=b"bench")
        joined = await self._connection.ask(
            JOIN_GROUP,
            group_id=self._group_id,
            session_timeout=datetime.timedelta(milliseconds=SESSION_MS),
            rebalance_timeout=datetime.timedelta(milliseconds=REBALANCE_MS),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(protocol,),
        )
        if joined.error_code == MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return await self._join()
        if joined.error_code:
            await asyncio.sleep(0.05 if joined.error_code in NOT_COORDINATOR_YET else 0)
            return -1
        self._member_id = joined.member_id
        assignments: tuple[Any, ...] = ()
        if joined.leader == self._member_id:
            entry = sys.modules[request_of(SYNC_GROUP).__module__].SyncGroupRequestAssignment
            assignments = tuple(entry(member_id=m.member_id, assignment=b"some") for m in joined.members)
        synced = await self._connection.ask(
            SYNC_GROUP,
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=None,
            assignments=assignments,
        )
        return -1 if synced.error_code else int(joined.generation_id)


class ConsumerGroupTally:
    """What the members of one group have, counted as it changes: to ask each of a thousand after every answer would be
    most of what this client does, and would be taken for the server's time.
    """

    def __init__(self) -> None:
        self._members_in: Counter[int] = Counter()
        """By epoch."""
        self._members_with: Counter[int] = Counter()
        """By how many partitions they own."""

    def add(self) -> None:
        """One more member, which has not joined."""
        self._members_in[0] += 1
        self._members_with[0] += 1

    def change(self, *, epoch: tuple[int, int], partitions: tuple[int, int]) -> None:
        """A member went from the first to the second of each."""
        _move_one(self._members_in, *epoch)
        _move_one(self._members_with, *partitions)

    def is_stable(self, members: int, partitions: int) -> bool:
        """Whether so many members have one epoch, and share so many partitions evenly."""
        is_of_one_epoch = len(self._members_in) == 1 and self._members_in.total() == members
        is_fair = max(self._members_with) - min(self._members_with) <= 1
        return (
            is_of_one_epoch
            and is_fair
            and partitions == sum(owned * count for owned, count in self._members_with.items())
        )


def _move_one(counter: Counter[int], before: int, after: int) -> None:
    counter[before] -= 1
    if not counter[before]:
        del counter[before]
    counter[after] += 1


class ConsumerGroupMember:
    """One member of a group of the newer protocol (KIP-848). What it is given it owns at once, and says so."""

    def __init__(
        self,
        connection: RawConnection,
        group_id: str,
        topic: str,
        tally: ConsumerGroupTally,
        beats: Beats,
        on_change: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._tally = tally
        self._beats = beats
        self._on_change = on_change
        self._member_id = str(uuid.uuid4())
        self._epoch = 0
        self._owned: tuple[Any, ...] = ()
        tally.add()

    async def run(self) -> None:
        answer = await self._beat(
            rebalance_timeout=datetime.timedelta(milliseconds=REBALANCE_MS),
            subscribed_topic_names=(self._topic,),
            topic_partitions=(),
        )
        while True:
            while answer.error_code in NOT_COORDINATOR_YET:
                await asyncio.sleep(0.05)
                answer = await self._beat(topic_partitions=None)
            assert not answer.error_code, f"{answer.error_code!r}: {answer.error_message}"
            self._take(answer)
            if answer.assignment is not None:
                answer = await self._beat(topic_partitions=self._owned)
                continue
            await asyncio.sleep(answer.heartbeat_interval.total_seconds())
            answer = await self._beat(topic_partitions=None)
            self._beats.note()

    def _take(self, answer: Any) -> None:
        before = self._epoch, self._owned
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            owned = sys.modules[request_of(CONSUMER_GROUP_HEARTBEAT).__module__].TopicPartitions
            self._owned = tuple(
                owned(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            )
        if before != (self._epoch, self._owned):
            partitions = _partitions_in(before[1]), _partitions_in(self._owned)
            self._tally.change(epoch=(before[0], self._epoch), partitions=partitions)
            self._on_change()

    async def _beat(self, **fields: Any) -> Any:
        return await self._connection.ask(
            CONSUMER_GROUP_HEARTBEAT,
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            **fields,
        )


def _partitions_in(owned: tuple[Any, ...]) -> int:
    return sum(len(each.partitions) for each in owned)


def group_members(host: str, port: int, group_id: str, members: int, seconds: float) -> dict[str, float]:
    """Form a classic group, let it be for `seconds`, add one member; returns how long each rebalance took.

    `host` and `port` are those of the group's coordinator where there is one broker.
    """
    stable_in: dict[int, int] = {}
    beats = Beats(HEARTBEAT_SECONDS)

    def make(connection: RawConnection, on_change: Callable[[], None]) -> Coroutine[Any, Any, None]:
        def on_stable(generation: int) -> None:
            stable_in[generation] = stable_in.get(generation, 0) + 1
            on_change()

        return GroupMember(connection, group_id, beats, on_stable).run()

    return _form_and_join(
        host, port, group_id, members, seconds, beats, make, lambda count: count in stable_in.values()
    )


def consumer_group_members(
    host: str, port: int, group_id: str, topic: str, partitions: int, members: int, seconds: float
) -> dict[str, float]:
    """The same of a group of the newer protocol: stable once all have one epoch and a fair share of the partitions."""
    tally, beats = ConsumerGroupTally(), Beats(CONSUMER_HEARTBEAT_SECONDS)

    def make(connection: RawConnection, on_change: Callable[[], None]) -> Coroutine[Any, Any, None]:
        return ConsumerGroupMember(connection, group_id, topic, tally, beats, on_change).run()

    return _form_and_join(
        host, port, group_id, members, seconds, beats, make, lambda count: tally.is_stable(count, partitions)
    )


def _form_and_join(
    host: str,
    port: int,
    group_id: str,
    members: int,
    seconds: float,
    beats: Beats,
    make: Callable[[RawConnection, Callable[[], None]], Coroutine[Any, Any, None]],
    is_stable: Callable[[int], bool],
) -> dict[str, float]:
    """`make` is a member's life, which calls what it is given when it is stable; `is_stable` so many of them."""
    import uvloop

    async def run() -> dict[str, float]:
        opened = await open_many(host, port, members + 1)
        while (await opened[0].ask(FIND_COORDINATOR, key=group_id, key_type=0)).error_code:
            await asyncio.sleep(0.1)
        changed = asyncio.Event()
        running: list[asyncio.Task[None]] = []
        ended: list[asyncio.Task[None]] = []

        def end(task: asyncio.Task[None]) -> None:
            ended.append(task)
            changed.set()

        async def add(connections: list[RawConnection]) -> float:
            started = time.perf_counter()
            for each in connections:
                running.append(asyncio.create_task(make(each, changed.set)))
                running[-1].add_done_callback(end)
            while not is_stable(len(running)):
                await changed.wait()
                changed.clear()
                for task in ended:
                    task.result()
            return time.perf_counter() - started

        formed = await add(opened[:members])
        print("formed", flush=True)
        await asyncio.sleep(seconds)
        print("idle", flush=True)
        await beats.until_between_rounds()
        print("joins", flush=True)
        joined = await add(opened[members:])
        for task in running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running)
        for each in opened:
            each.close()
        return {"formed_seconds": formed, "joined_seconds": joined}

    return uvloop.run(run())
