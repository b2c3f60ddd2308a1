"""Replication throttles: set before partitions are reassigned and taken away afterwards, as Kafka's tool does.

A rate belongs to a broker, and holds for those replicas alone that their topic's settings name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.cli.balance.cluster_state import ClusterState, Node, Reassignment
from barnabas.cli.balance.health import Throttle
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import broker_configs, own_configs
from barnabas.cli.kafka.requests import INCREMENTAL_ALTER_CONFIGS, check, nested
from barnabas.cli.refusal import Refused
from barnabas.kernel.errors import ErrorCode
from barnabas.kernel.kafka_values import (
    BROKER_RESOURCE,
    DELETE_CONFIG,
    SET_CONFIG,
    TOPIC_RESOURCE,
)

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

_TOPICS_A_REQUEST: Final = 200


def throttled_replicas(reassignments: Iterable[Reassignment]) -> dict[str, dict[str, str]]:
    """topic -> setting -> value: who may send slowly, and who may receive slowly, for these reassignments."""
    senders: dict[str, list[str]] = {}
    receivers: dict[str, list[str]] = {}
    for reassignment in reassignments:
        if reassignment.added:
            senders.setdefault(reassignment.topic, []).extend(
                f"{reassignment.number}:{node}" for node in reassignment.before
            )
            receivers.setdefault(reassignment.topic, []).extend(
                f"{reassignment.number}:{node}" for node in reassignment.added
            )
    return {
        topic: {LEADER_REPLICAS: ",".join(senders[topic]), FOLLOWER_REPLICAS: ",".join(receivers[topic])}
        for topic in senders
    }


def set_throttles(
    administration: Administration,
    state: ClusterState,
    reassignments: Sequence[Reassignment],
    bytes_per_second: int,
) -> None:
    """Hold these reassignments to so many bytes a second for each broker, in and out."""
    involved = {
        node
        for reassignment in reassignments
        if reassignment.added
        for node in (*reassignment.before, *reassignment.after)
    }
    for topic, values in throttled_replicas(reassignments).items():
        change_configs(administration, TOPIC_RESOURCE, topic, values)
    for node in state.nodes:
        if node.node_id in involved and node.is_alive:
            change_broker(administration, node, dict.fromkeys(RATES, str(bytes_per_second)))


def read_throttles(
    administration: Administration, state: ClusterState, topics: Mapping[str, Mapping[str, str]]
) -> list[Throttle]:
    """What throttles are set; `topics` has the settings of topics.

    A rate that all brokers have, from their files or as their default, is how the cluster was set up, and stays.
    """
    found = [
        Throttle(f"topic {topic}", name, values[name])
        for topic, values in sorted(topics.items())
        for name in REPLICAS
        if values.get(name)
    ]
    for node in state.nodes:
        if node.is_alive:
            values = broker_configs(administration, node, RATES, from_all=False)
            found += [
                Throttle(f"broker {node.node_id}", name, values[name]) for name in RATES if name in values
            ]
    return found


def topic_settings(
    administration: Administration, topics: Iterable[str], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """topic -> setting -> its value, for each of `names`; topics that are gone are left out."""
    ordered = sorted(set(topics))
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(ordered), _TOPICS_A_REQUEST):
        portion = ordered[start : start + _TOPICS_A_REQUEST]
        found |= own_configs(administration, TOPIC_RESOURCE, portion, names)
    return found


def remove_throttles(administration: Administration, state: ClusterState) -> int:
    """Take every replication throttle away; how many there were."""
    settings = topic_settings(administration, {part.topic for part in state.partitions}, REPLICAS)
    throttles = read_throttles(administration, state, settings)
    nodes = {f"broker {node.node_id}": node for node in state.nodes}
    by_resource: dict[str, dict[str, None]] = {}
    for throttle in throttles:
        by_resource.setdefault(throttle.resource, {})[throttle.name] = None
    for resource, names in by_resource.items():
        if resource in nodes:
            change_broker(administration, nodes[resource], names)
        else:
            _forgive_missing(administration, resource.removeprefix("topic "), names)
    return len(throttles)


def change_broker(administration: Administration, node: Node, values: Mapping[str, str | None]) -> None:
    """Set a broker's own settings, or unset those with None: asked at the broker itself, as Kafka wants it."""
    change_configs(administration, BROKER_RESOURCE, str(node.node_id), values, node)


def change_configs(
    administration: Administration,
    resource_type: int,
    name: str,
    values: Mapping[str, str | None],
    node: Node | None = None,
) -> None:
    """Set what has a value, unset what has None. Raises Refused."""
    result = _altered(administration, resource_type, name, values, node)
    check(result.error_code, f"cannot alter the configs of {name}", result.error_message)


def _forgive_missing(administration: Administration, topic: str, values: Mapping[str, str | None]) -> None:
    """As `change_configs`, but for a topic that was deleted meanwhile."""
    result = _altered(administration, TOPIC_RESOURCE, topic, values, None)
    if result.error_code != ErrorCode.unknown_topic_or_partition:
        check(result.error_code, f"cannot alter the configs of {topic}", result.error_message)


def _altered(
    administration: Administration,
    resource_type: int,
    name: str,
    values: Mapping[str, str | None],
    node: Node | None,
) -> Any:
    def make(schema: Any) -> Any:
        resource = nested(schema, "resources")
        entry = nested(resource, "configs")
        entries = tuple(
            entry(name=key, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value)
            for key, value in values.items()
        )
        changed = resource(resource_type=resource_type, resource_name=name, configs=entries)
        return schema(resources=(changed,), validate_only=False)

    if node is not None and node.is_alive and node.host is not None and node.port is not None:
        answer = administration.ask_broker((node.host, node.port), INCREMENTAL_ALTER_CONFIGS, 1, make)
    else:
        answer = administration.ask(INCREMENTAL_ALTER_CONFIGS, 1, make)
    if not answer.responses:
        raise Refused(f"cannot alter the configs of {name}: the broker did not say whether it did")
    return answer.responses[0]
