"""ConsumerGroupHeartbeat (key 68): checks of what does not depend on the group, then the state machine."""

from __future__ import annotations

from barnabas.coordinator import limits
from barnabas.coordinator.groups.consumer.core.heartbeat import (
    JOINS,
    handle_consumer_heartbeat,
    refused_heartbeat,
    spare_who_is_heard,
)
from barnabas.coordinator.groups.consumer.core.records import LEFT_FOR_A_WHILE, NO_EPOCH, NO_TIMEOUT
from barnabas.coordinator.groups.coordinator import GroupCoordinator
from barnabas.coordinator.groups.handlers import Handler, check_consumer_protocol
from barnabas.coordinator.runtime.core.record_strings import STRING_BYTES_MAX, fits_record
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.messages.coordinator_pb2 import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def _handle(
    coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    check_consumer_protocol(coordinator.config)
    _check_fields(request)
    _check_assignor(coordinator, request)
    _check_texts(request)
    runtime = coordinator.runtime_of(request.group_id)
    try:
        response: ConsumerGroupHeartbeatResponse = await runtime.submit(
            lambda shard, waiter, decision: handle_consumer_heartbeat(shard, request, waiter, decision)
        )
    except KafkaError as error:
        if error.code is ErrorCode.coordinator_load_in_progress:
            # Where it is served, too much waits for its log; and meanwhile sessions would run out.
            runtime.do(lambda shard, decision: spare_who_is_heard(shard, request, decision))
        raise
    return response


def _check_fields(request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for what does not go together; the order and the words are Kafka's."""
    has = request.HasField
    if request.member_epoch > JOINS or request.member_epoch == NO_EPOCH:
        _check(bool(request.member_id), "MemberId can't be empty.")
    _check(bool(request.group_id), "GroupId can't be empty.")
    _check(not has("instance_id") or bool(request.instance_id), "InstanceId can't be empty.")
    _check(not has("rack_id") or bool(request.rack_id), "RackId can't be empty.")
    if request.member_epoch == JOINS:
        _check(
            request.rebalance_timeout_ms != NO_TIMEOUT,
            "RebalanceTimeoutMs must be provided in first request.",
        )
        _check(
            has("topic_partitions") and not request.topic_partitions.topics,
            "TopicPartitions must be empty when (re-)joining.",
        )
        _check(
            has("subscribed_topic_names") or has("subscribed_topic_regex"),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif request.member_epoch == LEFT_FOR_A_WHILE:
        _check(has("instance_id"), "InstanceId can't be null.")
    else:
        _check(request.member_epoch > LEFT_FOR_A_WHILE, "MemberEpoch is invalid.")


def _check(is_well: bool, problem: str) -> None:
    if not is_well:
        raise KafkaError(ErrorCode.invalid_request, problem)


def _check_assignor(coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest) -> None:
    configured = coordinator.config.group_consumer_assignors
    if request.HasField("server_assignor") and request.server_assignor not in configured:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(configured)}.",
        )


def _check_texts(request: ConsumerGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for what the member's record could not have. A client's id has a shorter limit."""
    names = request.subscribed_topic_names.names
    texts = [
        request.group_id,
        request.member_id,
        request.instance_id,
        request.rack_id,
        request.subscribed_topic_regex,
        *names,
    ]
    _check(
        all(map(fits_record, texts)), f"Ids, names and regular expressions may have {STRING_BYTES_MAX} bytes."
    )
    _check(
        sum(map(len, texts)) <= limits.SUBSCRIPTION_CHARACTERS_MAX,
        f"A subscription may have {limits.SUBSCRIPTION_CHARACTERS_MAX} characters.",
    )


def _refuse(_: ConsumerGroupHeartbeatRequest, error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return refused_heartbeat(error)


CONSUMER_GROUP_HEARTBEAT = Handler("ConsumerGroupHeartbeat", _handle, _refuse)
