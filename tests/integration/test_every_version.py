"""ApiVersions advertises exactly the truth: each API in each version answers a request that means something."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from raw_client import API_VERSIONS, CREATE_TOPICS, FETCH, PRODUCE, RawConnection, Topic
from raw_transactions import IN_TRANSACTION, body_in_transaction

from barnabas.gateway.handlers.table import HANDLERS
from barnabas.metadata.features import METADATA_VERSION, RELEASE_METADATA_VERSION
from barnabas.records.record import encode_batch
from barnabas.wire.schema import api_name

pytestmark = pytest.mark.integration

VERSIONS = [
    (key, version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions[0], handler.versions[1] + 1)
]
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
ALTER_REPLICA_LOG_DIRS, DELETE_GROUPS = 34, 42
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, UNREGISTER_BROKER = 29, 30, 31, 64
BROKER_ID_NOT_REGISTERED, SECURITY_DISABLED = 102, 54
EXPECTED = {
    **dict.fromkeys((DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS), SECURITY_DISABLED),
    UNREGISTER_BROKER: BROKER_ID_NOT_REGISTERED,
}
"""What is answered where nothing is asked for that is there."""
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69

each_version = pytest.mark.parametrize(
    ("api_key", "version"), VERSIONS, ids=[f"{api_name(key)}-{version}" for key, version in VERSIONS]
)


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    """A topic, and the group `described` that has committed to it: the offsets topic is there by then."""
    made = Topic(cluster.port, partitions=2)
    with RawConnection(cluster.port) as connection:
        ask_until_ready(connection, 10, 4, {"key_type": 0, "coordinator_keys": ["described"]})
        commit = {**body_of(8, 9, made), "group_id": "described"}
        assert set(errors_of(ask_until_ready(connection, 8, 9, commit))) == {0}
    return made


@pytest.fixture
def connection(cluster: Any) -> Iterator[RawConnection]:
    with RawConnection(cluster.port) as opened:
        yield opened


def body_of(api_key: int, version: int, topic: Topic) -> Mapping[str, Any]:
    """The least request that asks for something that is there."""
    fresh, group = f"fresh-{uuid.uuid4()}", f"group-{api_key}-{version}"
    name, topic_id = topic.name, topic.topic_id
    new = {"name": fresh, "num_partitions": 1, "replication_factor": 1}
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}
    commit = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
    commit |= {"commit_timestamp": -1, "committed_metadata": "m"}
    wanted = {"name": name, "topic_id": topic_id, "partition_indexes": [0]}
    looked_up = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2, "max_num_offsets": 1}
    epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    bodies: dict[int, dict[str, Any]] = {
        0: topic.produce_body({0: encode_batch([(1, b"k", b"v", ())])}),
        1: topic.fetch_body({0: 0}),
        2: {
            "replica_id": -1,
            "timeout": 10_000,
            "topics": [{"name": name, "topic_id": topic_id, "partitions": [looked_up]}],
        },
        3: {"topics": [{"name": name, "topic_id": None}]},
        8: {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "generation_id": -1,
            "topics": [{"name": name, "topic_id": topic_id, "partitions": [commit]}],
        },
        9: {
            "group_id": group,
            "topics": [wanted],
            "groups": [{"group_id": group, "member_epoch": -1, "topics": [wanted]}],
        },
        10: {"key": group, "key_type": 0, "coordinator_keys": [group]},
        15: {"groups": ["described"]},
        16: {},
        18: SOFTWARE,
        19: {"topics": [new], "timeout": 10_000},
        20: {"timeout": 10_000},  # filled in by the test
        22: {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1},
        23: {"replica_id": -1, "topics": [{"topic": name, "partitions": [epoch]}]},
        32: {"resources": [resource], "include_synonyms": True, "include_documentation": True},
        37: {"topics": [{"name": name, "count": 50}], "timeout": 10_000, "validate_only": True},
        44: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "9999"}],
                }
            ]
        },
        60: {"endpoint_type": 1},
        75: {"topics": [{"name": name}], "response_partition_limit": 10},
    }
    return bodies[api_key] if api_key in bodies else administration_of(api_key, version, name)


def administration_of(api_key: int, version: int, name: str) -> Mapping[str, Any]:
    """The same for what administrators ask about the topic `name`."""
    bodies: dict[int, dict[str, Any]] = {
        21: {
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 10_000,
        },
        33: {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": name,
                    "configs": [{"name": "retention.ms", "value": "8888"}],
                }
            ]
        },
        34: {"dirs": [{"path": "", "topics": [{"name": name, "partitions": [0]}]}]},  # filled in by the test
        35: {"topics": [{"topic": name, "partitions": [0, 1]}]},
        42: {"groups_names": [f"group-{api_key}-{version}"]},
        43: {"timeout": 10_000, "topic_partitions": None},
        45: {
            "timeout": 10_000,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        },
        46: {"timeout": 10_000, "topics": None},
        47: {"group_id": "described", "topics": [{"name": name, "partitions": [{"partition_index": 1}]}]},
        61: {"topics": [{"name": name, "partition_indexes": [0]}]},
        CONSUMER_GROUP_HEARTBEAT: first_heartbeat(f"group-{api_key}-{version}", name),
        CONSUMER_GROUP_DESCRIBE: {"group_ids": [f"group-{CONSUMER_GROUP_HEARTBEAT}-{version}"]},
        74: {},
    }
    return bodies[api_key] if api_key in bodies else cluster_administration_of(api_key, version)


def first_heartbeat(group: str, topic: str) -> dict[str, Any]:
    """A member comes into a group of the newer protocol."""
    return {
        "group_id": group,
        "member_id": "a-member",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }


def cluster_administration_of(api_key: int, version: int) -> Mapping[str, Any]:
    """The same for what administrators ask about the cluster, and for what clients say of themselves."""
    entity = [{"entity_type": "user", "entity_name": f"user-{version}"}]
    reader = {"principal": "User:reader", "host": "*", "operation": 3, "permission_type": 3}
    any_acl = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    any_acl |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    rate = {"key": "producer_byte_rate", "value": 1024.0, "remove": False}
    level = {"feature": METADATA_VERSION, "max_version_level": RELEASE_METADATA_VERSION, "upgrade_type": 1}
    acl = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, **reader}
    bodies: dict[int, dict[str, Any]] = {
        48: {"components": [], "strict": False},
        49: {"entries": [{"entity": entity, "ops": [rate]}], "validate_only": False},
        50: {"users": None},
        55: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        57: {"timeout": 10_000, "feature_updates": [level]},
        DESCRIBE_ACLS: any_acl,
        CREATE_ACLS: {"creations": [acl]},
        DELETE_ACLS: {"filters": [any_acl]},
        UNREGISTER_BROKER: {"broker_id": 4711},  # the one that there is has the other tests' data
        71: {"client_instance_id": None},
        PUSH_TELEMETRY: {
            "compression_type": 0,
            "metrics": b"",
            "terminating": False,
        },  # completed by the test
    }
    return bodies[api_key]


def errors_of(answer: Any) -> list[Any]:
    """Every error code anywhere in a decoded answer."""
    if isinstance(answer, tuple):
        return [code for item in answer for code in errors_of(item)]
    fields = getattr(answer, "__dataclass_fields__", {})
    found = [getattr(answer, name) for name in fields if name in ("error_code", "partition_error_code")]
    return found + [code for name in fields for code in errors_of(getattr(answer, name))]


@each_version
def test_is_answered_without_an_error(
    connection: RawConnection, topic: Topic, api_key: int, version: int
) -> None:
    if api_key in (JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP):
        run_group(connection, f"cycle-{api_key}-{version}", {api_key: version})
        return
    if api_key in IN_TRANSACTION:
        body = body_in_transaction(connection, topic, "described", api_key, version)
    else:
        body = body_of(api_key, version, topic)
    if api_key == 20:
        doomed = Topic(topic.port)
        by_id = {"name": None, "topic_id": doomed.topic_id}
        body = {**body, "topic_names": [doomed.name], "topics": [by_id]}
    if api_key == DELETE_GROUPS:
        (group,) = body["groups_names"]
        commit = {**body_of(8, 9, topic), "group_id": group}
        assert set(errors_of(ask_until_ready(connection, 8, 9, commit))) == {0}
    if api_key == CONSUMER_GROUP_DESCRIBE:
        first = first_heartbeat(body["group_ids"][0], topic.name)
        assert set(errors_of(ask_until_ready(connection, CONSUMER_GROUP_HEARTBEAT, version, first))) == {0}
    if api_key == PUSH_TELEMETRY:
        asked = connection.ask(GET_TELEMETRY_SUBSCRIPTIONS, 0, {"client_instance_id": None})
        body = {**body, "client_instance_id": asked.client_instance_id.bytes}
        body |= {"subscription_id": asked.subscription_id}
    if api_key == ALTER_REPLICA_LOG_DIRS:
        (directory, *_) = connection.ask(35, 4, {"topics": None}).results
        body = {"dirs": [{**each, "path": directory.log_dir} for each in body["dirs"]]}
    answer = ask_until_ready(connection, api_key, version, body)
    assert set(errors_of(answer)) <= {EXPECTED.get(api_key, 0)}, answer
    assert_says_something(api_key, answer)


def ask_until_ready(connection: RawConnection, api_key: int, version: int, body: Mapping[str, Any]) -> Any:
    """The answer, once a coordinator that was only just asked for is there (codes 14 to 16 mean: again)."""
    deadline = time.monotonic() + 20
    while True:
        answer = connection.ask(api_key, version, body)
        if not {14, 15, 16} & set(errors_of(answer)) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def assert_says_something(api_key: int, answer: Any) -> None:
    """The list that the request was about has its one row."""
    rows = {
        PRODUCE: "responses", FETCH: "responses", 2: "topics", 3: "topics", 8: "topics", 15: "groups",
        API_VERSIONS: "api_keys", CREATE_TOPICS: "topics", 20: "responses", 21: "topics", 23: "topics",
        32: "results", 33: "responses", 34: "results", 35: "results", 37: "results", DELETE_GROUPS: "results",
        CREATE_ACLS: "results", DELETE_ACLS: "filter_results",
        27: "markers", 28: "topics", 65: "transaction_states", 66: "transaction_states",
        44: "responses", 45: "responses", 47: "topics", 49: "entries", 55: "topics", 60: "brokers", 61: "topics",
        CONSUMER_GROUP_DESCRIBE: "groups", 75: "topics",
    }  # fmt: skip
    if api_key in rows:
        assert len(getattr(answer, rows[api_key])) >= 1, answer


def run_group(connection: RawConnection, group: str, versions: Mapping[int, int]) -> None:
    """One member joins, synchronises, beats and leaves, each request in the version given or else its newest."""

    def ask(api_key: int, body: Mapping[str, Any]) -> Any:
        version = versions.get(api_key, HANDLERS[api_key].versions[1])
        return ask_until_ready(connection, api_key, version, {"group_id": group, **body})

    join = {
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    joined = ask(JOIN_GROUP, join)
    if joined.error_code == MEMBER_ID_REQUIRED:
        joined = ask(JOIN_GROUP, {**join, "member_id": joined.member_id})
    assert joined.error_code == 0, joined
    assert (joined.leader, len(joined.members)) == (joined.member_id, 1)
    member = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assignment = {"member_id": joined.member_id, "assignment": b"all of it"}
    synced = ask(
        SYNC_GROUP,
        {**member, "protocol_type": "consumer", "protocol_name": "range", "assignments": [assignment]},
    )
    assert (synced.error_code, synced.assignment) == (0, b"all of it")
    assert ask(HEARTBEAT, member).error_code == 0
    left = ask(LEAVE_GROUP, {**member, "members": [{"member_id": joined.member_id}]})
    assert all(code == 0 for code in errors_of(left)), left


def test_the_table_is_what_is_advertised(connection: RawConnection) -> None:
    for version in range(5):
        answer = connection.ask(API_VERSIONS, version, SOFTWARE)
        advertised = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        served = {
            key: (handler.versions[0] if handler.advertised_from is None else handler.advertised_from, high)
            for key, handler in HANDLERS.items()
            for high in [handler.versions[1]]
            if handler.advertised_when is None  # the others: see test_telemetry.py
        }
        assert advertised == served
        # Produce alone is shown from lower than it is served, as Kafka 4 does for librdkafka's sake (KAFKA-18659).
        assert [key for key, handler in HANDLERS.items() if handler.advertised_from is not None] == [PRODUCE]
