"""The coordinator of groups: the way from a group's id to its partition, and what follows from deleted topics."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from barnabas.coordinator import limits
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.consumer.core.groups import ConsumerGroups
from barnabas.coordinator.groups.consumer.core.topics import Topics
from barnabas.coordinator.groups.consumer.settings import GroupSettings
from barnabas.coordinator.groups.core.decision import Decision
from barnabas.coordinator.groups.core.expiry import (
    delete_offsets,
    delete_pending_of_topics,
    offsets_of_topics,
)
from barnabas.coordinator.groups.core.records import OffsetAndMetadata, OffsetKey
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.kind import GroupRuntime, groups_kind
from barnabas.coordinator.groups.metrics import GroupMetrics, GroupPartitions
from barnabas.coordinator.runtime.owned_partitions import OwnedPartitions
from barnabas.coordinator.runtime.topic_log import TopicLog
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage


class AsksTransactions(Protocol):
    """Whoever asks the coordinators of transactions: `links.transaction_questions.TransactionQuestions`."""

    def verify_nowait(self, question: TransactionQuestion) -> bool: ...
    def ask(self, question: TransactionQuestion) -> Awaitable[ErrorCode]: ...


class GroupCoordinator:
    """Owns its part of __consumer_offsets: `partitions`."""

    def __init__(
        self,
        config: CoordinatorConfig,
        environment: Environment,
        topic_log: TopicLog,
        metrics: GroupMetrics,
        questions: AsksTransactions,
    ) -> None:
        self.config = config
        self.questions = questions
        self._topics = Topics()
        self._settings = GroupSettings(config)
        self.partitions: GroupPartitions = OwnedPartitions(
            groups_kind(config, metrics, self._make_consumers),
            config,
            environment,
            topic_log,
            metrics.partitions,
        )
        metrics.watch(self.partitions)

    def _make_consumers(self) -> ConsumerGroups:
        return ConsumerGroups(self._topics, self._settings.times_of)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Own what the metadata says; have groups look at topics that changed; forget the offsets of deleted ones."""
        self._settings.on_image(old, new)
        changed = self._topics.on_image(new)
        if changed is None or changed:
            for shard in self.partitions.shards():
                shard.consumers.on_topics_changed(changed)
        self.partitions.on_image(old, new)
        deleted = _deleted_topics(old, new)
        if deleted:
            self.partitions.take_steps(self._delete_offsets(deleted))

    def _delete_offsets(self, deleted: Mapping[bytes, str]) -> Iterator[None]:
        """Delete the offsets of these topics, which may be hundreds of thousands, in steps. The first finds them."""
        found = []
        for runtime in self.partitions.runtimes():
            if runtime.is_loaded:
                found.append((runtime, offsets_of_topics(runtime.shard, deleted)))
                runtime.do(lambda shard, decision: delete_pending_of_topics(shard, deleted, decision))
        count = 0
        for runtime, offsets in found:
            while some := list(islice(offsets, limits.OFFSETS_DELETED_AT_ONCE - count)):
                runtime.do(partial(_delete_found, some))
                count += len(some)
                if count == limits.OFFSETS_DELETED_AT_ONCE:
                    count = 0
                    yield

    def runtime_of(self, group_id: str) -> GroupRuntime:
        """The partition of a group. Raises KafkaError: NOT_COORDINATOR when it is another coordinator's,
        COORDINATOR_NOT_AVAILABLE when there is no __consumer_offsets yet."""
        if not self.partitions.count:
            raise KafkaError(ErrorCode.coordinator_not_available, f"there is no {GROUP_METADATA_TOPIC} yet")
        return self.runtime(partition_for_group(group_id, self.partitions.count))

    def runtime(self, partition: int) -> GroupRuntime:
        """A partition. Raises KafkaError: NOT_COORDINATOR when it is not ours."""
        runtime = self.partitions.runtime(partition)
        if runtime is None:
            raise KafkaError(ErrorCode.not_coordinator)
        return runtime


def _delete_found(
    offsets: Sequence[tuple[OffsetKey, OffsetAndMetadata]], shard: GroupShard, decision: Decision
) -> None:
    delete_offsets(shard, offsets, decision)


def _deleted_topics(old: MetadataImage, new: MetadataImage) -> dict[bytes, str]:
    """Names by id of the topics of `old` that somebody deleted; those that are only absent from `new` are not meant."""
    changes = new.changes_since(old)
    deleted = new.deleted_topics if changes is None else changes.deleted_topics
    gone = (old.topics_by_id.get(topic_id) for topic_id in deleted)
    return {topic.topic_id: topic.name for topic in gone if topic is not None}
