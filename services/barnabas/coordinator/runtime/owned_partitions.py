"""Which partitions of its topic a coordinator owns, and the one task that watches their deadlines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Generic

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.runtime.kind import DecisionT, Kind, RecordT, ShardT
from barnabas.coordinator.runtime.metrics import RuntimeMetrics
from barnabas.coordinator.runtime.partition_runtime import PartitionRuntime
from barnabas.coordinator.runtime.partition_state import PartitionState
from barnabas.coordinator.runtime.replay_turns import ReplayTurns
from barnabas.coordinator.runtime.topic_log import TopicLog
from barnabas.kernel.environment import Environment
from barnabas.kernel.logs import get_logger
from barnabas.kernel.rare_lines import RareLines
from barnabas.metadata.image import MetadataImage

log = get_logger("coordinator.partitions")

_Ownership = tuple[bytes, int]
"""Topic id and coordinator epoch: under which title a partition is owned."""


class OwnedPartitions(Generic[ShardT, DecisionT, RecordT]):
    """Owns the partitions that the metadata gives to this coordinator, and the one task that watches deadlines.

    Every change of a partition's coordinator epoch means loading it again under the new one: writes under the old one
    are refused from then on. That its leader moved is no reason to: writes then go to the new one.
    """

    def __init__(
        self,
        kind: Kind[ShardT, DecisionT, RecordT],
        config: CoordinatorConfig,
        environment: Environment,
        topic_log: TopicLog,
        metrics: RuntimeMetrics,
    ) -> None:
        self.count = 0
        """Partitions of the topic, whoever owns them."""
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self._log = topic_log
        self._kind = kind
        self._metrics = metrics
        self._lines = RareLines(log, self._clock.monotonic)
        self._replay_turns = ReplayTurns()
        self._owned: dict[int, _Ownership] = {}
        self._runtimes: dict[int, PartitionRuntime[ShardT, DecisionT, RecordT]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._deadline_moved = asyncio.Event()
        self._sleeping_until_ms: int | None = None
        self._clock.on_jump(self._on_jump)

    async def run(self) -> None:
        """Serve until cancelled. Images may be given before, while and after it runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for partition in self._runtimes:
                    self._start(partition)
                await self._watch_deadlines()
            finally:
                self._group = None  # an image that comes while it ends begins nothing

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take over and give up partitions as the metadata says."""
        if new.topics.get(self._kind.topic) is not old.topics.get(self._kind.topic):
            self._follow(new)

    def _follow(self, image: MetadataImage) -> None:
        topic = image.topics.get(self._kind.topic)
        partitions = topic.partitions if topic is not None else ()
        self.count = len(partitions)
        owned: dict[int, _Ownership] = {
            record.partition: (record.topic_id, record.coordinator_epoch)
            for record in partitions
            if record.coordinator_id == self._config.coordinator_id
        }
        for partition, ownership in list(self._owned.items()):
            if owned.get(partition) != ownership:
                self._give_up(partition)
        for partition, ownership in owned.items():
            if partition not in self._owned:
                self._take_over(partition, ownership)
        for record in partitions:
            if record.partition in owned:
                self._runtimes[record.partition].load_times.on_leader(record.leader, record.leader_epoch)

    def is_loaded(self) -> bool:
        """Whether every partition owned is being served."""
        return all(runtime.is_loaded for runtime in self._runtimes.values())

    def runtime(self, partition: int) -> PartitionRuntime[ShardT, DecisionT, RecordT] | None:
        """A partition, if it is owned."""
        return self._runtimes.get(partition)

    def runtimes(self) -> list[PartitionRuntime[ShardT, DecisionT, RecordT]]:
        """All partitions owned, loaded or not."""
        return list(self._runtimes.values())

    async def on_time(self) -> None:
        """Handle the deadlines of all partitions that are due; each may have much to do."""
        for runtime in self.runtimes():
            if runtime.on_time():
                await asyncio.sleep(0)

    def take_steps(self, steps: Iterator[None]) -> None:
        """Take the first step now, and while it runs each of the others in a later turn of the event loop. None may
        raise."""
        for _ in steps:
            if self._group is not None:
                self._group.create_task(_take_others(steps), name="steps")
            return

    def shards(self) -> Iterator[ShardT]:
        """Those of the partitions that are being served, for reading."""
        for runtime in self._runtimes.values():
            if runtime.is_loaded:
                yield runtime.shard

    def read_only(self) -> int:
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
            self._config,
            self._environment,
            self._metrics,
            self._lines,
            self._replay_turns,
            self._wake_for_deadline,
        )
        if self._group is not None:
            self._start(partition)

    def _start(self, partition: int) -> None:
        assert self._group is not None, "tasks start once the coordinator runs"
        name = f"{self._kind.topic}-{partition}"
        self._tasks[partition] = self._group.create_task(self._runtimes[partition].run(), name=name)

    def _give_up(self, partition: int) -> None:
        del self._owned[partition]
        self._runtimes.pop(partition).close()
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()
        log.debug("gave up partition", topic=self._kind.topic, partition=partition)

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
            await self.on_time()
            self._deadline_moved.clear()
            self._sleeping_until_ms = self._next_deadline_ms()
            seconds = None
            if self._sleeping_until_ms is not None:
                seconds = max(self._sleeping_until_ms / 1000 - self._clock.monotonic(), 0.001)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: in Python 3.11 that loses a cancellation which comes together with the event.
                async with asyncio.timeout(seconds):
                    await self._deadline_moved.wait()


async def _take_others(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
