"""One member's life in a group that changes its protocol: what both protocols have in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from consumer_group_history import ConsumerGroupHistory, Membership
from consumer_group_plan import SHELVES, Seat
from groups import FIND_COORDINATOR, LOOK_AGAIN, OFFSET_COMMIT, OFFSET_FETCH, Interrupted
from history import Place
from kafka_client import REQUEST_SECONDS_MAX, KafkaClient
from kafka_connection import Disconnected, KafkaConnection
from world import World

from barnabas.kernel.errors import ErrorCode

MIGRATING: Final = "migrating"
"""The group."""

REBALANCE_MS: Final = 2_000
"""Longer than a session: who has given nothing up by then has not been heard of, or has been told."""

COMMITS: Final = 0.4
"""How often a member that owns something commits instead of saying that it is there."""

IS_NO_MEMBER: Final = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_member_epoch,
        ErrorCode.fenced_instance_id,
        ErrorCode.group_id_not_found,
    }
)


LOST: Final = (Disconnected, ConnectionError)
"""Nobody knows what became of a request that ends so."""


class Expelled(Exception):
    """It was told that it is no member."""


class Life:
    """From joining to the end. Owner of what the member is told; a subclass speaks one of the protocols."""

    rejoins: frozenset[ErrorCode] = frozenset()
    """What asks it to join again, and is no fault of its own."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: ConsumerGroupHistory,
        seat: Seat,
        instance_id: str | None,
        member_id: str,
        places: Sequence[Place],
        chance: random.Random,
    ) -> None:
        self.member: Membership = history.begin(member_id, client.name)
        self.is_in = False
        self.commits = COMMITS
        self.has_looked = False
        """Whether it was told what is committed since nothing fails any more."""
        self.is_released = True
        """Whether nobody can have its instance id when it joins: who had it has left, and was told so."""
        self._world = world
        self._client = client
        self._history = history
        self._seat = seat
        self._instance_id = instance_id
        self._places = places
        self._chance = chance
        self._coordinator = ""
        self._offsets: dict[Place, int] = {}
        """How far it has come, of what it owns and has looked up."""

    @property
    def is_settled(self) -> bool:
        """Whether it has nothing to do to come where it is to be."""
        return self.is_in and self.has_looked and self.member.is_alive(self._world.now)

    # -- what a protocol does -----------------------------------------------------------------------------------

    async def join(self) -> None:
        """Become a member, or come a step on the way."""
        raise NotImplementedError

    async def beat(self) -> None:
        """Say that it is there, and do what it is asked for."""
        raise NotImplementedError

    async def leave(self) -> bool:
        """Say so; whether its instance id is free then."""
        raise NotImplementedError

    # -- one step -----------------------------------------------------------------------------------------------

    async def step(self, *, is_calm: bool) -> None:
        """Raises Disconnected, ConnectionError, Interrupted, Expelled."""
        if not self.is_in:
            await self.join()
        elif self._chance.random() < self.commits and self._offsets:
            await self._commit()
        else:
            await self.beat()
        new = self.member.owned - self._offsets.keys()
        if self.is_in and (new or (is_calm and not self.has_looked)):
            await self._look(sorted(new) or self._places)
            self.has_looked = is_calm

    def on_unanswered(self) -> None:
        """Nobody knows what became of a request."""
        self.member.unanswered += 1
        self._coordinator = ""

    def end(self) -> None:
        """It reads nothing any more."""
        self._history.end(self.member)
        self.is_in = False

    async def _commit(self) -> None:
        for place in self._offsets:
            self._offsets[place] += self._chance.randint(1, 9)
        partitions = [
            {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
            for place, offset in self._offsets.items()
        ]
        request = {
            "group_id": MIGRATING,
            "generation_id_or_member_epoch": self.member.epoch,
            "member_id": self.member.member_id,
            "group_instance_id": self._instance_id,
            "topics": [{"name": SHELVES, "partitions": partitions}],
        }
        doubtful = self._history.is_doubtful
        commit = self._history.on_commit(self.member, self._offsets)
        answer = await self._send(OFFSET_COMMIT, 9, request)
        codes = {ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions}
        self.say(f"commits {_told(commit.offsets)}: {[code.name for code in codes]}")
        for code in sorted(codes):
            self._check(OFFSET_COMMIT, code, doubtful)
        self._history.on_committed(commit, was_doubtful=doubtful)

    async def _look(self, places: Iterable[Place]) -> None:
        """What is committed of them."""
        asked, doubtful = self._history.ask(places), self._history.is_doubtful
        topic = {"name": SHELVES, "partition_indexes": [each.partition for each in asked]}
        answer = await self._send(OFFSET_FETCH, 9, {"groups": [self._fetch_identity() | {"topics": [topic]}]})
        group = answer.groups[0]
        self._check(OFFSET_FETCH, ErrorCode(group.error_code), doubtful)
        told = {}
        for each in group.topics[0].partitions:
            self._check(OFFSET_FETCH, ErrorCode(each.error_code), doubtful)
            told[Place(SHELVES, each.partition_index)] = max(0, each.committed_offset)
        self.say(f"is told that {_told(told)} is committed")
        self._history.on_told(asked, told, self.member)
        self._offsets |= {place: offset for place, offset in told.items() if place in self.member.owned}

    def _fetch_identity(self) -> dict[str, Any]:
        return {"group_id": MIGRATING, "member_id": None, "member_epoch": -1}

    def _give_up(self, places: Iterable[Place]) -> None:
        places = set(places)
        self._history.on_given_up(self.member, places)
        self._offsets = {place: each for place, each in self._offsets.items() if place not in places}

    # -- asking -------------------------------------------------------------------------------------------------

    async def _send(
        self, api_key: int, version: int, request: dict[str, Any], seconds: float = REQUEST_SECONDS_MAX
    ) -> Any:
        """The coordinator's answer. Raises Disconnected, ConnectionError, Interrupted."""
        connection = await self._connection()
        return await connection.send(api_key, version, request, seconds)

    async def _connection(self) -> KafkaConnection:
        if not self._coordinator:
            found = await self._client.ask_once(FIND_COORDINATOR, 3, {"key": MIGRATING, "key_type": 0})
            code = ErrorCode(found.error_code)
            if code is not ErrorCode.none:
                raise Interrupted(f"no coordinator: {code.name}")
            self._coordinator = f"{found.host}:{found.port}"
        return await self._client.connection(self._coordinator)

    def _check(
        self, api_key: int, code: ErrorCode, doubtful: bool, also: Callable[[ErrorCode], bool] | None = None
    ) -> None:
        """Raises Interrupted, Expelled."""
        if code is ErrorCode.none:
            return
        what = f"{api_key} is refused with {code.name}"
        if code in LOOK_AGAIN:
            self.on_unanswered()
            raise Interrupted(what)
        if also is not None and also(code):
            raise Interrupted(what)
        if code in self.rejoins:
            self.is_in = False
            self._give_up(self.member.owned)
            raise Interrupted(what)
        is_epoch = code is ErrorCode.stale_member_epoch and api_key in (OFFSET_COMMIT, OFFSET_FETCH)
        if not (is_epoch or code in IS_NO_MEMBER):
            self._world.violate(f"{self.member}: {what}")
        elif not self._history.is_deserved(self.member, was_doubtful=doubtful):
            self._world.violate(f"{self.member}: {what}, and has not deserved it")
        if is_epoch:
            raise Interrupted(what)
        raise Expelled(what)

    def say(self, what: str) -> None:
        self._world.trace.say(self._client.name, f"{self.member}: {what}")


def _told(offsets: dict[Place, int]) -> list[tuple[int, int]]:
    return [(place.partition, offset) for place, offset in offsets.items()]
