"""JoinGroup (key 11): checks of what does not depend on the group, then the state machine."""

from __future__ import annotations

from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.core.answers import join_error
from barnabas.coordinator.groups.core.join import handle_join
from barnabas.coordinator.groups.handlers import check_group_id
from barnabas.coordinator.runtime.core.record_strings import STRING_BYTES_MAX, fits_record
from barnabas.coordinator.runtime.handler import Submission, submitting
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import JoinGroupRequest, JoinGroupResponse


def _submission(coordinator: GroupCoordinator, request: JoinGroupRequest) -> Submission:
    check_group_id(request.group_id)
    config = coordinator.config
    shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        raise KafkaError(
            ErrorCode.invalid_session_timeout, f"session.timeout.ms must be between {shortest} and {longest}"
        )
    _check_texts(request)
    return Submission(
        coordinator.runtime_of(request.group_id),
        lambda shard, waiter, decision: handle_join(shard, request, waiter, decision),
    )


def _check_texts(request: JoinGroupRequest) -> None:
    """Raise INVALID_REQUEST for what the group's record could not have. A client's id has a shorter limit."""
    names = [protocol.name for protocol in request.protocols]
    texts = (request.member_id, request.group_instance_id, request.protocol_type, *names)
    if not all(map(fits_record, texts)):
        raise KafkaError(
            ErrorCode.invalid_request,
            "the member's id, group.instance.id, protocol type and protocol names may have "
            f"{STRING_BYTES_MAX} bytes each",
        )


def _refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return join_error(error.code, request.member_id)


JOIN_GROUP = submitting("JoinGroup", _submission, _refuse)
