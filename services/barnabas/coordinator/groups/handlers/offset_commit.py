"""OffsetCommit (key 8). The empty group id is allowed, as Kafka does for old clients."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.commit import commit_response, handle_commit
from barnabas.coordinator.groups.handlers import Handler, check_group_id_fits
from barnabas.kernel.errors import KafkaError
from barnabas.messages.coordinator_pb2 import OffsetCommitRequest, OffsetCommitResponse


async def _handle(coordinator: GroupCoordinator, request: OffsetCommitRequest) -> OffsetCommitResponse:
    check_group_id_fits(request.group_id)
    runtime = coordinator.runtime_of(request.group_id)
    response: OffsetCommitResponse = await runtime.submit(
        lambda shard, waiter, decision: handle_commit(shard, request, waiter, decision)
    )
    return response


def _refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return commit_response(request, lambda *_: error.code)


OFFSET_COMMIT = Handler("OffsetCommit", _handle, _refuse)
