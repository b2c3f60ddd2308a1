"""Drives one `GroupShard` the way the shell does, with time under the test's control, and writes down what happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import encode_record
from barnabas.coordinator.groups.core.commit import handle_commit
from barnabas.coordinator.groups.core.complete_transaction import handle_complete_transaction
from barnabas.coordinator.groups.core.deadlines import on_loaded, on_time
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.fetch import handle_fetch
from barnabas.coordinator.groups.core.heartbeat import handle_heartbeat
from barnabas.coordinator.groups.core.join import handle_join
from barnabas.coordinator.groups.core.leave import handle_leave
from barnabas.coordinator.groups.core.records import (
    GroupLogRecord,
    GroupRecord,
    MarkerRecord,
    OffsetRecord,
)
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.sync import handle_sync
from barnabas.coordinator.groups.core.txn_commit import handle_txn_commit
from barnabas.coordinator.limits import GROUP_RECORD_BYTES_MAX
from barnabas.coordinator.runtime.core.producers import Producer
from barnabas.kernel.clock import ManualClock
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

GROUP = "g"


class ShardDriver:
    """One shard, its log as a list, and a trace of replies and records in the order they happen."""

    def __init__(self, config: CoordinatorConfig | None = None) -> None:
        self.config = config or CoordinatorConfig()
        self.clock = ManualClock()
        self.shard = self.make_shard()
        self.log: list[GroupLogRecord] = []
        self.trace: list[str] = []
        self.replies: dict[int, object] = {}
        self.decisions = 0
        self._asked: dict[int, str] = {}
        self.last_ids: dict[str, str] = {}
        self.take(lambda decision: on_loaded(self.shard, decision))

    def make_shard(self) -> GroupShard:
        return GroupShard(self.config)

    def take(self, work: Callable[[Decision], None]) -> Decision:
        self.decisions += 1
        decision = Decision(
            self.clock.now_ms(), round(self.clock.monotonic() * 1000), lambda: str(self.decisions - 1)
        )
        work(decision)
        for record in decision.records:
            key, value = encode_record(record)
            assert len(key) + len(value or b"") <= GROUP_RECORD_BYTES_MAX
            self.shard.replay(record)
            self.log.append(record)
            self.trace.append(f"log {self.show_record(record)}")
        for waiter, message in (*decision.replies, *decision.replies_at_once):
            assert waiter not in self.replies, "one answer for one call"
            self.replies[waiter] = message
            self.trace.append(f"{self._asked[waiter]} <- {self.show(message)}")
        return decision

    def show_record(self, record: GroupLogRecord) -> str:
        return _show_record(record)

    def show(self, message: object) -> str:
        return _show(message)

    def call(self, who: str, handle: Callable[..., None], request: object) -> int:
        waiter = Waiter(len(self._asked) + 1)
        self._asked[waiter] = who
        self.take(lambda decision: handle(self.shard, request, waiter, decision))
        self.take(lambda decision: on_time(self.shard, decision))
        return waiter

    def unanswered(self) -> set[int]:
        return set(self._asked) - set(self.replies)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, handling deadlines when they are due."""
        end = round(self.clock.monotonic() * 1000) + milliseconds
        while True:
            now = round(self.clock.monotonic() * 1000)
            due = self.shard.timers.next_ms()
            step = end - now if due is None else min(max(due - now, 0), end - now)
            self.clock.advance(step)
            self.take(lambda decision: on_time(self.shard, decision))
            if now + step >= end:
                return

    def reload(self) -> None:
        """A new coordinator: replay the log into a new shard."""
        self.shard = self.make_shard()
        for record in self.log:
            self.shard.replay(record)
        self.take(lambda decision: on_loaded(self.shard, decision))

    def join(
        self,
        client: str,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: str = "range",
        kind: str = "consumer",
        session: int = 10_000,
        rebalance: int = 60_000,
        known: bool = True,
        skips: bool = True,
        metadata: bytes | Sequence[bytes] = b"",
    ) -> int:
        """`metadata` of all protocols, or of each."""
        names = [name for name in protocols.split(",") if name]
        datas = [metadata] * len(names) if isinstance(metadata, bytes) else metadata
        request = pb.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[
                pb.GroupProtocol(name=name, metadata=data or name.encode())
                for name, data in zip(names, datas, strict=True)
            ],
            require_known_member_id=known,
            supports_skipping_assignment=skips,
            client=pb.ClientIdentity(client_id=client, client_host="/127.0.0.1"),
        )
        return self.call(f"join {client}", handle_join, request)

    def sync(
        self, member_id: str, generation: int, assignments: str = "", instance: str | None = None, **more: str
    ) -> int:
        request = pb.SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            assignments=[
                pb.SyncGroupAssignment(member_id=part.split("=")[0], assignment=part.split("=")[1].encode())
                for part in assignments.split(",")
                if part
            ],
            **more,
        )
        return self.call(f"sync {member_id}", handle_sync, request)

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> int:
        request = pb.HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return self.call(f"heartbeat {member_id}", handle_heartbeat, request)

    def leave(self, *member_ids: str, instance: str | None = None) -> int:
        members = [
            pb.LeavingMember(member_id=member_id, group_instance_id=instance) for member_id in member_ids
        ]
        request = pb.LeaveGroupRequest(group_id=GROUP, members=members)
        return self.call(f"leave {','.join(member_ids)}", handle_leave, request)

    def commit(
        self,
        member_id: str,
        generation: int,
        offset: int = 1,
        *,
        topic: str = "t",
        metadata: str = "",
        retention: int = -1,
        instance: str | None = None,
    ) -> int:
        partition = pb.OffsetCommitPartition(
            partition=0, committed_offset=offset, committed_leader_epoch=-1, metadata=metadata
        )
        request = pb.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention,
            topics=[pb.OffsetCommitTopic(name=topic, partitions=[partition])],
        )
        return self.call(f"commit {member_id or '-'}", handle_commit, request)

    def commit_in_transaction(self, producer: Producer, offset: int = 1, *, topic: str = "t") -> int:
        """Commit as a lone consumer; its transaction's coordinator has said yes."""
        partition = pb.OffsetCommitPartition(
            partition=0, committed_offset=offset, committed_leader_epoch=-1, metadata=""
        )
        request = pb.TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=-1,
            topics=[pb.OffsetCommitTopic(name=topic, partitions=[partition])],
        )

        def handle(shard: GroupShard, asked: pb.TxnOffsetCommitRequest, *others: Any) -> None:
            handle_txn_commit(shard, asked, shard.producers.ask(producer), *others)

        return self.call(f"commit in {producer.producer_id}", handle, request)

    def complete(self, producer: Producer, *, committed: bool = True) -> int:
        request = pb.CompleteTransactionRequest(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=committed
        )
        return self.call(f"end {producer.producer_id}", handle_complete_transaction, request)

    def fetch(self, topic: str = "t") -> int:
        """The offset committed for partition 0; -1 when there is none."""
        request = pb.OffsetFetchRequest(
            group_id=GROUP, topics=[pb.OffsetFetchTopic(name=topic, partitions=[0])], member_epoch=-1
        )
        waiter = self.call("fetch", handle_fetch, request)
        reply = self.replies[waiter]
        assert isinstance(reply, pb.OffsetFetchResponse)
        return reply.topics[0].partitions[0].committed_offset

    def stable_group(self, *clients: str, **join: object) -> list[str]:
        """Bring a group of dynamic members to a stable generation; returns their member ids."""
        ids = []
        for client in clients:
            waiter = self.join(client, **join)  # type: ignore[arg-type]
            reply = self.replies[waiter]
            assert isinstance(reply, pb.JoinGroupResponse)
            ids.append(reply.member_id)
        waiters = [
            self.join(client, member_id, **join) for client, member_id in zip(clients, ids, strict=True)
        ]  # type: ignore[arg-type]
        self.advance(self.config.group_initial_rebalance_delay_ms * 2)
        response = self.replies[waiters[0]]
        assert isinstance(response, pb.JoinGroupResponse)
        self.sync(ids[0], response.generation_id, ",".join(f"{member_id}=p" for member_id in ids))
        for member_id in ids[1:]:
            self.sync(member_id, response.generation_id)
        self.trace.clear()
        return ids

    def said(self) -> list[str]:
        """The trace since last asked."""
        trace, self.trace = self.trace, []
        return trace


