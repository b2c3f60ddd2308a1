"""Leaders elected anew though nothing happened to nodes: by ElectLeaders (KIP-183, KIP-460), and from time to time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from barnabas.controller.core.decision import Decision, failure, partition_entry
from barnabas.controller.core.elections import Decide, after_node_came, elections, never, terms_of
from barnabas.controller.core.partition_change import ElectionTerms, PartitionChange
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElection,
    ResourceResult,
    TopicElections,
)
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage

PREFERRED: Final = 0
UNCLEAN: Final = 1

_NOT_NEEDED: Final = "Leader election not needed for topic partition."
_NO_PREFERRED: Final = "The preferred leader was not available."
_NOBODY: Final = "Eligible topic partition leaders are not available."


def elect_leaders(image: MetadataImage, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
    """Decide on every partition of the request by itself. Raises KafkaError INVALID_REQUEST for an unknown type."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {request.election_type}")
    asked: Iterable[tuple[str, Iterable[int]]] = ((topic.name, topic.partitions) for topic in request.topics)
    if request.all_partitions:
        asked = ((name, range(len(topic.partitions))) for name, topic in sorted(image.topics.items()))
    changed: dict[tuple[bytes, int], PartitionRecord] = {}
    topics = []
    for name, indexes in asked:
        results = []
        for index in indexes:
            try:
                known = _partition(image, changed, name, index)
                after = _elected(image, known, request.election_type)
            except KafkaError as error:
                # Who asks for all means those that need it.
                if not request.all_partitions or error.code is not ErrorCode.election_not_needed:
                    results.append(PartitionElection(partition=index, result=failure(error)))
                continue
            changed[after.topic_id, index] = after
            results.append(PartitionElection(partition=index, result=ResourceResult()))
        topics.append(TopicElections(name=name, partitions=results))
    records = tuple(partition_entry(partition) for partition in changed.values())
    return Decision(records, ElectLeadersResponse(topics=topics))


def elect_preferred_leaders(image: MetadataImage, most: int) -> Decision[bool]:
    """Give `most` partitions back to their preferred leaders; the answer is whether there may be more of them."""
    return _some_elections(image, most, _back_to_preferred)


def elect_unclean_leaders(image: MetadataImage, most: int) -> Decision[bool]:
    """Give `most` partitions that nobody leads a leader where their settings allow one that is out of sync."""
    return _some_elections(image, most, after_node_came)


def _some_elections(image: MetadataImage, most: int, decide: Decide) -> Decision[bool]:
    records = elections(image, decide)
    return Decision(tuple(records[:most]), len(records) > most)


def _partition(
    image: MetadataImage, changed: dict[tuple[bytes, int], PartitionRecord], name: str, index: int
) -> PartitionRecord:
    """The partition, as it was decided on before if the request names it twice. Raises KafkaError."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
    return changed.get((topic.topic_id, index)) or topic.partitions[index]


def _elected(image: MetadataImage, partition: PartitionRecord, election_type: int) -> PartitionRecord:
    """The partition with another leader. Raises KafkaError, which says why it has none."""
    terms = terms_of(image, image.topics_by_id[partition.topic_id].name)
    if election_type == UNCLEAN:
        if partition.leader != NO_LEADER:
            raise KafkaError(ErrorCode.election_not_needed, _NOT_NEEDED)
        after = after_node_came(partition, replace(terms, is_unclean=_always))
        if after is None or after.leader == NO_LEADER:
            raise KafkaError(ErrorCode.eligible_leaders_not_available, _NOBODY)
        return after
    if partition.leader == partition.replicas[0]:
        raise KafkaError(ErrorCode.election_not_needed, _NOT_NEEDED)
    after = _back_to_preferred(partition, replace(terms, is_unclean=never))
    if after is None:
        raise KafkaError(ErrorCode.preferred_leader_not_available, _NO_PREFERRED)
    return after


def _always() -> bool:
    return True


def _back_to_preferred(partition: PartitionRecord, terms: ElectionTerms) -> PartitionRecord | None:
    """The partition led by the first of its replicas, if that has all that is committed and may lead, and does not; by
    another that may, if the present leader may not; else None.
    """
    if partition.leader == partition.replicas[0]:
        return None
    change = PartitionChange(partition, terms)
    change.prefers_first = True
    after = change.build()
    return after if after is not None and after.leader not in (partition.leader, NO_LEADER) else None
