"""Replication throttles: which replicas they name, which are set, and taking all of them away.

A rate belongs to a broker, and holds for those replicas alone that their topic's settings name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from barnabas.cli.balance.cluster_state import ClusterState, Node, Reassignment
from barnabas.cli.balance.health import MOVES_RATE, Throttle
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.config_values import (
    change_broker,
    change_topic,
    own_broker_values,
    topic_values,
)
from barnabas.cli.refusal import Refused

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
    rates = _own_settings(administration, state, RATES)
    found += [
        Throttle(f"broker {node_id}", name, values[name])
        for node_id, values in rates.items()
        for name in RATES
        if name in values
    ]
    return found


def read_move_rates(administration: Administration, state: ClusterState) -> dict[int, str]:
    """By node: what was set for it alone of how fast replicas move between its log directories."""
    found = _own_settings(administration, state, [MOVES_RATE])
    return {node_id: values[MOVES_RATE] for node_id, values in found.items() if MOVES_RATE in values}


def _own_settings(
    administration: Administration, state: ClusterState, names: Sequence[str]
) -> dict[int, dict[str, str]]:
    """By node: which of these settings were set for it alone; none where it does not say."""

    def ask(node: Node) -> dict[str, str]:
        try:
            return own_broker_values(administration, node, names)
        except Refused:
            return {}

    return administration.ask_each(state.nodes, ask)


def remove_throttles(administration: Administration, state: ClusterState) -> int:
    """Take every replication throttle away; how many there were."""
    settings = topic_values(administration, {part.topic for part in state.partitions}, REPLICAS)
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
