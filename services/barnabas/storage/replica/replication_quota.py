"""How many bytes a second throttled replicas may take of this node, as a leader and as a follower (KIP-73).

Which replicas those are, their topics say (`TopicSettings`); how much, what was set of brokers while they run. As in
Kafka what in-sync replicas take counts too, and is not held back by it: else they would not stay in sync.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import BROKER_RESOURCE, LONG_MAX
from barnabas.kernel.logs import get_logger
from barnabas.metadata.broker_settings import broker_setting
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.validators import ConfigValue

log = get_logger("storage.replication_quota")


class _Sample:
    __slots__ = ("last_ms", "size_bytes", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size_bytes = 0


class ReplicationQuota:
    """Owner of how much was taken of late, in samples of `window_ms` of which `samples` count. Pure: times are
    milliseconds of any one clock.

    As Kafka's SimpleRate: all of it over the time since the oldest sample began, which is at least one window.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self.bound: float = math.inf
        """Bytes a second."""
        self._samples_max = samples
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, size_bytes: int, now_ms: float) -> None:
        """So much was taken, whether or not that is too much."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > self._samples_max + 1:
                samples.popleft()
        samples[-1].size_bytes += size_bytes
        samples[-1].last_ms = now_ms

    def rate(self, now_ms: float) -> float:
        """Bytes a second."""
        elapsed_ms, size_bytes = self._measure(now_ms)
        return size_bytes * 1000 / max(elapsed_ms, self._window_ms)

    def seconds_exceeded(self, now_ms: float) -> float:
        """For how long at least nothing more may be taken; 0 when something may."""
        elapsed_ms, size_bytes = self._measure(now_ms)
        if size_bytes * 1000 <= self.bound * max(elapsed_ms, self._window_ms):
            return 0
        forgotten_ms = self._samples[0].last_ms + self._samples_max * self._window_ms - now_ms
        made_up_ms = size_bytes * 1000 / self.bound - elapsed_ms if self.bound else math.inf
        return min(made_up_ms, forgotten_ms) / 1000

    def _measure(self, now_ms: float) -> tuple[float, int]:
        """(milliseconds since the oldest sample began, the bytes of all samples)"""
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._samples_max * self._window_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        return elapsed_ms, sum(each.size_bytes for each in samples)


class ReplicationQuotas:
    """Owner of the quotas of this node."""

    def __init__(self, broker_value: Callable[[str], ConfigValue]) -> None:
        """`broker_value` gives the settings of the node's file."""
        samples = broker_value("replication.quota.window.num")
        window_seconds = broker_value("replication.quota.window.size.seconds")
        assert isinstance(samples, int) and isinstance(window_seconds, int)  # noqa: PT018
        self.leader = ReplicationQuota(samples, window_seconds * 1000)
        """Of what followers are sent."""
        self.follower = ReplicationQuota(samples, window_seconds * 1000)
        """Of what leaders are asked for."""

    def follow(self, image: MetadataImage, node_id: int) -> None:
        """Take the rates that brokers have been given since they run: this one, or else all."""
        for name, quota in (
            ("leader.replication.throttled.rate", self.leader),
            ("follower.replication.throttled.rate", self.follower),
        ):
            try:
                quota.bound = _rate(image, node_id, name)
            except KafkaError as error:
                # The controller checks what it stores, so a newer one has stored this.
                log.error("a rate cannot be used and stays as it was", setting=name, reason=error.message)


def _rate(image: MetadataImage, node_id: int, name: str) -> float:
    """Raises KafkaError for a text that is no rate."""
    for resource in (str(node_id), ""):
        text = image.configs.get((BROKER_RESOURCE, resource), {}).get(name)
        if text is not None:
            rate = broker_setting(name).parse(text)
            assert isinstance(rate, int)
            return math.inf if rate == LONG_MAX else rate
    return math.inf
