"""OffsetFetch: what a group has committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barnabas.coordinator.groups.consumer.core.offsets import fetch_refusal
from barnabas.coordinator.groups.core.decision import Decision, Waiter
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetKey
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import (
    OffsetFetchPartitionResult,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResult,
)

_NOTHING_COMMITTED = OffsetAndMetadata(offset=-1)


def handle_fetch(shard: GroupShard, request: OffsetFetchRequest, waiter: Waiter, decision: Decision) -> None:
    """Answer for the partitions asked for, or for all that have an offset.

    It never shows an offset that could still be lost: as every answer, it leaves when all that was decided before is
    in the log, or else it leaves that out. With `require_stable` it shows none where an open transaction has another,
    which may count soon (KIP-447). By what a former coordinator knows, frozen while another one took over, a client
    would copy again what was copied, or skip what was never read: where it knows of no offset yet, or of one from
    before somebody put the group back. So the owner alone tells offsets. While the log takes no writes nobody can show
    that by a write; where the log's leader refused one of his a moment ago for want of room or replicas, those are told
    that are there, if who asks can bear to read again what he has read. What was committed for another topic of the
    name is none of this one's: for one that somebody deleted, or, where the client names the topic by its id, for any
    other.
    """
    group_id = request.group_id
    consumer_group = shard.consumers.get(group_id)
    code = ErrorCode.none if consumer_group is None else fetch_refusal(consumer_group, request)
    if code is not ErrorCode.none:
        # To be no member ends a consumer.
        _say_as_owner(waiter, OffsetFetchResponse(error_code=code), decision)
        return
    if decision.is_read_only:
        committed, is_pending = shard.committed_offsets(group_id), shard.is_pending_in_log
    else:
        committed, is_pending = shard.offsets.get(group_id, {}), shard.pending.has
    asks_stable = request.require_stable

    def counts(value: OffsetAndMetadata, topic_id: bytes = b"") -> bool:
        is_of_another = topic_id and value.topic_id not in (b"", topic_id)
        return not is_of_another and not shard.is_deleted(value.topic_id)

    def topic_result(name: str, indexes: Iterable[int], topic_id: bytes = b"") -> OffsetFetchTopicResult:
        offsets = committed.get(name, {})

        def offset_of(index: int) -> OffsetAndMetadata:
            value = offsets.get(index, _NOTHING_COMMITTED)
            return value if counts(value, topic_id) else _NOTHING_COMMITTED

        return OffsetFetchTopicResult(
            name=name,
            partitions=[
                _unstable(index)
                if asks_stable and is_pending(OffsetKey(group_id, name, index))
                else _partition(index, offset_of(index))
                for index in indexes
            ],
        )

    topics = []
    for name, partitions in committed.items() if request.all_topics else ():
        indexes = [index for index, value in partitions.items() if counts(value)]
        if indexes:
            topics.append(topic_result(name, indexes))
    topics += [topic_result(topic.name, topic.partitions, topic.topic_id) for topic in request.topics]
    rows = [row for topic in topics for row in topic.partitions]
    response = OffsetFetchResponse(topics=topics)
    if _needs_owner(rows, decision, asks_stable=asks_stable):
        _say_as_owner(waiter, response, decision)
    else:
        decision.reply_unproven(waiter, response)


def _needs_owner(
    rows: Sequence[OffsetFetchPartitionResult], decision: Decision, *, asks_stable: bool
) -> bool:
    """Not where all are unstable: the client asks again and again. Nor, for whoever can bear to read again, where the
    log's leader has just refused the owner a write, if all are there. That there is none at all does.
    """
    if not rows:
        return True
    if decision.is_owner_by_refusal and not asks_stable:
        return any(row.committed_offset == _NOTHING_COMMITTED.offset for row in rows)
    return any(not row.error_code for row in rows)


def _say_as_owner(waiter: Waiter, response: OffsetFetchResponse, decision: Decision) -> None:
    """What only the group's owner can know; while the log takes no writes nobody can show that he is."""
    if decision.is_read_only:
        code = ErrorCode.coordinator_load_in_progress
        decision.refuse(waiter, code, OffsetFetchResponse(error_code=code))
    else:
        decision.reply(waiter, response)


def _unstable(index: int) -> OffsetFetchPartitionResult:
    return OffsetFetchPartitionResult(
        partition=index,
        committed_offset=_NOTHING_COMMITTED.offset,
        committed_leader_epoch=_NOTHING_COMMITTED.leader_epoch,
        error_code=ErrorCode.unstable_offset_commit,
    )


def _partition(index: int, value: OffsetAndMetadata) -> OffsetFetchPartitionResult:
    return OffsetFetchPartitionResult(
        partition=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
