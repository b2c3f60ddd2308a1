"""What partitions obey of their topic's settings: all that the controller takes, and no less for a bad one."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from storage_harness import StorageHarness, batch, make_upkeep, run_node, topic_config

from barnabas.kernel.clock import ManualClock
from barnabas.kernel.environment import seeded_environment
from barnabas.kernel.errors import KafkaError
from barnabas.kernel.files import SystemFiles
from barnabas.kernel.kafka_values import BROKER_RESOURCE, TOPIC_RESOURCE
from barnabas.log.config import LogConfig
from barnabas.log.partition_log import PartitionLog
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.broker_rules import check_broker_changes, check_static_settings, is_dynamic
from barnabas.metadata.broker_settings import broker_setting
from barnabas.metadata.config_def import ConfigDef, ConfigType
from barnabas.metadata.image import MetadataImage, config_key
from barnabas.metadata.settings.effects import ELECTIONS, TOPIC
from barnabas.metadata.topic_settings import topic_setting, validate_topic_settings
from barnabas.metadata.validators import Between, EachOf, OneOf
from barnabas.records.record import decode_records, encode_batch
from barnabas.storage.metrics import StorageCollector
from barnabas.storage.replica.topic_settings import (
    KEEPS_EVERYTHING,
    THROTTLED_FIELDS,
    TopicSettings,
    TopicSettingsReader,
    is_throttled,
)

OBEYED: Final = TOPIC - ELECTIONS - THROTTLED_FIELDS.keys()
"""What a log obeys, or its leader; the rest is the controller's, or names replicas."""
DAY_MS: Final = 86_400_000
BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def texts_of(definition: ConfigDef) -> Iterator[str]:
    """The least, the greatest and the blank-padded values, and what lies about nought."""
    validator = definition.validator
    if definition.type in BITS:
        limit = 2 ** (BITS[definition.type] - 1)
        low, high = -limit, limit - 1
        if isinstance(validator, Between):
            low = low if validator.low == -math.inf else int(validator.low)
            high = high if validator.high == math.inf else int(validator.high)
        numbers = {low, high, *range(-2, 5)}
        yield from (str(number) for number in sorted(numbers) if low <= number <= high)
        yield f" {max(low, 7)}\t"
        yield f"+{max(low, 7)}"
    elif isinstance(validator, Between):
        yield from (str(validator.low), str(validator.high), f" {validator.high} ")
    else:
        assert isinstance(validator, OneOf | EachOf), definition.name
        yield from validator.allowed
        yield f" {validator.allowed[0]}\n"
        if isinstance(validator, EachOf):
            yield ""
            yield " , ".join(validator.allowed)


TOPICS_OWN: Final = [(name, text) for name in sorted(OBEYED) for text in texts_of(topic_setting(name))]
BROKERS: Final = [
    (name, synonym.name, text)
    for name in sorted(OBEYED)
    for synonym in topic_setting(name).synonyms
    for text in texts_of(broker_setting(synonym.name))
]


def image_of(resource: tuple[int, str], values: Mapping[str, str]) -> MetadataImage:
    return MetadataImage().apply(
        [MetadataRecord(key=config_key(*resource), config=ConfigRecord(values=values))], 1
    )


def read(
    image: MetadataImage,
    static: Mapping[str, str] = MappingProxyType({}),
    last: TopicSettings = KEEPS_EVERYTHING,
) -> TopicSettings:
    return TopicSettingsReader(1, static).read(image, "events", last)


def value_in(settings: TopicSettings, name: str) -> Any:
    if name == "min.insync.replicas":
        return settings.min_insync_replicas
    return getattr(settings.log, name.replace(".", "_"))


@pytest.mark.parametrize(("name", "text"), TOPICS_OWN)
def test_what_the_controller_takes_of_a_topic_its_partitions_obey(name: str, text: str) -> None:
    (parsed,) = validate_topic_settings({name: text}).values()
    settings = read(image_of((TOPIC_RESOURCE, "events"), {name: text}))
    assert settings.unusable == frozenset()
    expected = frozenset(parsed) if isinstance(parsed, tuple) else parsed
    assert value_in(settings, name) == expected


def refused_by(check: Any, *arguments: object) -> bool:
    try:
        check(*arguments)
    except KafkaError:
        return True
    return False


@pytest.mark.parametrize(("name", "broker_name", "text"), BROKERS)
def test_what_brokers_may_have_set_their_partitions_obey(name: str, broker_name: str, text: str) -> None:
    definition = topic_setting(name)
    (synonym,) = (each for each in definition.synonyms if each.name == broker_name)
    expected = None
    if not refused_by(check_static_settings, {broker_name: text}):
        settings = read(MetadataImage(), {broker_name: text})
        assert settings.unusable == frozenset()
        expected = value_in(settings, name)
        parsed = definition.parse(synonym.unit.convert(text))
        assert expected == (frozenset(parsed) if isinstance(parsed, tuple) else parsed)
    if is_dynamic(broker_name):
        refused = refused_by(check_broker_changes, {broker_name: text}, "")
        assert refused == (expected is None)
        if not refused:
            settings = read(image_of((BROKER_RESOURCE, ""), {broker_name: text}))
            assert settings.unusable == frozenset()
            assert value_in(settings, name) == expected


@pytest.mark.parametrize(("name", "text"), TOPICS_OWN)
def test_a_log_works_with_the_least_and_the_greatest(tmp_path: Path, name: str, text: str) -> None:
    config = read(image_of((TOPIC_RESOURCE, "events"), {name: text})).log
    environment = seeded_environment(1, ManualClock(), files=SystemFiles())
    log = PartitionLog.open(str(tmp_path), "events", 0, uuid.UUID(int=3), config, environment)
    if name != "max.message.bytes":  # of which the least takes nothing
        for key in (b"a", b"b", b"c"):
            log.append_as_leader(encode_batch([(environment.clock.now_ms(), key, b"v", ())]), 0)
        assert [log.locate(offset, 1000) is not None for offset in range(3)] == [True] * 3
    log.close()


# -- those that name replicas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "throttled"),
    [
        ("", []),
        ("*", [0, 1, 2]),
        (" , * ", [0, 1, 2]),
        ("0:1", [0]),
        ("0:1,2:1,1:2", [0, 2]),
        (" 1:1 , 1:2,", [1]),
        ("0:2,1:11", []),
    ],
)
@pytest.mark.parametrize("name", sorted(THROTTLED_FIELDS))
def test_a_node_takes_the_partitions_that_are_listed_with_its_id(
    name: str, text: str, throttled: list[int]
) -> None:
    settings = read(image_of((TOPIC_RESOURCE, "events"), {name: text}))
    assert settings.unusable == frozenset()
    for field in THROTTLED_FIELDS.values():
        found = [index for index in range(3) if is_throttled(getattr(settings, field), index)]
        assert found == (throttled if field == THROTTLED_FIELDS[name] else [])


@pytest.mark.parametrize("text", ["0", "0:1:2", "0:1,*", "a:b", "-1:1", "0:1;1:1", "**", "0: 1"])
@pytest.mark.parametrize("name", sorted(THROTTLED_FIELDS))
def test_what_names_no_replicas_is_refused_and_changes_nothing(name: str, text: str) -> None:
    assert refused_by(validate_topic_settings, {name: text})
    last = read(image_of((TOPIC_RESOURCE, "events"), {name: "2:1"}))
    settings = read(image_of((TOPIC_RESOURCE, "events"), {name: text}), last=last)
    assert settings.unusable == {name}
    assert getattr(settings, THROTTLED_FIELDS[name]) == {2}


# -- one that cannot be read --------------------------------------------------------------------------------------

UNREADABLE: Final = {"index.interval.bytes": "many", "retention.ms": "-1", "cleanup.policy": "compact"}


