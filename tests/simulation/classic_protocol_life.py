"""A member that speaks the classic protocol, eagerly: in a classic group it may be the leader, and share out; in one of
KIP-848 it is told what it has.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from consumer_group_lives import LOST, MIGRATING, REBALANCE_MS, Life
from consumer_group_plan import SHELVES
from groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    REBALANCE_SECONDS_MAX,
    SYNC_GROUP,
    Interrupted,
)
from history import Place
from machines import SESSION_MS

from barnabas.coordinator.groups.consumer.core.embedded import read_assignment, write_assignment
from barnabas.kernel.errors import ErrorCode

PROTOCOL: Final = "range"

_NOTHING: Final = struct.pack(">i", -1)


def subscription() -> bytes:
    """Version 0 of ConsumerProtocolSubscription: who rejoins has nothing."""
    name = SHELVES.encode()
    return struct.pack(f">hih{len(name)}s", 0, 1, len(name), name) + _NOTHING


class ClassicLife(Life):
    """Owner of nothing more; its generation is the member's epoch."""

    rejoins = frozenset({ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation})

    async def join(self) -> None:
        self._give_up(self.member.owned)
        request = {
            "group_id": MIGRATING,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member.member_id,
            "group_instance_id": self._instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": PROTOCOL, "metadata": subscription()}],
        }
        doubtful, sent_at = self._history.is_doubtful, self._world.now
        joined = await self._send(JOIN_GROUP, 5, request, REBALANCE_SECONDS_MAX)
        code = ErrorCode(joined.error_code)
        if code is ErrorCode.member_id_required:  # KIP-394
            self.member.member_id = joined.member_id
            raise Interrupted("has an id")
        self._check(JOIN_GROUP, code, doubtful)
        self.member.member_id = joined.member_id
        generation = joined.generation_id
        self._history.on_answer(self.member, sent_at, generation, was_doubtful=doubtful, is_sure=False)
        members = [each.member_id for each in joined.members]
        await self._sync(members if joined.leader == joined.member_id else [])

    async def _sync(self, members: list[str]) -> None:
        request = {**self._identity("generation_id"), "assignments": self._shares(members)}
        doubtful, sent_at = self._history.is_doubtful, self._world.now
        synced = await self._send(SYNC_GROUP, 3, request, REBALANCE_SECONDS_MAX)
        self._check(SYNC_GROUP, ErrorCode(synced.error_code), doubtful)
        self._history.on_answer(self.member, sent_at, self.member.epoch, was_doubtful=doubtful)
        partitions, _ = read_assignment(bytes(synced.assignment))
        numbers = sorted(partitions.get(SHELVES, ()))
        self.say(f"{'leads and ' if members else ''}has {numbers}")
        self.is_in = True
        self._history.on_assigned(self.member, [Place(SHELVES, number) for number in numbers])

    def _shares(self, members: list[str]) -> list[dict[str, Any]]:
        """Each gets every n-th partition."""
        shares: dict[str, list[int]] = {member: [] for member in members}
        for number in range(len(self._places) if members else 0):
            shares[members[number % len(members)]].append(number)
        return [
            {"member_id": member, "assignment": write_assignment({SHELVES: share}, 0)}
            for member, share in shares.items()
        ]

    async def beat(self) -> None:
        doubtful, sent_at = self._history.is_doubtful, self._world.now
        loaded, was_sure = self._history.coordinators(), self._history.is_sure()
        answer = await self._send(HEARTBEAT, 3, self._identity("generation_id"))
        self._check(HEARTBEAT, ErrorCode(answer.error_code), doubtful)
        is_sure = was_sure and self._history.is_sure() and loaded == self._history.coordinators()
        doubtful = doubtful or not is_sure
        self._history.on_answer(self.member, sent_at, self.member.epoch, was_doubtful=doubtful)

    async def leave(self) -> bool:
        """A static member of this protocol does not say so."""
        self.end()
        if self._instance_id is not None or not self.member.member_id:
            return False
        request = {"group_id": MIGRATING, "member_id": self.member.member_id}
        try:
            answer = await self._send(LEAVE_GROUP, 2, request)
        except (*LOST, Interrupted):
            return False
        self.say(f"leaves: {ErrorCode(answer.error_code).name}")
        return ErrorCode(answer.error_code) is ErrorCode.none

    def _identity(self, generation: str) -> dict[str, Any]:
        return {
            "group_id": MIGRATING,
            generation: self.member.epoch,
            "member_id": self.member.member_id,
            "group_instance_id": self._instance_id,
        }
