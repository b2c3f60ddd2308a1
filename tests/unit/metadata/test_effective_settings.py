"""Which value counts, and what stands behind it."""

from __future__ import annotations

import pytest

from barnabas.kernel.errors import KafkaError
from barnabas.kernel.kafka_values import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord, NodeRecord
from barnabas.metadata.config_def import ConfigType
from barnabas.metadata.effective import (
    ConfigSource,
    EffectiveSetting,
    dynamic_broker_value,
    effective_broker_setting,
    effective_client_metrics_setting,
    effective_group_setting,
    effective_topic_setting,
    effective_topic_settings,
    topic_setting_text,
)
from barnabas.metadata.image import MetadataImage, config_key, node_key

TOPIC, DYNAMIC, CLUSTER, STATIC, DEFAULT, CLIENT_METRICS, GROUP = ConfigSource


def image_with(**layers: dict[str, str]) -> MetadataImage:
    keys = {
        "topic": config_key(TOPIC_RESOURCE, "orders"),
        "broker": config_key(BROKER_RESOURCE, "1"),
        "cluster": config_key(BROKER_RESOURCE, ""),
    }
    records = [
        MetadataRecord(key=keys[layer], config=ConfigRecord(values=values))
        for layer, values in layers.items()
    ]
    return MetadataImage().apply(records, 1)


def image_of_node(configs: dict[str, str]) -> MetadataImage:
    node = NodeRecord(node_id=1, configs=configs)
    return MetadataImage().apply([MetadataRecord(key=node_key(1), node=node)], 1)