def test_one_bad_setting_leaves_the_others_as_they_are() -> None:
    settings = read(image_of((TOPIC_RESOURCE, "events"), UNREADABLE))
    assert settings.log.retention_ms == -1
    assert settings.log.is_compacted
    assert settings.log.index_interval_bytes == LogConfig().index_interval_bytes
    assert settings.unusable == {"index.interval.bytes"}


@pytest.mark.parametrize("name", sorted(OBEYED))
def test_each_stays_as_it_was_while_it_cannot_be_read(name: str) -> None:
    *_, text = (text for text in texts_of(topic_setting(name)) if text)
    before = read(image_of((TOPIC_RESOURCE, "events"), {name: text}))
    after = read(image_of((TOPIC_RESOURCE, "events"), {name: "\N{SNOWMAN}"}), last=before)
    assert after.unusable == {name}
    assert value_in(after, name) == value_in(before, name)


def test_a_broker_setting_that_cannot_be_read_takes_nothing_from_any_topic() -> None:
    reader = TopicSettingsReader(1, {})
    good = image_of((TOPIC_RESOURCE, "kept"), {"retention.ms": "-1"})
    bad = MetadataRecord(
        key=config_key(BROKER_RESOURCE, ""), config=ConfigRecord(values={"log.roll.ms": "0"})
    )
    before = {topic: reader.read(good, topic, KEEPS_EVERYTHING) for topic in ("kept", "other")}
    image = good.apply([bad], 2)
    after = {topic: reader.read(image, topic, before[topic]) for topic in before}
    assert {topic: settings.unusable for topic, settings in after.items()} == {
        "kept": {"segment.ms"},
        "other": {"segment.ms"},
    }
    for topic, settings in after.items():
        assert settings.log == before[topic].log
    again = reader.read(good, "kept", after["kept"])
    assert again == before["kept"]


def test_without_a_last_value_nothing_is_deleted() -> None:
    everything = dict.fromkeys(OBEYED, "\N{SNOWMAN}")
    settings = read(image_of((TOPIC_RESOURCE, "events"), everything))
    assert settings.unusable == OBEYED
    assert settings.log == KEEPS_EVERYTHING.log
    log = settings.log
    assert not log.is_compacted
    assert not log.is_deleted
    assert (log.retention_ms, log.retention_bytes) == (-1, -1)


# -- in a node ----------------------------------------------------------------------------------------------------


def left(node: StorageHarness, topic: uuid.UUID) -> list[bytes | None]:
    log = node.replica(topic).log
    assert log is not None
    slices = [log.locate(offset, 1_000_000) for offset in range(log.log_start_offset, log.log_end_offset)]
    return [next(decode_records(found.read())).value for found in slices if found is not None]


async def test_old_records_are_kept_when_another_setting_cannot_be_read(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        node.apply(topic_config("events", retention_ms="-1"))
        for value in (b"a", b"b"):
            await node.append(topic, batch(value))
        node.clock.advance(8 * DAY_MS)
        node.apply(topic_config("events", retention_ms="-1", segment_ms="0"))
        assert await make_upkeep(node).apply_retention() == 0
        assert left(node, topic) == [b"a", b"b"]
        registry = CollectorRegistry()
        registry.register(StorageCollector(node.replicas, node.appends, node.fetches, node.purgatory))
        assert registry.get_sample_value("barnabas_storage_unusable_topic_settings") == 1
        node.apply(topic_config("events", retention_ms="5"))
        assert registry.get_sample_value("barnabas_storage_unusable_topic_settings") == 0
        assert await make_upkeep(node).apply_retention() == 1


async def test_nothing_is_deleted_before_the_metadata_are_there(tmp_path: Path) -> None:
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        topic = await node.create_topic()
        node.apply(topic_config("events", retention_ms="-1"))
        await node.append(topic, batch(b"a"))
        await make_upkeep(node).write_high_watermarks()
    async with run_node(tmp_path / "data", tmp_path / "s") as node:
        node.clock.advance(8 * DAY_MS)
        assert await make_upkeep(node).apply_retention() == 0
        assert left(node, topic) == [b"a"]
