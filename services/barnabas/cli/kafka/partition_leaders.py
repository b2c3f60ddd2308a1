"""Which broker is asked about a partition, and which ones about what they coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.cli.balance.cluster_state import NO_LEADER, Node, Partition, Place
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.cluster_reading import read_nodes, read_partitions
from barnabas.cli.refusal import Refused


@dataclass(frozen=True, slots=True)
class Brokers:
    """Who is asked about what."""

    nodes: Sequence[Node]
    is_shown_as_one: bool = False
    """Clients see one broker for all nodes, which answers for all of them."""

    @property
    def alive(self) -> Sequence[Node]:
        """Those that are asked for what they coordinate."""
        known = [node for node in self.nodes if node.address is not None]
        return known[:1] if self.is_shown_as_one else known

    def leader_of(self, partition: Partition) -> Node | None:
        """Who is asked about a partition; None where nobody leads it."""
        if partition.leader == NO_LEADER:
            return None
        if self.is_shown_as_one:
            return next(iter(self.alive), None)
        return next((node for node in self.alive if node.node_id == partition.leader), None)


def read_brokers(administration: Administration) -> Brokers:
    nodes, is_shown_as_one = read_nodes(administration)
    return Brokers(nodes, is_shown_as_one)


def find_leader(administration: Administration, brokers: Brokers, place: Place) -> Node:
    """Who leads a partition now. Raises Refused where it is not there, or nobody does."""
    partitions = {each.place: each for each in read_partitions(administration, [place[0]])}
    if not partitions:
        raise no_topic(place[0])
    if place not in partitions:
        raise no_partition(place)
    leader = brokers.leader_of(partitions[place])
    if leader is None:
        raise Refused(f"nobody leads {place[0]}-{place[1]}: `barnabas doctor` says who is away")
    return leader


def no_topic(topic: str) -> Refused:
    return Refused(f"no topic {topic}: `barnabas topics --list` shows what there is")


def no_partition(place: Place) -> Refused:
    return Refused(
        f"topic {place[0]} has no partition {place[1]}: `barnabas topics --describe --topic {place[0]}` shows "
        "what there is"
    )
