"""Client quotas through kafka-configs, as an administrator keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_tools import Output, ToolsInOneJvm
from raw_client import RawConnection

pytestmark = pytest.mark.integration

DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49
NAME = "client ü=/1"
"""A name with all that could upset a key."""

Entity = tuple[tuple[str, str | None], ...]


@pytest.fixture
def connection(cluster: Any) -> Iterator[RawConnection]:
    with RawConnection(cluster.port) as opened:
        yield opened


def test_the_tool_sets_describes_and_deletes(cluster: Any) -> None:
    """What test_kafka_tools_cluster.py leaves: odd names, users among whom nobody has SCRAM credentials, no address."""
    with ToolsInOneJvm(cluster.bootstrap) as tools:

        def configs(*arguments: str, status: int = 0) -> Output:
            return tools("configs", *arguments, status=status)

        user = ("--entity-type", "users", "--entity-name", "quota-user")
        app = ("--entity-type", "clients", "--entity-name", NAME)
        configs("--alter", *user, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
        configs("--alter", *user, *app, "--add-config", "consumer_byte_rate=2048")
        assert configs("--describe", *user, *app).lines == [
            f"Quota configs for user-principal 'quota-user', client-id '{NAME}' are consumer_byte_rate=2048.0"
        ]
        configs("--alter", *user, "--delete-config", "producer_byte_rate")
        of_user = "Quota configs for user-principal 'quota-user' are request_percentage=12.5"
        assert of_user in configs("--describe", "--entity-type", "users").lines
        rate = ("--add-config", "connection_creation_rate=1")
        refused = configs("--alter", "--ip", "no such host!", *rate, status=1)
        assert "no such host!" in refused.stdout + refused.stderr


def alter(connection: RawConnection, entity: Entity, **quotas: float | None) -> int:
    """None removes a quota."""
    operations = [
        {"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()
    ]
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": operations,
    }
    answer = connection.ask(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})
    return int(answer.entries[0].error_code)


def described(connection: RawConnection) -> dict[Entity, dict[str, float]]:
    answer = connection.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


@pytest.mark.parametrize(
    ("entity", "quota"),
    [
        ((("user", "bob"),), "producer_byte_rate"),
        ((("user", None),), "consumer_byte_rate"),
        ((("client-id", NAME), ("user", "bob")), "request_percentage"),
        ((("client-id", None), ("user", None)), "controller_mutation_rate"),
        ((("client-id", "c"),), "producer_byte_rate"),
        ((("ip", "10.9.8.7"),), "connection_creation_rate"),
        ((("ip", None),), "connection_creation_rate"),
    ],
)
def test_what_was_set_is_seen_at_once(connection: RawConnection, entity: Entity, quota: str) -> None:
    for value in (5.0, 6.0):
        assert alter(connection, entity, **{quota: value}) == 0
        assert described(connection)[entity] == {quota: value}
    assert alter(connection, entity, **{quota: None}) == 0
    assert entity not in described(connection)
