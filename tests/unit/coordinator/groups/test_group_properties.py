"""Random members joining, syncing, committing, leaving, falling silent, restarting; coordinators moving."""

from __future__ import annotations

from coordinator_driver import GROUP, ShardDriver
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.group import Group
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard, join_of
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

clients = st.sampled_from("abcde")


class Client:
    """A consumer that does what it is told, if it gets round to it."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] = []
        self.call: int | None = None
        self.next_step = "join"


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = ShardDriver(CoordinatorConfig(group_max_size=4))
        # Two of five are static members.
        self.clients = {name: Client(name, f"i{name}" if name in "ab" else None) for name in "abcde"}
        self.lost: set[int] = set()

    def _ready(self, name: str) -> Client | None:
        client = self.clients[name]
        self._hear(client)
        return client if client.call is None else None

    def _hear(self, client: Client) -> None:
        """Take in the answer to the call that the client waits for, if it has come."""
        if client.call is None or client.call not in self.driver.replies:
            return
        reply = self.driver.replies[client.call]
        client.call = None
        if isinstance(reply, pb.JoinGroupResponse):
            self._on_joined(client, reply)
        elif isinstance(reply, pb.SyncGroupResponse):
            if reply.error_code == 0:
                assert reply.assignment == self._logged_assignment(client)
                client.next_step = "heartbeat"
            else:
                self._on_error(client, reply.error_code)

    def _on_joined(self, client: Client, reply: pb.JoinGroupResponse) -> None:
        if reply.error_code == ErrorCode.member_id_required:
            client.member_id = reply.member_id
        elif reply.error_code:
            self._on_error(client, reply.error_code)
        else:
            client.member_id, client.generation = reply.member_id, reply.generation_id
            client.next_step = "sync"
            client.leads = [] if reply.skip_assignment else [member.member_id for member in reply.members]

    def _logged_assignment(self, client: Client) -> bytes:
        """What the log says of the client in its generation; fails when the log does not know it there."""
        (assignment,) = {
            member.assignment
            for record in self.driver.log
            if isinstance(record, GroupRecord) and record.value is not None
            if record.value.generation == client.generation
            for member in record.value.members
            if member.member_id == client.member_id
        }
        return assignment

    def _on_error(self, client: Client, code: int) -> None:
        if code in (
            ErrorCode.unknown_member_id,
            ErrorCode.fenced_instance_id,
            ErrorCode.group_max_size_reached,
        ):
            client.member_id, client.generation = "", -1
        if code:
            client.next_step = "join"

    @rule(rounds=st.integers(1, 8), names=st.sets(clients))
    def live(self, rounds: int, names: set[str]) -> None:
        """Some clients behave as consumers do for a while: join, sync, then send heartbeats."""
        for _ in range(rounds):
            for name in sorted(names):
                self._hear(self.clients[name])
                match self.clients[name].next_step:
                    case "join":
                        self.join(name, "range")
                    case "sync":
                        self.sync(name)
                    case _:
                        self.heartbeat(name)
            self.driver.advance(1_000)
            self.group_is_consistent_if_there()

    @rule(name=clients, protocols=st.sampled_from(["range", "range,sticky", "sticky,range"]))
    def join(self, name: str, protocols: str) -> None:
        client = self._ready(name)
        if client is not None:
            client.call = self.driver.join(
                name, client.member_id, instance=client.instance, protocols=protocols, rebalance=20_000
            )
            self._hear(client)

    @rule(name=clients)
    def sync(self, name: str) -> None:
        client = self._ready(name)
        if client is None or client.generation < 0:
            return
        plan = {member_id: f"{client.generation}:{member_id}" for member_id in client.leads}
        text = ",".join(f"{member_id}={part}" for member_id, part in plan.items())
        client.call = self.driver.sync(client.member_id, client.generation, text, client.instance)
        self._hear(client)

    @rule(name=clients)
    def heartbeat(self, name: str) -> None:
        client = self._ready(name)
        if client is not None and client.member_id:
            waiter = self.driver.heartbeat(client.member_id, client.generation, client.instance)
            reply = self.driver.replies[waiter]
            assert isinstance(reply, pb.HeartbeatResponse)
            self._on_error(client, reply.error_code)

    @rule(name=clients, offset=st.integers(0, 99))
    def commit(self, name: str, offset: int) -> None:
        client = self._ready(name)
        if client is not None:
            before = self.driver.fetch()
            waiter = self.driver.commit(client.member_id, client.generation, offset, instance=client.instance)
            reply = self.driver.replies[waiter]
            assert isinstance(reply, pb.OffsetCommitResponse)
            done = reply.topics[0].partitions[0].error_code == 0
            assert self.driver.fetch() == (offset if done else before)

    @rule(name=clients)
    def leave(self, name: str) -> None:
        client = self._ready(name)
        if client is not None and client.member_id:
            self.driver.leave(client.member_id, instance=client.instance)
            client.member_id, client.generation, client.next_step = "", -1, "join"

    @rule(name=clients)
    def crash(self, name: str) -> None:
        """The process is gone; a new one knows nothing."""
        self.clients[name] = Client(name, self.clients[name].instance)

    @rule(milliseconds=st.sampled_from([100, 3_000, 5_000, 10_000, 40_000, 400_000]))
    def wait(self, milliseconds: int) -> None:
        self.driver.advance(milliseconds)

    @rule()
    def move(self) -> None:
        """Another coordinator takes over; whoever waited is told so."""
        self.lost |= self.driver.unanswered()
        for client in self.clients.values():
            self._hear(client)
            if client.call is not None:
                client.call, client.next_step = None, "join"
        self.driver.reload()

    @invariant()
    def group_is_consistent_if_there(self) -> None:
        group = self.driver.shard.groups.get(GROUP)
        if group is None:
            return
        members = set(group.members)
        assert not group.pending_members & members
        assert set(group.joining) | set(group.syncing) | group.pending_sync <= members
        assert set(group.static_members.values()) == {
            member_id for member_id, member in group.members.items() if member.group_instance_id
        }
        assert (group.state is GroupState.EMPTY) <= (not members)
        assert (not members) == (group.leader is None)
        assert group.leader is None or group.leader in members
        if group.state is GroupState.PREPARING_REBALANCE:
            assert self.driver.shard.timers.time_of(join_of(group)) is not None
        else:
            assert not group.joining
        if group.state is GroupState.STABLE:
            assert not group.syncing
            self._stored_is_live(group)

    def _stored_is_live(self, group: Group) -> None:
        stored = self.driver.shard.stored[GROUP]
        assert stored.generation == group.generation
        assert {member.member_id for member in stored.members} == set(group.members)

    @invariant()
    def the_log_says_it_all(self) -> None:
        replayed = GroupShard(self.driver.config)
        for record in self.driver.log:
            replayed.replay(record)
        assert replayed.stored == self.driver.shard.stored
        assert replayed.offsets == self.driver.shard.offsets

    @invariant()
    def generations_only_rise(self) -> None:
        """Until the group is deleted; one that is founded anew starts anew."""
        last = 0
        for record in self.driver.log:
            if isinstance(record, GroupRecord):
                generation = 0 if record.value is None else record.value.generation
                assert record.value is None or generation >= last
                last = generation

    def teardown(self) -> None:
        """Left alone, four clients get together; and in the end no call waits: everyone gets an answer."""
        self.driver.advance(2_000_000)
        assert self.driver.unanswered() <= self.lost
        self.live(40, set("abcd"))
        assert [self.clients[name].next_step for name in "abcd"] == ["heartbeat"] * 4
        assert self.driver.shard.groups[GROUP].state is GroupState.STABLE
        self.driver.advance(2_000_000)
        assert self.driver.unanswered() <= self.lost


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=40, stateful_step_count=30)
