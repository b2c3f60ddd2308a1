"""aiokafka's admin client, which speaks the older versions of the admin requests."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError, for_code
from aiokafka_client import admin_of, consumer_of, make_topic, produce, wait_for_assignments

pytestmark = pytest.mark.integration


def names_of(errors: list[tuple[Any, ...]]) -> dict[str, str]:
    """What became of each topic, by the name of its error."""
    return {topic: for_code(code).__name__ for topic, code, *_ in errors}


async def configs_of(admin: Any, resource: ConfigResource) -> dict[str, tuple[str | None, int]]:
    """Value and source of each setting."""
    (answer,) = await admin.describe_configs([resource], include_synonyms=True)
    ((code, _, _, name, entries),) = answer.resources
    assert (code, name) == (0, resource.name)
    return {entry[0]: (entry[1], entry[3]) for entry in entries}


async def test_topics_are_created_enlarged_described_and_deleted(cluster: Any) -> None:
    async with admin_of(cluster) as admin:
        created = await admin.create_topics(
            [
                NewTopic("aio-made", 2, 1),
                NewTopic("aio bad name", 1, 1),
                NewTopic("aio-assigned", -1, -1, {0: [1]}),
            ]
        )
        assert names_of(created.topic_errors) == {
            "aio-made": "NoError",
            "aio bad name": "InvalidTopicError",
            "aio-assigned": "NoError",
        }
        again = await admin.create_topics([NewTopic("aio-made", 2, 1)], validate_only=True)
        assert names_of(again.topic_errors) == {"aio-made": "TopicAlreadyExistsError"}
        enlarged = await admin.create_partitions({"aio-made": NewPartitions(5)})
        assert names_of(enlarged.topic_errors) == {"aio-made": "NoError"}
        with pytest.raises(InvalidPartitionsError, match=r"already has 1 partition"):
            await admin.create_partitions({"aio-assigned": NewPartitions(1)})
        (described,) = await admin.describe_topics(["aio-made"])
        assert [(p["partition"], p["leader"], p["isr"]) for p in described["partitions"]] == [
            (number, 1, [1]) for number in range(5)
        ]
        assert {"aio-made", "aio-assigned"} <= set(await admin.list_topics())
        deleted = await admin.delete_topics(["aio-made", "aio-assigned", "aio-never"])
        assert names_of(deleted.topic_error_codes) == {
            "aio-made": "NoError",
            "aio-assigned": "NoError",
            "aio-never": "UnknownTopicOrPartitionError",
        }
        assert "aio-made" not in await admin.list_topics()


async def test_settings_are_described_and_replaced(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-settings", retention_ms="5000")
    async with admin_of(cluster) as admin:
        found = await configs_of(admin, ConfigResource(ConfigResourceType.TOPIC, topic))
        assert found["retention.ms"] == ("5000", 1)
        assert found["cleanup.policy"] == ("delete", 5)
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "7000"})
        (altered,) = [answer for answer in await admin.alter_configs([change]) if answer.resources]
        assert [(code, name) for code, _, _, name in altered.resources] == [(0, topic)]
        found = await configs_of(admin, ConfigResource(ConfigResourceType.TOPIC, topic))
        assert (found["segment.ms"], found["retention.ms"]) == (("7000", 1), ("604800000", 5))
        wrong = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "soon"})
        (refused,) = [answer for answer in await admin.alter_configs([wrong]) if answer.resources]
        ((code, message, *_),) = refused.resources
        assert for_code(code).__name__ == "InvalidConfigurationError"
        assert "segment.ms" in message
        broker = await configs_of(admin, ConfigResource(ConfigResourceType.BROKER, "1"))
        assert broker["log.retention.hours"][0] == "168"


async def test_cluster_is_described(cluster: Any) -> None:
    async with admin_of(cluster) as admin:
        described = await admin.describe_cluster()
    assert described["controller_id"] == 1
    assert [(node["host"], node["port"]) for node in described["brokers"]] == [("127.0.0.1", cluster.port)]
    assert described["cluster_id"]


async def test_groups_are_listed_and_described_and_their_offsets_read(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-groups", 2)
    settings = {"group": "aio-described", "client_id": "aio-describer"}
    async with consumer_of(cluster, topic, **settings) as consumer, admin_of(cluster) as admin:
        await wait_for_assignments([consumer], [2])
        await consumer.commit({TopicPartition(topic, 1): (0, "nothing yet")})
        assert ("aio-described", "consumer") in await admin.list_consumer_groups()
        (answer,) = await admin.describe_consumer_groups(["aio-described"])
        ((code, group, state, protocol_type, protocol, members, *_),) = answer.groups
        assert (code, group, state, protocol_type, protocol) == (
            0, "aio-described", "Stable", "consumer", "roundrobin",
        )  # fmt: skip
        assert [(member[1], member[2]) for member in members] == [("aio-describer", "/127.0.0.1")]
        assert await admin.find_coordinator("aio-described") == 1
        offsets = await admin.list_consumer_group_offsets("aio-described")
        assert offsets == {TopicPartition(topic, 1): (0, "nothing yet")}
        asked = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        offsets = await admin.list_consumer_group_offsets("aio-described", partitions=asked)
        assert {place.partition: found.offset for place, found in offsets.items()} == {0: -1, 1: 0}


async def test_records_are_deleted(cluster: Any) -> None:
    topic = await make_topic(cluster, "aio-cut")
    here = TopicPartition(topic, 0)
    await produce(cluster, topic, 10)
    async with admin_of(cluster) as admin:
        assert await admin.delete_records({here: RecordsToDelete(4)}) == {here: 4}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({here: RecordsToDelete(11)})
        assert await admin.delete_records({here: RecordsToDelete(-1)}) == {here: 10}
    async with consumer_of(cluster) as consumer:
        assert await consumer.beginning_offsets([here]) == await consumer.end_offsets([here]) == {here: 10}
