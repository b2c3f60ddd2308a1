"""Replication throttles: set before partitions are reassigned and taken away afterwards, as Kafka's tool does.

A rate belongs to a broker, and holds for those replicas alone that their topic's settings name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas.cli.balance.cluster_state import ClusterState, Reassignment
from barnabas.cli.balance.health import MOVES_RATE, Throttle
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.resource_configs import (
    broker_configs,
    change_broker,
    change_topic,
    topic_configs,
)

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


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
        change_topic(administration, topic, values)
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


def read_move_rates(administration: Administration, state: ClusterState) -> dict[int, str]:
    """By node: what was set for it alone of how fast replicas move between its log directories."""
    found = {
        node.node_id: broker_configs(administration, node, [MOVES_RATE], from_all=False)
        for node in state.nodes
        if node.is_alive
    }
    return {node_id: values[MOVES_RATE] for node_id, values in found.items() if MOVES_RATE in values}


def remove_throttles(administration: Administration, state: ClusterState) -> int:
    """Take every replication throttle away; how many there were."""
    settings = topic_configs(administration, {part.topic for part in state.partitions}, REPLICAS)
    throttles = read_throttles(administration, state, settings)
    nodes = {f"broker {node.node_id}": node for node in state.nodes}
    by_resource: dict[str, dict[str, None]] = {}
    for throttle in throttles:
        by_resource.setdefault(throttle.resource, {})[throttle.name] = None
    for resource, names in by_resource.items():
        if resource in nodes:
            change_broker(administration, nodes[resource], names)
        else:
            change_topic(administration, resource.removeprefix("topic "), names)
    return len(throttles)
