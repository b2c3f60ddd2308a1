"""OffsetCommit (key 8): a group's progress.

v2 to v4 name a retention time, v6 adds leader epochs (KIP-320), v7 static members (KIP-345), v9 may answer for the
newer group protocol, v10 names topics by id. Partitions that do not exist are refused here, the
others go to the coordinator.
"""

from __future__ import annotations

from typing import Final

from barnabas.gateway import limits
from barnabas.gateway.commits import Commits, codes_of
from barnabas.gateway.inside.owners import GROUPS
from barnabas.gateway.request import Answer, Handler, Request, milliseconds
from barnabas.kernel.errors import ErrorCode
from barnabas.messages.coordinator_pb2 import OffsetCommitRequest, OffsetCommitResponse
from barnabas.metadata.leaders import NOBODY_COORDINATES

_NOT_FOUND_FROM: Final = 9
_TOPIC_ID_FROM: Final = 10


async def handle(request: Request) -> Answer:
    body = request.body
    retention = request.get("retention_time", None)
    commits = Commits(request.image, body.topics, by_id=request.version >= _TOPIC_ID_FROM)
    response = OffsetCommitResponse()
    if commits.existing:
        message = OffsetCommitRequest(
            group_id=body.group_id,
            generation_id=body.generation_id_or_member_epoch,
            member_id=body.member_id,
            group_instance_id=request.get("group_instance_id", None),
            retention_time_ms=-1 if retention is None else milliseconds(retention),
            topics=commits.existing,
            knows_member_epochs=request.version >= _NOT_FOUND_FROM,
        )
        response = await GROUPS.ask(
            request,
            body.group_id,
            lambda coordinator: coordinator.OffsetCommit(message, timeout=limits.CALL_TIMEOUT_SECONDS),
            commits.refused,
            may_repeat=True,
        )
    return {"topics": commits.rows([_known_code(request, code) for code in codes_of(response)])}


def _known_code(request: Request, code: int) -> int:
    """A member of a group that does not exist belongs to no generation, as older clients know it."""
    if code == ErrorCode.group_id_not_found and request.version < _NOT_FOUND_FROM:
        return ErrorCode.illegal_generation
    return code


HANDLER = Handler(
    api_key=8,
    versions=(2, 10),
    handle=handle,
    unanswered=NOBODY_COORDINATES,
)
