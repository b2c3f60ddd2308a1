"""The cluster's metadata as one immutable value.

Every service keeps a `MetadataImage` and replaces it whole when a delta arrives, so a request that took the
image reads one consistent state however long it runs. `apply` is the only way from one image to the next, for
the controller (which replays its store) and for everyone else (who replay the controller's stream).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from barnabas.kernel.kafka_values import TOPIC_RESOURCE
from barnabas.messages.metadata_pb2 import (
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    CoordinatorRecord,
    DeletedTopicRecord,
    FeatureRecord,
    GatewayRecord,
    MetadataRecord,
    NodeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Term,
    TermsRecord,
    TopicRecord,
)
from barnabas.metadata.client_quotas import (
    QuotaEntity,
    client_quota_key,
    entity_of_key,
    entity_parts,
    quota_entity,
)
from barnabas.metadata.persistent import GONE, ChunkedSequence, LayeredMapping

NO_LEADER: Final = -1
GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset((GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC))

_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_TO_BE_FOUND: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions; `partitions[i]` is the record of partition i."""

    name: str
    topic_id: bytes
    internal: bool
    partitions: Sequence[PartitionRecord]

    @property
    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.topic_id)


@dataclass(frozen=True, slots=True)
class ImageChanges:
    """What differs between an image and the one of `since_revision`, which it was made from by `apply`.

    Keys come in the order of the records, each once, and may name what is not there any more.
    """

    since_revision: int
    topics: tuple[bytes, ...]
    """Ids of topics that came, went or grew."""
    partitions: tuple[tuple[bytes, int], ...]
    """(topic id, index) of partitions that came, went or have another record."""
    configs: tuple[tuple[int, str], ...]
    """(resource type, resource name) of resources whose settings changed."""
    deleted_topics: tuple[bytes, ...]
    """Ids of topics that were deleted."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the controller knows, at one revision of its store.

    The mappings are never changed after construction. Records are protobuf messages and must not be written to.
    The change of one partition costs what one chunk of its topic costs (see `persistent`), however many there are.
    """

    revision: int = 0
    cluster_id: str = ""
    nodes: Mapping[int, NodeRecord] = field(default_factory=dict)
    gateways: Mapping[str, GatewayRecord] = field(default_factory=dict)
    coordinators: Mapping[str, CoordinatorRecord] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=LayeredMapping)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=LayeredMapping)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels; a feature that is not here is at level 0."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    deleted_topics: Mapping[bytes, DeletedTopicRecord] = field(default_factory=LayeredMapping)
    """Topics that somebody deleted, by id, as far back as the controller remembers."""
    terms: tuple[Term, ...] = ()
    """The terms of active controllers that led here, oldest first (see `history`)."""
    changes: ImageChanges | None = field(default=None, repr=False, compare=False)
    """What `apply` changed; None for an image that was not made by it."""
    eligible_epochs: Mapping[int, int] = field(
        default_factory=lambda: _TO_BE_FOUND, repr=False, compare=False
    )
    """The broker epoch of each node that may lead and be in sync: registered, not fenced, not stopping. It follows from
    `nodes`, and is the same object until one of them changes.
    """

    def __post_init__(self) -> None:
        if self.eligible_epochs is _TO_BE_FOUND:
            object.__setattr__(self, "eligible_epochs", _eligible_epochs(self.nodes))

    @property
    def records(self) -> dict[str, MetadataRecord]:
        """The same facts as records under their store keys, made anew at every call."""
        return {record.key: record for record in _records(self)}

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

    def changes_since(self, old: MetadataImage) -> ImageChanges | None:
        """What differs from `old`, or None when this image was not made from it: then anything may differ."""
        changes = self.changes
        if changes is None or not old.revision or changes.since_revision != old.revision:
            return None
        return changes

    def apply(self, records: Iterable[MetadataRecord], revision: int) -> MetadataImage:
        """The image after `records` were stored at `revision`. A record without a value deletes its key.

        A topic and all of its partitions come together.
        """
        draft = _Draft(self)
        for record in records:
            draft.replay(record)
        return draft.finish(revision)


def _eligible_epochs(nodes: Mapping[int, NodeRecord]) -> Mapping[int, int]:
    return MappingProxyType(
        {
            node_id: node.node_epoch
            for node_id, node in sorted(nodes.items())
            if not node.fenced and not node.stopping
        }
    )


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


