"""Members of a consumer group that share the partitions of a topic among them and commit how far they have come.

What they have read does not matter here: a member commits ever higher offsets of what it owns, beginning with what it
was told that is committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from group_history import GroupHistory
from history import Place
from kafka_client import REQUEST_SECONDS_MAX, RETRY_SECONDS, KafkaClient
from kafka_connection import Disconnected, KafkaConnection
from world import World

from barnabas.kernel.errors import ErrorCode

GROUP: Final = "readers"

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14

SESSION_MS: Final = 1_500
REBALANCE_MS: Final = 2_000
REBALANCE_SECONDS_MAX: Final = 4.0
"""How long a member waits for the others: longer than they are given."""

HEARTBEAT_SECONDS: Final = 0.1
TENURE_SECONDS: Final = 2.5
"""How long somebody is a member before he leaves, or is gone, on average."""

TENURE_SECONDS_MAX: Final = 15.0
"""So that all have looked what is committed in the time that everything has to recover."""

LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
"""After which the coordinator is looked for again."""

JOIN_AGAIN: Final = frozenset(
    {
        ErrorCode.rebalance_in_progress,
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
    }
)


class Interrupted(Exception):
    """The member has to join again, or to find its coordinator."""


class Member:
    """One place in the group, taken by one member after another. Owner of who he is, and of what he owns."""

    asks_for_stable: ClassVar[bool] = False
    """Whether who looks where to go on wants no offset but of whoever owns the group."""

    def __init__(
        self,
        world: World,
        client: KafkaClient,
        history: GroupHistory,
        places: Sequence[Place],
        chance: random.Random,
        group: str = GROUP,
    ) -> None:
        self.name = client.name
        self.group = group
        self.is_done = False
        """Whether he was told, when nothing failed any more, what is committed."""
        self._world = world
        self._client = client
        self._history = history
        self._places = places
        self._chance = chance
        self._coordinator = ""
        self._member_id = ""
        self._generation = -1
        self._owned: dict[Place, int] = {}
        """How far it has come, by what it owns."""

    async def run(self, until: float, calm: asyncio.Event) -> None:
        """Take part until then, and look what is committed once nothing fails any more."""
        while self._world.now < until:
            await self._attempt(self._take_part)
        await calm.wait()
        while not await self._attempt(self._look):
            pass
        self.is_done = True

    async def _attempt(self, work: Any) -> bool:
        try:
            await work()
        except (Disconnected, ConnectionError) as error:
            self._say(f"{error}")
            self._coordinator = ""
        except Interrupted as error:
            self._say(f"{error}")
        else:
            return True
        await asyncio.sleep(self._chance.uniform(0.5, 1.0) * RETRY_SECONDS)
        return False

    # -- one membership -----------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        await self._join()
        ends_at = self._world.now + min(self._chance.expovariate(1 / TENURE_SECONDS), TENURE_SECONDS_MAX)
        while self._world.now < ends_at:
            await asyncio.sleep(self._chance.uniform(0.5, 1.0) * HEARTBEAT_SECONDS)
            try:
                await (self._commit() if self._owned and self._chance.random() < 0.6 else self._beat())
            except (Disconnected, ConnectionError) as error:
                self._say(f"{error}")  # it is a member until it hears that it is none
                self._coordinator = ""
        if self._chance.random() < 0.6:
            request = {"group_id": self.group, "member_id": self._member_id}
            await self._ask(LEAVE_GROUP, 2, request)
        self._member_id = ""

    async def _join(self) -> None:
        self._owned = {}
        protocol = {"name": "range", "metadata": b"places"}
        request = {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self._member_id,
            "protocol_type": "consumer",
            "protocols": [protocol],
        }
        joined = await (await self._connection()).send(JOIN_GROUP, 5, request, REBALANCE_SECONDS_MAX)
        if ErrorCode(joined.error_code) is ErrorCode.member_id_required:  # KIP-394
            self._member_id = joined.member_id
            raise Interrupted(f"is {self._member_id}")
        self._check(JOIN_GROUP, ErrorCode(joined.error_code))
        self._member_id, self._generation = joined.member_id, joined.generation_id
        members = [each.member_id for each in joined.members]
        request = {
            **self._identity("generation_id"),
            "assignments": self._shares(members) if joined.leader == self._member_id else [],
        }
        synced = await self._ask(SYNC_GROUP, 3, request, REBALANCE_SECONDS_MAX)
        owned = [self._places[number] for number in synced.assignment]
        self._say(f"is in generation {self._generation} with {[place.partition for place in owned]}")
        self._history.on_owned(self._generation, self._member_id, owned)
        if owned:
            self._owned = await self._committed(owned)

    def _shares(self, members: list[str]) -> list[dict[str, Any]]:
        """Each gets every n-th partition, as one byte."""
        shares = {member: bytearray() for member in members}
        for number in range(len(self._places)):
            shares[members[number % len(members)]].append(number)
        return [{"member_id": member, "assignment": bytes(share)} for member, share in shares.items()]

    async def _beat(self) -> None:
        await self._ask(HEARTBEAT, 3, self._identity("generation_id"))

    async def _commit(self) -> None:
        for place in self._owned:
            self._owned[place] += self._chance.randint(1, 9)
        partitions = [
            {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
            for place, offset in self._owned.items()
        ]
        request = {
            **self._identity("generation_id_or_member_epoch"),
            "topics": [{"name": self._places[0].topic, "partitions": partitions}],
        }
        commit = self._history.on_commit(self._generation, self._owned)
        answer = await self._ask(OFFSET_COMMIT, 7, request)
        codes = {ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions}
        self._say(f"commits {commit.offsets}: {[code.name for code in codes]}")
        for code in codes:
            self._check(OFFSET_COMMIT, code)
        self._history.on_committed(commit)

    async def _look(self) -> None:
        await self._committed(self._places)

    async def _committed(self, places: Sequence[Place]) -> dict[Place, int]:
        """What is committed of each, 0 if nothing is."""
        asked = self._history.ask(places)
        topic = {"name": places[0].topic, "partition_indexes": [each.partition for each in places]}
        request: dict[str, Any] = {"group_id": self.group, "topics": [topic]}
        if self.asks_for_stable:
            request["require_stable"] = True
        answer = await self._ask(OFFSET_FETCH, 7 if self.asks_for_stable else 5, request)
        found = {}
        for each in answer.topics[0].partitions:
            self._check(OFFSET_FETCH, ErrorCode(each.error_code))
            found[Place(places[0].topic, each.partition_index)] = max(0, each.committed_offset)
        self._say(
            f"is told that {[(place.partition, offset) for place, offset in found.items()]} is committed"
        )
        self._history.on_told(asked, found, self.name)
        return found

    async def _stable(self, places: Sequence[Place]) -> dict[Place, int]:
        """What is committed of those on which nothing is pending (KIP-447), 0 if nothing is."""
        topic = {"name": places[0].topic, "partition_indexes": [each.partition for each in places]}
        request = {"group_id": self.group, "topics": [topic], "require_stable": True}
        answer = await self._ask(OFFSET_FETCH, 7, request)
        found = {}
        for each in answer.topics[0].partitions:
            code = ErrorCode(each.error_code)
            if code is not ErrorCode.unstable_offset_commit:
                self._check(OFFSET_FETCH, code)
                found[Place(places[0].topic, each.partition_index)] = max(0, each.committed_offset)
        return found

    def _identity(self, generation: str) -> dict[str, Any]:
        return {"group_id": self.group, generation: self._generation, "member_id": self._member_id}

    # -- asking -------------------------------------------------------------------------------------------------

    async def _ask(
        self, api_key: int, version: int, request: dict[str, Any], seconds: float = REQUEST_SECONDS_MAX
    ) -> Any:
        """The coordinator's answer. Raises Disconnected, ConnectionError, Interrupted."""
        connection = await self._connection()
        answer = await connection.send(api_key, version, request, seconds)
        self._check(api_key, ErrorCode(getattr(answer, "error_code", 0)))
        return answer

    async def _connection(self) -> KafkaConnection:
        if not self._coordinator:
            found = await self._client.ask(FIND_COORDINATOR, 3, {"key": self.group, "key_type": 0})
            self._check(FIND_COORDINATOR, ErrorCode(found.error_code))
            self._coordinator = f"{found.host}:{found.port}"
        return await self._client.connection(self._coordinator)

    def _check(self, api_key: int, code: ErrorCode) -> None:
        """Raises Interrupted."""
        if code is ErrorCode.none:
            return
        if code in LOOK_AGAIN:
            self._coordinator = ""
        elif code not in JOIN_AGAIN:
            self._world.violate(f"{self.name}: {api_key} is refused with {code.name}")
        if code is ErrorCode.unknown_member_id:
            self._member_id = ""
        raise Interrupted(f"{api_key} is refused with {code.name}")

    def _say(self, what: str) -> None:
        self._world.trace.say(self.name, what)
