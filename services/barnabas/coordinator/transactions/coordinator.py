"""The coordinator of transactions: the way from a transactional id to its partition, and to those who are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.owned_partitions import OwnedPartitions
from barnabas.coordinator.runtime.topic_log import TopicLog
from barnabas.coordinator.transactions.completions import Completions
from barnabas.coordinator.transactions.core.add_partitions import is_part
from barnabas.coordinator.transactions.core.settings import TransactionSettings
from barnabas.coordinator.transactions.core.transaction import TopicPartition
from barnabas.coordinator.transactions.kind import (
    TransactionPartitions,
    TransactionRuntime,
    transactions_kind,
)
from barnabas.coordinator.transactions.markers.places import Places
from barnabas.coordinator.transactions.markers.post import Post
from barnabas.coordinator.transactions.markers.sender import MarkerSender
from barnabas.coordinator.transactions.metrics import TransactionMetrics
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.links.transactions_link import TransactionQuestion
from barnabas.metadata.features import TRANSACTION_VERSION
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import TRANSACTION_STATE_TOPIC, MetadataImage
from barnabas.metadata.producer_ids import ProducerIds


class TransactionCoordinator:
    """Owns its part of __transaction_state, `partitions`, and the telling of transactions' ends, `markers`."""

    def __init__(
        self,
        config: CoordinatorConfig,
        environment: Environment,
        topic_log: TopicLog,
        metrics: TransactionMetrics,
        image: Callable[[], MetadataImage],
        producer_ids: ProducerIds,
        post: Post,
    ) -> None:
        self.settings = _settings_of(config)
        self.clock = environment.clock
        self.producer_ids = producer_ids
        self.completions = Completions()
        self._image = image
        kind = transactions_kind(
            self.settings,
            self._transaction_version,
            producer_ids.draw,
            lambda: self.markers.wake(),
            metrics.count,
        )
        self.partitions: TransactionPartitions = OwnedPartitions(
            kind, config, environment, topic_log, metrics.partitions
        )
        self.markers = MarkerSender(
            self.partitions,
            Places(image),
            post,
            metrics.markers,
            environment.clock.monotonic,
            self.completions.on_complete,
        )
        metrics.watch(self.partitions, self.markers.waiting, environment.clock)

    async def run(self) -> None:
        """Serve until cancelled. Images may be given before and while it runs."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.partitions.run(), name="transactions")
            tasks.create_task(self.markers.run(), name="markers")

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Own what the metadata says, and tell whom they name. `image` gives the new one already."""
        self.partitions.on_image(old, new)
        self.markers.on_image(old, new)

    def runtime_of(self, transactional_id: str) -> TransactionRuntime:
        """The partition of an id. Raises KafkaError: NOT_COORDINATOR when it is another coordinator's,
        COORDINATOR_NOT_AVAILABLE when there is no __transaction_state yet."""
        if not self.partitions.count:
            raise KafkaError(
                ErrorCode.coordinator_not_available, f"there is no {TRANSACTION_STATE_TOPIC} yet"
            )
        runtime = self.partitions.runtime(partition_for_group(transactional_id, self.partitions.count))
        if runtime is None:
            raise KafkaError(ErrorCode.not_coordinator)
        return runtime

    def is_part(self, question: TransactionQuestion) -> bool:
        """Whether the log, as far as it is loaded, says for certain that the partition is part of the transaction."""
        count = self.partitions.count
        runtime = (
            self.partitions.runtime(partition_for_group(question.transactional_id, count)) if count else None
        )
        return runtime is not None and runtime.is_loaded and is_part(runtime.shard, question)

    def has_partition(self, partition: TopicPartition) -> bool:
        """Whether it is known now, and may be part of a transaction."""
        topic = self._image().topics.get(partition.topic)
        return (
            topic is not None
            and topic.name != TRANSACTION_STATE_TOPIC
            and 0 <= partition.partition < len(topic.partitions)
        )

    def _transaction_version(self) -> int:
        return self._image().features.get(TRANSACTION_VERSION, 0)


def _settings_of(config: CoordinatorConfig) -> TransactionSettings:
    return TransactionSettings(
        config.transaction_max_timeout_ms,
        config.transactional_id_expiration_ms,
        config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
        config.transaction_two_phase_commit_enable,
    )
