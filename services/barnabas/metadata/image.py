"""The cluster's metadata as one immutable value.

Every service keeps a `MetadataImage` and replaces it whole when a delta arrives, so a request that took the
image reads one consistent state however long it runs. `apply` is the only way from one image to the next, for
the controller (which replays its store) and for everyone else (who replay the controller's stream).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from barnabas.metadata.client_quotas import QuotaEntity, quota_entity
from barnabas.rpc.v1.metadata_pb2 import (
    ClientQuotaRecord,
    ConfigRecord,
    CoordinatorRecord,
    GatewayRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    TopicRecord,
)

NO_LEADER: Final = -1
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))

TOPIC_RESOURCE: Final = 2
"""Kafka's ConfigResource type of a topic."""
BROKER_RESOURCE: Final = 4
"""Kafka's ConfigResource type of a broker."""

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions; `partitions[i]` is the record of partition i."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionRecord, ...]

    @property
    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.topic_id)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the controller knows, at one revision of its store.

    The mappings are never changed after construction. Records are protobuf messages and must not be written to.
    """

    revision: int = 0
    cluster_id: str = ""
    nodes: Mapping[int, NodeRecord] = field(default_factory=dict)
    gateways: Mapping[str, GatewayRecord] = field(default_factory=dict)
    coordinators: Mapping[str, CoordinatorRecord] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels; a feature that is not here is at level 0."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    records: Mapping[str, MetadataRecord] = field(default_factory=dict, repr=False)
    """The same facts under their store keys; partitions of topics that are not visible yet are only here."""

    def live_nodes(self) -> list[NodeRecord]:
        """The nodes that are not fenced, by id."""
        return [node for _, node in sorted(self.nodes.items()) if not node.fenced]

    def topic_config(self, name: str) -> Mapping[str, str]:
        """What was set on the topic; defaults are not included."""
        return self.configs.get((TOPIC_RESOURCE, name), _NO_SETTINGS)

    def partition(self, topic_id: bytes, index: int) -> PartitionRecord | None:
        """The partition's record, or None when there is no such partition."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def apply(self, records: Iterable[MetadataRecord], revision: int) -> MetadataImage:
        """The image after `records` were stored at `revision`. A record without a value deletes its key."""
        draft = _Draft(self)
        for record in records:
            draft.replay(record)
        return draft.finish(revision)


def node_key(node_id: int) -> str:
    return f"nodes/{node_id}"


def gateway_key(gateway_id: str) -> str:
    return f"gateways/{gateway_id}"


def coordinator_key(coordinator_id: str) -> str:
    return f"coordinators/{coordinator_id}"


def topic_key(name: str) -> str:
    return f"topics/{name}"


def partition_key(topic_id: bytes, index: int) -> str:
    return f"partitions/{topic_id.hex()}/{index}"


def config_key(resource_type: int, resource_name: str) -> str:
    return f"configs/{resource_type}/{resource_name}"


def feature_key(name: str) -> str:
    return f"features/{name}"


CLUSTER_KEY: Final = "cluster"
PRODUCER_IDS_KEY: Final = "producer-ids"


class _Draft:
    """The next image in the making: copies a mapping the first time that it changes."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._records = dict(base.records)
        self._changed: dict[str, dict[object, object]] = {}
        self._cluster_id = base.cluster_id
        self._next_producer_id = base.next_producer_id
        self._stale_topics: set[str] = set()
        self._stale_topic_ids: set[bytes] = set()

    def _mutable(self, name: str) -> dict[object, object]:
        if name not in self._changed:
            self._changed[name] = dict(getattr(self._base, name))
        return self._changed[name]

    def replay(self, record: MetadataRecord) -> None:
        key = record.key
        deleted = record.WhichOneof("value") is None
        if deleted:
            record = self._records.pop(key, record)
        else:
            self._records[key] = record
        match record.WhichOneof("value"):
            case "cluster":
                self._cluster_id = "" if deleted else record.cluster.cluster_id
            case "producer_ids":
                self._next_producer_id = 0 if deleted else record.producer_ids.next_producer_id
            case "node":
                self._put("nodes", record.node.node_id, None if deleted else record.node)
            case "gateway":
                self._put("gateways", record.gateway.gateway_id, None if deleted else record.gateway)
            case "coordinator":
                name = record.coordinator.coordinator_id
                self._put("coordinators", name, None if deleted else record.coordinator)
            case "config":
                self._put("configs", _config_resource(key), None if deleted else _settings(record.config))
            case "feature":
                self._put("features", record.feature.name, None if deleted else record.feature.level)
            case "client_quota":
                quota = record.client_quota
                self._put("client_quotas", quota_entity(quota.entity), None if deleted else _quotas(quota))
            case "topic":
                self._stale_topics.add(record.topic.name)
            case "partition":
                self._stale_topic_ids.add(record.partition.topic_id)
            case None:
                pass  # deletes a key that was never known

    def _put(self, mapping: str, key: object, value: object | None) -> None:
        if value is None:
            self._mutable(mapping).pop(key, None)
        else:
            self._mutable(mapping)[key] = value

    def finish(self, revision: int) -> MetadataImage:
        for topic_id in self._stale_topic_ids:
            known = self._base.topics_by_id.get(topic_id)
            if known is not None:
                self._stale_topics.add(known.name)
        for name in self._stale_topics:
            self._rebuild_topic(name)
        return replace(
            self._base,
            revision=revision,
            cluster_id=self._cluster_id,
            next_producer_id=self._next_producer_id,
            records=self._records,
            **self._changed,  # type: ignore[arg-type]
        )

    def _rebuild_topic(self, name: str) -> None:
        topics, by_id = self._mutable("topics"), self._mutable("topics_by_id")
        known = self._base.topics.get(name)
        if known is not None:
            by_id.pop(known.topic_id, None)
        record = self._records.get(topic_key(name))
        if record is None:
            topics.pop(name, None)
            return
        topic = _topic_image(record.topic, self._records)
        topics[name] = topic
        by_id[topic.topic_id] = topic


def _topic_image(topic: TopicRecord, records: Mapping[str, MetadataRecord]) -> TopicImage:
    partitions = tuple(
        records[partition_key(topic.topic_id, index)].partition for index in range(topic.partition_count)
    )
    return TopicImage(topic.name, topic.topic_id, topic.internal, partitions)


def _config_resource(key: str) -> tuple[int, str]:
    _, resource_type, resource_name = key.split("/", 2)
    return int(resource_type), resource_name


def _settings(config: ConfigRecord) -> Mapping[str, str]:
    return MappingProxyType(dict(config.values))


def _quotas(quota: ClientQuotaRecord) -> Mapping[str, float]:
    return MappingProxyType(dict(quota.values))
