"""ElectLeaders (key 43): the preferred, or any live, replica shall lead; one result per partition.

v0 is about preferred leaders only, v1 adds the election type (KIP-460), v2 is flexible. With one replica each, that
replica leads whenever its node lives: an election is not needed, or there is nobody to elect. So the answer is in the
metadata, and nothing changes.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.gateway.request import Answer, Handler, Request
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.image import NO_LEADER, MetadataImage

_PREFERRED: Final = 0
_UNCLEAN: Final = 1

_MESSAGES: Final = {
    ErrorCode.election_not_needed: "Leader election not needed for topic partition.",
    ErrorCode.preferred_leader_not_available: "The preferred leader was not available.",
    ErrorCode.eligible_leaders_not_available: "Eligible topic partition leaders are not available.",
}


async def handle(request: Request) -> Answer:
    election_type: int = request.get("election_type", _PREFERRED)
    image, wanted = request.image, request.body.topic_partitions
    if election_type not in (_PREFERRED, _UNCLEAN) and wanted != ():
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {election_type}: use 0 or 1.")
    if wanted is None:
        # All partitions: those that are led as they should be are left out of the answer, as in Kafka.
        topics = [
            _topic(image, topic.name, range(len(topic.partitions)), election_type, told_if_led=False)
            for _, topic in sorted(image.topics.items())
        ]
    else:
        topics = [_topic(image, topic.topic, topic.partitions, election_type) for topic in wanted]
    return {"error_code": ErrorCode.none, "replica_election_results": topics}


def _topic(
    image: MetadataImage,
    name: str,
    partitions: range | tuple[int, ...],
    election_type: int,
    *,
    told_if_led: bool = True,
) -> dict[str, Any]:
    results = []
    for partition in partitions:
        code, message = _elect(image, name, partition, election_type)
        if told_if_led or code is not ErrorCode.election_not_needed:
            results.append({"partition_id": partition, "error_code": code, "error_message": message})
    return {"topic": name, "partition_result": results}


def _elect(image: MetadataImage, name: str, partition: int, election_type: int) -> tuple[ErrorCode, str]:
    topic = image.topics.get(name)
    if topic is None:
        return ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    if not 0 <= partition < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{partition}"
    if topic.partitions[partition].leader != NO_LEADER:
        code = ErrorCode.election_not_needed
    elif election_type == _PREFERRED:
        code = ErrorCode.preferred_leader_not_available
    else:
        code = ErrorCode.eligible_leaders_not_available
    return code, _MESSAGES[code]


HANDLER = Handler(
    api_key=43,
    versions=(0, 2),
    handle=handle,
    lacks="With one replica each there is never another leader to elect.",
)
