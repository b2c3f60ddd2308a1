"""The handler table: every Kafka API that the gateway serves. Dispatch, version checks, ApiVersions and
docs/compatibility.md all read it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.gateway.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    sync_group,
    unregister_broker,
    update_features,
)
from barnabas.gateway.request import Handler

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    describe_configs,
    alter_configs,
    alter_replica_log_dirs,
    describe_log_dirs,
    create_partitions,
    delete_groups,
    elect_leaders,
    incremental_alter_configs,
    alter_partition_reassignments,
    list_partition_reassignments,
    offset_delete,
    describe_client_quotas,
    alter_client_quotas,
    describe_user_scram_credentials,
    describe_quorum,
    update_features,
    describe_cluster,
    unregister_broker,
    describe_producers,
    get_telemetry_subscriptions,
    push_telemetry,
    list_config_resources,
    describe_topic_partitions,
)

HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {module.HANDLER.api_key: module.HANDLER for module in _MODULES}
)

WAITING_KEYS: Final = frozenset(key.to_bytes(2) for key, handler in HANDLERS.items() if handler.may_wait)
"""API keys, as frames begin with them, of the requests that a gateway does not wait for when it stops."""