def deleted_topic_key(topic_id: bytes) -> str:
    return f"deleted-topics/{topic_id.hex()}"


def config_key(resource_type: int, resource_name: str) -> str:
    return f"configs/{resource_type}/{resource_name}"


def feature_key(name: str) -> str:
    return f"features/{name}"


CLUSTER_KEY: Final = "cluster"
PRODUCER_IDS_KEY: Final = "producer-ids"
TERMS_KEY: Final = "terms"


class _Draft:
    """The next image in the making: copies a small mapping the first time that it changes."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._changed: dict[str, Any] = {}
        self._topics: dict[str, TopicRecord | None] = {}
        self._partitions: dict[bytes, dict[int, PartitionRecord | None]] = {}
        self._configs: dict[tuple[int, str], None] = {}
        self._changed_topics: dict[bytes, None] = {}
        self._deleted_topics: dict[bytes, Any] = {}

    def replay(self, record: MetadataRecord) -> None:
        key = record.key
        match record.WhichOneof("value"):
            case "cluster":
                self._changed["cluster_id"] = record.cluster.cluster_id
            case "producer_ids":
                self._changed["next_producer_id"] = record.producer_ids.next_producer_id
            case "node":
                self._put("nodes", record.node.node_id, record.node)
            case "gateway":
                self._put("gateways", record.gateway.gateway_id, record.gateway)
            case "coordinator":
                self._put("coordinators", record.coordinator.coordinator_id, record.coordinator)
            case "config":
                self._put_config(_config_resource(key), _settings(record.config))
            case "feature":
                self._put("features", record.feature.name, record.feature.level)
            case "client_quota":
                quota = record.client_quota
                self._put("client_quotas", quota_entity(quota.entity), _quotas(quota))
            case "deleted_topic":
                self._deleted_topics[record.deleted_topic.topic_id] = record.deleted_topic
            case "terms":
                self._changed["terms"] = tuple(record.terms.terms)
            case "topic":
                self._topics[record.topic.name] = record.topic
            case "partition":
                partition = record.partition
                self._partitions.setdefault(partition.topic_id, {})[partition.partition] = partition
            case None:
                self._delete(key)

    def _delete(self, key: str) -> None:
        kind, _, name = key.partition("/")
        match kind:
            case "cluster":
                self._changed["cluster_id"] = ""
            case "producer-ids":
                self._changed["next_producer_id"] = 0
            case "nodes":
                self._put(kind, int(name), None)
            case "gateways" | "coordinators" | "features":
                self._put(kind, name, None)
            case "configs":
                self._put_config(_config_resource(key), None)
            case "client-quotas":
                self._put("client_quotas", entity_of_key(key), None)
            case "deleted-topics":
                self._deleted_topics[bytes.fromhex(name)] = GONE
            case "terms":
                self._changed["terms"] = ()
            case "topics":
                self._topics[name] = None
            case "partitions":
                topic_id, _, index = name.partition("/")
                self._partitions.setdefault(bytes.fromhex(topic_id), {})[int(index)] = None

    def _put(self, mapping: str, key: object, value: object | None) -> None:
        if mapping not in self._changed:
            self._changed[mapping] = dict(getattr(self._base, mapping))
        if value is None:
            self._changed[mapping].pop(key, None)
        else:
            self._changed[mapping][key] = value

    def _put_config(self, resource: tuple[int, str], settings: Mapping[str, str] | None) -> None:
        self._put("configs", resource, settings)
        self._configs[resource] = None

    def finish(self, revision: int) -> MetadataImage:
        if "nodes" in self._changed:
            self._changed["eligible_epochs"] = _eligible_epochs(self._changed["nodes"])
        if self._topics or self._partitions:
            self._finish_topics()
        if self._deleted_topics:
            deleted = LayeredMapping.of(self._base.deleted_topics)
            self._changed["deleted_topics"] = deleted.replacing(self._deleted_topics)
        changes = ImageChanges(
            self._base.revision,
            tuple(self._changed_topics),
            tuple((topic_id, index) for topic_id, indexes in self._partitions.items() for index in indexes),
            tuple(self._configs),
            tuple(topic_id for topic_id, known in self._deleted_topics.items() if known is not GONE),
        )
        return replace(self._base, revision=revision, changes=changes, **self._changed)

    def _finish_topics(self) -> None:
        base = self._base
        by_name: dict[str, Any] = {}
        by_id: dict[bytes, Any] = {}
        for name, record in self._topics.items():
            known = base.topics.get(name)
            if known is not None and (record is None or record.topic_id != known.topic_id):
                by_name[name] = by_id[known.topic_id] = GONE
                self._changed_topics[known.topic_id] = None
            if record is not None:
                topic = self._topic(record, base.topics_by_id.get(record.topic_id))
                by_name[name] = by_id[topic.topic_id] = topic
                self._changed_topics[topic.topic_id] = None
        for topic_id in self._partitions:
            known = base.topics_by_id.get(topic_id)
            if known is not None and topic_id not in by_id:
                changed = replace(known, partitions=self._replaced(known))
                by_name[known.name] = by_id[topic_id] = changed
        self._changed["topics"] = LayeredMapping.of(base.topics).replacing(by_name)
        self._changed["topics_by_id"] = LayeredMapping.of(base.topics_by_id).replacing(by_id)

    def _topic(self, record: TopicRecord, known: TopicImage | None) -> TopicImage:
        partitions: list[PartitionRecord | None] = [None] * record.partition_count
        if known is not None:
            partitions[: len(known.partitions)] = known.partitions
            del partitions[record.partition_count :]
        for index, partition in self._partitions.get(record.topic_id, {}).items():
            if index < len(partitions):
                partitions[index] = partition
        missing = [index for index, partition in enumerate(partitions) if partition is None]
        if missing:
            raise ValueError(
                f"the metadata has topic {record.name} without a record of its partitions {missing}"
            )
        return TopicImage(record.name, record.topic_id, record.internal, ChunkedSequence(partitions))  # type: ignore[arg-type]

    def _replaced(self, known: TopicImage) -> Sequence[PartitionRecord]:
        changes = {
            index: partition
            for index, partition in self._partitions[known.topic_id].items()
            if partition is not None and index < len(known.partitions)
        }
        partitions = known.partitions
        if not isinstance(partitions, ChunkedSequence):
            partitions = ChunkedSequence(partitions)
        return partitions.replacing(changes)


def _records(image: MetadataImage) -> Iterator[MetadataRecord]:
    if image.cluster_id:
        yield MetadataRecord(key=CLUSTER_KEY, cluster=ClusterRecord(cluster_id=image.cluster_id))
    if image.next_producer_id:
        record = ProducerIdsRecord(next_producer_id=image.next_producer_id)
        yield MetadataRecord(key=PRODUCER_IDS_KEY, producer_ids=record)
    for node_id, node in image.nodes.items():
        yield MetadataRecord(key=node_key(node_id), node=node)
    for name, gateway in image.gateways.items():
        yield MetadataRecord(key=gateway_key(name), gateway=gateway)
    for name, coordinator in image.coordinators.items():
        yield MetadataRecord(key=coordinator_key(name), coordinator=coordinator)
    for (resource_type, name), settings in image.configs.items():
        yield MetadataRecord(key=config_key(resource_type, name), config=ConfigRecord(values=settings))
    for name, level in image.features.items():
        yield MetadataRecord(key=feature_key(name), feature=FeatureRecord(name=name, level=level))
    for entity, quotas in image.client_quotas.items():
        quota = ClientQuotaRecord(entity=entity_parts(entity), values=quotas)
        yield MetadataRecord(key=client_quota_key(entity), client_quota=quota)
    for topic_id, deleted in image.deleted_topics.items():
        yield MetadataRecord(key=deleted_topic_key(topic_id), deleted_topic=deleted)
    if image.terms:
        yield MetadataRecord(key=TERMS_KEY, terms=TermsRecord(terms=image.terms))
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield MetadataRecord(key=partition_key(topic.topic_id, index), partition=partition)
        facts = TopicRecord(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_count=len(topic.partitions),
            internal=topic.internal,
        )
        yield MetadataRecord(key=topic_key(topic.name), topic=facts)


def _config_resource(key: str) -> tuple[int, str]:
    _, resource_type, resource_name = key.split("/", 2)
    return int(resource_type), resource_name


def _settings(config: ConfigRecord) -> Mapping[str, str]:
    return MappingProxyType(dict(config.values))


def _quotas(quota: ClientQuotaRecord) -> Mapping[str, float]:
    return MappingProxyType(dict(quota.values))
