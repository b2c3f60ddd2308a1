"""DescribeConfigs, IncrementalAlterConfigs, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from gateway_harness import (
    ONE_BROKER_LISTENER,
    Gateway,
    config_record,
    node_record,
    small_cluster,
    topic_records,
)

from barnabas.gateway import limits
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.messages.controller_pb2 import IncrementalAlterConfigsResponse, ResourceResult
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.topic_settings import INTERNAL, TOPIC_SETTINGS

SETTINGS = 30
"""A topic has some more."""
METADATA = 3
DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_PARTITIONS = 32, 44, 60, 75


async def describe(
    gateway: Gateway,
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
    **flags: bool,
) -> Any:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
    answer = await gateway.ask(DESCRIBE_CONFIGS, version, {"resources": [resource], **flags})
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


def configured() -> Gateway:
    return Gateway(
        [
            *small_cluster(),
            config_record(TOPIC_RESOURCE, "bills", {"retention.ms": "1000"}),
            config_record(BROKER_RESOURCE, "", {"log.retention.ms": "2000"}),
            config_record(BROKER_RESOURCE, "1", {"log.retention.ms": "3000"}),
        ]
    )


async def test_others_are_served_while_the_settings_of_many_topics_are_described() -> None:
    gateway = configured()
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": "bills", "configuration_keys": None}
    ] * 100
    asking = asyncio.create_task(gateway.ask(DESCRIBE_CONFIGS, 4, {"resources": resources}))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 3:
            gateway.metadata.apply(config_record(TOPIC_RESOURCE, "bills", {"retention.ms": "7"}))
    assert turns >= 100 * SETTINGS // limits.ROWS_AT_A_TIME
    results = (await asking).results
    assert len(results) == 100
    assert len(set(map(repr, results))) == 1, "an answer is of one piece"


async def test_large_descriptions_are_made_in_turns_and_smaller_ones_sooner() -> None:
    gateway = configured()
    one = {"resource_type": TOPIC_RESOURCE, "resource_name": "bills", "configuration_keys": None}

    def ask(count: int) -> asyncio.Task[Any]:
        return asyncio.create_task(gateway.ask(DESCRIBE_CONFIGS, 4, {"resources": [one] * count}))

    first, second, smaller, small = ask(100), ask(100), ask(30), ask(1)
    done: list[asyncio.Task[Any]] = []
    for each in (first, second, smaller, small):
        each.add_done_callback(done.append)
    turns = 0
    while not second.done():
        await asyncio.sleep(0)
        turns += 1
    await asyncio.sleep(0)  # the last callback
    assert done == [small, smaller, first, second]
    assert turns >= 200 * SETTINGS // limits.ROWS_AT_A_TIME - 1
    assert [len(each.result().results) for each in (first, second)] == [100, 100]


async def test_a_client_that_goes_away_leaves_its_place_to_the_next() -> None:
    gateway = configured()
    one = {"resource_type": TOPIC_RESOURCE, "resource_name": "bills", "configuration_keys": None}
    body = {"resources": [one] * 100}
    leaving, waiting, last = (asyncio.create_task(gateway.ask(DESCRIBE_CONFIGS, 4, body)) for _ in range(3))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    waiting.cancel()
    assert len((await asyncio.wait_for(last, 10)).results) == 100


async def test_a_description_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"resource_type": TOPIC_RESOURCE, "resource_name": "bills", "configuration_keys": ["retention.ms"]}
    monkeypatch.setattr(limits, "DESCRIBED_BYTES_MAX", 500)
    gateway = configured()
    for count, code in ((5, 0), (50, ErrorCode.invalid_request)):
        answer = await gateway.ask(DESCRIBE_CONFIGS, 4, {"resources": [one] * count})
        assert [result.error_code for result in answer.results] == [code] * count


@pytest.mark.parametrize("version", range(1, 5))
async def test_topic_settings_with_sources_and_synonyms(version: int) -> None:
    result = await describe(configured(), 2, "bills", version=version, include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    assert entries.keys() == TOPIC_SETTINGS.keys() - {INTERNAL}
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", 1, False)
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in retention.synonyms]
    # As broker 1 sees it, whose port the client uses and which has a value of its own.
    assert synonyms[:3] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "3000", 2),
        ("log.retention.ms", "2000", 3),
    ]
    assert synonyms[-1] == ("log.retention.hours", "168", 5)
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation is None


async def test_documentation_and_synonyms_only_when_asked_for() -> None:
    plain = await describe(configured(), 2, "bills", ["retention.ms"])
    assert [entry.name for entry in plain.configs] == ["retention.ms"]
    assert plain.configs[0].synonyms == ()
    told = await describe(configured(), 2, "bills", ["retention.ms"], include_documentation=True)
    assert told.configs[0].documentation
    assert len((await describe(configured(), 2, "bills", [])).configs) == len(TOPIC_SETTINGS) - 1


async def test_broker_settings() -> None:
    result = await describe(configured(), 4, "2", include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    assert entries.keys() == {name for name, known in BROKER_SETTINGS.items() if not known.internal}
    for name in ("listeners", "advertised.listeners"):
        assert (entries[name].config_source, entries[name].value) == (4, "PLAINTEXT://broker.test:9093")
    assert (entries["node.id"].value, entries["node.id"].config_source, entries["node.id"].read_only) == (
        "2",
        4,
        True,
    )
    assert entries["broker.rack"].value == "east"
    assert (entries["log.retention.ms"].value, entries["log.retention.ms"].config_source) == ("2000", 3)
    sensitive = [entry for entry in result.configs if entry.is_sensitive]
    assert sensitive
    assert all(entry.value is None for entry in sensitive)
    own = await describe(configured(), 4, "1", ["log.retention.ms"])
    assert (own.configs[0].value, own.configs[0].config_source) == ("3000", 2)


async def test_cluster_default_shows_only_what_was_set() -> None:
    result = await describe(configured(), 4, "", include_synonyms=True)
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "2000", 3)
    assert [synonym.source for synonym in entry.synonyms] == [3]


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (2, "nothing", ErrorCode.unknown_topic_or_partition),
        (2, "not a name", ErrorCode.invalid_topic_exception),
        (2, "", ErrorCode.invalid_topic_exception),
        (4, "9", ErrorCode.invalid_request),
        (4, "one", ErrorCode.invalid_request),
        (8, "1", ErrorCode.invalid_request),
        (16, "", ErrorCode.invalid_request),
        (32, "", ErrorCode.invalid_request),
        (77, "x", ErrorCode.invalid_request),
    ],
)
async def test_resources_that_are_refused(resource_type: int, name: str, code: ErrorCode) -> None:
    result = await describe(configured(), resource_type, name)
    assert (result.error_code, result.configs) == (code, ())


async def test_groups_and_client_metrics() -> None:
    gateway = Gateway(
        [
            *small_cluster(),
            config_record(32, "readers", {"consumer.session.timeout.ms": "50000"}),
            config_record(16, "all", {"metrics": "*"}),
        ]
    )
    group = await describe(gateway, 32, "readers", include_synonyms=True)
    entries = {entry.name: entry for entry in group.configs}
    session = entries["consumer.session.timeout.ms"]
    assert (len(entries), session.value, session.config_source, session.read_only) == (17, "50000", 8, False)
    assert [synonym.source for synonym in session.synonyms] == [8, 5]
    subscription = await describe(gateway, 16, "all", include_synonyms=True)
    assert {entry.name: (entry.value, entry.config_source) for entry in subscription.configs} == {
        "interval.ms": ("300000", 5),
        "match": ("", 5),
        "metrics": ("*", 7),
    }
    assert len((await describe(gateway, 16, "nobody")).configs) == 3


async def test_what_is_internal_or_unknown_is_shown_where_it_is_set() -> None:
    dynamic = {"leader.replication.throttled.rate": "5", "my.plugin": "x"}
    gateway = Gateway([*small_cluster(), config_record(BROKER_RESOURCE, "1", dynamic)])
    shown = await describe(gateway, 4, "1", list(dynamic), include_documentation=True)
    rate, plugin = shown.configs
    assert (rate.value, rate.config_type, rate.read_only) == ("5", 5, False)
    assert (plugin.value, plugin.config_type, plugin.is_sensitive, plugin.documentation) == (
        None,
        0,
        True,
        None,
    )
    assert (await describe(gateway, 4, "2", list(dynamic))).configs == ()


@pytest.mark.parametrize("version", [0, 1])
async def test_alter_configs_waits_until_the_change_is_visible(version: int) -> None:
    gateway = Gateway()
    refused = ResourceResult(error_code=ErrorCode.invalid_config, error_message="no")
    gateway.controller.answers["IncrementalAlterConfigs"] = lambda _: IncrementalAlterConfigsResponse(
        results=[ResourceResult(), refused]
    )
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    resources = [
        {"resource_type": 2, "resource_name": "bills", "configs": configs},
        {
            "resource_type": 2,
            "resource_name": "orders",
            "configs": [{"name": "x", "config_operation": 1, "value": None}],
        },
    ]
    asking = asyncio.create_task(gateway.ask(ALTER_CONFIGS, version, {"resources": resources}))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asking.done()
    gateway.metadata.apply(config_record(TOPIC_RESOURCE, "bills", {"retention.ms": "5"}))
    first, second = (await asking).responses
    assert (first.resource_name, first.error_code, first.error_message) == ("bills", 0, None)
    assert (second.resource_name, second.error_code, second.error_message) == ("orders", 40, "no")
    change = gateway.controller.calls[0][1].resources
    assert change[0].operations[0].value == "5"
    assert not change[1].operations[0].HasField("value")


async def test_alter_configs_without_a_controller() -> None:
    resource = {"resource_type": 2, "resource_name": "bills", "configs": []}
    answer = await Gateway().ask(ALTER_CONFIGS, 1, {"resources": [resource]})
    assert [result.error_code for result in answer.responses] == [ErrorCode.not_controller]


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster(version: int) -> None:
    body = {"endpoint_type": 1, "include_fenced_brokers": True}
    answer = await Gateway().ask(DESCRIBE_CLUSTER, version, body)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster-of-the-tests", 1)
    brokers = {broker.broker_id: broker for broker in answer.brokers}
    assert [(broker.host, broker.port) for broker in brokers.values()][:2] == [
        ("broker.test", 9092),
        ("broker.test", 9093),
    ]
    assert brokers[2].rack == "east"
    if version == 2:
        assert {broker_id: broker.is_fenced for broker_id, broker in brokers.items()} == {
            1: False,
            2: False,
            3: True,
        }
        assert brokers[3].port == 9094
    else:
        assert brokers.keys() == {1, 2}


@pytest.mark.parametrize("include_fenced", [False, True])
async def test_describe_cluster_while_every_broker_is_fenced(include_fenced: bool) -> None:
    gateway = Gateway([*small_cluster(), *(node_record(node_id, fenced=True) for node_id in (1, 2, 3))])
    body = {"endpoint_type": 1, "include_fenced_brokers": include_fenced}
    answer = await gateway.ask(DESCRIBE_CLUSTER, 2, body)
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [
        (1, True),
        (2, True),
        (3, True),
    ]


async def test_describe_cluster_under_one_broker() -> None:
    """Clients see the one; who asks for fenced brokers too is told of every node, at the address that there is."""
    gateway = Gateway(listener=ONE_BROKER_LISTENER)
    answer = await gateway.ask(DESCRIBE_CLUSTER, 2, {"endpoint_type": 1, "include_fenced_brokers": False})
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [(1, False)]
    everyone = await gateway.ask(DESCRIBE_CLUSTER, 2, {"endpoint_type": 1, "include_fenced_brokers": True})
    assert [(broker.broker_id, broker.rack, broker.is_fenced) for broker in everyone.brokers] == [
        (1, None, False),
        (2, "east", False),
        (3, None, True),
    ]
    assert {(broker.host, broker.port) for broker in everyone.brokers} == {
        (answer.brokers[0].host, answer.brokers[0].port)
    }
    assert everyone.controller_id == 1


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (9, 115)])
async def test_describe_cluster_of_other_endpoints(endpoint_type: int, code: int) -> None:
    answer = await Gateway().ask(DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint_type})
    assert (answer.error_code, answer.brokers) == (code, ())
    assert answer.error_message


async def describe_partitions(
    gateway: Gateway, names: list[str], limit: int, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    body = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = await gateway.ask(DESCRIBE_PARTITIONS, 0, body)
    topics = [
        (topic.name, int(topic.error_code), [partition.partition_index for partition in topic.partitions])
        for topic in answer.topics
    ]
    following = answer.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


async def test_replicas_that_may_lead_and_those_that_cannot_are_shown() -> None:
    record, topic = topic_records("zoo", [-1])
    record.partition.replicas[:] = [1, 2, 3]
    record.partition.isr[:] = []
    record.partition.eligible_leader_replicas[:] = [3]
    record.partition.last_known_eligible_leader_replicas[:] = [2]
    record.partition.offline_replicas[:] = [1]
    gateway = Gateway([*small_cluster(), record, topic])
    body = {"topics": [{"name": "zoo"}], "response_partition_limit": 9, "cursor": None}
    (described,) = (await gateway.ask(DESCRIBE_PARTITIONS, 0, body)).topics[0].partitions
    assert (list(described.isr_nodes), described.leader_id) == ([], -1)
    assert list(described.eligible_leader_replicas) == [3]
    assert list(described.last_known_elr) == [2]
    assert list(described.offline_replicas) == [1, 3], "one says so, and one is fenced"


@pytest.mark.parametrize(
    ("version", "code", "replicas"),
    [(0, ErrorCode.replica_not_available, [1]), (1, ErrorCode.none, [1, 3, 7])],
)
async def test_the_first_version_of_metadata_leaves_out_replicas_that_are_away(
    version: int, code: ErrorCode, replicas: list[int]
) -> None:
    record, topic = topic_records("zoo", [1])
    record.partition.replicas[:] = [1, 3, 7]
    record.partition.isr[:] = [1, 3]
    gateway = Gateway([*small_cluster(), record, topic])
    (described,) = (await gateway.ask(METADATA, version, {"topics": [{"name": "zoo"}]})).topics[0].partitions
    assert (described.error_code, list(described.replica_nodes)) == (code, replicas)
    assert list(described.isr_nodes) == [node for node in (1, 3) if node in replicas]


async def test_topics_come_page_by_page() -> None:
    gateway = Gateway([*small_cluster(), *topic_records("zoo", [1, 2])])
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        topics, cursor = await describe_partitions(gateway, [], 2, cursor)
        seen += [(name, partition) for name, _, partitions in topics for partition in partitions]
        pages += 1
    assert seen == [
        ("__consumer_offsets", 0),
        ("bills", 0),
        ("orders", 0),
        ("orders", 1),
        ("orders", 2),
        ("zoo", 0),
        ("zoo", 1),
    ]
    assert pages == 4


async def test_named_topics_are_sorted_and_missing_ones_told() -> None:
    gateway = Gateway()
    topics, cursor = await describe_partitions(gateway, ["orders", "bills", "none", "not a name"], 100)
    assert topics == [("bills", 0, [0]), ("none", 3, []), ("not a name", 17, []), ("orders", 0, [0, 1, 2])]
    assert cursor is None
    assert await describe_partitions(gateway, ["orders", "bills"], 1) == ([("bills", 0, [0])], ("orders", 0))
    assert await describe_partitions(gateway, ["orders", "bills"], -5, ("orders", 1)) == (
        [("orders", 0, [1])],
        ("orders", 2),
    )


@pytest.mark.parametrize("cursor", [("bills", 0), ("orders", -1)])
async def test_bad_cursors(cursor: tuple[str, int]) -> None:
    assert await describe_partitions(Gateway(), ["orders"], 10, cursor) == ([("orders", 42, [])], None)
