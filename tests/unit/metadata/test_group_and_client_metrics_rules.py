"""The rules of groups' settings and of subscriptions to clients' metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.kernel.errors import ErrorCode, KafkaError
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.client_metrics_settings import parse_match, validate_client_metrics_settings
from barnabas.metadata.group_settings import GROUP_SETTINGS, bounds_of, validate_group_settings
from barnabas.metadata.validators import ConfigValue


def default_of(name: str) -> ConfigValue:
    return BROKER_SETTINGS[name].default_value()


@pytest.mark.parametrize(
    ("name", "text", "meaning"),
    [
        ("consumer.session.timeout.ms", "44999", "group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
        ("consumer.assignment.interval.ms", "15001", "group.consumer.max.assignment.interval.ms"),
        ("share.record.lock.duration.ms", "14999", "group.share.min.record.lock.duration.ms"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("share.partition.max.record.locks", "99", "at least 100"),
        ("share.auto.offset.reset", "by_duration:-PT1H", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:P", "by_duration:PT1H"),
        ("share.auto.offset.reset", "EARLIEST", "earliest"),
        ("share.isolation.level", "READ_COMMITTED", "read_committed"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas"),
        ("streams.session.timeout.ms", "x", "whole number"),
        ("nope", "1", "Unknown group config name: nope"),
    ],
)
def test_group_settings_that_are_refused(name: str, text: str, meaning: str) -> None:
    with pytest.raises(KafkaError, match=meaning) as caught:
        validate_group_settings({name: text}, default_of)
    assert caught.value.code is ErrorCode.invalid_config


def test_group_settings_that_are_taken() -> None:
    validate_group_settings(
        {
            "consumer.session.timeout.ms": "45000",
            "consumer.heartbeat.interval.ms": "15000",
            "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
            "share.renew.acknowledge.enable": "false",
            "streams.num.standby.replicas": "2",
            "streams.initial.rebalance.delay.ms": "1000000",
        },
        default_of,
    )


def test_a_session_outlasts_its_heartbeats() -> None:
    brokers: dict[str, ConfigValue] = {
        "group.consumer.min.session.timeout.ms": 10,
        "group.consumer.min.heartbeat.interval.ms": 10,
    }
    with pytest.raises(KafkaError, match="must be greater than consumer"):
        validate_group_settings(
            {"consumer.session.timeout.ms": "100", "consumer.heartbeat.interval.ms": "100"},
            lambda name: brokers[name] if name in brokers else default_of(name),
        )


@given(st.sampled_from(sorted(GROUP_SETTINGS)), st.integers(-10, 100_000))
def test_bounds_decide(name: str, number: int) -> None:
    low, high = bounds_of(name)
    refusal = None
    try:
        validate_group_settings({name: str(number)}, default_of)
    except KafkaError as error:
        refusal = error
    if refusal is not None:
        assert refusal.code is ErrorCode.invalid_config
        assert name in refusal.message
        return
    GROUP_SETTINGS[name].parse(str(number))
    for bound, sign in ((low, 1), (high, -1)):
        if bound:
            value = default_of(bound)
            assert isinstance(value, int)
            assert (number - value) * sign >= 0


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("interval.ms", "99", ErrorCode.invalid_request),
        ("interval.ms", "3600001", ErrorCode.invalid_request),
        ("interval.ms", "x", ErrorCode.invalid_config),
        ("match", "client_id=[", ErrorCode.invalid_config),
        ("match", "client_id", ErrorCode.invalid_config),
        ("match", "client_id=", ErrorCode.invalid_config),
        ("match", "client_id=a=b", ErrorCode.invalid_config),
        ("match", "colour=blue", ErrorCode.invalid_config),
        ("nope", "1", ErrorCode.invalid_request),
    ],
)
def test_subscriptions_that_are_refused(name: str, text: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_client_metrics_settings({name: text})
    assert caught.value.code is code


def test_subscriptions_that_are_taken() -> None:
    validate_client_metrics_settings({"interval.ms": "100", "metrics": "", "match": ""})
    validate_client_metrics_settings({"interval.ms": "3600000", "metrics": "*", "match": "client_id=a.*"})
    patterns = parse_match(["client_id = app-.* ", "client_source_port=9092", "client_id=b"])
    assert patterns["client_id"].fullmatch("b")
    assert patterns["client_source_port"].fullmatch("9092")


def test_a_pattern_takes_no_longer_than_its_text() -> None:
    """Any of these would keep a matcher that goes back busy for longer than the world is old."""
    for text in ("(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*b", "(a?){60}b"):
        pattern = parse_match([f"client_id={text}"])["client_id"]
        assert not pattern.fullmatch("a" * 32_000)
        assert pattern.fullmatch("a" * 60 + "b")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?!a)b", "invalid perl operator: (?!"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a++", "bad repetition operator: ++"),
        ("(", "missing ): ("),
        ("((a{30}){30}){30}", "invalid repetition size"),
        ("x" * 100_000, "pattern too large"),
    ],
)
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_client_metrics_settings({"match": f"client_id={pattern}"})
    assert refused.value.code is ErrorCode.invalid_config
    assert why in refused.value.message


@given(st.lists(st.text(max_size=12), max_size=3))
def test_any_match_is_patterns_or_a_clear_refusal(entries: list[str]) -> None:
    refusal = None
    try:
        parse_match(entries)
    except KafkaError as error:
        refusal = error
    assert refusal is None or "Illegal client matching pattern" in refusal.message
