"""A search for transactions that are open for too long, over all partitions or some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.cli.balance.cluster_state import Node, Partition, Place
from barnabas.cli.balance.late_transactions import (
    LateTransaction,
    Producer,
    Transaction,
    judged,
    late,
    overdue,
    still_open,
)
from barnabas.cli.kafka.administration import Administration
from barnabas.cli.kafka.partition_leaders import Brokers
from barnabas.cli.kafka.plain_connection import Unanswered
from barnabas.cli.kafka.transactions import (
    Filters,
    describe_producers,
    describe_transactions,
    held_back,
    list_transactions,
)
from barnabas.cli.refusal import Refused


@dataclass(slots=True)
class Search:
    """What was found, and the partitions that nobody answered for."""

    found: list[LateTransaction] = field(default_factory=list)
    unseen: list[Place] = field(default_factory=list)


def find_late(
    administration: Administration,
    brokers: Brokers,
    partitions: Iterable[Partition],
    silent_since_ms: int,
    at: Node | None = None,
) -> Search:
    """Transactions whose producers have written nothing since then, in the words of leaders, or of the broker `at`.

    Leaders are asked for the producers of those partitions alone in which a transaction hides records. Who is found
    is asked for again once coordinators have answered, as the transaction may have ended meanwhile.
    """
    search = Search()
    asked: dict[int, list[Place]] = {}
    for partition in partitions:
        node = at or brokers.leader_of(partition)
        if node is None:
            search.unseen.append(partition.place)
        else:
            asked.setdefault(node.node_id, []).append(partition.place)
    producers = _producers(administration, brokers, asked, search, is_for_all=at is not None)
    suspects = list(late(producers, silent_since_ms))
    if suspects:
        known = known_transactions(administration, brokers, {each.producer_id for each in suspects})
        places = {each.place for each in suspects}
        left = {node_id: [place for place in some if place in places] for node_id, some in asked.items()}
        now = _producers(administration, brokers, left, search, is_for_all=True)
        search.found = still_open(overdue(judged(suspects, known), silent_since_ms), now)
    search.unseen = sorted(set(search.unseen))
    return search


def known_transactions(
    administration: Administration, brokers: Brokers, producer_ids: Collection[int]
) -> dict[int, Transaction]:
    """What coordinators know of the transactional ids of these producers, by producer id. Raises Refused without it."""
    listed, silent = list_transactions(
        administration, brokers.alive, Filters(producer_ids=sorted(producer_ids))
    )
    if silent:
        raise Refused(
            f"node {', '.join(map(str, silent))} gave no answer, and may coordinate what was found: "
            "try again once it does; `barnabas nodes list` shows where it is"
        )
    known = describe_transactions(administration, [each.transactional_id for each in listed])
    return {each.producer_id: each for each in known.values()}


def _producers(
    administration: Administration,
    brokers: Brokers,
    asked: Mapping[int, Sequence[Place]],
    search: Search,
    *,
    is_for_all: bool,
) -> list[Producer]:
    def ask(node: Node) -> tuple[list[Producer], list[Place]]:
        assert node.address is not None
        places = asked[node.node_id]
        try:
            held = places if is_for_all else held_back(administration, node.address, places)
            producers, failed = describe_producers(administration, node.address, held)
        except Unanswered:
            return [], list(places)
        return producers, list(failed)

    answers = administration.ask_each(
        [node for node in brokers.nodes if asked.get(node.node_id)], ask
    ).values()
    search.unseen += (place for _, unseen in answers for place in unseen)
    return [producer for producers, _ in answers for producer in producers]
