"""Consumers of either protocol that do as Java's does, one step at a time, and know which partitions they read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from migration_driver import MigrationDriver, assignment, subscription

from barnabas.coordinator.groups.consumer.core.embedded import read_assignment, read_subscription
from barnabas.kernel.errors import ErrorCode
from barnabas.messages import coordinator_pb2 as pb

TOPIC = "t"


class MigratingClient(ABC):
    """A process: it starts, takes steps, and ends for good. `reading` are partitions of `TOPIC`."""

    def __init__(self, driver: MigrationDriver, name: str, instance: str | None) -> None:
        self.driver = driver
        self.name = name
        self.instance = instance
        self.reading: set[int] = set()

    @property
    def owned(self) -> dict[str, list[int]]:
        """What requests carry of `reading`."""
        return {TOPIC: sorted(self.reading)} if self.reading else {}

    @property
    @abstractmethod
    def is_member(self) -> bool:
        """Whether it knows its part in the group, and waits for nothing."""

    @abstractmethod
    def step(self) -> None:
        """Take in the answer that came, if one did; then send what comes next."""

    @abstractmethod
    def on_new_coordinator(self) -> None:
        """What was under way will not be answered."""

    @abstractmethod
    def leave(self) -> None:
        """Say that it goes, for good."""

    def stop(self) -> None:
        """End, to be started again: with the classic protocol nothing is said of that."""
        self.reading = set()


class ClassicClient(MigratingClient):
    """With an assignor that deals partitions out in turn; cooperative, or eager."""

    is_cooperative: ClassVar[bool]

    def __init__(self, driver: MigrationDriver, name: str, instance: str | None) -> None:
        super().__init__(driver, name, instance)
        self._member_id = ""
        self._generation = -1
        self._call: int | None = None
        self._partitions_dealt: int | None = None
        """How many partitions the topic had when this one dealt them out, as the leader."""
        self._partitions_known = 0
        """How many it had when this one joined."""
        self._gave_up = False
        """Whether others can have what it read: it has yet to say so, by joining again."""
        self.joins = 0

    @property
    def is_member(self) -> bool:
        return self._call is None and self._generation >= 0

    def step(self) -> None:
        if self._call is not None:
            self._take_in(self.driver.replies.get(self._call))
        elif self._generation < 0 or self._gave_up or self._sees_more_partitions():
            self._join()
        else:
            reply = self.driver.replies[
                self.driver.heartbeat(self._member_id, self._generation, self.instance)
            ]
            assert isinstance(reply, pb.HeartbeatResponse)
            if reply.error_code:
                self._start_over(ErrorCode(reply.error_code))

    def on_new_coordinator(self) -> None:
        if self._call is not None:
            self._join()

    def leave(self) -> None:
        if self._member_id:
            self.driver.leave(self._member_id, instance=self.instance)
        self.reading = set()

    def _sees_more_partitions(self) -> bool:
        return self._partitions_dealt not in (None, self.driver.partition_count(TOPIC))

    def _join(self) -> None:
        if not self.is_cooperative:
            self.reading = set()
        self.joins += 1
        self._partitions_dealt, self._partitions_known = None, self.driver.partition_count(TOPIC)
        self._gave_up = False
        self._call = self.driver.join(
            self.name,
            self._member_id,
            instance=self.instance,
            session=45_000,
            metadata=subscription(TOPIC, owned=self.owned, generation=self._generation),
        )

    def _take_in(self, reply: object) -> None:
        match reply:
            case pb.JoinGroupResponse(error_code=ErrorCode.member_id_required):
                self._member_id = reply.member_id
                self._join()
            case pb.JoinGroupResponse(error_code=0):
                self._member_id, self._generation = reply.member_id, reply.generation_id
                self._call = self.driver.call_sync_or_wait(
                    pb.SyncGroupRequest(
                        group_id="g",
                        generation_id=self._generation,
                        member_id=self._member_id,
                        group_instance_id=self.instance,
                        assignments=self._dealt(reply),
                    )
                )
            case pb.SyncGroupResponse(error_code=0):
                self._call = None
                self._read(set(read_assignment(reply.assignment)[0].get(TOPIC, ())))
            case pb.JoinGroupResponse() | pb.SyncGroupResponse():
                self._start_over(ErrorCode(reply.error_code))
            case _:
                assert reply is None

    def _dealt(self, joined: pb.JoinGroupResponse) -> list[pb.SyncGroupAssignment]:
        """What the leader gives to whom. In a cooperative group nobody gets what another one has yet."""
        if not joined.members:
            return []
        if joined.skip_assignment:
            # It leads again (KIP-814): it watches the topic, of which it knows as much as when it joined.
            self._partitions_dealt = self._partitions_known
            return []
        self._partitions_dealt = self.driver.partition_count(TOPIC)
        members = sorted(member.member_id for member in joined.members)
        owners: dict[int, tuple[int, str]] = {}
        for member in joined.members:
            read = read_subscription(member.metadata)
            for partition in read.owned.get(TOPIC, ()):
                owners[partition] = max(
                    (read.generation, member.member_id), owners.get(partition, (-1, member.member_id))
                )
        dealt: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in range(self._partitions_dealt):
            taker = members[partition % len(members)]
            if owners.get(partition, (-1, taker))[1] == taker:
                dealt[taker].append(partition)
        return [
            pb.SyncGroupAssignment(member_id=member_id, assignment=assignment({TOPIC: some} if some else {}))
            for member_id, some in dealt.items()
        ]

    def _read(self, assigned: set[int]) -> None:
        self._gave_up = self.is_cooperative and not self.reading <= assigned
        self.reading = assigned

    def _start_over(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.unknown_member_id | ErrorCode.fenced_instance_id:
                self._member_id, self._generation, self.reading = "", -1, set()
            case ErrorCode.illegal_generation:
                self._generation, self.reading = -1, set()
            case _:
                assert code is ErrorCode.rebalance_in_progress, code
        self._join()


class EagerClient(ClassicClient):
    is_cooperative = False


class CooperativeClient(ClassicClient):
    is_cooperative = True


class NewerClient(MigratingClient):
    """Of the newer protocol, KIP-848."""

    def __init__(self, driver: MigrationDriver, name: str, instance: str | None) -> None:
        super().__init__(driver, name, instance)
        self._is_in = False

    @property
    def is_member(self) -> bool:
        return self._is_in

    def step(self) -> None:
        if self._is_in:
            reply = self.driver.beat(self.name, instance=self.instance, owned=self.owned)
        else:
            reply = self.driver.enter(self.name, TOPIC, instance=self.instance)
        if reply.error_code:
            expected = (
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_member_epoch,
                ErrorCode.group_id_not_found,
            )
            assert reply.error_code in expected, ErrorCode(reply.error_code)
            self._is_in, self.reading = False, set()
            return
        self._is_in = True
        if reply.HasField("assignment"):
            self.reading = {partition for topic in reply.assignment.topics for partition in topic.partitions}

    def on_new_coordinator(self) -> None:
        """Nothing is under way between steps."""

    def leave(self) -> None:
        self._say_last(-1)

    def stop(self) -> None:
        self._say_last(-2)

    def _say_last(self, epoch: int) -> None:
        if self._is_in:
            self.driver.beat(self.name, epoch, instance=self.instance)
        self.reading = set()
