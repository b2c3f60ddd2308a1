"""Who leads a partition, and which code clients hear when nobody does.

Kafka has three codes for a partition without a leader, by what the request is about:

- NOT_LEADER_OR_FOLLOWER from whatever goes to the leader (Produce, Fetch, ListOffsets, DeleteRecords,
  OffsetForLeaderEpoch, DescribeProducers): the replica that was asked does not lead, look again;
- LEADER_NOT_AVAILABLE from Metadata, which shows the leader;
- COORDINATOR_NOT_AVAILABLE from FindCoordinator and a group's requests, where it is a partition of an internal topic.

Clients retry on all three, but not every client knows each of them in every answer.
"""

from __future__ import annotations

from typing import Final

from barnabas.kernel.errors import ErrorCode
from barnabas.messages.metadata_pb2 import PartitionRecord
from barnabas.metadata.image import NO_LEADER, MetadataImage, TopicImage

NOBODY_LEADS: Final = ErrorCode.not_leader_or_follower
"""For requests that go to the leader; also where it is known and cannot be reached (fenced, or away)."""
NO_LEADER_TO_SHOW: Final = ErrorCode.leader_not_available
"""For Metadata."""
NOBODY_COORDINATES: Final = ErrorCode.coordinator_not_available
"""For requests about groups, whose partition of an internal topic has no leader or no coordinator."""

LEADER_ERRORS: Final = (NOBODY_LEADS, ErrorCode.fenced_leader_epoch)
"""Codes of a leader that is none any more: clients are told with them who leads (KIP-951)."""

LEADER_EPOCH_MAX: Final = 2**30
"""A leader epoch above this, in a log, is taken for damage: no partition has so many elections, and the metadata must
not come near the end of 32 bits. The epoch stands in a batch outside of what its CRC covers.
"""


def led_partition(image: MetadataImage, topic: str | bytes, partition: int) -> PartitionRecord | ErrorCode:
    """The record of a partition, which names its leader (never NO_LEADER), or the code for clients.

    `topic` is a name or an id. UNKNOWN_TOPIC_OR_PARTITION for a name or a partition that does not exist,
    UNKNOWN_TOPIC_ID for an id, NOBODY_LEADS without a leader.
    """
    known = _topic(image, topic)
    if known is None:
        is_name = isinstance(topic, str)
        return ErrorCode.unknown_topic_or_partition if is_name else ErrorCode.unknown_topic_id
    if not 0 <= partition < len(known.partitions):
        return ErrorCode.unknown_topic_or_partition
    record = known.partitions[partition]
    return NOBODY_LEADS if record.leader == NO_LEADER else record


def current_leader(image: MetadataImage, topic: str | bytes, partition: int) -> tuple[int, int] | None:
    """(node id, leader epoch) of who leads, for clients that asked somebody else (KIP-951).

    The node is NO_LEADER where nobody does; None for a partition that does not exist.
    """
    known = _topic(image, topic)
    if known is None or not 0 <= partition < len(known.partitions):
        return None
    record = known.partitions[partition]
    return record.leader, record.leader_epoch


def _topic(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    return image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
