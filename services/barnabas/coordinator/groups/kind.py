"""Consumer groups, as the runtime sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.codec import decode_batch, encode_record, head_of
from barnabas.coordinator.groups.consumer.core.groups import ConsumerGroups
from barnabas.coordinator.groups.core.deadlines import on_loaded, on_resumed, on_time, start_afresh
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.records import GroupLogRecord, GroupRecord
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.metrics import GroupMetrics
from barnabas.coordinator.runtime.kind import Kind
from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime
from barnabas.metadata.image import GROUP_METADATA_TOPIC

GroupKind: TypeAlias = Kind[GroupShard, Decision, GroupLogRecord]
GroupRuntime: TypeAlias = PartitionRuntime[GroupShard, Decision, GroupLogRecord]


def groups_kind(
    config: CoordinatorConfig,
    metrics: GroupMetrics,
    make_consumers: Callable[[], ConsumerGroups] = ConsumerGroups,
) -> GroupKind:
    """Groups under `config`, counted in `metrics`; `make_consumers` gives what a partition has of the newer
    protocol."""

    def count(decision: Decision) -> None:
        # Of most decisions there is nothing to count, which costs something with each of Prometheus' counters.
        if decision.rebalances_completed:
            metrics.rebalances.inc(decision.rebalances_completed)
        if decision.offsets_committed:
            metrics.offset_commits.inc(decision.offsets_committed)
        if decision.transactional_offsets_committed:
            metrics.transactional_offset_commits.inc(decision.transactional_offsets_committed)
        if decision.offsets_expired:
            metrics.offset_expirations.inc(decision.offsets_expired)

    return Kind(
        topic=GROUP_METADATA_TOPIC,
        # A tombstone for the group "", which no group with members can be.
        barrier=GroupRecord("", None),
        make_shard=lambda: GroupShard(config, make_consumers()),
        make_decision=lambda now_ms, monotonic_ms, draw_id, is_read_only: Decision(
            now_ms, monotonic_ms, draw_id, is_read_only
        ),
        encode=encode_record,
        start_afresh=start_afresh,
        decode_batch=decode_batch,
        on_loaded=on_loaded,
        on_time=on_time,
        on_resumed=on_resumed,
        count=count,
        head=head_of,
        on_producers=lambda shard, producers: shard.producers.restore(producers),
    )
