"""Whether a member of a consumer group may commit and fetch offsets: its epoch says so (KIP-848, KIP-1251)."""

from __future__ import annotations

from barnabas.coordinator.groups.consumer.core.group import ConsumerGroup, Member
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)


def commit_refusal(group: ConsumerGroup, request: OffsetCommitRequest) -> ErrorCode:
    """Why no offset of the request is committed; `none` where all may be."""
    if request.generation_id < 0 and not group.members:
        return ErrorCode.none  # a lone consumer, or an administrator
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if not member.is_classic and not request.knows_member_epochs:
        return ErrorCode.unsupported_version
    return _epoch_refusal(member, request)


def txn_commit_refusal(group: ConsumerGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The same for offsets of a transaction, whose request need not say who the member is."""
    says_nothing = not request.member_id and not request.HasField("group_instance_id")
    if request.generation_id < 0 and (says_nothing or not group.members):
        return ErrorCode.none
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    code = _epoch_refusal(member, request)
    return ErrorCode.illegal_generation if code is ErrorCode.stale_member_epoch else code


def _epoch_refusal(member: Member, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> ErrorCode:
    """An older epoch than the member's is good for partitions that it was given in that one or before, and holds:
    nobody else can have read them since."""
    epoch = request.generation_id
    if epoch == member.epoch:
        return ErrorCode.none
    if epoch < member.epoch and all(
        _was_given_by(member, topic.topic_id, partition.partition, epoch)
        for topic in request.topics
        for partition in topic.partitions
    ):
        return ErrorCode.none
    return _wrong_epoch(member)


def _was_given_by(member: Member, topic_id: bytes, partition: int, epoch: int) -> bool:
    given_in = member.assignment_epoch(topic_id, partition)
    return given_in is not None and given_in <= epoch


def fetch_refusal(group: ConsumerGroup, request: OffsetFetchRequest) -> ErrorCode:
    """Why no offset is told; `none` where all are."""
    if not request.HasField("member_id") and request.member_epoch < 0:
        return ErrorCode.none
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if request.member_epoch == member.epoch else _wrong_epoch(member)


def _wrong_epoch(member: Member) -> ErrorCode:
    return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch
