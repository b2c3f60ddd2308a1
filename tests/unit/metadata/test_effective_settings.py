"""Which value counts, and what stands behind it."""

from __future__ import annotations

import pytest

from barnabas.kernel.errors import KafkaError
from barnabas.metadata.config_def import ConfigType
from barnabas.metadata.effective import (
    ConfigSource,
    effective_broker_setting,
    effective_topic_setting,
    effective_topic_settings,
)
from barnabas.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage, config_key
from barnabas.rpc.v1.metadata_pb2 import ConfigRecord, MetadataRecord

TOPIC, DYNAMIC, CLUSTER, STATIC, DEFAULT = ConfigSource


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


def test_defaults_come_with_their_broker_synonym() -> None:
    setting = effective_topic_setting(MetadataImage(), "orders", "retention.ms")
    assert (setting.value, setting.source) == (604_800_000, DEFAULT)
    assert [(s.name, s.value, s.source) for s in setting.synonyms] == [
        ("log.retention.hours", "168", DEFAULT)
    ]


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
    assert (retention.value, retention.source) == (240_000, STATIC)
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
    with pytest.raises(KeyError):
        effective_broker_setting(MetadataImage(), "nope")
