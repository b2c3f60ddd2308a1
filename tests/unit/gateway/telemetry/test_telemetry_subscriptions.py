"""Which client-metrics resources a client matches, and the one assignment that they make."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.gateway.telemetry.subscriptions import (
    PUSH_INTERVAL_MS_DEFAULT,
    Assignment,
    assign,
    instance_text,
    parse_subscriptions,
)

CLIENT_METRICS = 16
INSTANCE = bytes(range(16))
ATTRIBUTES = {"client_id": "app-7", "client_software_name": "librdkafka", "client_source_address": "10.1.2.3"}


def assigned(*resources: dict[str, str], instance: bytes = INSTANCE) -> Assignment:
    configs = {(CLIENT_METRICS, f"r{number}"): settings for number, settings in enumerate(resources)}
    configs[2, "a-topic"] = {"metrics": "not.a.subscription"}
    return assign(parse_subscriptions(configs), instance, ATTRIBUTES)


def test_without_resources_nothing_is_asked_for() -> None:
    assignment = assigned()
    assert (assignment.metrics, assignment.push_interval_ms) == ((), PUSH_INTERVAL_MS_DEFAULT)


def test_a_resource_without_a_pattern_matches_everyone() -> None:
    assignment = assigned({"metrics": "org.a, org.b", "interval.ms": "1000"})
    assert (assignment.metrics, assignment.push_interval_ms) == (("org.a", "org.b"), 1000)


def test_all_patterns_must_match_the_whole_attribute() -> None:
    def matches(pattern: str) -> bool:
        return bool(assigned({"metrics": "m", "match": pattern}).metrics)

    assert matches("client_id=app-.*")
    assert matches("client_id=app-.*, client_software_name=librdkafka")
    assert matches("client_source_address=10\\..*")
    assert not matches("client_id=app"), "half a name is not enough"
    assert not matches("client_id=app-.*,client_software_name=java")
    assert not matches("client_software_version=.*"), "an attribute that is not known matches nothing"


def test_resources_are_joined() -> None:
    assignment = assigned(
        {"metrics": "org.b,org.a", "interval.ms": "9000"},
        {"metrics": "org.a,org.c", "interval.ms": "2000", "match": "client_id=app-7"},
        {"metrics": "org.d", "interval.ms": "100", "match": "client_id=other"},
    )
    assert (assignment.metrics, assignment.push_interval_ms) == (("org.a", "org.b", "org.c"), 2000)


def test_everything_is_everything() -> None:
    assert assigned({"metrics": "org.a"}, {"metrics": "*"}).metrics == ("*",)


def test_what_cannot_be_read_is_left_out() -> None:
    broken = [{"metrics": "m", "match": "client_id=("}, {"metrics": "m", "match": "client_id"}]
    assert assigned(*broken, {"metrics": "m", "interval.ms": "soon"}).metrics == ()


@given(st.permutations([{"metrics": "a"}, {"metrics": "b,c"}, {"metrics": "c,a", "interval.ms": "500"}]))
def test_the_subscription_id_is_the_same_everywhere(resources: list[dict[str, str]]) -> None:
    same = assigned({"metrics": "a,b,c", "interval.ms": "500"})
    assert assigned(*resources) == same
    assert -(2**31) <= same.subscription_id < 2**31


def test_the_subscription_id_tells_subscriptions_and_instances_apart() -> None:
    ids = {
        assigned({"metrics": "a"}).subscription_id,
        assigned({"metrics": "b"}).subscription_id,
        assigned({"metrics": "a", "interval.ms": "500"}).subscription_id,
        assigned({"metrics": "a"}, instance=bytes(16)).subscription_id,
    }
    assert len(ids) == 4


def test_an_instance_id_is_written_as_kafka_writes_ids() -> None:
    assert instance_text(INSTANCE) == "AAECAwQFBgcICQoLDA0ODw"
