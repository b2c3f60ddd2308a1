"""Drives a shard's groups with members of both protocols: real subscriptions and assignments inside the classic one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from consumer_driver import ConsumerDriver

from barnabas.coordinator.groups.consumer.core.embedded import read_assignment
from barnabas.coordinator.groups.core.sync import handle_sync
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

NO_DATA = struct.pack(">i", -1)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def parts(owned: Mapping[str, Sequence[int]]) -> bytes:
    rows = [
        text(name) + struct.pack(f">i{len(some)}i", len(some), *some) for name, some in sorted(owned.items())
    ]
    return struct.pack(">i", len(rows)) + b"".join(rows)


def subscription(
    *topics: str, owned: Mapping[str, Sequence[int]] | None = None, version: int = 3, generation: int = -1
) -> bytes:
    data = struct.pack(">hi", version, len(topics)) + b"".join(map(text, topics)) + NO_DATA
    if version >= 1:
        data += parts(owned or {})
    if version >= 2:
        data += struct.pack(">i", generation)
    if version >= 3:
        data += text("r")
    return data


def assignment(owned: Mapping[str, Sequence[int]], user_data: bytes = b"") -> bytes:
    tail = struct.pack(">i", len(user_data)) + user_data if user_data else NO_DATA
    return struct.pack(">h", 1) + parts(owned) + tail


class MigrationDriver(ConsumerDriver):
    """Also speaks the classic protocol, with real subscriptions and assignments."""

    def classic_group(self, **assigned: bytes) -> list[str]:
        """A stable classic group of members with these assignments; returns their ids."""
        ids = []
        for client in assigned:
            waiter = self.join(client, known=False, metadata=subscription("t"))
            assert waiter not in self.replies
        self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        ids = list(self.shard.groups["g"].members)
        group = self.shard.groups["g"]
        rows = [
            pb.SyncGroupAssignment(member_id=member_id, assignment=data)
            for member_id, data in zip(ids, assigned.values(), strict=True)
        ]
        for member_id in sorted(ids, key=lambda member_id: member_id != group.leader):
            request = pb.SyncGroupRequest(
                group_id="g", generation_id=group.generation, member_id=member_id, assignments=rows
            )
            self.call_sync(request)
        self.trace.clear()
        return ids

    def call_sync_or_wait(self, request: pb.SyncGroupRequest) -> int:
        return self.call(f"sync {request.member_id}", handle_sync, request)

    def call_sync(self, request: pb.SyncGroupRequest) -> pb.SyncGroupResponse:
        reply = self.replies[self.call_sync_or_wait(request)]
        assert isinstance(reply, pb.SyncGroupResponse)
        return reply

    def synced(self, member_id: str, generation: int) -> str:
        """What SyncGroup says: a code, or the assignment."""
        reply = self.call_sync(
            pb.SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id)
        )
        if reply.error_code:
            return ErrorCode(reply.error_code).name.upper()
        partitions, _ = read_assignment(reply.assignment)
        return " ".join(f"{name}{','.join(map(str, sorted(some)))}" for name, some in partitions.items())

    def rejoin(self, member_id: str, owned: Mapping[str, Sequence[int]] | None = None, **more: object) -> int:
        """Join again; returns the generation, or the error code below zero."""
        data = subscription("t", owned=owned)
        waiter = self.join(member_id, member_id, metadata=data, **more)  # type: ignore[arg-type]
        reply = self.replies[waiter]
        assert isinstance(reply, pb.JoinGroupResponse)
        assert not reply.members
        return -reply.error_code if reply.error_code else reply.generation_id

    def beaten(self, member_id: str, generation: int) -> str:
        reply = self.replies[self.heartbeat(member_id, generation)]
        assert isinstance(reply, pb.HeartbeatResponse)
        return ErrorCode(reply.error_code).name

    def show(self, message: object) -> str:
        if isinstance(message, pb.SyncGroupResponse) and not message.error_code:
            return "assigned"
        return super().show(message)
