"""OffsetFetch: what a group has committed."""

from __future__ import annotations

from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.records import OffsetAndMetadata
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.messages.coordinator_pb2 import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)

_NOTHING_COMMITTED = OffsetAndMetadata(offset=-1)


def handle_fetch(shard: GroupShard, request: OffsetFetchRequest, waiter: Waiter, decision: Decision) -> None:
    """Answer for the partitions asked for, or for all that have an offset.

    It never shows an offset that could still be lost, whether or not `require_stable` asks for that (KIP-447): as
    every answer, it leaves when all that was decided before is in the log, or else it leaves that out.
    """
    if decision.is_read_only:
        committed = shard.committed_offsets(request.group_id)
    else:
        committed = shard.offsets.get(request.group_id, {})
    topics = []
    if request.all_topics:
        topics = [
            _topic(name, [_partition(index, value) for index, value in partitions.items()])
            for name, partitions in committed.items()
        ]
    for topic in request.topics:
        offsets = committed.get(topic.name, {})
        topics.append(
            _topic(
                topic.name,
                [_partition(index, offsets.get(index, _NOTHING_COMMITTED)) for index in topic.partitions],
            )
        )
    decision.reply(waiter, OffsetFetchResponse(topics=topics))


def _topic(name: str, partitions: list[OffsetFetchPartitionResult]) -> OffsetFetchTopicResult:
    return OffsetFetchTopicResult(name=name, partitions=partitions)


def _partition(index: int, value: OffsetAndMetadata) -> OffsetFetchPartitionResult:
    return OffsetFetchPartitionResult(
        partition=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
