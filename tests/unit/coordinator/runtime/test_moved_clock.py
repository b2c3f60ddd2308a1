"""A test moves the cluster's clock: who lives keeps his place in the group, who does not loses it soon."""

from __future__ import annotations

from coordinator_node import Node, running
from log_in_memory import LogInMemory

from barnabas.coordinator import limits
from barnabas.kernel.clock import Listener, ManualClock
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb


class JumpingClock(ManualClock):
    """Stands still, and jumps when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Listener] = []

    def on_jump(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def jump(self, milliseconds: int) -> None:
        self.advance(milliseconds)
        for listener in self.listeners:
            listener(milliseconds / 1000)


async def test_a_jump_ends_no_session_of_a_member_that_lives() -> None:
    clock = JumpingClock()
    node = Node("a", LogInMemory(), clock=clock)
    node.see("a")
    async with running(node):
        living = await node.join(session=45_000)
        request = pb.SyncGroupRequest(group_id="g", generation_id=1, member_id=living.member_id)
        assert (await node.calls.SyncGroup(request)).error_code == ErrorCode.none
        await node.join(group="other", session=45_000)
        clock.jump(86_400_000)
        clock.advance(limits.AFTER_JUMP_MS - 1)
        await node.coordinator.partitions.on_time()
        assert await node.heartbeat(living.member_id, 1) is ErrorCode.none
        clock.advance(2)
        await node.coordinator.partitions.on_time()
        members = {
            shard: list(shard.groups["other"].members) for shard in node.coordinator.partitions.shards()
        }
        assert list(members.values()) == [[]]
        clock.advance(44_000)
        await node.coordinator.partitions.on_time()
        assert await node.heartbeat(living.member_id, 1) is ErrorCode.none
