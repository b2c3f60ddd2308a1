"""The requests that librdkafka does not offer, one function each, over `PlainConnection`.

Every request is sent in a version that Kafka has served since 3.x. Error codes become Refused with Kafka's name.
"""

from __future__ import annotations

import datetime
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection
from barnabas.cli.kafka.plain_connection import PlainConnection, open_bootstrap, request_schema
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import EARLIEST_PENDING_UPLOAD

LIST_OFFSETS, FIND_COORDINATOR, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS = 2, 10, 32, 35
INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_QUORUM = 44, 47, 55
API_VERSIONS, DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 18, 48, 49
LIST_CONFIG_RESOURCES = 74
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 43, 45, 46
DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 60, 75
UPDATE_FEATURES, UNREGISTER_BROKER = 57, 64
ALTER_REPLICA_LOG_DIRS = 34
INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 22, 27
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

LOG_DIRS_VERSION: Final = 5
"""Of DescribeLogDirs: the first that says which directories are cordoned (KIP-1066)."""

ANSWER_TIME: Final = datetime.timedelta(seconds=ANSWER_SECONDS_MAX)
METADATA_TOPIC = "__cluster_metadata"


def describe_log_dirs(connection: Connection, host: str, port: int) -> Any:
    """Every log directory of the broker at this address."""
    with PlainConnection(connection, host, port) as broker:
        highest = broker.versions().get(DESCRIBE_LOG_DIRS, (0, LOG_DIRS_VERSION))[1]
        answer = broker.ask(request_schema(DESCRIBE_LOG_DIRS, min(highest, LOG_DIRS_VERSION))(topics=None))
    check(answer.error_code, f"cannot describe the log directories of {host}:{port}")
    return answer.results


def api_versions(connection: Connection, host: str, port: int) -> Any:
    """What a broker serves, with its supported and finalized features."""
    schema = request_schema(API_VERSIONS, 4)
    with PlainConnection(connection, host, port) as broker:
        answer = broker.ask(schema(client_software_name="barnabas", client_software_version="1"))
    check(answer.error_code, f"cannot ask {host}:{port} for its versions")
    return answer


def describe_quorum(connection: Connection) -> tuple[Any, Sequence[Any]]:
    """(state of the metadata quorum, its nodes)."""
    schema = request_schema(DESCRIBE_QUORUM, 2)
    topic = nested(schema, "topics")
    part = nested(topic, "partitions")
    with open_bootstrap(connection) as broker:
        answer = broker.ask(
            schema(topics=(topic(topic_name=METADATA_TOPIC, partitions=(part(partition_index=0),)),))
        )
    check(answer.error_code, "cannot describe the quorum", answer.error_message)
    state = answer.topics[0].partitions[0]
    check(state.error_code, "cannot describe the quorum", state.error_message)
    return state, answer.nodes


