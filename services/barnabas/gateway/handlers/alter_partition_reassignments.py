"""AlterPartitionReassignments (key 45): partitions shall have other replicas (KIP-455); one result per partition.

v1 lets the client insist that the replication factor stays (KIP-860). Nothing moves partitions yet: replicas that a
partition has already are taken, as in Kafka, and all others are refused with a message that says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.image import MetadataImage


async def handle(request: Request) -> Answer:
    may_change_factor = request.get("allow_replication_factor_change", True)
    responses = [
        {
            "name": topic.name,
            "partitions": [
                _result(request.image, topic.name, partition, may_change_factor=may_change_factor)
                for partition in topic.partitions
            ],
        }
        for topic in request.body.topics
    ]
    return {
        "allow_replication_factor_change": may_change_factor,
        "error_code": ErrorCode.none,
        "error_message": None if responses else "",  # a habit of Kafka's
        "responses": responses,
    }


def _result(image: MetadataImage, name: str, wanted: Any, *, may_change_factor: bool) -> dict[str, Any]:
    code, message = ErrorCode.none, None
    try:
        _check(image, name, wanted.partition_index, wanted.replicas, may_change_factor=may_change_factor)
    except KafkaError as error:
        code, message = error.code, error.message
    return {"partition_index": wanted.partition_index, "error_code": code, "error_message": message}


def _check(
    image: MetadataImage,
    name: str,
    partition: int,
    replicas: Sequence[int] | None,
    *,
    may_change_factor: bool,
) -> None:
    """Raise KafkaError unless the partition has these replicas now; None means: give up the move under way."""
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {name}.")
    if not 0 <= partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"Unable to find partition {name}:{partition}."
        )
    if replicas is None:
        raise KafkaError(ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress.")
    present = list(topic.partitions[partition].replicas)
    if not replicas or len(set(replicas)) < len(replicas) or not image.nodes.keys() >= set(replicas):
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment must name registered brokers, each of them once.",
        )
    if len(replicas) != len(present) and not may_change_factor:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"The replication factor is changed from {len(present)} to {len(replicas)}.",
        )
    if list(replicas) != present:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment, f"Partitions cannot be moved yet: keep replicas {present}."
        )


HANDLER = Handler(
    api_key=45,
    versions=(0, 1),
    handle=handle,
    lacks="Partitions cannot be moved yet: only the replicas that a partition has already are taken.",
)