def _code(value: int) -> str:
    return ErrorCode(value).name.upper()


def _show(message: object) -> str:
    match message:
        case pb.JoinGroupResponse(error_code=code) if code:
            assert message.generation_id == -1
            return f"{_code(code)} {message.member_id}".strip()
        case pb.JoinGroupResponse():
            members = ",".join(member.member_id for member in message.members)
            text = f"generation {message.generation_id} as {message.member_id}, leader {message.leader}"
            text += f", {message.protocol_name}"
            return (
                text
                + (f", members {members}" if members else "")
                + (", skip" if message.skip_assignment else "")
            )
        case pb.SyncGroupResponse(error_code=code):
            return _code(code) if code else "assignment " + message.assignment.decode(errors="replace")
        case pb.HeartbeatResponse(error_code=code):
            return _code(code)
        case pb.CompleteTransactionResponse(error_code=code):
            return _code(code)
        case pb.LeaveGroupResponse():
            return ",".join(_code(member.error_code) for member in message.members)
        case pb.OffsetCommitResponse():
            return ",".join(_code(p.error_code) for topic in message.topics for p in topic.partitions)
        case pb.OffsetFetchResponse():
            return ",".join(str(p.committed_offset) for topic in message.topics for p in topic.partitions)
        case _:
            raise AssertionError(f"no way to show {message!r}")


def _show_record(record: GroupLogRecord) -> str:
    if isinstance(record, GroupRecord):
        if record.value is None:
            return f"group {record.group_id} gone"
        members = ",".join(
            member.member_id + "=" + member.assignment.decode(errors="replace")
            for member in record.value.members
        )
        return f"group {record.group_id} generation {record.value.generation} [{members}]"
    if isinstance(record, MarkerRecord):
        return f"{'commit' if record.committed else 'abort'} {record.producer.producer_id}"
    assert isinstance(record, OffsetRecord)
    value = "gone" if record.value is None else str(record.value.offset)
    written = f"offset {record.group_id} {record.topic}-{record.partition} {value}"
    return written if record.producer is None else f"{written} in {record.producer.producer_id}"
