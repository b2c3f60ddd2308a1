"""A member that speaks the protocol of KIP-848: the coordinator says what it is to have, and it says what it has."""

from __future__ import annotations

import math
from typing import Any, Final

from consumer_group_lives import LOST, MIGRATING, REBALANCE_MS, Life
from consumer_group_plan import SHELVES, SHELVES_REGEX
from groups import Interrupted
from history import Place

from barnabas.kernel.errors import ErrorCode

CONSUMER_GROUP_HEARTBEAT: Final = 68

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2

NO_TIMEOUT: Final = -1

FULL: Final = 0.1
"""How often a member says everything again without need."""

KEEPS: Final = 0.5
"""How often it goes on for another heartbeat with what it is to give up."""


class ConsumerLife(Life):
    """Owner of what the member has been asked to give up, and of what it has to say."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._topic_id = b""
        self._to_give_up: set[Place] = set()
        self._said: set[Place] | None = set()
        """What it said last that it owns, and was heard; None where nobody knows."""
        self._asked_since = 0.0
        """When it sent the first of the heartbeats of which one may have been answered with what it is to give up."""

    @property
    def is_settled(self) -> bool:
        return super().is_settled and not self._to_give_up and self._said == self.member.owned

    async def join(self) -> None:
        self._find_topic()
        newest, doubtful = self._history.newest_epoch(), self._history.is_doubtful
        await self._heartbeat(JOINS, set(), is_full=True)
        if not doubtful:
            self._history.on_joined(self.member, newest)
        self.is_in = True

    async def beat(self) -> None:
        if self._to_give_up and self._chance.random() >= KEEPS:
            self._give_up(self._to_give_up)
            self._to_give_up = set()
        is_full = self.member.unanswered > 0 or self._chance.random() < FULL
        await self._heartbeat(self.member.epoch, set(self.member.owned), is_full=is_full)

    async def leave(self) -> bool:
        if not self.is_in:
            return False
        is_static = self._instance_id is not None
        epoch = LEAVES_FOR_A_WHILE if is_static and self._chance.random() < 0.8 else LEAVES
        self.end()
        request = {**self._identity(epoch), "rebalance_timeout": NO_TIMEOUT, "topic_partitions": None}
        try:
            answer = await self._send(CONSUMER_GROUP_HEARTBEAT, 1, request)
        except (*LOST, Interrupted):
            return False
        self.say(f"leaves with {epoch}: {ErrorCode(answer.error_code).name}")
        return ErrorCode(answer.error_code) is ErrorCode.none

    async def _heartbeat(self, epoch: int, owned: set[Place], *, is_full: bool) -> None:
        request: dict[str, Any] = {**self._identity(epoch), "rebalance_timeout": NO_TIMEOUT}
        if is_full:
            request |= self._subscription()
        is_said = is_full or owned != self._said
        request["topic_partitions"] = self._topics(owned) if is_said else None
        if is_said:
            self._said = None
        doubtful, sent_at = self._history.is_doubtful, self._world.now
        if not self.member.unanswered:
            self._asked_since = sent_at
        answer = await self._send(CONSUMER_GROUP_HEARTBEAT, 1, request)
        code = ErrorCode(answer.error_code)
        self._check(CONSUMER_GROUP_HEARTBEAT, code, doubtful, self._is_unreleased if epoch == JOINS else None)
        self._said = owned
        if not self._to_give_up:
            self.member.gives_up_by = math.inf
        before = self.member.epoch
        self._history.on_answer(self.member, sent_at, answer.member_epoch, was_doubtful=doubtful)
        if answer.assignment is not None:
            self._take(answer.assignment)
        elif before != self.member.epoch:
            self.say("is in the next epoch with what it has")

    def _is_unreleased(self, code: ErrorCode) -> bool:
        """Whether somebody else has the instance id, which is no wonder unless he left and was heard."""
        if code is not ErrorCode.unreleased_instance_id:
            return False
        if self.is_released and not self.member.unanswered:
            self._world.violate(f"{self.member}: {self._instance_id} is not free, and who had it has left")
        return True

    def _take(self, assignment: Any) -> None:
        wanted = {
            Place(SHELVES, number)
            for each in assignment.topic_partitions
            if each.topic_id.bytes == self._topic_id
            for number in each.partitions
        }
        self._to_give_up = self.member.owned - wanted
        new = sorted(wanted - self.member.owned)
        self.say(f"is to have {sorted(each.partition for each in wanted)}")
        if self._to_give_up:
            self._history.on_asked_for(self.member, self._asked_since + REBALANCE_MS / 1000)
        self._history.on_assigned(self.member, new)

    def _identity(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": MIGRATING,
            "member_id": self.member.member_id,
            "member_epoch": epoch,
            "instance_id": self._instance_id,
        }

    def _subscription(self) -> dict[str, Any]:
        has_regex = self._seat.has_regex
        return {
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": None if has_regex else [SHELVES],
            "subscribed_topic_regex": SHELVES_REGEX if has_regex else None,
            "server_assignor": self._seat.assignor,
        }

    def _topics(self, owned: set[Place]) -> list[dict[str, Any]]:
        if not owned:
            return []
        return [{"topic_id": self._topic_id, "partitions": sorted(each.partition for each in owned)}]

    def _find_topic(self) -> None:
        """Raises Interrupted."""
        leader = next((each for place in self._places if (each := self._client.leader(place))), None)
        if leader is None:
            raise Interrupted("the topic is not known")
        self._topic_id = leader.topic_id

    def _fetch_identity(self) -> dict[str, Any]:
        return {
            "group_id": MIGRATING,
            "member_id": self.member.member_id,
            "member_epoch": self.member.epoch,
        }
