"""ElectLeaders (key 43): the preferred, or any live, replica shall lead; one result per partition.

v0 is about preferred leaders only, v1 adds the election type (KIP-460), v2 is flexible. The answer comes when this
gateway knows the new leaders.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway.inside.controller_calls import (
    call_controller,
    controller_timeout_seconds,
    wait_for_image,
)
from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.controller_pb2 import ElectedTopic, ElectLeadersRequest, ElectLeadersResponse
from barnabas.metadata.image import MetadataImage

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def handle(request: Request) -> Answer:
    election_type: int = request.get("election_type", _PREFERRED)
    before, wanted = request.image, request.body.topic_partitions
    if wanted == ():
        return {"error_code": ErrorCode.none, "replica_election_results": ()}
    if election_type not in (_PREFERRED, _UNCLEAN):
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {election_type}: use 0 or 1.")
    message = ElectLeadersRequest(
        election_type=election_type,
        all_partitions=wanted is None,
        topics=[ElectedTopic(name=topic.topic, partitions=topic.partitions) for topic in wanted or ()],
    )
    response = await call_controller(
        request.parts,
        lambda controller, seconds: controller.ElectLeaders(message, timeout=seconds),
        controller_timeout_seconds(request),
    )
    await wait_for_image(request, lambda image: _are_elected(image, before, response))
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [
            {
                "topic": topic.name,
                "partition_result": [
                    {
                        "partition_id": row.partition,
                        "error_code": row.result.error_code,
                        "error_message": row.result.error_message or None,
                    }
                    for row in topic.partitions
                ],
            }
            for topic in response.topics
        ],
    }


def _are_elected(image: MetadataImage, before: MetadataImage, response: ElectLeadersResponse) -> bool:
    """Whether all that were elected have a newer leader epoch than before; what is gone meanwhile does not count."""
    for topic in response.topics:
        old, new = before.topics.get(topic.name), image.topics.get(topic.name)
        if old is None or new is None or old.topic_id != new.topic_id:
            continue
        for row in topic.partitions:
            if row.result.error_code or row.partition >= len(old.partitions):
                continue
            if new.partitions[row.partition].leader_epoch == old.partitions[row.partition].leader_epoch:
                return False
    return True


HANDLER = Handler(api_key=43, versions=(0, 2), handle=handle)
