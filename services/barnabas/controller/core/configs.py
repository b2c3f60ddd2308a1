"""Settings of topics, brokers, groups and client metrics.

IncrementalAlterConfigs changes single ones, AlterConfigs replaces all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from barnabas.controller.core.cordons import CORDONED, check_cordons
from barnabas.controller.core.decision import Decision, failure
from barnabas.controller.core.min_in_sync import with_eligible_by_new_number
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.kernel.kafka_values import (
    APPEND_CONFIG,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    DELETE_CONFIG,
    GROUP_RESOURCE,
    SET_CONFIG,
    SUBTRACT_CONFIG,
    TOPIC_RESOURCE,
)
from barnabas.messages.controller_pb2 import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigOperation,
    ConfigResourceChange,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplacedConfig,
    ResourceResult,
)
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.broker_rules import check_broker_changes
from barnabas.metadata.broker_settings import broker_setting
from barnabas.metadata.client_metrics_settings import (
    client_metrics_setting,
    validate_client_metrics_settings,
)
from barnabas.metadata.config_def import ConfigDef, ConfigType, split_list
from barnabas.metadata.effective import effective_broker_setting
from barnabas.metadata.group_settings import group_setting, validate_group_settings
from barnabas.metadata.image import MetadataImage, config_key
from barnabas.metadata.topic_names import check_topic_name
from barnabas.metadata.topic_settings import topic_setting, validate_topic_settings
from barnabas.metadata.validators import ConfigValue


def alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest
) -> Decision[IncrementalAlterConfigsResponse]:
    """Decide on every resource by itself; all changes of one are made or none."""
    times = Counter((change.resource_type, change.resource_name) for change in request.resources)
    records: list[MetadataRecord] = []
    results = []
    for change in request.resources:
        try:
            if times[change.resource_type, change.resource_name] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request, "Each resource must appear at most once: merge its changes."
                )
            records += _alter(image, change)
            results.append(ResourceResult())
        except KafkaError as error:
            results.append(failure(error))
    stored = () if request.validate_only else with_eligible_by_new_number(image, records)
    return Decision(stored, IncrementalAlterConfigsResponse(results=results))


def _alter(image: MetadataImage, change: ConfigResourceChange) -> list[MetadataRecord]:
    _check_resource(image, change)
    _check_operations(change)
    resource = (change.resource_type, change.resource_name)
    before = dict(image.configs.get(resource, {}))
    after = dict(before)
    for operation in change.operations:
        # What nobody knows any more can still be deleted.
        value = (
            None
            if operation.operation == DELETE_CONFIG
            else _value_after(change.resource_type, after, operation)
        )
        if value is None:
            after.pop(operation.name, None)
        else:
            after[operation.name] = value
    return _stored(image, resource, before, after)


def replace_configs(image: MetadataImage, request: AlterConfigsRequest) -> Decision[AlterConfigsResponse]:
    """Decide on every resource by itself: it gets the settings named and no others, or stays as it is."""
    times = Counter((replaced.resource_type, replaced.resource_name) for replaced in request.resources)
    records: list[MetadataRecord] = []
    results = []
    for replaced in request.resources:
        try:
            if times[replaced.resource_type, replaced.resource_name] > 1:
                raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once.")
            records += _replace(image, replaced)
            results.append(ResourceResult())
        except KafkaError as error:
            results.append(failure(error))
    stored = () if request.validate_only else with_eligible_by_new_number(image, records)
    return Decision(stored, AlterConfigsResponse(results=results))


def _replace(image: MetadataImage, replaced: ReplacedConfig) -> list[MetadataRecord]:
    names = [config.name for config in replaced.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [config.name for config in replaced.configs if not config.HasField("value")]
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    _check_resource(image, replaced)
    resource = (replaced.resource_type, replaced.resource_name)
    before = dict(image.configs.get(resource, {}))
    after = {config.name: config.value for config in replaced.configs}
    return _stored(image, resource, before, after)


def _stored(
    image: MetadataImage, resource: tuple[int, str], before: dict[str, str], after: dict[str, str]
) -> list[MetadataRecord]:
    """The record that makes `after` of `before`, once it is found valid."""
    resource_type, resource_name = resource
    if resource_type == TOPIC_RESOURCE:
        validate_topic_settings(after)
    elif resource_type == GROUP_RESOURCE:
        validate_group_settings(after, lambda name: effective_broker_setting(image, name).value)
    elif resource_type == CLIENT_METRICS_RESOURCE:
        validate_client_metrics_settings(after)
    else:
        check_broker_changes(after, resource_name, _current_values(image, resource_name, after))
        if resource_name and after.get(CORDONED, "") != before.get(CORDONED, ""):
            check_cordons(image.nodes[int(resource_name)], after.get(CORDONED, ""))
    if after == before:
        return []
    key = config_key(*resource)
    return [MetadataRecord(key=key, config=ConfigRecord(values=after)) if after else MetadataRecord(key=key)]


def _current_values(image: MetadataImage, broker: str, names: Iterable[str]) -> dict[str, ConfigValue]:
    """What a broker, or without one the cluster, has for these settings now."""
    node_id = int(broker) if broker else None
    return {name: effective_broker_setting(image, name, node_id=node_id).value for name in names}


def _check_resource(image: MetadataImage, change: ConfigResourceChange | ReplacedConfig) -> None:
    name = change.resource_name
    if change.resource_type == TOPIC_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Default topic resources are not allowed.")
        check_topic_name(name)
        if name not in image.topics:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"The topic '{name}' does not exist.")
    elif change.resource_type == BROKER_RESOURCE:
        _check_broker(image, name)
    elif change.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Default group resources are not allowed.")
    elif change.resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.invalid_request, "Subscription name can't be empty")
    elif change.resource_type == BROKER_LOGGER_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_request,
            "Log levels cannot be changed while services run: set log.level in their configuration and restart.",
        )
    else:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unknown resource type {change.resource_type}: topics (2), brokers (4), client metrics (16) and "
            "groups (32) can be configured.",
        )


def _check_broker(image: MetadataImage, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit() and name == str(int(name))):
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unable to parse broker name '{name}' as a base 10 number: use the broker id.",
        )
    if int(name) not in image.nodes:
        known = ", ".join(str(node_id) for node_id in sorted(image.nodes))
        raise KafkaError(ErrorCode.invalid_request, f"Unexpected broker id {name}: expected one of {known}.")


def _check_operations(change: ConfigResourceChange) -> None:
    names = [operation.name for operation in change.operations]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    operations = (SET_CONFIG, DELETE_CONFIG, APPEND_CONFIG, SUBTRACT_CONFIG)
    unknown = [str(op.operation) for op in change.operations if op.operation not in operations]
    if unknown:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {', '.join(unknown)}")
    nulls = [
        op.name for op in change.operations if op.operation != DELETE_CONFIG and not op.HasField("value")
    ]
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {','.join(nulls)}")


def _definition(resource_type: int, name: str) -> ConfigDef:
    if resource_type == TOPIC_RESOURCE:
        return topic_setting(name)
    if resource_type == GROUP_RESOURCE:
        return group_setting(name)
    if resource_type == CLIENT_METRICS_RESOURCE:
        return client_metrics_setting(name)
    return broker_setting(name)


def _value_after(resource_type: int, values: dict[str, str], operation: ConfigOperation) -> str:
    """The text that the operation makes of the setting in `values`."""
    definition = _definition(resource_type, operation.name)
    if operation.operation == SET_CONFIG:
        return operation.value
    verb = "append" if operation.operation == APPEND_CONFIG else "subtract"
    # Kafka takes the lists of client metrics for texts here.
    if definition.type is not ConfigType.LIST or resource_type == CLIENT_METRICS_RESOURCE:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Config value {verb} is not allowed for config key: {operation.name}, because it is not a list.",
        )
    before = values.get(operation.name)
    entries = list(split_list(before if before is not None else definition.default or ""))
    for entry in split_list(operation.value):
        if operation.operation == APPEND_CONFIG and entry not in entries:
            entries.append(entry)
        elif operation.operation == SUBTRACT_CONFIG and entry in entries:
            entries.remove(entry)
    return ",".join(entries)
