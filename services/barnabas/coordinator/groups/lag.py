"""How far groups are behind, in records and in seconds, measured when somebody asks for the metrics.

The coordinator knows what was committed; the storage nodes know where logs end and when records were written. One
look-up a storage node gives all ends. Of partitions that are behind, the batch at the committed offset is read for its
timestamp, which is remembered until the group moves on: a group that stands still costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from barnabas.coordinator import limits
from barnabas.coordinator.groups.core.shard import GroupShard
from barnabas.coordinator.groups.partition_ends import Ends, PartitionEnds, PartitionId
from barnabas.kernel.clock import Clock
from barnabas.metadata.image import MetadataImage


class _Place(NamedTuple):
    """Where a group will read next."""

    partition: PartitionId
    offset: int


@dataclass(slots=True)
class GroupLag:
    """One group's position in one partition, as last measured."""

    group_id: str
    topic: str
    partition: PartitionId
    offset: int
    lag: int | None = None
    """Offsets up to the high watermark; None when that is not known."""
    next_offset: int = -1
    """Where reading goes on: the committed offset, or the log's start where that has moved past it."""
    oldest_ms: int | None = None
    """When the oldest record that is not consumed was written; None when it is not known."""

    @property
    def place(self) -> _Place:
        return _Place(self.partition, self.next_offset)


class LagMeasurement(Collector):
    """Owns what was measured last, and the timestamps that need not be read again."""

    def __init__(
        self,
        shards: Callable[[], Iterable[GroupShard]],
        image: Callable[[], MetadataImage],
        ends: PartitionEnds,
        clock: Clock,
    ) -> None:
        self.lags: list[GroupLag] = []
        self.left_out = 0
        self._shards = shards
        self._image = image
        self._ends = ends
        self._clock = clock
        self._lock = asyncio.Lock()
        self._measured_at: float | None = None
        self._round = 0
        self._timestamps: dict[_Place, int] = {}
        self._known: dict[tuple[str, str, int], tuple[int, int]] = {}
        """Of each group's partition: (round in which its timestamp was read, timestamp)."""

    async def measure(self) -> None:
        """Bring `lags` up to date, unless that was done a moment ago."""
        async with self._lock:
            now = self._clock.monotonic()
            if self._measured_at is not None and now - self._measured_at < limits.LAG_INTERVAL_SECONDS:
                return
            lags, left_out = self._committed()
            ends = await self._ends.ends({lag.partition: None for lag in lags})
            for lag in lags:
                _apply_ends(lag, ends.get(lag.partition))
            behind = [lag for lag in lags if lag.lag]
            await self._read_timestamps(behind)
            self._date(behind)
            self.lags = lags
            self.left_out = left_out + sum(lag.lag is None for lag in lags)
            self._measured_at = now

    def _committed(self) -> tuple[list[GroupLag], int]:
        """The positions of all groups, up to the limit, and how many are above it."""
        topics = self._image().topics
        lags: list[GroupLag] = []
        left_out = 0
        for shard in self._shards():
            for group_id, offsets in shard.offsets.items():
                for name, partitions in offsets.items():
                    topic = topics.get(name)
                    if topic is None:
                        continue
                    counting = [  # what was committed for a former topic of the name is no position in this one
                        (PartitionId(topic.topic_id, index), committed.offset)
                        for index, committed in partitions.items()
                        if committed.topic_id in (b"", topic.topic_id)
                    ]
                    room = max(0, limits.LAG_PARTITIONS_MAX - len(lags))
                    left_out += max(0, len(counting) - room)
                    lags += [GroupLag(group_id, name, *position) for position in counting[:room]]
        return lags, left_out

    async def _read_timestamps(self, behind: list[GroupLag]) -> None:
        self._timestamps = {
            lag.place: self._timestamps[lag.place] for lag in behind if lag.place in self._timestamps
        }
        # Who was read the longest ago comes first.
        behind.sort(key=lambda lag: self._known.get(_key(lag), (-1, 0))[0])
        wanted = iter({lag.place: None for lag in behind if lag.place not in self._timestamps})
        self._round += 1
        left = [limits.LAG_READS_MAX, limits.LAG_READ_BYTES_MAX]

        async def read() -> None:
            for place in wanted:
                if min(left) <= 0:
                    return
                left[0] -= 1
                timestamp, size_bytes = await self._ends.timestamp_at(place.partition, place.offset)
                left[1] -= size_bytes
                if timestamp is not None:
                    self._timestamps[place] = timestamp

        await asyncio.gather(*(read() for _ in range(limits.LAG_READS_AT_ONCE)))

    def _date(self, behind: list[GroupLag]) -> None:
        """Give each what is known of it; one that was not read this time keeps its last, which is older."""
        known = {}
        for lag in behind:
            timestamp = self._timestamps.get(lag.place)
            remembered = self._known.get(_key(lag)) if timestamp is None else (self._round, timestamp)
            if remembered is not None:
                known[_key(lag)] = remembered
                lag.oldest_ms = remembered[1] if remembered[1] >= 0 else None
        self._known = known

    # --- what is shown

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a measurement."""
        return ()

    def collect(self) -> Iterator[Metric]:
        labels = ["consumergroup", "topic", "partition"]
        offsets = GaugeMetricFamily(
            "kafka_consumergroup_current_offset", "The committed offset", labels=labels
        )
        lags = GaugeMetricFamily(
            "kafka_consumergroup_lag", "Records behind the high watermark", labels=labels
        )
        seconds = GaugeMetricFamily(
            "barnabas_consumergroup_lag_seconds", "Age of the oldest record not yet consumed", labels=labels
        )
        sums: dict[tuple[str, str], int] = {}
        now_ms = self._clock.now_ms()
        for row in self.lags:
            if row.lag is None:
                continue
            values = [row.group_id, row.topic, str(row.partition.partition)]
            offsets.add_metric(values, row.offset)
            lags.add_metric(values, row.lag)
            sums[row.group_id, row.topic] = sums.get((row.group_id, row.topic), 0) + row.lag
            if row.lag == 0:
                seconds.add_metric(values, 0)
            elif row.oldest_ms is not None:
                seconds.add_metric(values, max(0, now_ms - row.oldest_ms) / 1000)
        total = GaugeMetricFamily(
            "kafka_consumergroup_lag_sum", "Records behind, all partitions", labels=["consumergroup", "topic"]
        )
        for (group_id, topic), lag in sums.items():
            total.add_metric([group_id, topic], lag)
        members = GaugeMetricFamily("kafka_consumergroup_members", "Members", labels=["consumergroup"])
        for shard in self._shards():
            for group in shard.groups.values():
                members.add_metric([group.group_id], len(group.members))
            for consumer_group in shard.consumers.groups.values():
                members.add_metric([consumer_group.group_id], len(consumer_group.members))
        yield from (offsets, lags, total, seconds, members)
        yield GaugeMetricFamily(
            "barnabas_coordinator_lag_left_out_partitions",
            "Partitions with a committed offset whose lag is not known",
            value=self.left_out,
        )


def _apply_ends(lag: GroupLag, ends: Ends | None) -> None:
    if ends is not None:
        lag.lag = max(0, ends.end - lag.offset)
        lag.next_offset = max(lag.offset, ends.start)


def _key(lag: GroupLag) -> tuple[str, str, int]:
    return lag.group_id, lag.topic, lag.partition.partition