def update_features(
    connection: Connection, levels: Mapping[str, int], upgrade_type: int, *, is_dry_run: bool
) -> None:
    """Finalize features at these levels; `upgrade_type` is 1 to go up, 2 to go down safely, 3 unsafely (KIP-584)."""
    schema = request_schema(UPDATE_FEATURES, 1)
    update = nested(schema, "feature_updates")
    updates = tuple(
        update(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        for name, level in levels.items()
    )
    with open_bootstrap(connection) as broker:
        answer = broker.ask(schema(timeout=ANSWER_TIME, feature_updates=updates, validate_only=is_dry_run))
    for result in answer.results:
        check(result.error_code, f"cannot change the feature {result.feature}", result.error_message)
    check(answer.error_code, "cannot change the features", answer.error_message)


def unregister_broker(connection: Connection, broker_id: int) -> None:
    """Make the cluster forget a broker that has gone for good."""
    with open_bootstrap(connection) as broker:
        answer = broker.ask(request_schema(UNREGISTER_BROKER, 0)(broker_id=broker_id))
    check(answer.error_code, f"cannot unregister broker {broker_id}", answer.error_message)


def describe_configs(connection: Connection, resource_type: int, name: str) -> Sequence[Any]:
    """The configs of one resource, with synonyms."""
    schema = request_schema(DESCRIBE_CONFIGS, 4)
    resource = nested(schema, "resources")
    wanted = resource(resource_type=resource_type, resource_name=name, configuration_keys=None)
    with open_bootstrap(connection) as broker:
        answer = broker.ask(schema(resources=(wanted,), include_synonyms=True, include_documentation=False))
    (result,) = answer.results
    check(
        result.error_code,
        f"cannot describe the configs of {name or 'the brokers (defaults)'}",
        result.error_message,
    )
    return tuple(result.configs)


def alter_configs(
    connection: Connection,
    resource_type: int,
    name: str,
    operations: Sequence[tuple[str, int, str | None]],
    *,
    is_dry_run: bool,
) -> None:
    """(config, operation, value) with operation 0 to set and 1 to delete."""
    schema = request_schema(INCREMENTAL_ALTER_CONFIGS, 1)
    resource = nested(schema, "resources")
    entry = nested(resource, "configs")
    entries = tuple(entry(name=key, config_operation=kind, value=value) for key, kind, value in operations)
    changed = resource(resource_type=resource_type, resource_name=name, configs=entries)
    with open_bootstrap(connection) as broker:
        answer = broker.ask(schema(resources=(changed,), validate_only=is_dry_run))
    for result in answer.responses:
        check(
            result.error_code,
            f"cannot alter the configs of {name or 'the brokers (defaults)'}",
            result.error_message,
        )


def list_config_resources(connection: Connection, resource_type: int) -> list[str]:
    """Names of the resources of a kind that have configs of their own (KIP-1142)."""
    with open_bootstrap(connection) as broker:
        answer = broker.ask(request_schema(LIST_CONFIG_RESOURCES, 1)(resource_types=(resource_type,)))
    check(answer.error_code, "cannot list the config resources")
    return sorted(resource.resource_name for resource in answer.config_resources)


def delete_group_offsets(
    connection: Connection, group: str, partitions: Mapping[str, Sequence[int]]
) -> dict[tuple[str, int], int]:
    """Forget what `group` committed for these partitions; (topic, partition) to error code."""
    schema = request_schema(OFFSET_DELETE, 0)
    topic = nested(schema, "topics")
    part = nested(topic, "partitions")
    topics = tuple(
        topic(name=name, partitions=tuple(part(partition_index=number) for number in numbers))
        for name, numbers in partitions.items()
    )
    host, port = _coordinator(connection, group)
    with PlainConnection(connection, host, port) as broker:
        answer = broker.ask(schema(group_id=group, topics=topics))
    if answer.error_code == ErrorCode.group_id_not_found:
        raise Refused(f"no group {group}: `barnabas groups --list` shows what there is; nothing was deleted")
    check(answer.error_code, f"cannot delete offsets of group {group}")
    return {
        (found.name, found_part.partition_index): int(found_part.error_code)
        for found in answer.topics
        for found_part in found.partitions
    }


def list_offsets(
    connection: Connection, leader: tuple[str, int], partitions: Mapping[str, Sequence[int]], timestamp: int
) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) to (offset, error code) for one of Kafka's special timestamps, -4 and below."""
    is_new = timestamp == EARLIEST_PENDING_UPLOAD
    schema = request_schema(LIST_OFFSETS, 11 if is_new else 9)
    topic = nested(schema, "topics")
    part = nested(topic, "partitions")
    topics = tuple(
        topic(name=name, partitions=tuple(part(partition_index=at, timestamp=timestamp) for at in numbers))
        for name, numbers in partitions.items()
    )
    more = {"timeout": ANSWER_TIME} if is_new else {}
    with PlainConnection(connection, *leader) as broker:
        answer = broker.ask(schema(replica_id=-1, isolation_level=0, topics=topics, **more))
    return {
        (found.name, found_part.partition_index): (found_part.offset, int(found_part.error_code))
        for found in answer.topics
        for found_part in found.partitions
    }


def check(code: Any, what: str, message: str | None = None) -> None:
    """Raise Refused unless `code` is 0."""
    if code != 0:
        name = ErrorCode(int(code)).name.upper()
        raise Refused(f"{what}: {message} ({name})" if message else f"{what}: {name}")


def _coordinator(connection: Connection, group: str) -> tuple[str, int]:
    schema = request_schema(FIND_COORDINATOR, 4)
    with open_bootstrap(connection) as broker:
        answer = broker.ask(schema(key_type=0, coordinator_keys=(group,)))
    (found,) = answer.coordinators
    check(found.error_code, f"cannot find the coordinator of group {group}", found.error_message)
    return found.host, found.port


def nested(schema: Any, field: str) -> Any:
    """The dataclass of the elements of an array field."""
    hint = typing.get_type_hints(schema)[field]
    for option in (hint, *typing.get_args(hint)):
        if typing.get_origin(option) is tuple:
            return typing.get_args(option)[0]
    raise AssertionError(f"{schema.__name__}.{field} is no array")
