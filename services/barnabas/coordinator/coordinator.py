"""Which partitions this coordinator owns, and the way from a group's id to its partition."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.groups.core.expiry import delete_offsets_of_topics
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.kind import GroupRuntime, groups_kind
from barnabas.coordinator.metrics import CoordinatorMetrics
from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime, PartitionState
from barnabas.coordinator.runtime.topic_log import TopicLog
from barnabas.kernel.environment import Environment
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.logs import get_logger
from barnabas.metadata.group_partition import partition_for_group
from barnabas.metadata.image import GROUP_METADATA_TOPIC, MetadataImage

log = get_logger("coordinator")

_Ownership = tuple[bytes, int]
"""Topic id and coordinator epoch: under which title a partition is owned."""


class Coordinator:
    """Owns the partitions that the metadata gives to this coordinator, and the one task that watches deadlines.

    Every change of a partition's coordinator epoch means loading it again under the new one: writes under the old one
    are refused from then on. That its leader moved is no reason to: writes then go to the new one.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        environment: Environment,
        topic_log: TopicLog,
        metrics: CoordinatorMetrics,
    ) -> None:
        self.config = config
        self._environment = environment
        self._clock = environment.clock
        self._log = topic_log
        self._kind = groups_kind(config, metrics)
        self._metrics = metrics
        self._partition_count = 0
        self._owned: dict[int, _Ownership] = {}
        self._runtimes: dict[int, GroupRuntime] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._deadline_moved = asyncio.Event()
        self._sleeping_until_ms: int | None = None
        self._clock.on_jump(self._on_jump)
        metrics.watch_shards(self.shards, lambda: len(self._runtimes), self.read_only_partitions)

    async def run(self) -> None:
        """Serve until cancelled. Images may be given before and while it runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for partition in self._runtimes:
                self._start(partition)
            await self._watch_deadlines()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take over and give up partitions as the metadata says; forget the offsets of deleted topics."""
        if new.topics.get(GROUP_METADATA_TOPIC) is not old.topics.get(GROUP_METADATA_TOPIC):
            self._follow_partitions(new)
        deleted = _deleted_topics(old, new)
        if deleted:
            for runtime in self._runtimes.values():
                runtime.do(lambda shard, decision: delete_offsets_of_topics(shard, deleted, decision))

    def _follow_partitions(self, image: MetadataImage) -> None:
        topic = image.topics.get(GROUP_METADATA_TOPIC)
        partitions = topic.partitions if topic is not None else ()
        self._partition_count = len(partitions)
        owned: dict[int, _Ownership] = {
            record.partition: (record.topic_id, record.coordinator_epoch)
            for record in partitions
            if record.coordinator_id == self.config.coordinator_id
        }
        for partition, ownership in list(self._owned.items()):
            if owned.get(partition) != ownership:
                self._give_up(partition)
        for partition, ownership in owned.items():
            if partition not in self._owned:
                self._take_over(partition, ownership)

    def is_loaded(self) -> bool:
        """Whether every partition owned is being served."""
        return all(runtime.is_loaded for runtime in self._runtimes.values())

    def runtime_of(self, group_id: str) -> GroupRuntime:
        """The partition of a group. Raises KafkaError: NOT_COORDINATOR when it is another coordinator's,
        COORDINATOR_NOT_AVAILABLE when there is no __consumer_offsets yet."""
        if not self._partition_count:
            raise KafkaError(ErrorCode.coordinator_not_available, f"there is no {GROUP_METADATA_TOPIC} yet")
        runtime = self._runtimes.get(partition_for_group(group_id, self._partition_count))
        if runtime is None:
            raise KafkaError(ErrorCode.not_coordinator)
        return runtime

    def runtimes(self) -> list[GroupRuntime]:
        """All partitions owned, loaded or not."""
        return list(self._runtimes.values())

    def on_time(self) -> None:
        """Handle the deadlines of all partitions that are due."""
        for runtime in self.runtimes():
            runtime.on_time()

    def shards(self) -> Iterator[GroupShard]:
        """Those of the partitions that are being served, for reading."""
        for runtime in self._runtimes.values():
            if runtime.is_loaded:
                yield runtime.shard

    def read_only_partitions(self) -> int:
        """How many partitions serve only what needs no write, because their log takes none."""
        return sum(runtime.state is PartitionState.READ_ONLY for runtime in self._runtimes.values())

    def _take_over(self, partition: int, ownership: _Ownership) -> None:
        self._owned[partition] = ownership
        _, coordinator_epoch = ownership
        self._runtimes[partition] = PartitionRuntime(
            partition,
            coordinator_epoch,
            self._kind,
            self._log,
            self.config,
            self._environment,
            self._metrics.partitions,
            self._wake_for_deadline,
        )
        if self._group is not None:
            self._start(partition)

    def _start(self, partition: int) -> None:
        assert self._group is not None, "tasks start once the coordinator runs"
        name = f"{GROUP_METADATA_TOPIC}-{partition}"
        self._tasks[partition] = self._group.create_task(self._runtimes[partition].run(), name=name)

    def _give_up(self, partition: int) -> None:
        del self._owned[partition]
        self._runtimes.pop(partition).close()
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()
        log.debug("gave up partition", partition=partition)

    def _on_jump(self, seconds: float) -> None:
        for runtime in self._runtimes.values():
            runtime.on_jump(round(seconds * 1000))
        self._deadline_moved.set()

    def _next_deadline_ms(self) -> int | None:
        times = (runtime.next_deadline_ms() for runtime in self._runtimes.values())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _wake_for_deadline(self, at_ms: int) -> None:
        if self._sleeping_until_ms is None or at_ms < self._sleeping_until_ms:
            self._deadline_moved.set()

    async def _watch_deadlines(self) -> None:
        while True:
            self.on_time()
            self._deadline_moved.clear()
            self._sleeping_until_ms = self._next_deadline_ms()
            seconds = None
            if self._sleeping_until_ms is not None:
                seconds = max(self._sleeping_until_ms / 1000 - self._clock.monotonic(), 0.001)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: in Python 3.11 that loses a cancellation which comes together with the event.
                async with asyncio.timeout(seconds):
                    await self._deadline_moved.wait()


def _deleted_topics(old: MetadataImage, new: MetadataImage) -> list[str]:
    """Names of the topics of `old` that somebody deleted; those that are only absent from `new` are not meant."""
    changes = new.changes_since(old)
    deleted = new.deleted_topics if changes is None else changes.deleted_topics
    gone = (old.topics_by_id.get(topic_id) for topic_id in deleted)
    return [topic.name for topic in gone if topic is not None]
