"""A topic of a test's cluster: its name, which every Kafka client takes as it is, with the cluster's helpers on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.testing.record import Record

if TYPE_CHECKING:
    from barnabas.testing.cluster import Cluster
    from barnabas.testing.kafka_client import Sendable


class Topic(str):
    """The name of a topic, and a handle to it. Owns nothing: the topic lives in the cluster."""

    cluster: Cluster

    def __new__(cls, name: str, cluster: Cluster) -> Topic:
        topic = super().__new__(cls, name)
        topic.cluster = cluster
        return topic

    @property
    def name(self) -> str:
        return str(self)

    def produce(self, values: Iterable[Sendable], **options: Any) -> list[Record]:
        """`Cluster.produce` to this topic."""
        return self.cluster.produce(self, values, **options)

    def records(self, **options: Any) -> list[Record]:
        """`Cluster.records` of this topic."""
        return self.cluster.records(self, **options)

    def wait_for_records(
        self,
        count: int = 1,
        *,
        timeout: float = 10.0,
        where: Callable[[Record], bool] | None = None,
    ) -> list[Record]:
        """`Cluster.wait_for_records` of this topic."""
        return self.cluster.wait_for_records(self, count, timeout=timeout, where=where)

    def delete(self) -> None:
        """`Cluster.delete_topic` of this topic."""
        self.cluster.delete_topic(self)
