"""What of broker settings may change while brokers run, and what a file may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_rules import check_broker_changes, check_static_settings, is_dynamic
from barnabas.metadata.broker_settings import BROKER_SETTINGS, base_name, broker_setting, broker_synonyms
from barnabas.metadata.config_def import ConfigType, UpdateMode


@pytest.mark.parametrize(
    ("name", "text", "broker", "meaning"),
    [
        ("num.partitions", "3", "1", "Cannot update these configs dynamically"),
        ("num.partitions", "many", "", "Cannot update these configs dynamically"),
        ("ssl.keystore.location", "/x", "", "only per-listener using the listener prefix"),
        ("ssl.key.password", "x", "1", "only per-listener using the listener prefix"),
        ("listeners", "PLAINTEXT://:1", "", "broker id must be specified"),
        ("listener.name.x.ssl.keystore.location", "/x", "", "broker id must be specified"),
        ("listeners", "SECRET://:1", "1", "No security protocol defined for listener SECRET"),
        ("listeners", "9092", "1", "expected name://host:port"),
        ("listener.security.protocol.map", "A:B", "1", "expected listener:protocol pairs"),
        ("log.cleaner.threads", "x", "1", "whole number"),
        ("log.retention.ms", "0", "", "at least 1"),
        ("log.retention.ms", "-5", "1", "-1 for no limit"),
        ("log.roll.ms", "0", "", "log.roll.ms=0: it must be at least 1"),
        ("log.roll.ms", "-1", "1", "log.roll.ms=-1: it must be at least 1"),
        ("log.roll.jitter.ms", "-1", "", "at least 0"),
        ("log.flush.interval.ms", "-1", "", "at least 0"),
        ("log.cleaner.dedupe.buffer.size", "10", "", "for each of the 1 threads"),
        ("max.connections.per.ip", "0", "", "overrides"),
        ("max.connections.per.ip.overrides", "localhost", "", "host:count"),
        ("metric.reporters", "a.b.C", "1", "could not be found"),
        ("principal.builder.class", "a.b.C", "1", "could not be found"),
        ("num.io.threads", "17", "1", "at most twice the current value 8"),
        ("num.io.threads", "3", "", "at least half the current value 8"),
    ],
)
def test_changes_that_are_refused(name: str, text: str, broker: str, meaning: str) -> None:
    with pytest.raises(KafkaError, match=meaning) as caught:
        check_broker_changes({name: text}, broker, {"num.io.threads": 8})
    assert caught.value.code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("name", "text", "broker"),
    [
        ("log.retention.ms", "-1", ""),
        ("log.cleaner.threads", "2", "1"),
        ("num.io.threads", "16", "1"),
        ("num.io.threads", "4", ""),
        ("listeners", "PLAINTEXT://:1", "1"),
        ("listener.name.x.ssl.keystore.location", "/x", "1"),
        ("listener.name.x.max.connections", "3", ""),
        ("max.connections.per.ip.overrides", "localhost:3,::1:4", ""),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter", "1"),
        ("a.plugins.own", "anything", "1"),
        ("leader.replication.throttled.rate", "1000", ""),
    ],
)
def test_changes_that_are_taken(name: str, text: str, broker: str) -> None:
    check_broker_changes({name: text}, broker, {"num.io.threads": 8})


@given(st.sampled_from(sorted(BROKER_SETTINGS)), st.text(max_size=20), st.sampled_from(["", "1"]))
def test_a_change_is_taken_or_refused_as_kafka_refuses(name: str, text: str, broker: str) -> None:
    refusal = None
    try:
        check_broker_changes({name: text}, broker)
    except KafkaError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code is ErrorCode.invalid_request
        assert refusal.message
    else:
        assert is_dynamic(name)
        assert BROKER_SETTINGS[name].update_mode is UpdateMode.CLUSTER_WIDE or broker


@given(st.sampled_from(sorted(BROKER_SETTINGS)))
def test_every_default_may_stand_in_a_file(name: str) -> None:
    default = BROKER_SETTINGS[name].default
    if default is not None:
        check_static_settings({name: default})


@pytest.mark.parametrize(
    ("name", "text", "meaning"),
    [
        ("num.partition", "3", "Unknown broker setting num.partition: did you mean num.partitions?"),
        ("completely.else", "3", "Unknown broker setting completely.else"),
        ("num.partitions", "0", "at least 1"),
        ("log.retention.hours", "0", "at least 1"),
        ("log.roll.ms", "0", "log.roll.ms=0: it must be at least 1"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "no ACLs"),
        ("log.flush.scheduler.interval.ms", "-1", "at least 0"),
        ("group.consumer.migration.policy", "sideways", "one of disabled, downgrade, upgrade, bidirectional"),
    ],
)
def test_files_that_are_refused(name: str, text: str, meaning: str) -> None:
    with pytest.raises(KafkaError) as caught:
        check_static_settings({name: text})
    assert caught.value.code is ErrorCode.invalid_config
    assert meaning in caught.value.message


def test_names_of_listeners_and_mechanisms() -> None:
    assert base_name("listener.name.x.ssl.protocol") == "ssl.protocol"
    assert base_name("listener.name.x.plain.sasl.jaas.config") == "sasl.jaas.config"
    assert base_name("num.partitions") == "num.partitions"
    assert broker_synonyms("listener.name.x.ssl.protocol") == ("listener.name.x.ssl.protocol", "ssl.protocol")
    assert broker_synonyms("log.roll.hours") == ("log.roll.ms", "log.roll.hours")
    assert broker_synonyms("log.flush.interval.ms") == (
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    )
    assert broker_setting("listener.name.x.ssl.key.password").sensitive
    assert broker_setting("nobody.knows").type is ConfigType.UNKNOWN
    assert not is_dynamic("listener.name.x.ssl.protocol")
