"""Groups that change from the classic protocol to the newer one, and back, while members are in them (KIP-848).

Up: the first member of the newer protocol that joins takes the whole group with it; those that are there are *classic
members* from then on, who go on as if nothing had happened (`classic_members`). Down: when the last member of the newer
protocol is gone. `group.consumer.migration.policy` says which of these may be. An empty group changes its type for
whoever joins it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.embedded import (
    Malformed,
    PartitionsByName,
    Subscription,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from barnabas.coordinator.groups.consumer.core.group import FIRST_EPOCH, ConsumerGroup
from barnabas.coordinator.groups.consumer.core.group import Member as ConsumerMember
from barnabas.coordinator.groups.consumer.core.groups import ConsumerGroups
from barnabas.coordinator.groups.consumer.core.records import (
    Assignment,
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from barnabas.coordinator.groups.consumer.core.timers import cancel_timers, start_session
from barnabas.coordinator.groups.consumer.core.tombstones import group_tombstones
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.core.answers import join_error, sync_error
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.group import Group, Member
from barnabas.coordinator.groups.core.rebalance import prepare_rebalance
from barnabas.coordinator.groups.core.records import GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.core.states import GroupState
from barnabas.kernel.errors import ErrorCode, KafkaError

CONSUMER_PROTOCOL_TYPE = "consumer"

# -- up -------------------------------------------------------------------------------------------------------


def group_to_join(shard: GroupShard, group_id: str, decision: Decision) -> ConsumerGroup:
    """The group that a member of the newer protocol joins: one that is there, or a new one, or what a classic group
    becomes.

    Nothing but the decision's records is changed; `dissolve` follows once the member is in. Raises KafkaError
    GROUP_ID_NOT_FOUND where a classic group cannot become one.
    """
    group = shard.consumers.get(group_id)
    if group is not None:
        return group
    classic = shard.groups.get(group_id)
    if group_id in shard.stored:
        decision.records.append(GroupRecord(group_id, None))
    if classic is None or classic.state is GroupState.EMPTY:
        return ConsumerGroup(group_id)
    _check_upgrade(shard, classic)
    try:
        records = _upgraded(classic, shard.consumers.topics)
    except Malformed as error:
        raise _cannot_upgrade(group_id, f"the embedded consumer protocol is malformed: {error}") from error
    decision.records += records
    decision.note("classic group becomes a consumer group", group_id=group_id, members=len(classic.members))
    # As it will be once the records are replayed.
    soon = ConsumerGroups(shard.consumers.topics, shard.consumers.times_of)
    for record in records:
        soon.replay(record)
    return soon.groups[group_id]


def _check_upgrade(shard: GroupShard, classic: Group) -> None:
    if not shard.config.may_upgrade:
        raise _cannot_upgrade(classic.group_id, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _cannot_upgrade(classic.group_id, "the group does not use the consumer embedded protocol")
    if len(classic.members) > shard.config.group_consumer_max_size:
        raise _cannot_upgrade(classic.group_id, "the group size exceeds the consumer group maximum size")


def _cannot_upgrade(group_id: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.group_id_not_found,
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}.",
    )


def _upgraded(classic: Group, topics: Topics) -> list[ConsumerRecord]:
    """The records of what the group becomes. Members have what they had in it, in the last generation's epoch; where
    there was none yet, in the first one: epoch 0 says "join" to members of the newer protocol. Where not all was
    shared out, what they are to have is still to be decided, whether or not who joins changes anything.

    Raises Malformed, and KafkaError where an assignor of the members' own has something to say that would be lost.
    """
    group_id, epoch = classic.group_id, max(classic.generation, FIRST_EPOCH)
    assigned = {member_id: _assigned(classic, member) for member_id, member in classic.members.items()}
    subscribed = {member_id: _subscription(classic, member) for member_id, member in classic.members.items()}
    group_epoch = epoch if _is_shared_out(classic, assigned, subscribed, topics) else epoch + 1
    held = _held_in_classic(assigned, subscribed)
    members = [
        _upgraded_member(member, subscribed[member_id], held[member_id], epoch, topics)
        for member_id, member in classic.members.items()
    ]
    names = {name for member in members for name in member.metadata.topic_names}
    targets = {
        member.member_id: {topic_id: frozenset(some) for topic_id, some in member.current.assigned.items()}
        for member in members
    }
    return [
        *(MemberRecord(group_id, member.member_id, member.metadata) for member in members),
        GroupEpochRecord(group_id, GroupEpoch(group_epoch, topics.hash_of(names))),
        *(TargetRecord(group_id, member_id, target) for member_id, target in targets.items()),
        TargetEpochRecord(group_id, TargetEpoch(epoch)),
        *(CurrentRecord(group_id, member.member_id, member.current) for member in members),
    ]


def _assigned(classic: Group, member: Member) -> PartitionsByName:
    """Raises Malformed and KafkaError."""
    if not member.assignment:
        return {}
    partitions, user_data = read_assignment(member.assignment)
    if user_data:
        raise _cannot_upgrade(classic.group_id, "an unsupported custom assignor is in use")
    return partitions


def _is_shared_out(
    classic: Group,
    assigned: Mapping[str, PartitionsByName],
    subscribed: Mapping[str, Subscription],
    topics: Topics,
) -> bool:
    """Whether the group is not being rebalanced, nor about to be: cooperative members first give up what others are to
    have, and nobody may have looked yet at a topic that has grown."""
    if classic.state is not GroupState.STABLE:
        return False
    taken = _each_of(assigned.values())
    names = {name for each in subscribed.values() for name in each.topics}
    wanted = [topic for name in names if (topic := topics.get(name)) is not None]
    return all((topic.name, index) in taken for topic in wanted for index in range(len(topic.partitions)))


def _held_in_classic(
    assigned: Mapping[str, PartitionsByName], subscribed: Mapping[str, Subscription]
) -> Mapping[str, PartitionsByName]:
    """What each member has: what it was assigned last, and what it said of itself when it joined, as far as nobody else
    was assigned that.

    A member that rebalances in the cooperative way reads on until it is told to give something up, and then joins
    again; and assignments are gone where a generation ended before it was told of its own. Where two say that they have
    a partition, who has it of the later generation does (KIP-792).
    """
    held = {member_id: dict(partitions) for member_id, partitions in assigned.items()}
    taken = _each_of(assigned.values())
    for member_id in sorted(subscribed, key=lambda each: subscribed[each].generation, reverse=True):
        for name, numbers in subscribed[member_id].owned.items():
            free = frozenset(index for index in numbers if (name, index) not in taken)
            held[member_id][name] = held[member_id].get(name, frozenset()) | free
            taken |= {(name, index) for index in free}
    return held


def _each_of(assigned: Iterable[PartitionsByName]) -> set[tuple[str, int]]:
    return {(name, index) for some in assigned for name, numbers in some.items() for index in numbers}


def _subscription(classic: Group, member: Member) -> Subscription:
    """Raises Malformed."""
    protocol = classic.protocol or classic.select_protocol()
    return read_subscription(member.metadata_for(protocol) or member.protocols[0][1])


def _upgraded_member(
    member: Member, subscription: Subscription, partitions: PartitionsByName, epoch: int, topics: Topics
) -> ConsumerMember:
    assigned: dict[bytes, dict[int, int]] = {}
    for name, numbers in partitions.items():
        topic = topics.get(name)
        if topic is not None and numbers:
            assigned[topic.topic_id] = dict.fromkeys(sorted(numbers), epoch)
    metadata = MemberMetadata(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )
    return ConsumerMember(member.member_id, metadata, CurrentAssignment(epoch, epoch, assigned=assigned))


def dissolve(shard: GroupShard, classic: Group, group: ConsumerGroup, decision: Decision) -> None:
    """The classic group has become `group`: whoever waits in it is to join again, and sessions go on there."""
    code = ErrorCode.rebalance_in_progress
    for member_id, waiter in classic.joining.items():
        decision.refuse(waiter, code, join_error(code, member_id))
    for waiter in classic.syncing.values():
        decision.refuse(waiter, code, sync_error(code))
    classic.joining.clear()
    classic.syncing.clear()
    for member in group.members.values():
        if member.is_classic:
            start_session(shard, group.group_id, member, decision)


# -- down -----------------------------------------------------------------------------------------------------


def may_downgrade(
    shard: GroupShard, group: ConsumerGroup, without: Collection[ConsumerMember], added: int = 0
) -> bool:
    """Whether the group becomes a classic one when `without` are gone and so many classic members have come."""
    gone = {member.member_id for member in without}
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    size = len(left) + added
    return (
        all(member.is_classic for member in left)
        and size > 0
        and shard.config.may_downgrade
        and size <= shard.config.group_max_size
    )


def downgrade(
    shard: GroupShard,
    group: ConsumerGroup,
    members: Iterable[tuple[ConsumerMember, Assignment]],
    decision: Decision,
    rebalance_reason: str = "",
) -> bool:
    """Make a classic group of `members`, with what each is to have. Where a reason is given, they are asked to join
    again: a record without a leader says so to whoever reads the log before they have. Until then they have what they
    had: should the group be a consumer group again before, nobody is given what another one still reads.

    False, and nothing is done, where they cannot be one.
    """
    if rebalance_reason:
        members = [(member, _held(member)) for member, _ in members]
    try:
        classic = _downgraded(group, members, shard.consumers.topics, decision.now_ms)
    except Malformed as error:
        decision.note("group stays a consumer group", group_id=group.group_id, reason=str(error))
        return False
    if classic.record_bytes() > limits.GROUP_RECORD_BYTES_MAX:
        decision.note("group stays a consumer group", group_id=group.group_id, reason="it is too large")
        return False
    for member_id in group.members:
        cancel_timers(shard, group.group_id, member_id)
    decision.records += group_tombstones(group)
    stored = classic.to_stored()
    if rebalance_reason:
        stored = replace(stored, leader=None)
    decision.records.append(GroupRecord(group.group_id, stored))
    shard.groups[group.group_id] = classic
    for member in classic.members.values():
        shard.start_session(classic, member, decision)
    decision.note(
        "consumer group becomes a classic group", group_id=group.group_id, members=len(classic.members)
    )
    if rebalance_reason:
        prepare_rebalance(shard, classic, decision, rebalance_reason)
    return True


def _held(member: ConsumerMember) -> Assignment:
    """What the member may be reading, and what it is to give up of it."""
    held: dict[bytes, frozenset[int]] = {}
    for some in (member.current.assigned, member.current.revoking):
        for topic_id, partitions in some.items():
            held[topic_id] = held.get(topic_id, frozenset()).union(partitions)
    return held


def _downgraded(
    group: ConsumerGroup,
    members: Iterable[tuple[ConsumerMember, Assignment]],
    topics: Topics,
    now_ms: int,
) -> Group:
    classic = Group(
        group.group_id,
        state=GroupState.STABLE,
        state_timestamp_ms=now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
    )
    targets = {}
    for member, target in members:
        targets[member.member_id] = target
        classic.add_member(_downgraded_member(member))
    classic.protocol = classic.select_protocol()
    for classic_member in classic.members.values():
        version = version_of(classic_member.metadata_for(classic.protocol))
        partitions = named_partitions(targets[classic_member.member_id], topics)
        classic_member.assignment = write_assignment(partitions, version)
    return classic


def _downgraded_member(member: ConsumerMember) -> Member:
    metadata = member.metadata
    assert metadata.classic is not None, "only members of the classic protocol are left"
    return Member(
        member_id=member.member_id,
        group_instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=metadata.classic.session_timeout_ms,
        protocols=metadata.classic.protocols,
    )


def named_partitions(assignment: Assignment, topics: Topics) -> dict[str, frozenset[int]]:
    """By the names of the topics; those that are gone are left out."""
    named = ((topics.name_of(topic_id), partitions) for topic_id, partitions in assignment.items())
    return {name: partitions for name, partitions in named if name is not None}
