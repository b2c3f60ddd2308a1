"""The tables of settings: what text each type takes, that every row is sound, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.log.config import LogConfig
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.client_metrics_settings import CLIENT_METRICS_SETTINGS
from barnabas.metadata.config_def import ConfigDef, ConfigType
from barnabas.metadata.group_settings import GROUP_SETTINGS
from barnabas.metadata.topic_settings import TOPIC_SETTINGS, topic_setting, validate_topic_settings
from barnabas.metadata.validators import ConfigValue

ALL = [
    *TOPIC_SETTINGS.values(),
    *BROKER_SETTINGS.values(),
    *GROUP_SETTINGS.values(),
    *CLIENT_METRICS_SETTINGS.values(),
]


def setting(kind: ConfigType) -> ConfigDef:
    return ConfigDef("x", kind, None, "Anything.")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " True ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.INT, "+7", 7),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.DOUBLE, "0.25", 0.25),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.LIST, "a, b,,c ", ("a", "b", "c")),
        (ConfigType.LIST, "", ()),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.PASSWORD, " x ", " x "),
    ],
)
def test_texts_and_their_values(kind: ConfigType, text: str, value: ConfigValue) -> None:
    assert setting(kind).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "1.5"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "٣"),
        (ConfigType.INT, "9" * 5000),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "-9223372036854775809"),
        (ConfigType.DOUBLE, "nan"),
        (ConfigType.DOUBLE, "inf"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_texts_that_are_refused(kind: ConfigType, text: str) -> None:
    with pytest.raises(KafkaError, match="for configuration x: it must be") as caught:
        setting(kind).parse(text)
    assert caught.value.code is ErrorCode.invalid_config


@given(st.sampled_from(ALL), st.text(max_size=30))
def test_any_text_is_a_value_or_a_clear_refusal(definition: ConfigDef, text: str) -> None:
    refusal = None
    try:
        definition.parse(text)
    except KafkaError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code is ErrorCode.invalid_config
        assert definition.name in refusal.message


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_every_row_is_sound(definition: ConfigDef) -> None:
    definition.default_value()
    assert definition.documentation.endswith(".")
    for synonym in definition.synonyms:
        broker = BROKER_SETTINGS[synonym.name]
        assert broker.type in (definition.type, ConfigType.INT)
        if broker.default is not None:
            definition.parse(synonym.unit.convert(broker.default))


def test_a_topics_default_is_what_its_broker_settings_default_to() -> None:
    for definition in TOPIC_SETTINGS.values():
        texts = [
            synonym.unit.convert(default)
            for synonym in definition.synonyms
            if (default := BROKER_SETTINGS[synonym.name].default) is not None
        ]
        assert not texts or texts[0] == definition.default


def test_the_topic_settings_of_kafka_4_are_all_there() -> None:
    assert len(TOPIC_SETTINGS) == 34
    for name, text in {
        "message.timestamp.after.max.ms": "3600000",
        "max.message.bytes": "1048588",
        "segment.bytes": "1073741824",
        "retention.ms": "604800000",
        "min.insync.replicas": "1",
    }.items():
        assert TOPIC_SETTINGS[name].default == text


def test_settings_with_effect_are_those_that_the_log_its_partitions_and_their_elections_obey() -> None:
    obeyed = {field.name.replace("_", ".") for field in dataclasses.fields(LogConfig)}
    obeyed |= {"min.insync.replicas", "unclean.leader.election.enable"}
    obeyed |= {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
    assert {name for name, definition in TOPIC_SETTINGS.items() if definition.has_effect} == obeyed
    assert BROKER_SETTINGS["log.retention.ms"].has_effect


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1048575"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("cleanup.policy", "compact,shred"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("retention.ms", "-2"),
        ("leader.replication.throttled.replicas", "1-2"),
        ("message.timestamp.type", "createtime"),
    ],
)
def test_values_out_of_range(name: str, text: str) -> None:
    with pytest.raises(KafkaError, match=f"Invalid value {text} for configuration {name}: it") as caught:
        validate_topic_settings({name: text})
    assert caught.value.code is ErrorCode.invalid_config


def test_values_in_range() -> None:
    settings = {
        "compression.gzip.level": "-1",
        "compression.zstd.level": "-5",
        "leader.replication.throttled.replicas": "0:1,2:3",
        "follower.replication.throttled.replicas": "*",
        "cleanup.policy": "compact,delete",
        "retention.bytes": "-1",
    }
    assert validate_topic_settings(settings)["cleanup.policy"] == ("compact", "delete")


def test_unknown_names() -> None:
    with pytest.raises(KafkaError, match=r"Unknown topic config name: message\.format\.version"):
        topic_setting("message.format.version")


def test_secrets_are_not_repeated_in_messages() -> None:
    secret = ConfigDef("ssl.key.password", ConfigType.PASSWORD, None, "A secret.", _Never())
    with pytest.raises(KafkaError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in caught.value.message
    assert BROKER_SETTINGS["ssl.key.password"].sensitive


class _Never:
    valid_values = "none"

    def problem(self, value: ConfigValue) -> str | None:
        return "it must be something else"
