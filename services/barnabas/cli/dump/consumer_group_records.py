"""Records of consumer groups (KIP-848) as Kafka's --offsets-decoder shows them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.coordinator.groups.consumer.core.records import (
        ConsumerRecord,
        HeldPartitions,
        MemberMetadata,
    )


def consumer_group_key(record: ConsumerRecord) -> dict[str, Any]:
    """The fields of the key."""
    key: dict[str, Any] = {"groupId": record.group_id}
    member_id, regex = getattr(record, "member_id", None), getattr(record, "regex", None)
    if member_id is not None:
        key["memberId"] = member_id
    if regex is not None:
        key["regularExpression"] = regex
    return key


def consumer_group_value(record: ConsumerRecord) -> dict[str, Any]:
    """The fields of a value that is not null."""
    from barnabas.coordinator.groups.consumer.core import records

    match record.value:
        case records.GroupEpoch() as epoch:
            metadata_hash = {"metadataHash": epoch.metadata_hash} if epoch.metadata_hash else {}
            return {"epoch": epoch.epoch, **metadata_hash}
        case records.MemberMetadata() as metadata:
            return _member(metadata)
        case records.TargetEpoch() as target:
            timestamp = {"assignmentTimestamp": target.timestamp_ms} if target.timestamp_ms else {}
            return {"assignmentEpoch": target.epoch, **timestamp}
        case records.CurrentAssignment() as current:
            return {
                "memberEpoch": current.epoch,
                "previousMemberEpoch": current.previous_epoch,
                "state": int(current.state),
                "assignedPartitions": _held(current.assigned),
                "partitionsPendingRevocation": _held(current.revoking),
            }
        case records.ResolvedRegex() as resolved:
            return {
                "topics": sorted(resolved.topics),
                "version": resolved.version,
                "timestamp": resolved.timestamp_ms,
            }
        case Mapping() as assignment:
            topics = sorted(assignment.items())
            return {"topicPartitions": [_topic(topic_id, partitions) for topic_id, partitions in topics]}
        case _:
            return {}  # of an older Kafka: what it said of topics counts for nothing


def _member(metadata: MemberMetadata) -> dict[str, Any]:
    classic = metadata.classic
    protocols = [] if classic is None else classic.protocols
    return {
        "instanceId": metadata.instance_id,
        "rackId": metadata.rack_id,
        "clientId": metadata.client_id,
        "clientHost": metadata.client_host,
        "subscribedTopicNames": sorted(metadata.topic_names),
        "subscribedTopicRegex": metadata.topic_regex,
        "rebalanceTimeoutMs": metadata.rebalance_timeout_ms,
        "serverAssignor": metadata.server_assignor,
        "classicMemberMetadata": None
        if classic is None
        else {
            "sessionTimeoutMs": classic.session_timeout_ms,
            "supportedProtocols": [
                {"name": name, "metadata": base64.b64encode(data).decode()} for name, data in protocols
            ],
        },
    }


def _held(held: HeldPartitions) -> list[dict[str, Any]]:
    return [
        {
            **_topic(topic_id, partitions),
            "assignmentEpochs": [partitions[index] for index in sorted(partitions)],
        }
        for topic_id, partitions in sorted(held.items())
    ]


def _topic(topic_id: bytes, partitions: Any) -> dict[str, Any]:
    """A topic by its id in the form that Kafka shows."""
    shown = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return {"topicId": shown, "partitions": sorted(partitions)}
