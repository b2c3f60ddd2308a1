"""Features as the wire shows them (kafka-features is in test_kafka_tools_cluster.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import API_VERSIONS, RawConnection

from barnabas.metadata.features import (
    GROUP_VERSION,
    METADATA_VERSION,
    RELEASE_GROUP_VERSION,
    RELEASE_LEVELS,
    RELEASE_METADATA_VERSION,
    TRANSACTION_VERSION,
)

pytestmark = pytest.mark.integration

UPDATE_FEATURES = 57
INVALID_UPDATE_VERSION = 95
UPGRADE, SAFE_DOWNGRADE = 1, 2
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}
NAMES_IN_KAFKA_4_3 = {
    "eligible.leader.replicas.version", "group.version", "kraft.version", "metadata.version", "share.version",
    "streams.version", "transaction.version",
}  # fmt: skip


@pytest.fixture
def connection(cluster: Any) -> Iterator[RawConnection]:
    with RawConnection(cluster.port) as opened:
        yield opened


def update(connection: RawConnection, name: str, level: int, kind: int = UPGRADE) -> tuple[int, str | None]:
    row = {"feature": name, "max_version_level": level, "upgrade_type": kind}
    answer = connection.ask(UPDATE_FEATURES, 2, {"timeout": 10_000, "feature_updates": [row]})
    return answer.error_code, answer.error_message


def finalized(connection: RawConnection) -> dict[str, int]:
    answer = connection.ask(API_VERSIONS, 4, SOFTWARE)
    assert answer.finalized_features_epoch > 0
    return {row.name: row.max_version_level for row in answer.finalized_features}


def test_the_names_of_a_kafka_release_at_the_levels_that_are_served(connection: RawConnection) -> None:
    rows = connection.ask(API_VERSIONS, 4, SOFTWARE).supported_features
    ranges = {row.name: (row.min_version, row.max_version) for row in rows}
    assert ranges.keys() == NAMES_IN_KAFKA_4_3
    assert ranges.pop(METADATA_VERSION) == (7, RELEASE_METADATA_VERSION)
    assert ranges.pop(GROUP_VERSION) == (0, RELEASE_GROUP_VERSION)
    assert ranges.pop(TRANSACTION_VERSION) == (0, 2)
    assert set(ranges.values()) == {(0, 0)}
    # Clients before v4 cannot read a range from 0 (KAFKA-17011).
    assert [row.name for row in connection.ask(API_VERSIONS, 3, SOFTWARE).supported_features] == [
        METADATA_VERSION
    ]
    assert finalized(connection) == RELEASE_LEVELS


def test_levels_change_only_as_far_as_they_are_served(connection: RawConnection) -> None:
    assert update(connection, METADATA_VERSION, RELEASE_METADATA_VERSION) == (0, None)
    assert update(connection, "share.version", 0, SAFE_DOWNGRADE) == (0, None)
    for name, level, kind, reason in (
        ("share.version", 1, UPGRADE, "does not support the feature"),
        ("no.such.version", 1, UPGRADE, "does not know the feature"),
        (METADATA_VERSION, RELEASE_METADATA_VERSION + 1, UPGRADE, "only supports levels 7 to 30"),
        (METADATA_VERSION, RELEASE_METADATA_VERSION - 1, SAFE_DOWNGRADE, "metadata would be lost"),
    ):
        code, message = update(connection, name, level, kind)
        assert code == INVALID_UPDATE_VERSION
        assert reason in (message or "")
    assert finalized(connection) == RELEASE_LEVELS


def test_transactions_go_down_and_up(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    with RawConnection(cluster.port) as connection:
        for level, kind in ((1, SAFE_DOWNGRADE), (0, SAFE_DOWNGRADE)):
            assert update(connection, TRANSACTION_VERSION, level, kind) == (0, None)
            assert finalized(connection).get(TRANSACTION_VERSION, 0) == level
    cluster.kill("controller")
    with RawConnection(cluster.port) as connection:
        deadline = time.monotonic() + 60
        while update(connection, TRANSACTION_VERSION, 1, SAFE_DOWNGRADE)[0] != INVALID_UPDATE_VERSION:
            assert time.monotonic() < deadline, "there is no controller that says what the level is"
            time.sleep(0.05)
        assert TRANSACTION_VERSION not in finalized(connection), "the next controller leaves what was chosen"
        assert update(connection, TRANSACTION_VERSION, 2, UPGRADE) == (0, None)
        assert finalized(connection) == RELEASE_LEVELS
