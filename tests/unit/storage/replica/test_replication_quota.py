"""The rate of throttled replication, measured as Kafka does it, and whose bound counts."""

from __future__ import annotations

import math
import random

import pytest

from barnabas.kernel.kafka_values import BROKER_RESOURCE
from barnabas.messages.metadata_pb2 import ConfigRecord, MetadataRecord
from barnabas.metadata.broker_settings import BROKER_SETTINGS
from barnabas.metadata.config_def import ConfigDef
from barnabas.metadata.image import MetadataImage, config_key
from barnabas.metadata.validators import ConfigValue
from barnabas.storage.replica.replication_quota import ReplicationQuota, ReplicationQuotas

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


def quota(bound: float = math.inf) -> ReplicationQuota:
    made = ReplicationQuota(11, 1000)
    made.bound = bound
    return made


def test_the_rate_is_over_the_time_since_the_oldest_sample_and_at_least_a_window() -> None:
    measured = quota()
    assert measured.rate(5_000) == 0
    measured.record(500, 5_000)
    assert [measured.rate(now) for now in (5_000, 5_999, 6_000, 7_000, 15_000)] == [500, 500, 500, 250, 50]
    measured.record(1_500, 7_000)
    assert measured.rate(9_000) == 500
    assert measured.rate(16_000) == 1_500 / 9, "the first sample is forgotten 11 s after its last record"
    assert measured.rate(18_000) == 0


def test_what_is_recorded_in_one_window_is_one_sample() -> None:
    measured = quota()
    for now in (0, 400, 999):
        measured.record(10, now)
    assert measured.rate(11_500) == 30 / 11.5, "its last record was at 999"
    assert measured.rate(11_999) == 0


def test_more_than_the_bound_is_waited_for() -> None:
    measured = quota(100)
    measured.record(100, 0)
    assert measured.seconds_exceeded(0) == 0
    measured.record(1, 500)
    assert measured.seconds_exceeded(500) == pytest.approx(0.51)
    assert measured.seconds_exceeded(1_010) == 0
    measured.record(5_000, 1_010)
    # All of it would be made up for after 51 s; by then Kafka has long forgotten it.
    assert measured.seconds_exceeded(1_010) == pytest.approx(10.49)
    assert measured.seconds_exceeded(12_010) == 0


def test_a_bound_of_nothing_lets_nothing_more_pass() -> None:
    measured = quota(0)
    assert measured.seconds_exceeded(0) == 0
    measured.record(1, 0)
    assert measured.seconds_exceeded(5_000) == 6
    assert quota().seconds_exceeded(0) == 0


@pytest.mark.parametrize("seed", range(5))
def test_who_waits_as_long_as_it_says_stays_within_the_bound(seed: int) -> None:
    chance = random.Random(seed)
    bound = chance.choice([1_000, 50_000, 7_777])
    measured, now, taken = quota(bound), 0.0, 0
    for _ in range(500):
        while wait := measured.seconds_exceeded(now):
            now += wait * 1000 + 0.001
        size = chance.randint(1, bound)
        measured.record(size, now)
        taken += size
        now += chance.choice([0, 1, 50])
    assert taken <= bound * (now / 1000 + 2)
    assert taken > bound * now / 1000 * 0.8


# -- whose bound counts -------------------------------------------------------------------------------------------


def of_file(name: str) -> ConfigValue:
    definition: ConfigDef = BROKER_SETTINGS[name]
    return definition.default_value()


def image_of(**resources: dict[str, str]) -> MetadataImage:
    records = [
        MetadataRecord(
            key=config_key(BROKER_RESOURCE, resource.removeprefix("of").lstrip("_")),
            config=ConfigRecord(values=values),
        )
        for resource, values in resources.items()
    ]
    return MetadataImage().apply(records, 1)


def test_a_brokers_own_rate_counts_before_that_of_all() -> None:
    quotas = ReplicationQuotas(of_file)
    assert (quotas.leader.bound, quotas.follower.bound) == (math.inf, math.inf)
    quotas.follow(image_of(of={LEADER_RATE: "7"}, of_2={LEADER_RATE: "8", FOLLOWER_RATE: "9"}), 1)
    assert (quotas.leader.bound, quotas.follower.bound) == (7, math.inf)
    quotas.follow(image_of(of={LEADER_RATE: "7"}, of_1={LEADER_RATE: "8", FOLLOWER_RATE: "0"}), 1)
    assert (quotas.leader.bound, quotas.follower.bound) == (8, 0)
    quotas.follow(image_of(of_1={LEADER_RATE: "fast", FOLLOWER_RATE: "3"}), 1)
    assert (quotas.leader.bound, quotas.follower.bound) == (8, 3), "what is no rate changes nothing"
    quotas.follow(image_of(of={LEADER_RATE: str(2**63 - 1)}), 1)
    assert (quotas.leader.bound, quotas.follower.bound) == (math.inf, math.inf)
