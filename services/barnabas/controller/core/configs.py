"""Settings of topics and brokers: IncrementalAlterConfigs changes single ones, AlterConfigs replaces all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from barnabas.controller.core.decision import Decision, failure
from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_settings import BROKER_SETTINGS, validate_broker_change
from barnabas.metadata.config_def import ConfigDef, ConfigType, split_list
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, config_key
from barnabas.metadata.topic_names import check_topic_name
from barnabas.metadata.topic_settings import TOPIC_SETTINGS, topic_setting, validate_topic_settings
from barnabas.rpc.v1.controller_pb2 import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigOperation,
    ConfigResourceChange,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplacedConfig,
    ResourceResult,
)
from barnabas.rpc.v1.metadata_pb2 import ConfigRecord, MetadataRecord

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


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
    stored = () if request.validate_only else tuple(records)
    return Decision(stored, IncrementalAlterConfigsResponse(results=results))


def _alter(image: MetadataImage, change: ConfigResourceChange) -> list[MetadataRecord]:
    _check_resource(image, change)
    _check_operations(change)
    resource = (change.resource_type, change.resource_name)
    before = dict(image.configs.get(resource, {}))
    after = dict(before)
    for operation in change.operations:
        definition = _definition(change.resource_type, operation)
        value = _value_after(definition, after.get(operation.name), operation)
        if value is None:
            after.pop(operation.name, None)
        else:
            after[operation.name] = value
    return _stored(resource, before, after, (operation.name for operation in change.operations))


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
    stored = () if request.validate_only else tuple(records)
    return Decision(stored, AlterConfigsResponse(results=results))


def _replace(image: MetadataImage, replaced: ReplacedConfig) -> list[MetadataRecord]:
    names = [config.name for config in replaced.configs]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    nulls = [config.name for config in replaced.configs if not config.HasField("value")]
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    _check_resource(image, replaced)
    if replaced.resource_type == TOPIC_RESOURCE:
        for name in names:
            topic_setting(name)
    resource = (replaced.resource_type, replaced.resource_name)
    before = dict(image.configs.get(resource, {}))
    after = {config.name: config.value for config in replaced.configs}
    return _stored(resource, before, after, names)


def _stored(
    resource: tuple[int, str], before: dict[str, str], after: dict[str, str], changed: Iterable[str]
) -> list[MetadataRecord]:
    """The record that makes `after` of `before`, once it is found valid; `changed` names what the request names."""
    resource_type, resource_name = resource
    if resource_type == TOPIC_RESOURCE:
        validate_topic_settings(after)
    else:
        for name in changed:
            validate_broker_change(name, after.get(name), resource_name)
    if after == before:
        return []
    key = config_key(*resource)
    return [MetadataRecord(key=key, config=ConfigRecord(values=after)) if after else MetadataRecord(key=key)]


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
    else:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unknown resource type {change.resource_type}: topics (2) and brokers (4) can be configured.",
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
        raise KafkaError(ErrorCode.broker_id_not_registered, f"No broker with id {name} found.")


def _check_operations(change: ConfigResourceChange) -> None:
    names = [operation.name for operation in change.operations]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.invalid_request, "Error due to duplicate config keys")
    unknown = [
        str(op.operation) for op in change.operations if op.operation not in (SET, DELETE, APPEND, SUBTRACT)
    ]
    if unknown:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown operations type {', '.join(unknown)}")
    nulls = [op.name for op in change.operations if op.operation != DELETE and not op.HasField("value")]
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {','.join(nulls)}")


def _definition(resource_type: int, operation: ConfigOperation) -> ConfigDef | None:
    """The setting; None for an unknown one that is only to be deleted."""
    table = TOPIC_SETTINGS if resource_type == TOPIC_RESOURCE else BROKER_SETTINGS
    definition = table.get(operation.name)
    if definition is None and operation.operation != DELETE:
        if resource_type == TOPIC_RESOURCE:
            return topic_setting(operation.name)
        raise KafkaError(ErrorCode.invalid_config, f"Unknown broker config name: {operation.name}")
    return definition


def _value_after(definition: ConfigDef | None, before: str | None, operation: ConfigOperation) -> str | None:
    if operation.operation == DELETE or definition is None:
        return None
    if operation.operation == SET:
        return operation.value
    verb = "append" if operation.operation == APPEND else "subtract"
    if definition.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Config value {verb} is not allowed for config key: {operation.name}, because it is not a list.",
        )
    entries = list(split_list(before if before is not None else definition.default or ""))
    for entry in split_list(operation.value):
        if operation.operation == APPEND and entry not in entries:
            entries.append(entry)
        elif operation.operation == SUBTRACT and entry in entries:
            entries.remove(entry)
    return ",".join(entries)
