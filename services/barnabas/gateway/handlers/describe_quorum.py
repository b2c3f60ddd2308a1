"""DescribeQuorum (key 55): who keeps the metadata, and how far each copy of it is (KIP-595).

v1 adds the times at which a copy last fetched and was last caught up (KIP-836), v2 error messages and the addresses
of the controllers (KIP-853). The one partition that can be asked for is partition 0 of __cluster_metadata, which is
the metadata store: its revision is the offset, its controllers the voters, the storage nodes the observers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.gateway.inside.controller_calls import call_controller
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.controller_pb2 import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica

METADATA_TOPIC: Final = "__cluster_metadata"
_LISTENER: Final = "CONTROLLER"


async def handle(request: Request) -> Answer:
    topics = request.body.topics
    if not _asks_for_metadata(topics):
        return {
            "error_code": ErrorCode.none,
            "error_message": "",
            "topics": [_unknown(topic) for topic in topics],
        }
    response = await call_controller(
        request.parts,
        lambda controller, seconds: controller.DescribeQuorum(DescribeQuorumRequest(), timeout=seconds),
    )
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "topics": [{"topic_name": METADATA_TOPIC, "partitions": [_partition(response)]}],
        "nodes": [
            {"node_id": voter.replica_id, "listeners": _listeners(voter.address)} for voter in response.voters
        ],
    }


def _asks_for_metadata(topics: Sequence[Any]) -> bool:
    """Whether the request is for the one partition and nothing else; any other is refused whole, as in Kafka."""
    asked = [
        (topic.topic_name, partition.partition_index) for topic in topics for partition in topic.partitions
    ]
    return asked == [(METADATA_TOPIC, 0)] and len(topics) == 1


def _unknown(topic: Any) -> dict[str, Any]:
    code = ErrorCode.unknown_topic_or_partition
    message = f"Only partition 0 of {METADATA_TOPIC} can be described, alone."
    return {
        "topic_name": topic.topic_name,
        "partitions": [
            {"partition_index": partition.partition_index, "error_code": code, "error_message": message}
            for partition in topic.partitions
        ],
    }


def _partition(response: DescribeQuorumResponse) -> dict[str, Any]:
    return {
        "partition_index": 0,
        "error_code": ErrorCode.none,
        "error_message": "",
        "leader_id": response.leader_id,
        "leader_epoch": response.leader_epoch,
        "high_watermark": response.high_watermark,
        "current_voters": [_replica(voter) for voter in response.voters],
        "observers": [_replica(observer) for observer in response.observers],
    }


def _replica(replica: QuorumReplica) -> dict[str, Any]:
    return {
        "replica_id": replica.replica_id,
        "log_end_offset": replica.log_end_offset,
        "last_fetch_timestamp": replica.last_fetch_timestamp_ms,
        "last_caught_up_timestamp": replica.last_caught_up_timestamp_ms,
    }


def _listeners(address: str) -> list[dict[str, Any]]:
    """The controller's gRPC address; none when it is a unix socket, which has no host and port."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or not host or not port.isdigit():
        return []
    return [{"name": _LISTENER, "host": host.strip("[]"), "port": int(port)}]


HANDLER = Handler(
    api_key=55,
    versions=(0, 2),
    handle=handle,
    lacks="The addresses are those of the controllers' gRPC servers, which speak no Kafka protocol.",
)
