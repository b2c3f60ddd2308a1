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

NOT_COORDINATOR_YET: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
MEMBER_ID_REQUIRED: Final = 79


class GroupMember:
    """One member of a classic group: joins, syncs, beats, and joins again when the group is rebalanced."""

    def __init__(self, connection: RawConnection, group_id: str, on_stable: Any) -> None:
        self._connection = connection
        self._group_id = group_id
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


class ConsumerGroupMember:
    """One member of a group of the newer protocol (KIP-848). What it is given it owns at once, and says so."""

    def __init__(
        self, connection: RawConnection, group_id: str, topic: str, on_change: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self._on_change = on_change
        self._member_id = str(uuid.uuid4())
        self._owned: tuple[Any, ...] = ()
        self.epoch = 0

    @property
    def partitions(self) -> int:
        """How many it owns."""
        return sum(len(each.partitions) for each in self._owned)

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
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = sys.modules[request_of(CONSUMER_GROUP_HEARTBEAT).__module__].TopicPartitions
                self._owned = tuple(
                    owned(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                )
            self._on_change()
            if answer.assignment is not None:
                answer = await self._beat(topic_partitions=self._owned)
                continue
            await asyncio.sleep(answer.heartbeat_interval.total_seconds())
            answer = await self._beat(topic_partitions=None)

    async def _beat(self, **fields: Any) -> Any:
        return await self._connection.ask(
            CONSUMER_GROUP_HEARTBEAT,
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self.epoch,
            **fields,
        )


def group_members(host: str, port: int, group_id: str, members: int, seconds: float) -> dict[str, float]:
    """Form a classic group, let it be for `seconds`, add one member; returns how long each rebalance took.

    `host` and `port` are those of the group's coordinator where there is one broker.
    """
    stable_in: dict[int, int] = {}

    def make(connection: RawConnection, on_change: Callable[[], None]) -> Coroutine[Any, Any, None]:
        def on_stable(generation: int) -> None:
            stable_in[generation] = stable_in.get(generation, 0) + 1
            on_change()

        return GroupMember(connection, group_id, on_stable).run()

    return _form_and_join(
        host, port, group_id, members, seconds, make, lambda count: count in stable_in.values()
    )


def consumer_group_members(
    host: str, port: int, group_id: str, topic: str, partitions: int, members: int, seconds: float
) -> dict[str, float]:
    """The same of a group of the newer protocol: stable once all have one epoch and a fair share of the partitions."""
    made: list[ConsumerGroupMember] = []

    def make(connection: RawConnection, on_change: Callable[[], None]) -> Coroutine[Any, Any, None]:
        made.append(ConsumerGroupMember(connection, group_id, topic, on_change))
        return made[-1].run()

    def is_stable(count: int) -> bool:
        shares = [each.partitions for each in made]
        is_fair = len(made) == count and max(shares) - min(shares) <= 1
        return is_fair and sum(shares) == partitions and len({each.epoch for each in made}) == 1

    return _form_and_join(host, port, group_id, members, seconds, make, is_stable)


def _form_and_join(
    host: str,
    port: int,
    group_id: str,
    members: int,
    seconds: float,
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

        async def add(connections: list[RawConnection]) -> float:
            started = time.perf_counter()
            running.extend(asyncio.create_task(make(each, changed.set)) for each in connections)
            while not is_stable(len(running)):
                await changed.wait()
                changed.clear()
                for task in running:
                    if task.done():
                        task.result()
            return time.perf_counter() - started

        formed = await add(opened[:members])
        print("formed", flush=True)
        await asyncio.sleep(seconds)
        print("idle", flush=True)
        joined = await add(opened[members:])
        for task in running:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running)
        for each in opened:
            each.close()
        return {"formed_seconds": formed, "joined_seconds": joined}

    return uvloop.run(run())