def shown(setting: EffectiveSetting) -> list[tuple[str, str, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in setting.synonyms]


def test_defaults_come_with_their_broker_synonym() -> None:
    setting = effective_topic_setting(MetadataImage(), "orders", "max.message.bytes")
    assert (setting.value, setting.source) == (1_048_588, DEFAULT)
    assert shown(setting) == [("message.max.bytes", "1048588", DEFAULT)]


def test_only_what_follows_the_first_broker_synonym_is_shown() -> None:
    image = image_of_node({"log.retention.hours": "5"})
    setting = effective_topic_setting(image, "orders", "retention.ms", node_id=1)
    assert (setting.value, setting.source, shown(setting)) == (18_000_000, DEFAULT, [])
    hours = effective_broker_setting(image, "log.retention.hours", node_id=1)
    assert shown(hours) == [("log.retention.hours", "5", STATIC), ("log.retention.hours", "168", DEFAULT)]
    milliseconds = effective_broker_setting(image, "log.retention.ms", node_id=1)
    assert (milliseconds.value, milliseconds.source, shown(milliseconds)) == (None, DEFAULT, [])


def test_the_file_that_a_node_registered_with_counts() -> None:
    image = image_of_node({"num.partitions": "9", "message.max.bytes": "77"})
    for node_id in (1, None):
        setting = effective_broker_setting(image, "num.partitions", node_id=node_id)
        assert (setting.value, setting.source) == (9, STATIC)
        assert effective_topic_setting(image, "orders", "max.message.bytes", node_id=node_id).value == 77
    assert effective_broker_setting(image, "num.partitions", node_id=2).value == 1
    assert topic_setting_text(image, "orders", "max.message.bytes", node_id=1, static={}) == "1048588"


def test_no_limit_is_no_limit_in_any_unit() -> None:
    setting = effective_topic_setting(
        MetadataImage(), "orders", "retention.ms", static={"log.retention.minutes": "-1"}
    )
    assert setting.value == -1


def test_group_settings() -> None:
    key = config_key(GROUP_RESOURCE, "readers")
    values = {"consumer.session.timeout.ms": "50000"}
    image = image_of_node({"group.consumer.session.timeout.ms": "46000"})
    image = image.apply([MetadataRecord(key=key, config=ConfigRecord(values=values))], 2)
    own = effective_group_setting(image, "readers", "consumer.session.timeout.ms", node_id=1)
    assert (own.value, shown(own)) == (
        50_000,
        [
            ("consumer.session.timeout.ms", "50000", GROUP),
            ("group.consumer.session.timeout.ms", "46000", STATIC),
            ("group.consumer.session.timeout.ms", "45000", DEFAULT),
        ],
    )
    assert effective_group_setting(image, "others", "consumer.session.timeout.ms", node_id=1).value == 46_000
    alone = effective_group_setting(image, "readers", "share.isolation.level")
    assert shown(alone) == [("share.isolation.level", "read_uncommitted", DEFAULT)]


def test_client_metrics_settings() -> None:
    key = config_key(CLIENT_METRICS_RESOURCE, "all")
    image = MetadataImage().apply([MetadataRecord(key=key, config=ConfigRecord(values={"metrics": "*"}))], 1)
    metrics = effective_client_metrics_setting(image, "all", "metrics")
    assert (metrics.value, shown(metrics)) == (("*",), [("metrics", "*", CLIENT_METRICS)])
    interval = effective_client_metrics_setting(image, "all", "interval.ms")
    assert (interval.value, interval.source, shown(interval)) == (300_000, DEFAULT, [])


def test_a_dynamic_value_goes_before_a_services_own_file() -> None:
    assert dynamic_broker_value(MetadataImage(), "max.connections", 7) == 7
    assert dynamic_broker_value(image_with(cluster={"max.connections": "9"}), "max.connections", 7) == 9


def test_a_listeners_own_setting_stands_before_the_brokers() -> None:
    name = "listener.name.internal.max.connections"
    setting = effective_broker_setting(image_with(broker={name: "3"}), name, node_id=1)
    assert setting.definition.type is ConfigType.INT
    assert shown(setting) == [(name, "3", DYNAMIC), ("max.connections", "2147483647", DEFAULT)]


def test_what_nobody_knows_is_sensitive() -> None:
    setting = effective_broker_setting(image_with(cluster={"my.plugin": "x"}), "my.plugin", node_id=1)
    assert (setting.value, setting.definition.type, setting.definition.sensitive) == (
        "x",
        ConfigType.UNKNOWN,
        True,
    )


def test_a_setting_without_synonyms_has_none() -> None:
    setting = effective_topic_setting(MetadataImage(), "orders", "leader.replication.throttled.replicas")
    assert (setting.value, setting.source, setting.synonyms) == ((), DEFAULT, ())


def test_the_nearest_place_counts_and_the_others_are_listed() -> None:
    image = image_with(
        topic={"retention.ms": "1"}, broker={"log.retention.ms": "2"}, cluster={"log.retention.ms": "3"}
    )
    static = {"log.retention.minutes": "4"}
    setting = effective_topic_setting(image, "orders", "retention.ms", node_id=1, static=static)
    assert (setting.value, setting.source) == (1, TOPIC)
    assert [(s.name, s.value, s.source) for s in setting.synonyms] == [
        ("retention.ms", "1", TOPIC),
        ("log.retention.ms", "2", DYNAMIC),
        ("log.retention.ms", "3", CLUSTER),
        ("log.retention.minutes", "4", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    other = effective_topic_setting(image, "payments", "retention.ms", node_id=1, static=static)
    assert (other.value, other.source) == (2, DYNAMIC)
    elsewhere = effective_topic_setting(image, "payments", "retention.ms", node_id=2, static=static)
    assert (elsewhere.value, elsewhere.source) == (3, CLUSTER)
    assert effective_topic_setting(image, "payments", "retention.ms").value == 3


def test_other_units_are_converted() -> None:
    static = {"log.retention.minutes": "4", "log.roll.hours": "2"}
    retention = effective_topic_setting(MetadataImage(), "orders", "retention.ms", static=static)
    assert retention.value == 240_000
    assert effective_topic_setting(MetadataImage(), "orders", "segment.ms", static=static).value == 7_200_000


def test_all_settings_of_a_topic_read_as_their_types() -> None:
    kinds = {
        ConfigType.BOOLEAN: bool,
        ConfigType.DOUBLE: float,
        ConfigType.LIST: tuple,
        ConfigType.STRING: str,
    }
    settings = effective_topic_settings(MetadataImage(), "orders")
    for name, setting in settings.items():
        assert isinstance(setting.value, kinds.get(setting.definition.type, int)), name
        assert setting.text == setting.definition.default


def test_broker_settings() -> None:
    image = image_with(broker={"log.cleaner.threads": "2"}, cluster={"log.cleaner.threads": "3"})
    assert effective_broker_setting(image, "log.cleaner.threads", node_id=1).value == 2
    assert effective_broker_setting(image, "log.cleaner.threads").value == 3
    assert effective_broker_setting(image, "num.partitions", static={"num.partitions": "9"}).source is STATIC
    nothing = effective_broker_setting(image, "broker.rack")
    assert (nothing.value, nothing.source, nothing.synonyms) == (None, DEFAULT, ())


def test_unknown_names() -> None:
    with pytest.raises(KafkaError, match="Unknown topic config name"):
        effective_topic_setting(MetadataImage(), "orders", "nope")
    with pytest.raises(KafkaError, match="Unknown group config name"):
        effective_group_setting(MetadataImage(), "readers", "nope")
    with pytest.raises(KafkaError, match="Unknown client metrics configuration"):
        effective_client_metrics_setting(MetadataImage(), "all", "nope")


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("retention.ms", " +77 ", "77"),
        ("segment.bytes", "0002000000", "2000000"),
        ("preallocate", " TRUE", "true"),
        ("min.cleanable.dirty.ratio", "0.250", "0.25"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("min.cleanable.dirty.ratio", "0.00012", "1.2E-4"),
        ("min.cleanable.dirty.ratio", "1e-5", "1.0E-5"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("compression.type", " gzip ", "gzip"),
    ],
)
def test_a_topics_value_is_shown_in_its_plain_spelling(name: str, given: str, shown: str) -> None:
    setting = effective_topic_setting(image_with(topic={name: given}), "orders", name)
    assert (setting.text, setting.synonyms[0].value) == (shown, shown)


def test_a_brokers_value_is_shown_plainly_and_its_synonyms_as_they_were_given() -> None:
    image = image_with(broker={"log.cleaner.threads": " +2 ", "compression.type": " gzip "})
    threads = effective_broker_setting(image, "log.cleaner.threads", node_id=1)
    assert (threads.text, threads.synonyms[0].value) == ("2", " +2 ")
    behind = effective_topic_setting(image, "orders", "compression.type", node_id=1)
    assert (behind.text, behind.synonyms[0].value) == ("gzip", " gzip ")


def test_a_slip_in_a_file_is_shown_as_it_is() -> None:
    setting = effective_broker_setting(
        MetadataImage(), "log.cleaner.threads", static={"log.cleaner.threads": " x "}
    )
    assert setting.text == " x "
